"""The null of permuted coordinates: all signed permutations at small sizes, sparse sides."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy import stats

from interp_toolkit.circuits.weights.permutations import (
    FEWEST_DRAWS,
    PER_TEST,
    coordinate_units,
    held_against_draws,
    overlap_moments,
    overlap_null,
    reciprocal,
)

D = 5


def every_overlap(L: np.ndarray, M: np.ndarray) -> np.ndarray:
    """`||L P M^T||^2` for every signed permutation P."""
    signs = np.array(list(product((-1.0, 1.0), repeat=L.shape[1])))
    return np.array(
        [
            (((L * sign) @ M[:, order].T) ** 2).sum()
            for order in map(list, permutations(range(L.shape[1])))
            for sign in signs
        ]
    )


def sides(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    L, M = rng.normal(size=(2, D)), rng.normal(size=(3, D))
    if kind == "sparse":
        L[:, 1:], M[:, :3] = 0, 0
    if kind == "uneven":
        L[:, 0] *= 10
        M[:, 2] *= 20
    return L, M


@pytest.mark.parametrize("kind", ["dense", "sparse", "uneven"])
def test_moments_are_those_over_all_signed_permutations(kind) -> None:
    L, M = sides(kind)
    overlaps = every_overlap(L, M)
    a, b = (overlap_moments(torch.from_numpy(side)[None]) for side in (L, M))
    null = overlap_null(a, b, D)
    assert null.mean.item() == pytest.approx(overlaps.mean())
    assert null.sd.item() == pytest.approx(overlaps.std())
    assert null.skew.item() == pytest.approx(stats.skew(overlaps), rel=1e-6)


def test_every_pair_of_heads_has_its_own_null() -> None:
    rng = np.random.default_rng(0)
    L, M = rng.normal(size=(2, 3, 6)), rng.normal(size=(4, 2, 6))
    a, b = (overlap_moments(torch.from_numpy(side)) for side in (L, M))
    null = overlap_null(a.column(), b, 6)
    assert null.mean.shape == null.sd.shape == null.skew.shape == (2, 4)
    one = overlap_null(*(overlap_moments(torch.from_numpy(side)) for side in (L[1:], M[2:3])), 6)
    assert null.skew[1, 2] == pytest.approx(one.skew.item())


def test_where_every_permutation_gives_the_same_there_is_no_p_value() -> None:
    flat = overlap_moments(torch.eye(6)[None])
    null = overlap_null(flat, flat, 6)
    assert np.isnan(null.p_value(np.array([6.0])))
    nothing = overlap_null(overlap_moments(torch.zeros(1, 2, 6)), flat, 6)
    assert np.isnan(nothing.z(np.array([0.0])))


def test_dense_sides_keep_the_level_by_the_fitted_tail() -> None:
    rng = np.random.default_rng(1)
    L, M = (torch.from_numpy(rng.normal(size=(40, 6, 24))) for _ in range(2))
    overlap = torch.einsum("wid,rjd->wrij", L, M).square().sum((2, 3)).numpy()
    p = overlap_null(overlap_moments(L).column(), overlap_moments(M), 24).p_value(overlap)
    assert 0.035 < (p <= 0.05).mean() < 0.065
    assert (p <= 0.001).sum() <= stats.binom.ppf(0.999, p.size, 0.001)


def test_a_coincidence_of_single_entries_is_as_likely_as_permutations_make_it() -> None:
    """One coordinate written and the same one read: 1 of d, which no fitted tail gives."""
    d, fitted = 40, np.array([1e-9, 1e-9, np.nan, 0.4])
    place = torch.tensor([7, 7, 0, 0])

    def statistic(tests: np.ndarray, order, sign) -> np.ndarray:
        return (order[7] == place[torch.from_numpy(tests)]).double().numpy()

    p = held_against_draws(
        fitted, np.array([1.0, 2.0, 1.0, 1.0]), statistic, d, n_tests=50, work=1e9, cost=1
    )
    assert p[0] == pytest.approx(1 / d, rel=0.6)
    assert p[1] == 1e-9  # never reached
    assert np.isnan(p[2])
    assert p[3] == 0.4  # not small: left as it is


def test_draws_are_left_out_where_there_is_no_work_for_them() -> None:
    def never(tests, order, sign):
        raise AssertionError

    p = held_against_draws(
        np.array([0.01]), np.ones(1), never, 8, n_tests=50, work=FEWEST_DRAWS - 1.0, cost=1
    )
    assert p == 0.01
    assert PER_TEST * 50 > FEWEST_DRAWS


def test_units_follow_any_scale_and_leave_out_what_is_not_written() -> None:
    written = torch.tensor([4.0, 0.0, 9.0, 1e-20])
    assert coordinate_units(written).tolist() == [2.0, 0.0, 3.0, 0.0]
    assert reciprocal(coordinate_units(written)).tolist() == pytest.approx([0.5, 0, 1 / 3, 0])
