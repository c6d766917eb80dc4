"""Intervals over seeds: against scipy where it has them, and by how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from interp_studies.litmus.rules import Seeds, Trained, decide
from interp_studies.seed_interval import (
    Interval,
    difference,
    over_seeds,
    over_seeds_contrast,
)
from interp_toolkit.training.engine.metrics import FinalScore

DRAWS = 500
EXAMPLES = 400
#: how far above its true chance a count of DRAWS events may come out, 4 standard errors
SLACK = 4 * math.sqrt(0.05 * 0.95 / DRAWS)
HALF_SLACK = 4 * math.sqrt(0.025 * 0.975 / DRAWS)

shares = st.lists(st.integers(0, EXAMPLES).map(lambda n: n / EXAMPLES), min_size=1, max_size=5)


def test_of_losses_it_is_students() -> None:
    losses = [2.1, 2.4, 2.2, 2.25]
    found = over_seeds(losses)
    low, high = stats.t.interval(0.95, 3, np.mean(losses), stats.sem(losses))
    assert (found.low, found.value, found.high) == pytest.approx((low, np.mean(losses), high))


@pytest.mark.parametrize("right", [0, 1, 57, 399, 400])
def test_of_seeds_alike_it_is_the_exact_binomial_interval(right: int) -> None:
    found = over_seeds([right / 400] * 3, 400)
    exact = stats.binomtest(right, 400).proportion_ci(method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert found.high - found.low > 0.005


def test_one_seed_and_losses_alike_say_nothing() -> None:
    one = over_seeds([0.75], 400)
    assert (one.low, one.value, one.high) == (0, 0.75, 1)
    gap = difference(one, over_seeds([0.5, 0.5], 400))
    assert (gap.low, gap.high) == (-1, 1)
    assert over_seeds([1.5]).high == math.inf
    assert over_seeds([1.5, 1.5]).low == -math.inf


def test_what_is_no_share_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        over_seeds([], 10)
    with pytest.raises(ValueError, match="between 0 and 1"):
        over_seeds([0.5, 1.5], 10)
    with pytest.raises(ValueError, match="between 0 and 1"):
        over_seeds([-0.5, 0.5], 10)


@given(shares, shares)
def test_the_difference_the_other_way_round_is_its_negative(
    first: list[float], second: list[float]
) -> None:
    a, b = over_seeds(first, EXAMPLES), over_seeds(second, EXAMPLES)
    there, back = difference(a, b), difference(b, a)
    assert (there.low, there.high) == (-back.high, -back.low)
    assert -1 <= there.low <= there.value <= there.high <= 1


@given(shares)
def test_a_contrast_of_one_share_is_its_interval(values: list[float]) -> None:
    alone, found = (
        over_seeds(values, EXAMPLES, 0.99),
        over_seeds_contrast([values], [], EXAMPLES, 0.99),
    )
    assert (found.low, found.value, found.high) == pytest.approx(
        (alone.low, alone.value, alone.high)
    )


@given(st.integers(0, EXAMPLES), st.integers(0, EXAMPLES))
def test_a_contrast_of_seeds_alike_is_the_difference(first: int, second: int) -> None:
    a, b = [first / EXAMPLES] * 3, [second / EXAMPLES] * 3
    apart = difference(over_seeds(a, EXAMPLES), over_seeds(b, EXAMPLES))
    found = over_seeds_contrast([a], [b], EXAMPLES)
    assert (found.low, found.high) == pytest.approx((apart.low, apart.high))


def test_a_contrast_pairs_its_seeds() -> None:
    """Seeds that differ together leave the errors of the tests alone, those of four shares."""
    a = [0.5, 0.7, 0.9]
    found = over_seeds_contrast([a, [0.2] * 3], [[x - 0.1 for x in a], [0.2] * 3], EXAMPLES)
    low, high = stats.binomtest(80, EXAMPLES).proportion_ci(method="exact")
    more, fewer = (stats.binomtest(k, EXAMPLES).proportion_ci(method="exact") for k in (280, 240))
    sides = [0.7 - more.low, fewer.high - 0.6, 0.2 - low, high - 0.2]
    assert found.value == pytest.approx(0.1)
    assert found.value - found.low == pytest.approx(math.hypot(*sides))
    with pytest.raises(ValueError, match="between 0 and 1"):
        over_seeds_contrast([[1.2]], [], EXAMPLES)
    assert over_seeds_contrast([[0.5]], [[0.5]], EXAMPLES).high == 1


@given(shares, st.integers(1, 50))
def test_more_examples_leave_less_open(values: list[float], factor: int) -> None:
    few, many = over_seeds(values, EXAMPLES), over_seeds(values, EXAMPLES * factor)
    assert many.below <= few.below + 1e-12
    assert many.above <= few.above + 1e-12


@given(st.integers(2, 6), st.integers(0, 2**31))
def test_it_is_never_narrower_than_welchs(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    a, b = generator.normal(2, 0.1, n), generator.normal(3, 0.4, n)
    found = difference(over_seeds(a.tolist()), over_seeds(b.tolist()))
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert found.low <= welch.low + 1e-9
    assert found.high >= welch.high - 1e-9
    assert found.low + found.high == pytest.approx(welch.low + welch.high)


def seeds_of(mean: float, kind: str, n_seeds: int, generator: np.random.Generator) -> list[float]:
    """What seeds measure on EXAMPLES rows that they share: a row is right up to its hardness."""
    if kind == "alike":
        chances = np.full(n_seeds, mean)
    elif kind == "normal":
        chances = np.clip(generator.normal(mean, 0.02, n_seeds), 0, 1)
    else:
        chances = generator.beta(30 * mean, 30 * (1 - mean), n_seeds)
    hardness = np.sort(generator.random(EXAMPLES))
    return (np.searchsorted(hardness, chances) / EXAMPLES).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize("kind", ["alike", "normal", "beta"])
def test_it_holds_the_true_gap_as_often_as_it_says(n_seeds: int, kind: str) -> None:
    generator = np.random.default_rng(n_seeds)
    held = 0
    for _ in range(DRAWS):
        first, second = (seeds_of(mean, kind, n_seeds, generator) for mean in (0.9, 0.6))
        gap = difference(over_seeds(first, EXAMPLES), over_seeds(second, EXAMPLES))
        held += gap.low <= 0.3 <= gap.high
    assert held / DRAWS >= 0.95 - SLACK


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alike", "normal", "beta"])
def test_a_contrast_on_shared_rows_holds_the_truth_as_often_as_it_says(kind: str) -> None:
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(DRAWS):
        one, other = (seeds_of(mean, kind, 3, generator) for mean in (0.9, 0.6))
        found = over_seeds_contrast([one], [other], EXAMPLES)
        held += found.low <= 0.3 <= found.high
    assert held / DRAWS >= 0.95 - SLACK


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [2, 3])
@pytest.mark.parametrize(
    ("standard", "mixit", "false"),
    [(0.55, 0.5, "needs"), (1.0, 0.95, "does_not_need"), (0.8, 0.75, "does_not_need")],
)
def test_a_gap_as_large_as_the_margin_is_seldom_called_either(
    n_seeds: int, standard: float, mixit: float, false: str
) -> None:
    generator = np.random.default_rng(n_seeds)
    said = 0
    for _ in range(DRAWS):
        kind = "alike" if standard == 1.0 else "normal"
        a, b = (
            seeds_of(standard, kind, n_seeds, generator),
            seeds_of(mixit, kind, n_seeds, generator),
        )
        said += decide(made("standard", a), made("MixiT", b)).status == false
    assert said / DRAWS <= 0.025 + HALF_SLACK


def made(name: str, values: list[float]) -> Seeds:
    """Seeds whose curves are flat."""
    return Seeds(
        name,
        [
            Trained(
                seed,
                FinalScore("accuracy", value, "higher", "share", 0.1, EXAMPLES),
                (0, 50, 100),
                (0.1, value, value),
            )
            for seed, value in enumerate(values)
        ],
    )


def test_an_interval_ends_at_what_is_possible() -> None:
    interval = Interval(0.9, 0.2, 0.2, 0.0, 1.0)
    assert interval.low == pytest.approx(0.7)
    assert interval.high == 1.0


@pytest.mark.parametrize("value", [0.1, 1.7, 2.3, 3.3])
def test_equal_losses_say_nothing_of_the_spread(value: float) -> None:
    assert over_seeds([value] * 3).below == math.inf
