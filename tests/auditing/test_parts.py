import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from interp_toolkit.auditing.parts import (
    Part,
    coverage_of,
    detectable_effect,
    of_claim,
    share_of_random,
)
from interp_toolkit.evidence import TIE, all_answers, answer_of
from interp_toolkit.stats import Share

ANSWERS = ["confirmed", "refuted", "undecided", "not_testable"]


def part(answer, asserted=True):
    return Part("matters", answer, "", "observed", asserted)


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.booleans()), max_size=5))
def test_a_claim_rests_on_what_it_asserts(given_parts):
    found = of_claim([part(answer, asserted) for answer, asserted in given_parts])
    asserted = [answer for answer, rests in given_parts if rests]
    if found == "confirmed":
        assert set(asserted) == {"confirmed"}
    if found == "refuted":
        assert "refuted" in asserted
    if not asserted:
        assert found == "not_testable"


@given(st.floats(-2, 2), st.floats(0, 2), st.floats(-2, 2))
def test_an_answer_says_no_more_than_its_interval(low, width, bound):
    high = low + width
    found = answer_of(low, high, bound)
    if abs(low - bound) > 2 * TIE and abs(high - bound) > 2 * TIE:
        assert (found == "confirmed") == (low >= bound)
        assert (found == "refuted") == (high < bound)


@given(st.floats(0, 1), st.floats(-1e-6, 1e-6))
def test_rounding_decides_no_tie(bound, rounding):
    value = bound + rounding
    assert answer_of(value, value, bound) == "confirmed"


def test_measures_of_the_same_thing_must_agree():
    assert all_answers(["confirmed", "refuted"], alike=True) == "undecided"
    assert all_answers(["refuted", "refuted"], alike=True) == "refuted"
    assert all_answers(["confirmed", "confirmed"], alike=True) == "confirmed"


def test_intervals_without_ends_decide_nothing():
    assert answer_of(-math.inf, math.inf, 0.5) == "undecided"
    assert answer_of(math.nan, math.nan, 0.5) == "undecided"


@pytest.mark.parametrize("claims", [1, 5])
def test_the_level_bounds_errors_over_all_claims(claims):
    """Normal data at the very bound, where errors are most frequent; t intervals."""
    rng, n, runs, level = np.random.default_rng(0), 20, 4000, 0.05
    t = stats.t.ppf((1 + coverage_of(level, claims, 1)) / 2, n - 1)
    draws = rng.standard_normal((runs, claims, n)) + 1.0
    middle, half = draws.mean(2), t * draws.std(2, ddof=1) / math.sqrt(n)
    confirmed = ((middle - half) >= 1.0).any(1).mean()
    refuted = ((middle + half) < 1.0).any(1).mean()
    slack = 4 * math.sqrt(level * (1 - level) / runs)
    assert confirmed <= level + slack
    assert refuted <= level + slack
    assert confirmed + refuted > level  # the test would see intervals that are far too wide


def test_least_seen_is_what_is_seen_with_a_chance_of_four_in_five():
    rng, n, runs, coverage = np.random.default_rng(1), 200, 4000, 0.9
    z = stats.norm.ppf(0.95)
    half = z / math.sqrt(n)
    effect = detectable_effect(Share(0.0, -half, half), coverage)
    means = effect + rng.standard_normal((runs, n)).mean(1)
    seen = float((means - half > 0).mean())
    assert abs(seen - 0.8) < 4 * math.sqrt(0.16 / runs)


def test_few_random_claims_are_confirmed_only_where_the_interval_says_few():
    assert share_of_random(0, 4, "", "observed", 0.9).answer == "undecided"
    assert share_of_random(0, 200, "", "observed", 0.9).answer == "confirmed"
    assert share_of_random(90, 200, "", "observed", 0.9).answer == "refuted"
