"""Pursuit: strengths against another least squares, t given others against fits without each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.skip_bigrams.directions import projected, side
from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.pursuit import _backward, _echo, _fitted, pursue
from interp_toolkit.circuits.skip_bigrams.scores import Features, Form, Pairs, PairScores


@pytest.fixture(scope="module")
def found(planted):
    head = planted(32, 12, 24, signs=True)
    form = Form(torch.from_numpy(head.W_Q), torch.from_numpy(head.W_K))
    features = Features(*(torch.from_numpy(head.features),) * 2, 32)
    pursuit = pursue(
        form,
        features,
        level=0.05,
        capacity=32 * 12,
        seed=0,
        memory=2**28,
        progress=lambda step: None,
    )
    return head, pursuit


def atoms(head, pairs) -> np.ndarray:
    products = head.features[pairs.query][:, :, None] * head.features[pairs.key][:, None]
    return products.reshape(len(pairs.query), -1).T


def test_strengths_are_least_squares(found) -> None:
    head, pursuit = found
    assert len(pursuit.pairs.query) > 15
    W = (head.W_Q @ head.W_K.T).ravel()
    expected = np.linalg.lstsq(atoms(head, pursuit.pairs), W, rcond=None)[0]
    assert pursuit.strength == pytest.approx(expected, abs=1e-6)


def test_t_given_others_is_that_of_a_fit_without(found) -> None:
    head, pursuit = found
    W, columns = head.W_Q @ head.W_K.T, atoms(head, pursuit.pairs)
    for i in range(0, len(pursuit.t), 5):
        others = np.delete(columns, i, axis=1)
        rest = W.ravel() - others @ np.linalg.lstsq(others, W.ravel(), rcond=None)[0]
        rest = rest.reshape(32, 32)
        query, key = (head.features[numbers[i]] for numbers in pursuit.pairs)
        scale = max(
            np.linalg.norm(query @ rest) * float(pursuit.after.row.widened[pursuit.pairs.query[i]]),
            np.linalg.norm(rest @ key) * float(pursuit.after.column.widened[pursuit.pairs.key[i]]),
        )
        assert pursuit.t[i] == pytest.approx(query @ rest @ key * np.sqrt(32) / scale, rel=1e-4)


def test_signs_are_told_apart(found) -> None:
    head, pursuit = found
    order = {pair: i for i, pair in enumerate(sorted(head.bigrams))}
    for q, k, t in zip(*(numbers.tolist() for numbers in pursuit.pairs), pursuit.t, strict=True):
        if (q, k) in order:
            assert (t > 0) == (order[q, k] % 4 > 0)


def test_what_remains_between_found_features_is_as_wide_as_medians_say(planted) -> None:
    """A head of few ranks: what remains varies more between features that are in a bigram each."""
    head = planted(128, 8, 96, seed=0, m=256)
    W = torch.from_numpy(head.W_Q), torch.from_numpy(head.W_K)
    features = Features(*(torch.from_numpy(head.features),) * 2, 128)
    pairs = Pairs(*np.array(sorted(head.bigrams)).T)
    rest, _ = _fitted(Form(*W), features, pairs)
    scores = PairScores(rest, features, 1e-9, 0, 2**28)
    t = scores.block(slice(None), slice(None)).numpy()
    inside = t.copy()
    inside[pairs] = 0
    inside = inside[np.ix_(np.unique(pairs.query), np.unique(pairs.key))]
    ratios = [
        np.median(sign * inside[sign * inside > 0]) / np.median(sign * t[sign * t > 0])
        for sign in (1, -1)
    ]
    assert min(ratios) > 1.2
    assert _echo(scores, pairs) == pytest.approx(min(ratios), rel=1e-5)


def test_a_row_that_spreads_more_among_found_features_makes_no_echo(planted) -> None:
    head = planted(128, 32, 512, seed=0)
    found = skip_bigrams_of((head.W_Q, head.W_K), head.features)
    pairs = {(int(b.query_feature[1:]), int(b.key_feature[1:])) for b in found.bigrams}
    assert len(pairs & head.bigrams) >= 0.9 * 512
    assert len(pairs - head.bigrams) <= 0.05 * len(pairs)


def test_a_pair_that_others_explain_is_dropped(planted) -> None:
    """A pair near two bigrams at once is taken first, and is nothing once both are there."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((200, 64))
    features[2], features[3] = features[0] + features[1], features[4] + features[5]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    first, second = (np.outer(features[q], features[k]) for q, k in ((0, 4), (1, 5)))
    form = Form(torch.from_numpy(first + second), torch.eye(64, dtype=torch.float64))
    sides = Features(*(torch.from_numpy(features),) * 2, 64)
    taken = Pairs(np.array([2, 0, 1]), np.array([3, 4, 5]))
    rest, _ = _fitted(form, sides, taken)
    kept, t = _backward(form, sides, taken, PairScores(rest, sides, 1e-6, 0, 2**28), 0.05)
    assert list(zip(*(numbers.tolist() for numbers in kept), strict=True)) == [(0, 4), (1, 5)]
    assert (t > 5).all()


def test_p_values_of_clustered_features_are_the_normals() -> None:
    rng = np.random.default_rng(0)
    features = np.repeat(rng.standard_normal((12, 40)), 20, axis=0)
    features += 0.5 * rng.standard_normal((240, 40))
    W = features[:30:3].T @ features[200:230:3]
    rows = torch.nn.functional.normalize(torch.from_numpy(features), dim=1)
    one = side(rows, 40)
    sides = Features(one.scored, one.scored, one.d)
    assert not sides.alike
    found = skip_bigrams_of(W, features)
    assert found.tail == "empirical"
    assert found.bigrams
    form = projected(Form(torch.from_numpy(W), torch.eye(40, dtype=torch.float64)), one, one)
    pursuit = pursue(
        form,
        sides,
        level=0.05,
        capacity=40**2,
        seed=0,
        memory=2**30,
        progress=lambda step: None,
    )
    z = [abs(b.z) for b in found.bigrams]
    assert z == pytest.approx(sorted(np.abs(pursuit.t), reverse=True), rel=1e-6)
