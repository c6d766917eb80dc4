"""The rule of evidence: no status contradicts what it is given, whatever that is."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.evidence import (
    Control,
    comparisons_status,
    control_of_copies,
    control_of_p,
    effect_status,
)

OUTCOMES = ("passed", "failed", "undecided", "powerless")
controls = st.lists(
    st.builds(lambda outcome: Control("c", outcome, "why"), st.sampled_from(OUTCOMES)), max_size=4
)
ends = st.one_of(st.just(math.nan), st.floats(-2, 2))


@given(ends, ends, st.floats(0.01, 1), controls, st.booleans())
def test_no_status_contradicts_its_evidence(a, b, threshold, made, performs):
    low, high = (a, b) if not (a > b) else (b, a)
    status, reason = effect_status(low, high, threshold, made, performs_task=performs)
    outcomes = [c.outcome for c in made if c.counts]
    if status == "detected":
        assert performs
        assert low >= threshold
        assert set(outcomes) == {"passed"}
        assert reason is None
    else:
        assert reason
    if status == "not_detected":
        assert performs
        assert outcomes
        assert high < threshold
    if not performs:
        assert status == "not_tested"
    if not outcomes:  # a missing or powerless control neither confirms nor denies
        assert status in ("undecided", "not_tested")
    if "failed" in outcomes and performs and low >= threshold and not math.isnan(high):
        assert status == "uninformative"


@given(
    st.lists(st.one_of(st.just(math.nan), st.floats(0, 1)), max_size=6),
    st.floats(0.01, 0.2),
    st.floats(0, 0.3),
)
def test_tests_are_denied_only_where_they_could_have_found(p_values, level, smallest):
    p = np.array(p_values, dtype=float)
    status, _ = comparisons_status(p, level, smallest)
    known = p[~np.isnan(p)]
    if status == "detected":
        assert (known <= level).any()
    elif status == "not_detected":
        assert len(known)
        assert smallest <= level
    else:
        assert not len(known) or smallest > level


def test_a_control_of_too_few_draws_has_no_power():
    assert control_of_p("copies", 0.25, 0.05, smallest=0.25).outcome == "powerless"
    assert control_of_p("copies", 0.05, 0.05, smallest=0.05).outcome == "passed"
    assert control_of_p("copies", 0.3, 0.05, smallest=0.05).outcome == "failed"
    assert control_of_p("copies", math.nan, 0.05).outcome == "powerless"


def test_an_effect_is_held_against_what_copies_without_it_give():
    copies = np.tile([0.1, 0.2, 0.3, 0.2], 5)
    spread = copies.std(ddof=1)
    limit = 0.2 + 1.729 * spread * np.sqrt(21 / 20)  # t table: 95 %, 19 degrees of freedom
    assert control_of_copies("c", 0.6, limit + 0.01, copies).outcome == "passed"
    assert control_of_copies("c", 0.6, limit - 0.01, copies).outcome == "undecided"
    assert control_of_copies("c", limit - 0.01, 0.0, copies).outcome == "failed"
    assert control_of_copies("c", 0.6, 0.5, copies[:18]).outcome == "powerless"
    assert control_of_copies("c", 0.6, 0.5, np.append(copies[:18], np.nan)).outcome == "powerless"
    assert control_of_copies("c", 0.32, 0.31, copies, largest=0.325).outcome == "powerless"
    assert control_of_copies("c", 0.25, 0.2, copies, largest=0.36).outcome == "failed"


def test_one_copy_in_nineteen_that_is_as_good_is_too_many():
    copies = np.append(np.zeros(18), 1.0)
    assert control_of_copies("c", 1.0, 0.9, copies).outcome == "failed"
    assert control_of_copies("c", 1.0, 0.9, copies[-3:]).outcome == "failed"
    assert control_of_copies("c", 1.0, 0.9, np.append(np.zeros(38), 1.0)).outcome == "passed"


def test_a_required_control_without_power_leaves_the_claim_undecided():
    passed, without = Control("labels", "passed"), Control("copies", "powerless", "none")
    assert effect_status(0.2, 0.4, 0.1, [passed, without])[0] == "detected"
    required = replace(without, required=True)
    assert effect_status(0.2, 0.4, 0.1, [passed, required]) == ("undecided", "none")
    assert effect_status(0.0, 0.05, 0.1, [passed, required])[0] == "not_detected"


def test_copies_of_the_same_kind_are_seldom_exceeded():
    draws = np.random.default_rng(0).normal(size=(2000, 20))
    passed = [control_of_copies("c", row[0], row[0], row[1:]).outcome == "passed" for row in draws]
    assert 0.03 < np.mean(passed) < 0.07
