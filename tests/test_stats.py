"""Cover's count against brute force, and p-values against what they promise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.stats import (
    benjamini_hochberg,
    cover_probability,
    holm,
    max_statistic_p_values,
)


@pytest.mark.parametrize(("n", "d"), [(4, 2), (6, 2), (7, 3), (5, 1), (4, 3)])
def test_cover_is_the_share_of_labelings_that_are_separable(n: int, d: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, d))
    separable = 0
    for labels in product([False, True], repeat=n):
        y = np.array(labels)
        one_sided = y.all() or not y.any()
        separable += one_sided or check_separability(X[y], X[~y]).status == "separable"
    assert cover_probability(n, d) == pytest.approx(separable / 2**n)


def test_cover_at_its_landmarks() -> None:
    assert cover_probability(11, 10) == 1
    assert cover_probability(22, 10) == pytest.approx(0.5)
    assert cover_probability(1536, 511) < 1e-30
    assert cover_probability(750, 511) > 0.999


def test_corrected_p_values_hold_their_level_over_all_looks() -> None:
    """Twenty dependent looks at noise: the chance that any falls below 5 % is at most 5 %."""
    rng = np.random.default_rng(0)
    false_alarms = 0
    for _ in range(600):
        shared = rng.normal(size=(100, 1))
        draws = shared + rng.normal(size=(100, 20))
        p_values = max_statistic_p_values(draws[0], draws[1:])
        false_alarms += p_values.min() <= 0.05
    assert false_alarms / 600 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
    assert false_alarms / 600 >= 0.02


def test_corrected_p_values_by_hand_and_with_missing_looks() -> None:
    null = np.array([[0.0, 5.0], [1.0, 2.0], [3.0, np.nan]])
    p_values = max_statistic_p_values(np.array([4.0, np.nan]), null)
    assert p_values[0] == pytest.approx((1 + 1) / 4)  # largest per draw: 5, 2, 3
    assert np.isnan(p_values[1])


def test_draws_without_a_statistic_are_no_evidence() -> None:
    """A shuffle that could not be scored says nothing, and so must not make p smaller."""
    null = np.array([[1.0], [np.nan], [np.nan], [3.0]])
    assert max_statistic_p_values(np.array([2.0]), null) == pytest.approx([2 / 3])


def test_holm_is_the_closed_test_of_bonferroni() -> None:
    """By definition: p_i's smallest level at which every set of looks that holds i is rejected."""
    rng = np.random.default_rng(0)
    p = np.round(rng.uniform(size=6) ** 3, 2)
    subsets = [np.array(s, dtype=bool) for s in product([False, True], repeat=6) if any(s)]
    closed = [max(min(1, s.sum() * p[s].min()) for s in subsets if s[i]) for i in range(6)]
    assert holm(p) == pytest.approx(closed)


@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_benjamini_hochberg_is_scipys(n: int) -> None:
    p = np.round(np.random.default_rng(n).uniform(size=n) ** 2, 2)  # rounded: with ties
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p) if n else p)
    assert len(holm(p)) == n


def test_holm_keeps_its_level_and_finds_what_is_there() -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(size=(2000, 10))
    p[:, 0] = 1e-4
    adjusted = np.stack([holm(row) for row in p])
    assert (adjusted[:, 0] <= 0.05).all()
    wrong = (adjusted[:, 1:] <= 0.05).any(axis=1).mean()
    assert 0.03 < wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_missing_p_values_take_no_part(adjust) -> None:
    p = np.array([0.04, np.nan, 0.01, 0.5, np.nan])
    adjusted = adjust(p)
    assert np.isnan(adjusted).tolist() == [False, True, False, False, True]
    assert adjusted[[0, 2, 3]] == pytest.approx(adjust(p[[0, 2, 3]]))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_p_values_outside_their_range_are_refused(adjust) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        adjust(np.array([0.1, 1.2]))
