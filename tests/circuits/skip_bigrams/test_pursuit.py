"""Pursuit: strengths against another least squares, t given others against fits without each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.skip_bigrams.form import Form
from interp_toolkit.circuits.skip_bigrams.pursuit import pursue
from interp_toolkit.circuits.skip_bigrams.scores import Features


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
        query, key = (head.features[side[i]] for side in pursuit.pairs)
        scale = max(
            np.linalg.norm(query @ rest) * float(pursuit.after.row.widened[pursuit.pairs.query[i]]),
            np.linalg.norm(rest @ key) * float(pursuit.after.column.widened[pursuit.pairs.key[i]]),
        )
        assert pursuit.t[i] == pytest.approx(query @ rest @ key * np.sqrt(32) / scale, rel=1e-4)


def test_signs_are_told_apart(found) -> None:
    head, pursuit = found
    order = {pair: i for i, pair in enumerate(sorted(head.bigrams))}
    for q, k, t in zip(*(side.tolist() for side in pursuit.pairs), pursuit.t, strict=True):
        if (q, k) in order:
            assert (t > 0) == (order[q, k] % 4 > 0)
