from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from interp_toolkit.registry import load_all
from interp_toolkit.report.format import (
    evidence_of,
    format_column,
    format_number,
    format_value,
    is_numeric,
    label_of,
    legend,
    sign_of,
)
from interp_toolkit.results import Evidence, Result


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.21749812, "0.2175"),
        (1.0, "1.000"),
        (-0.5, "-0.5000"),
        (12.3456, "12.35"),
        (123456.7, "123457"),
        (0.001, "0.001000"),
        (0.0009, "9.00e-04"),
        (3.14159e-17, "3.14e-17"),
        (2.5e6, "2.50e+06"),
        (0.0, "0"),
        (12, "12"),
        (1234567890, "1234567890"),
        (float("nan"), "–"),
        (float("-inf"), "–"),
    ],
)
def test_a_number_has_four_significant_digits_and_an_integer_all_of_its_own(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        ("not_separable", "not separable"),
        ("hook_z", "hook_z"),  # a name keeps its underscores, a status does not
        ([0.5, 0.25], "[0.5000, 0.2500]"),
        (list(range(100)), "[0, 1, 2, 3, 4, … 95 more]"),
        (["a", "b"], "a, b"),
        ([], "[]"),
        ({"p_value": 0.01, "n": 3}, "p value 0.01000, n 3"),
        ([{"head": 1}, {"head": 2}], "(head 1), (head 2)"),
        ([[1, 2], [3, 4]], "([1, 2]), ([3, 4])"),
    ],
)
def test_any_plain_value_reads_on_one_line(value, text):
    assert format_value(value) == text


def test_the_floats_of_a_column_share_their_decimals():
    assert format_column([0.2175, 1.0, None, float("nan")]) == ["0.2175", "1.0000", "–", "–"]
    assert format_column([12.5, 130.25]) == ["12.50", "130.25"]
    assert format_column([0.5, 0.0]) == ["0.5000", "0.0000"]


def test_a_column_of_very_different_sizes_keeps_their_digits():
    assert format_column([0.25, 2e-13, 0.0]) == ["0.2500", "2.00e-13", "0"]


def test_a_column_takes_numpy_scalars():
    cells = [np.float32(0.5), np.float64(0.25), np.int64(3)]
    assert format_column(cells) == ["0.5000", "0.2500", "3"]
    assert is_numeric(cells)


def test_a_column_is_numeric_unless_it_holds_words_or_booleans():
    assert is_numeric([1, 2.5, None, float("nan")])
    assert not is_numeric([1, "2"])
    assert not is_numeric([True, False])


def test_the_sign_follows_the_status(separable, not_separable):
    assert (sign_of(separable), sign_of(not_separable)) == ("✓", "✗")


def test_a_status_of_an_analysis_own_vocabulary_has_a_plain_sign(separable):
    object.__setattr__(separable, "evidence", Evidence("argmax_piecewise_linear"))
    assert separable.status == "argmax_piecewise_linear"
    assert sign_of(separable) == "•"


@pytest.mark.parametrize(
    ("status", "sign"),
    [
        ("detected", "✓"),
        ("absent", "✗"),
        ("not_detected", "–"),
        ("undecided", "?"),
        ("uninformative", "?"),
        ("partial", "?"),
        ("refuted", "!"),
        ("not_reached", "!"),
    ],
)
def test_signs_follow_the_strength_of_the_claim(separable: Result, status, sign):
    object.__setattr__(separable, "evidence", Evidence(status))
    assert sign_of(separable) == sign


def test_the_legend_explains_the_signs_that_are_used(separable, not_separable):
    assert [tone for _, tone, _ in legend([separable, not_separable])] == ["yes", "no"]
    assert [tone for _, tone, _ in legend([not_separable])] == ["no"]


def test_the_legend_explains_the_sign_of_a_description(separable: Result, not_separable: Result):
    object.__setattr__(separable, "evidence", Evidence("described"))
    assert legend([separable]) == [("•", None, "described: no claim")]
    assert [sign for sign, _, _ in legend([separable, not_separable])] == ["✗", "•"]


def test_missing_evidence_is_left_out_and_notes_are_said(not_separable):
    object.__setattr__(not_separable, "notes", ("one", "two"))
    assert evidence_of(not_separable)["notes"] == "one; two"
    assert "hyperplane" not in evidence_of(not_separable)


def test_evidence_leaves_the_status_to_the_sign(not_separable):
    assert list(evidence_of(not_separable)) == ["certificate", "theorem"]


def classes_of_evidence(base: type[Evidence] = Evidence) -> list[type[Evidence]]:
    return [base, *(more for each in base.__subclasses__() for more in classes_of_evidence(each))]


def test_no_number_of_the_evidence_takes_another_ones_label():
    """A page shows the evidence by label, so that a second field of one label would hide one."""
    for group in ("probes", "artefacts"):
        load_all(group)
    import interp_toolkit.auditing.analysis
    import interp_toolkit.diagnosis.analysis  # noqa: F401

    classes = [c for c in classes_of_evidence() if c.__module__.startswith("interp_")]
    assert len(classes) > 20
    for evidence in classes:
        names = [field.name for field in dataclasses.fields(evidence)]
        labels = [label_of(name, evidence) for name in names]
        assert len({*labels, "notes"}) == len(labels) + 1, evidence


def test_both_intervals_of_a_circuit_are_shown(analyzed):
    result = analyzed("toy:induction", "circuit")
    shown = evidence_of(result)
    lows = [value for label, value in shown.items() if label.endswith("95 % CI from")]
    assert lows == [result.evidence.faithfulness_low, result.evidence.rest_keeps_low]
