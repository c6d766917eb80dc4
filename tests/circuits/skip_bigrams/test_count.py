"""When a number is given: pursuits that found all, half, or barely anything, and unequal ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.pursuit import count, pursue
from interp_toolkit.circuits.skip_bigrams.scores import Features, Form, Pairs, PairScores, t_at

D, R, N, M, LEVEL = 64, 16, 64, 256, 0.05


@pytest.fixture(scope="module")
def planted_form(planted):
    head = planted(D, R, N, seed=1)
    features = Features(*(torch.from_numpy(head.features),) * 2, D)
    return head, Form(torch.from_numpy(head.W_Q), torch.from_numpy(head.W_K)), features


@pytest.fixture(scope="module")
def found(planted_form):
    _, form, features = planted_form
    return pursue(
        form,
        features,
        level=LEVEL,
        capacity=D * R,
        seed=0,
        memory=2**28,
        progress=lambda step: None,
    )


def number(found):
    return count(found, M**2, R, LEVEL)


def test_a_pursuit_that_found_all_gets_a_number(found) -> None:
    given = number(found)
    assert given.low <= N <= given.high
    assert not given.note


def test_half_of_the_bigrams_get_no_number(planted_form, found) -> None:
    """What is left out lies just below, or beyond, significance."""
    _, form, features = planted_form
    half = slice(0, len(found.t) // 2)
    pairs = Pairs(found.pairs.query[half], found.pairs.key[half])
    strength = found.strength[half]
    rest = form.less(
        features.query[pairs.query], features.key[pairs.key], torch.from_numpy(strength)
    )
    after = PairScores(rest, features, found.before.floor, 0, 2**28)
    part = dataclasses.replace(
        found, pairs=pairs, strength=strength, t=found.t[half], rest=form, after=after
    )
    given = number(part)
    assert given.estimate is None
    assert "just below significance" in given.note


def test_bigrams_at_the_threshold_get_no_number(found) -> None:
    threshold = t_at(LEVEL * len(found.t) / M**2, float(D))
    given = number(dataclasses.replace(found, t=np.full(len(found.t), threshold + 0.5)))
    assert "barely significant" in given.note
    given = number(dataclasses.replace(found, t=np.full(len(found.t), threshold + 1.5)))
    assert given.estimate is not None


@pytest.mark.parametrize(
    "strength",
    [
        np.exp(np.random.default_rng(0).standard_normal(40)),
        np.where(np.arange(40) % 2, 0.3, 1.0),
        np.where(np.arange(40) % 5, 1.0, 0.4),
        np.where(np.arange(40) % 2, 0.58, 1.0),
    ],
)
def test_unequal_strengths_get_no_number(strength) -> None:
    rng = np.random.default_rng(2)
    features = rng.standard_normal((M, D))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    query, key = rng.permutation(M)[:40], rng.permutation(M)[:40]
    equal = skip_bigrams_of(features[query].T @ features[key], features)
    assert equal.interval[0] <= 40 <= equal.interval[1]
    found = skip_bigrams_of((features[query].T * strength) @ features[key], features)
    assert found.estimated_count is None
    assert "differ in strength" in found.count_note
