"""The rule of evidence: no status contradicts what it is given, and none is made elsewhere."""

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import interp_toolkit
from interp_toolkit.evidence import (
    POWER,
    Answer,
    Control,
    all_of,
    any_of,
    comparisons_status,
    control_of_copies,
    control_of_excess,
    control_of_p,
    effect_status,
    equivalence_status,
    first_shown,
    power_of_z,
)

OUTCOMES = ("passed", "failed", "undecided", "powerless")
controls = st.lists(
    st.builds(lambda outcome: Control("c", outcome, "why"), st.sampled_from(OUTCOMES)), max_size=4
)
ends = st.one_of(st.just(math.nan), st.floats(-2, 2))


@given(ends, ends, st.floats(0.01, 1), controls, st.sampled_from([None, "of no single head"]))
def test_no_status_contradicts_its_evidence(a, b, threshold, made, unconfirmed):
    low, high = (a, b) if not (a > b) else (b, a)
    status, reason = effect_status(low, high, threshold, made, unconfirmed=unconfirmed)
    outcomes = [c.outcome for c in made if c.counts]
    if status == "detected":
        assert unconfirmed is None
        assert low >= threshold
        assert set(outcomes) == {"passed"}
        assert reason is None
    else:
        assert reason
    if status == "not_detected":
        assert outcomes
        assert high < threshold
    if not outcomes:  # a missing or powerless control neither confirms nor denies
        assert status == "undecided"
    if "failed" in outcomes and not unconfirmed and low >= threshold and not math.isnan(high):
        assert status == "uninformative"


@given(
    st.lists(st.one_of(st.just(math.nan), st.floats(0, 1)), max_size=6),
    st.floats(0.01, 0.2),
    st.one_of(st.just(math.nan), st.floats(0, 1)),
)
def test_tests_are_denied_only_where_they_could_have_found(p_values, level, power):
    p = np.array(p_values, dtype=float)
    status, _ = comparisons_status(p, level, power=power, least="half")
    known = p[~np.isnan(p)]
    if status == "detected":
        assert (known <= level).any()
    elif status == "not_detected":
        assert len(known)
        assert power >= POWER
    else:
        assert not len(known) or not power >= POWER


def test_power_is_the_share_of_such_effects_that_are_significant():
    rng, tests = np.random.default_rng(0), 10
    p = stats.norm.sf(rng.normal(3.0, 1.0, 20_000))
    assert power_of_z(np.array([3.0, 5.0]), 0.05, tests) == pytest.approx(
        (p <= 0.05 / tests).mean(), abs=0.02
    )
    assert math.isnan(power_of_z(np.array([math.nan]), 0.05, tests))


STATUSES = ("detected", "not_detected", "undecided", "uninformative", "not_tested")
statuses = st.lists(st.sampled_from(STATUSES), max_size=4)


@given(statuses, st.booleans())
def test_a_choice_is_denied_only_if_all_of_it_is(given_statuses, complete):
    status = any_of(given_statuses, complete=complete)
    assert (status == "detected") == ("detected" in given_statuses)
    if status == "not_detected":
        assert complete
        assert set(given_statuses) == {"not_detected"}


@given(statuses)
def test_a_requirement_is_met_only_if_all_of_it_is(given_statuses):
    status, _ = all_of([(one, one) for one in given_statuses])
    assert (status == "detected") == (set(given_statuses) == {"detected"})
    assert (status == "not_detected") == ("not_detected" in given_statuses)


@given(st.floats(-2, 2), st.floats(0, 2), st.floats(0.05, 0.5))
def test_a_share_is_all_only_if_its_interval_is_near_1(low, width, within):
    high, passed = low + width, [Control("rivals", "passed")]
    status, _ = equivalence_status(low, high, within, passed)
    assert (status == "detected") == (low >= 1 - within and high <= 1 + within)
    assert status != "partial" or low > 0


def test_an_excess_passes_above_and_fails_below():
    assert control_of_excess("c", 0.1, 0.2, "why").outcome == "passed"
    assert control_of_excess("c", -0.2, -0.1, "why").outcome == "failed"
    assert control_of_excess("c", -0.2, 0.04, "why", none=0.05).outcome == "failed"
    assert control_of_excess("c", math.nan, math.inf, "why").outcome == "undecided"


def test_what_is_not_shown_is_undecided():
    shown = {"a": np.array([True, False, False]), "b": np.array([True, True, False])}
    assert first_shown(shown) == ["a", "b", "undecided"]


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


#: words of an outcome of evidence; those of checks by exact comparison (`doctor`) are others
MADE = {
    *("detected", "not_detected", "partial", "described", "computed", "before", "absent", "unseen"),
    *("uninformative", "undecided", "not_tested", "separable", "not_separable", *get_args(Answer)),
}
#: other scales, with words of their own that are spelled alike
SCALES = {
    "diagnosis": "two ways to compute one number, compared by its rounding error",
    "circuits/metrics/causal_words.py": "the size of an effect; no status rests on it",
    "circuits/sorting/criteria.py": "where an interval lies between two thresholds",
    "circuits/roles/kinds.py": "a head's word for each status",
    "probes/estimators/separability.py": "an exact certificate, without a null",
}
NAMES = {"status", "answer", "outcome", "claim"}


def words_made(tree: ast.AST) -> Iterator[ast.Constant]:
    """Words of an outcome that code returns, stores or hands over, and does not only compare.

    The rule may be handed a word for what it decides. Tuples of words, subscripts, keys and tables
    for display (tuples in tuples) only read them.
    """
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and node.value in MADE):
            continue
        within = above[node]
        if isinstance(within, ast.Tuple):
            within = above[within]
            made = isinstance(within, ast.Return | ast.Assign | ast.AnnAssign | ast.IfExp) and any(
                not (isinstance(e, ast.Constant) and e.value in MADE) for e in above[node].elts
            )
        elif isinstance(within, ast.IfExp):
            by_rule = isinstance(above[within], ast.keyword) and above[within].arg == "confirmed"
            made = node is not within.test and not by_rule
        elif isinstance(within, ast.keyword):
            made = within.arg in NAMES
        elif isinstance(within, ast.Call):
            called = within.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            made = name[:1].isupper() and node.value != "computed"  # also a `Method`
        elif isinstance(within, ast.Dict):
            made = node in within.values
        else:
            made = isinstance(within, ast.Return | ast.Assign | ast.AnnAssign | ast.Lambda)
        if made:
            yield node


def test_no_status_is_made_outside_the_rule():
    root = Path(interp_toolkit.__file__).parent
    outside = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name != "evidence.py" and not name.startswith(tuple(SCALES)):
            nodes = words_made(ast.parse(path.read_text(encoding="utf-8")))
            outside += [f"{name}:{node.lineno}: {node.value}" for node in nodes]
    assert outside == []
    for scale in SCALES:
        files = [root / scale] if scale.endswith(".py") else sorted((root / scale).rglob("*.py"))
        assert any(True for f in files for _ in words_made(ast.parse(f.read_text("utf-8"))))


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("return 'undecided'", True),
        ("return 'undecided', reason", True),
        ("status = 'detected' if p <= level else 'undecided'", True),
        ("answer: Answer = 'refuted'", True),
        ("Part('there', 'not_testable', text)", True),
        ("replace(head, status='not_detected')", True),
        ("words = {'detected': 'separable'}", True),
        ("lambda head: 'detected'", True),
        ("if status == 'detected': pass", False),
        ("if status in ('detected', 'partial'): pass", False),
        ("HEADLINES = {'undecided': 'Undecided.'}", False),
        ("Part('there', answer, text, 'computed')", False),
        ("n = counts['undecided']", False),
    ],
)
def test_the_search_for_statuses_sees_where_one_is_made(code, made):
    assert any(True for _ in words_made(ast.parse(code))) == made
