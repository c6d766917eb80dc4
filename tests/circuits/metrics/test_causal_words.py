"""A causal word never says more than its intervals do, nor less than the rule promises."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interp_toolkit.circuits.metrics.causal_words import (
    MAJOR,
    NEGLIGIBLE,
    WORDS,
    causal_word,
    in_words,
    matters,
)
from interp_toolkit.stats import Share

UNKNOWN = Share(math.nan, math.nan, math.nan)
#: means and ends near the rule's thresholds as well as far from them
numbers = st.one_of(
    st.floats(-1.5, 1.5), st.sampled_from([0.0, -NEGLIGIBLE, NEGLIGIBLE, MAJOR, 1.0])
)
intervals = st.lists(numbers, min_size=3, max_size=3).map(
    lambda ends: Share(*(sorted(ends)[i] for i in (1, 0, 2)))
)
claims = st.lists(
    st.lists(st.one_of(intervals, st.just(UNKNOWN)), min_size=1, max_size=3), max_size=4
)


def known(claims):
    """Claims none of whose intervals is missing: they must all hold."""
    return [claim for claim in claims if not any(math.isnan(s.mean) for s in claim)]


def some_claim(claims, holds):
    return any(all(holds(s) for s in claim) for claim in known(claims))


def nearer(mean, end, factor):
    """From an end towards the mean, and never beyond the end by rounding."""
    moved = mean + factor * (end - mean)
    return max(moved, end) if end <= mean else min(moved, end)


def narrowed(claims, factor):
    return [
        [Share(s.mean, nearer(s.mean, s.low, factor), nearer(s.mean, s.high, factor)) for s in c]
        for c in known(claims)
    ]


@given(claims)
def test_each_word_is_what_its_intervals_say(claims):
    word = causal_word(claims)
    assert word in WORDS
    above = some_claim(claims, lambda s: s.low > 0)
    below = some_claim(claims, lambda s: s.high < 0)
    lifted = any(s.low > 0 for claim in known(claims) for s in claim)
    within = all(s.low >= -NEGLIGIBLE and s.high <= NEGLIGIBLE for c in known(claims) for s in c)
    said = {
        "not_tested": not known(claims),
        "major": some_claim(claims, lambda s: s.low >= MAJOR),
        "contributes": above and not some_claim(claims, lambda s: s.low >= MAJOR),
        "suppresses": below and not lifted,
        "negligible": bool(known(claims)) and within and not above and (lifted or not below),
    }
    said["undecided"] = not any(said.values())
    assert [w for w, holds in said.items() if holds] == [word]


@given(claims)
def test_what_is_unknown_says_nothing(claims):
    assert causal_word([*claims, [UNKNOWN]]) == causal_word(claims)
    assert causal_word([[UNKNOWN] for _ in claims]) == "not_tested"


@given(claims, st.floats(0, 1))
def test_narrower_intervals_take_no_effect_back(claims, factor):
    """Rows that narrow intervals round their means leave a decided word, or sharpen it."""
    before, after = causal_word(claims), causal_word(narrowed(claims, factor))
    if before == "major":
        assert after == "major"
    if before == "contributes":
        assert matters(after)
    if before == "negligible":
        assert after not in ("major", "undecided", "not_tested")
    if before == "not_tested":
        assert after == "not_tested"


@given(claims, st.floats(0, 1))
@example(
    [[Share(-1.0, -1.0, -1.0)], [Share(0.0, 0.0, 0.0), Share(1.0, 0.0, 1.0)]], 0.0
)  # one way of two says the opposite
def test_suppresses_is_taken_back_by_an_open_claim_only(claims, factor):
    """It is said where no interval lies above 0: a claim that reaches above may yet contribute, and
    one interval of a claim that gets above 0 leaves the matter open."""
    before, after = causal_word(claims), causal_word(narrowed(claims, factor))
    if before != "suppresses":
        return
    open_ = some_claim(claims, lambda s: s.mean > 0)
    disputed = any(s.mean > 0 for claim in known(claims) for s in claim)
    assert (
        after == "suppresses" or (matters(after) and open_) or (after == "undecided" and disputed)
    )


@given(claims, st.floats(0, 0.5))
def test_a_wider_bound_finds_no_effect_more_often(claims, bound):
    if causal_word(claims, bound) == "negligible":
        assert causal_word(claims, 2 * bound) == "negligible"


@pytest.mark.parametrize(
    ("said", "claims"),
    [
        ("major", [[Share(0.7, MAJOR, 0.9)]]),
        ("contributes", [[Share(0.6, 0.4, 0.8)], [Share(-0.2, -0.3, -0.1)]]),
        ("undecided", [[Share(0.6, 0.5, 0.7), Share(0.1, 0.0, 0.2)]]),
        ("negligible", [[Share(0.0, -NEGLIGIBLE, NEGLIGIBLE)]]),
        ("undecided", [[Share(0.0, -NEGLIGIBLE, 2 * NEGLIGIBLE)]]),
        ("suppresses", [[Share(-0.1, -0.2, -0.05)], [Share(0.1, -0.1, 0.3)]]),
        ("not_tested", []),
    ],
)
def test_the_ends_of_intervals_decide(said, claims):
    assert causal_word(claims) == said
    assert "_" not in in_words(said)
