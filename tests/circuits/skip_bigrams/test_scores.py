"""Scores in tiles against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.skip_bigrams.scores import (
    CELLS,
    NONE,
    REACH,
    Features,
    Form,
    Pairs,
    PairScores,
    Tally,
    least_memory,
)

D = 12


@pytest.fixture
def made():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    query, key = (torch.nn.functional.normalize(draw(m, D), dim=1) for m in (50, 41))
    return Form(draw(D, 5), draw(D, 5)), Features(query, key, D)


def dense(form: Form, features: Features) -> np.ndarray:
    W = (form.left @ form.right.T).numpy()
    query, key = features.query.numpy(), features.key.numpy()
    scores = query @ W @ key.T
    sides = []
    for S, through in ((scores, query @ W), (scores.T, key @ W.T)):
        location = np.median(S, axis=1, keepdims=True)
        deviation = 1.4826 * np.median(np.abs(S - location), axis=1)
        scale = np.maximum(np.linalg.norm(through, axis=1) / np.sqrt(D), deviation)
        sides.append((S - location) / scale[:, None] / np.sqrt(1 + np.pi / (2 * S.shape[1])))
    row, column = sides[0], sides[1].T
    smaller = np.where(np.abs(row) < np.abs(column), row, column)
    return np.where(row * column > 0, smaller, 0)


def whole(scores: PairScores) -> np.ndarray:
    found = np.full((scores.n_query, scores.n_key), np.nan)
    for rows, columns, t in scores.tiles():
        assert np.isnan(found[rows, columns]).all()
        found[rows, columns] = t
    return found


@pytest.mark.parametrize("memory", [1, 10_000, 2**30])
def test_tiles_are_the_dense_scores_each_once(made, memory) -> None:
    form, features = made
    scores = PairScores(form, features, 1e-9, 0, memory)
    assert whole(scores) == pytest.approx(dense(form, features), abs=1e-4)


@pytest.mark.parametrize("memory", [least_memory(50, 41) // 4, least_memory(50, 41)])
def test_tiles_stay_within_the_memory(made, memory) -> None:
    form, features = made
    tiles = list(PairScores(form, features, 1e-9, 0, memory).tiles())
    assert all(8 * t.nelement() * t.element_size() <= memory for *_, t in tiles)
    assert (len(tiles) == 1) == (memory == least_memory(50, 41))


@pytest.mark.parametrize("memory", [1, 2**30])
def test_a_sweep_keeps_what_is_large_and_the_best(made, memory) -> None:
    form, features = made
    scores = PairScores(form, features, 1e-9, 0, memory)
    t = dense(form, features)
    taken = Pairs(np.array([3, 7]), np.array([2, 9]))
    active = np.ix_([3, 7], [2, 9])
    t[active] /= 2.0
    t[taken] = 0
    sweep = scores.sweep(1.5, taken, echo=2.0)
    assert sweep.row_best == pytest.approx(np.abs(t).max(1), abs=1e-4)
    assert sweep.column_best == pytest.approx(np.abs(t).max(0), abs=1e-4)
    assert set(zip(*sweep.pairs, strict=True)) == set(
        zip(*np.nonzero(np.abs(t) > 1.5), strict=True)
    )
    assert sweep.t == pytest.approx(t[sweep.pairs], abs=1e-4)


def test_the_histogram_counts_every_pair_once(made) -> None:
    form, features = made
    edges = np.array([-2.0, -1, 0.125, 1, 2])
    tally = Tally()
    taken = Pairs(np.array([3, 7]), np.array([2, 9]))  # counted all the same
    PairScores(form, features, 1e-9, 0, 5000).sweep(1.5, taken, 2.0, tally)
    expected = np.histogram(np.clip(dense(form, features), -1.9, 1.9), edges)[0]
    assert tally.between(edges).tolist() == expected.tolist()


def test_a_tally_counts_between_any_edges_to_a_cell() -> None:
    drawn = torch.randn(40, 500, generator=torch.Generator().manual_seed(0))
    t = 8 * drawn  # some beyond what is told apart
    edges = np.sort(np.random.default_rng(0).normal(size=30) * 8)
    tally = Tally()
    for part in t.split(16):
        tally.add(part)
    counts = tally.between(edges)
    moved = np.rint(np.clip(edges, -REACH, REACH) * CELLS) / CELLS
    moved[0], moved[-1] = -np.inf, np.inf
    assert counts.sum() == t.nelement()
    assert counts.tolist() == np.histogram(t.numpy().astype(np.float64), moved)[0].tolist()
    assert np.abs(moved - edges)[np.abs(edges) < REACH][1:-1].max() <= 0.5 / CELLS


def test_a_key_that_every_query_likes_is_no_bigram() -> None:
    rng = torch.Generator().manual_seed(1)
    features = torch.randn((60, 40), generator=rng, dtype=torch.float64)
    features = torch.nn.functional.normalize(features + 2 * torch.eye(40)[0], dim=1)
    form = Form(10 * torch.eye(40)[:, :1].double(), features[5:6].T)
    scores = PairScores(form, Features(features, features, 40), 1e-9, 0, 2**30)
    assert np.abs(scores.sweep(0.0, NONE).column_best[5]) < 5


def test_features_like_random_ones_are_told_from_others() -> None:
    rng = torch.Generator().manual_seed(1)
    draw = torch.randn((200, 40), generator=rng, dtype=torch.float64)
    one, other = (torch.nn.functional.normalize(x, dim=1) for x in (draw, draw + 1))
    assert Features(one, one, 40).alike
    assert Features(torch.eye(40), torch.eye(40), 40).alike
    assert not Features(one, other, 40).alike


def test_a_form_less_bigrams(made) -> None:
    form, features = made
    rows, strength = torch.arange(20), torch.linspace(-1, 1, 20).double()
    rest = form.less(features.query[rows], features.key[rows], strength)
    expected = form.left @ form.right.T
    expected = expected - (features.query[rows].T * strength) @ features.key[rows]
    left, right = rest.factors()
    assert left.shape[1] <= D
    assert torch.allclose(left @ right.T, expected)
    assert rest.norm() == pytest.approx(float(expected.norm()))
    squares = torch.linalg.svdvals(expected) ** 2
    rank = float(squares.sum() ** 2 / (squares**2).sum())
    assert rest.effective_rank() == pytest.approx(rank)
    U, V = (torch.linalg.qr(side).Q for side in (form.left, form.right))
    left, right = rest.within(form).factors()
    assert torch.allclose(left @ right.T, U @ U.T @ expected @ V @ V.T)
    values = (features.query[rows] @ expected * features.key[rows]).sum(1)
    assert torch.allclose(rest.at(features.query[rows], features.key[rows]), values)
