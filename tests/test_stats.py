"""Cover's count against brute force; p-values and intervals against scipy and what they promise."""

from __future__ import annotations

import itertools
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.stats import false_discovery_control

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.stats import (
    UNSEEN,
    benjamini_hochberg,
    benjamini_yekutieli,
    bounded_interval,
    clopper_pearson,
    cover_probability,
    discovery_threshold,
    estimate,
    holm,
    max_statistic_p_values,
    mean_interval,
    mean_of_shares,
    mean_p_value,
    ratio_estimate,
    ratio_interval,
    ratio_share,
    rows_needed,
    sign_flip_p_values,
    simes,
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


def test_flipped_signs_agree_with_all_flips() -> None:
    values = np.random.default_rng(0).normal(0.6, 1.0, (3, 8))
    signs = np.array(list(itertools.product([1, -1], repeat=8)))
    size = np.sqrt(8 * np.square(values).sum(1))
    null = np.abs(signs @ (values / size[:, None]).T).max(1)
    exact = [(null >= abs(v.sum()) / s - 1e-6).mean() for v, s in zip(values, size, strict=True)]
    np.testing.assert_allclose(sign_flip_p_values(values, draws=20000), exact, atol=0.015)


def test_flipped_signs_are_wrong_no_more_often_than_the_level() -> None:
    rng = np.random.default_rng(1)
    runs = [
        sign_flip_p_values(rng.normal(size=(20, 12)), draws=400, seed=n).min() for n in range(200)
    ]
    assert np.mean(np.array(runs) <= 0.05) <= 0.09  # 0.05 and two standard errors and more


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_is_benjamini_and_hochbergs(seed) -> None:
    rng = np.random.default_rng(seed)
    p = np.concatenate([rng.random(300), rng.random(30) * 1e-3])
    ours = p <= discovery_threshold(p[p < 0.2], 0, len(p), 0.1)
    assert (ours == (false_discovery_control(p) <= 0.1)).all()


def test_what_was_taken_counts_among_the_discoveries() -> None:
    assert discovery_threshold(np.array([0.004]), 0, 100, 0.1) == 0.0
    assert discovery_threshold(np.array([0.004]), 3, 100, 0.1) == 0.004


def test_simes_is_the_smallest_level_at_which_benjamini_and_hochberg_find_anything() -> None:
    p = np.random.default_rng(0).uniform(size=40) ** 2
    assert simes(p, 40) == pytest.approx(false_discovery_control(p).min())
    assert simes(np.sort(p)[:5], 40) == pytest.approx(simes(p, 40))
    assert simes(np.array([]), 40) == 1.0


def test_benjamini_yekutieli_is_scipys() -> None:
    p = np.random.default_rng(0).uniform(size=40) ** 2
    assert benjamini_yekutieli(p) == pytest.approx(false_discovery_control(p, method="by"))


@pytest.mark.parametrize(("successes", "trials"), [(0, 9), (3, 9), (9, 9), (40, 90)])
def test_clopper_pearson_is_scipys(successes: int, trials: int) -> None:
    exact = stats.binomtest(successes, trials).proportion_ci(0.9, method="exact")
    assert clopper_pearson(successes, trials, 0.9) == pytest.approx(exact)


def test_fieller_ends_are_ratios_that_a_t_test_just_does_not_refuse() -> None:
    rng = np.random.default_rng(0)
    below = rng.normal(2.0, 1.0, 30)
    above = 0.5 * below + rng.normal(0.0, 0.5, 30)
    for ratio in ratio_interval(above, below, 0.9):
        assert stats.ttest_1samp(above - ratio * below, 0).pvalue == pytest.approx(0.1)
    assert ratio_interval(above, below - below.mean()) == (-np.inf, np.inf)


def test_intervals_and_p_values_of_columns_with_missing_rows_are_those_of_each_column() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, (12, 4))
    values[[0, 3, 5], [1, 1, 2]] = np.nan
    values[1:, 3] = np.nan
    mean, low, high = mean_interval(values, 0.9)
    p_values = mean_p_value(values)
    for column in range(3):
        test = stats.ttest_1samp(values[:, column], 0, nan_policy="omit")
        assert p_values[column] == pytest.approx(test.pvalue)
        assert (low[column], high[column]) == pytest.approx(test.confidence_interval(0.9))
    assert mean[3] == values[0, 3]
    assert np.isnan([low[3], high[3], p_values[3]]).all()


def test_the_interval_of_a_mean_is_students() -> None:
    _, low, high = mean_interval(np.array([1.0, 2.0, 4.0]), 0.9)
    mean, half = 7 / 3, 2.919986 * np.std([1.0, 2.0, 4.0], ddof=1) / 3**0.5
    assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-5)


def test_intervals_are_those_of_the_t_test():
    values = np.random.default_rng(1).normal(0.4, 1.0, 128)
    expected = stats.ttest_1samp(values, 0)
    low, high = expected.confidence_interval(0.95)
    interval = estimate(values)
    assert np.allclose(
        [interval.mean, interval.low, interval.high, interval.p_value],
        [values.mean(), low, high, expected.pvalue],
    )
    same = estimate(np.full(3, 2.0), unseen=UNSEEN)
    assert same.low < 0 < same.high
    assert same.p_value == 1.0
    assert estimate(np.zeros(3)).p_value == 1.0
    with pytest.raises(InputError, match="at least 2 rows"):
        estimate(np.zeros(1))


@pytest.mark.parametrize("changed", [0, 1, 3])
def test_where_hardly_a_row_changes_the_interval_is_not_a_point(changed):
    values = np.zeros(200)
    values[:changed] = 1
    found = mean_of_shares(values, 0.95)
    assert found.low < 0 < found.high
    assert found.high >= 3 / 200 * (0.9 + changed / 4)
    assert found.low <= found.mean <= found.high


def test_how_many_rows_would_tell():
    found = mean_of_shares(np.tile([1.0, 0.0], 50), 0.95)
    half = (found.high - found.low) / 2
    assert rows_needed(found, half / 2) == pytest.approx(400, abs=4)
    assert rows_needed(found, 2 * half) is None


# Intervals hold what they promise: simulated rows, many of them, and few that differ.
#
# Skewed rows (most lose nothing, some all) are the rule with ablations. Student's interval is then
# too short on its far side; what the tests bound, and why that does little harm, they say.

REPEATS = 400
SURE = 1e-3  # chance that a test fails wrongly, had its seed been drawn anew


def misses(interval, draw, truth, coverage, seed=0):
    """How often the truth lies below the interval, and above it."""
    rng = np.random.default_rng(seed)
    found = [interval(draw(rng), coverage) for _ in range(REPEATS)]
    below = sum(truth < e.low - 1e-12 for e in found)
    above = sum(truth > e.high + 1e-12 for e in found)
    return below, above


def at_most(count, share):
    """Whether so many misses agree with a share at most this."""
    return stats.binom.sf(count - 1, REPEATS, share) > SURE


@pytest.mark.parametrize("coverage", [0.95, 0.999])
@pytest.mark.parametrize("n", [4, 16, 128])
def test_the_t_interval_of_normal_rows(n, coverage):
    missed = misses(estimate, lambda rng: rng.normal(0.3, 2.0, n), 0.3, coverage)
    assert at_most(sum(missed), 1 - coverage)


@pytest.mark.parametrize("coverage", [0.95, 0.999])
@pytest.mark.parametrize(("n", "share"), [(16, 0.02), (64, 0.01), (256, 0.004), (256, 0.0)])
def test_rows_that_hardly_ever_change(n, share, coverage):
    """Exact bounds, where a t interval would be a point."""

    def draw(rng):
        return (rng.random(n) < share).astype(float)

    assert at_most(sum(misses(mean_of_shares, draw, share, coverage)), 1 - coverage)


@pytest.mark.parametrize("n", [64, 256])
def test_rows_that_gain_as_others_lose(n):
    def draw(rng):
        return rng.choice([1.0, 0.0, -1.0], n, p=[0.2, 0.6, 0.2])

    assert at_most(sum(misses(mean_of_shares, draw, 0.0, 0.95)), 0.05)


@pytest.mark.parametrize(("n", "share"), [(16, 0.5), (64, 0.3), (256, 0.2)])
def test_rows_of_which_many_lose(n, share):
    def draw(rng):
        return (rng.random(n) < share).astype(float)

    assert at_most(sum(misses(mean_of_shares, draw, share, 0.95)), 0.05)


@pytest.mark.parametrize("coverage", [0.95, 0.999])
@pytest.mark.parametrize("share", [0.03, 0.05, 0.08, 0.15])
def test_an_effect_is_not_overstated_where_few_rows_lose(share, coverage):
    """What is claimed of an effect rests on the end towards 0, and that end is safe."""

    def draw(rng):
        return (rng.random(128) < share).astype(float)

    overstated, _ = misses(mean_of_shares, draw, share, coverage)
    assert at_most(overstated, (1 - coverage) / 2)


@pytest.mark.parametrize("sign", [1, -1])
def test_both_ends_hold_where_a_few_rows_lose_parts_or_all(sign):
    def draw(rng):
        return sign * rng.choice([0.0, 0.25, 1.0], 256, p=[0.96, 0.03, 0.01])

    near, far = misses(mean_of_shares, draw, sign * 0.0175, 0.95)[::sign]
    assert at_most(near, 0.025)
    assert at_most(far, 0.025)


@pytest.mark.parametrize("interval", [mean_of_shares, lambda v, c: ratio_share(v, v * 0 + 1, c)])
@pytest.mark.parametrize("n", [8, 32, 64])
def test_more_change_seen_never_narrows_the_interval(interval, n):
    def width(values):
        found = interval(values, 0.95)
        return found.high - found.low

    none = width(np.zeros(n))
    assert none == pytest.approx(2 * clopper_pearson(0, n)[1], rel=0.02)
    for changed in (1, 2, n // 4):
        for size in (1e-9, 1e-7, 1e-3, 0.06, 0.5, 1.0):
            assert width(np.where(np.arange(n) < changed, size, 0.0)) >= 0.99 * none
    noise = np.random.default_rng(n).normal(scale=1e-7, size=n)
    assert width(noise) >= 0.99 * none


@pytest.mark.parametrize(("successes", "trials"), [(0, 8), (3, 8), (8, 8), (1, 64), (60, 64)])
def test_the_bounded_interval_of_yes_and_no_is_clopper_and_pearsons(successes, trials):
    values = (np.arange(trials) < successes).astype(float)
    exact = np.array(clopper_pearson(successes, trials))
    ends = np.array(bounded_interval(values, 0.0, 1.0, 0.95))
    assert np.abs(ends - exact).max() <= 0.01 * np.ptp(exact)


@pytest.mark.parametrize("n", [2, 6, 40])
def test_the_bounded_interval_has_the_quantiles_of_dirichlet_weights(n):
    rng = np.random.default_rng(n)
    values = rng.uniform(-0.5, 0.9, n)
    weights = rng.dirichlet(np.ones(n + 1), 200_000)
    low = np.quantile(weights @ np.append(values, -1.0), 0.025)
    high = np.quantile(weights @ np.append(values, 1.0), 0.975)
    ends = bounded_interval(values, -1.0, 1.0, 0.95)
    assert np.abs(np.array(ends) - [low, high]).max() <= 0.01 * (high - low)


# The size that is assumed of unseen effects was set on 2, 5 and 10 % of rows at -9, -4 and 10 times
# the others', with a spread of 0 to 0.3; these are others.
@pytest.mark.parametrize("n", [8, 16, 32, 64])
@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
@pytest.mark.parametrize(("rare", "spread"), [(-6.0, 0.05), (8.0, 0.15), (-2.0, 0.2)])
def test_rare_rows_that_differ_strongly(n, share, rare, spread):
    def draw(rng):
        return np.where(rng.random(n) < share, rare, rng.normal(1.0, spread, n))

    truth = 1 - share + share * rare
    assert at_most(sum(misses(partial(estimate, unseen=UNSEEN), draw, truth, 0.95)), 0.1)


@pytest.mark.parametrize("n", [8, 16, 32, 64])
@pytest.mark.parametrize("spread", [0.7, 2.0])
def test_rows_that_vary_smoothly_keep_about_the_t_interval(n, spread):
    missed = sum(
        misses(partial(estimate, unseen=UNSEEN), lambda rng: rng.normal(1.0, spread, n), 1.0, 0.95)
    )
    assert at_most(missed, 0.05)
    assert stats.binom.cdf(missed, REPEATS, 0.01) > SURE  # covers 99 % at most


def test_equal_rows_are_no_certainty():
    found = mean_of_shares(np.zeros(20), 0.95)
    exact = 1 - (0.05 / 2) ** (1 / 20)
    assert found.mean == pytest.approx(0)
    assert found.high == pytest.approx(exact, rel=0.01)
    assert found.low == pytest.approx(-exact, rel=0.01)


def test_one_row_has_no_interval():
    with pytest.raises(InputError, match="no confidence interval"):
        estimate(np.zeros(1), 0.95)


@pytest.mark.parametrize("unseen", [0.0, UNSEEN])
@pytest.mark.parametrize("rows", [8, 64])
def test_a_ratio_s_interval_allows_for_what_its_numerator_s_does(rows, unseen):
    rng = np.random.default_rng(rows)
    whole, part = rng.normal(5, 0.5, rows), rng.normal(2, 0.05, rows)
    share, numerator = ratio_estimate(part, whole, unseen=unseen), estimate(part, unseen=unseen)
    low, high = ratio_interval(part, whole)
    assert share.low <= min(low, numerator.low / whole.mean()) + 1e-12
    assert share.high >= max(high, numerator.high / whole.mean()) - 1e-12
    assert share.mean == pytest.approx(part.mean() / whole.mean())
    assert (share.low < low - 0.01) is (unseen > 0)


def test_a_mean_stays_within_its_bounds_and_so_do_prompts_that_were_not_drawn():
    values = np.full(16, 0.9)
    free, bounded = (estimate(values, unseen=UNSEEN, bounds=b) for b in ((-9.0, 9.0), (-1.0, 1.0)))
    missed = clopper_pearson(0, 16)[1]
    assert bounded.high == pytest.approx(0.9 + missed * 0.1)
    assert free.high > 1.0
    assert free.low < bounded.low < 0.9
    assert bounded.low == pytest.approx(0.9 - missed * 1.9)
