"""The status and the words of a finding say what the numbers beside them say."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from interp_toolkit.circuits.sorting import analysis
from interp_toolkit.circuits.sorting.activations import Swaps
from interp_toolkit.circuits.sorting.analysis import (
    SortingEvidence,
    headline,
    sentences,
    sorting_fingerprint,
)
from interp_toolkit.circuits.sorting.criteria import (
    ARGMAX,
    MIN_GREATER,
    Algorithm,
    Controls,
    Criterion,
    Interval,
    criteria_of,
    decide,
    status_of,
)
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy
from interp_toolkit.toys.sorting import sort_min_greater

ACCURACY = {"random": ListAccuracy(4000, 0.9995, 0.998, 1.0, 1.0, 0.0)}


def words(algorithm: Algorithm, swaps: Swaps | None, controls: Controls, criteria=()) -> str:
    status, reason = status_of(algorithm, criteria, True, controls)
    evidence = SortingEvidence(
        status, None, controls.models, controls.alike, "", 0.0, reason=reason
    )
    found = sentences(algorithm, evidence, criteria, ACCURACY, {}, swaps, True)
    return " ".join([headline(algorithm, evidence, swaps), *found])


def swapped(
    token: Interval, position: Interval, null: float | None = 0.1, **values: float
) -> list[Criterion]:
    """Criteria of a model of whose swapped outputs these shares follow."""
    intervals = {"follows_token": token, "follows_position": position}
    values |= {name: sum(ends) / 2 for name, ends in intervals.items()}
    nulls = {} if null is None else {name: [null] for name in intervals}
    return criteria_of(values, nulls, autoregressive=True, intervals=intervals)


LOW, HIGH = (0.02, 0.05), (0.94, 0.97)


@pytest.mark.parametrize(
    ("token", "position", "controls", "status"),
    [
        (HIGH, LOW, Controls(0, 20), "undecided"),
        (LOW, HIGH, Controls(0, 20), "undecided"),
        (LOW, LOW, Controls(0, 20), "not_detected"),
        ((0.1, 0.4), LOW, Controls(0, 20), "undecided"),
        (LOW, LOW, Controls(0, 0), "undecided"),
    ],
)
def test_neither_is_said_only_where_swaps_show_neither(token, position, controls, status, texts):
    criteria = swapped(token, position, above_lift=0.0, kink_r2=0.0)
    assert decide(criteria, sorts=True) == "neither"
    found = status_of("neither", criteria, True, controls)
    assert found[0] == status
    texts(found[1])
    text = words("neither", None, controls, criteria)
    texts(text)
    assert status_of("neither", criteria, False, controls)[0] == "not_tested"
    assert status_of("neither", [], True, controls)[0] == "undecided"


def test_an_algorithm_is_detected_only_beyond_weight_shuffled_models(texts):
    for null, controls, status in (
        (0.1, Controls(0, 20), "detected"),
        (0.95, Controls(0, 20), "uninformative"),
        (0.1, Controls(0, 5), "undecided"),
        (None, Controls(0, 0), "undecided"),
        (0.1, Controls(1, 5), "uninformative"),
    ):
        criteria = swapped(HIGH, LOW, null)
        assert status_of(MIN_GREATER, criteria, True, controls)[0] == status
        text = words(MIN_GREATER, None, controls, criteria)
        assert ("undecided. Undecided: " in text) == (status == "undecided")
        texts(text)


@pytest.mark.parametrize(
    ("token", "position", "algorithm", "status"),
    [
        (HIGH, LOW, MIN_GREATER, "detected"),
        ((0.4, 0.6), LOW, MIN_GREATER, "undecided"),
        ((0.3, 0.45), LOW, MIN_GREATER, "not_detected"),
        (HIGH, (0.25, 0.3), "mixed", "detected"),
        (HIGH, (0.15, 0.3), "mixed", "undecided"),
    ],
)
def test_the_status_follows_from_the_measured_intervals(token, position, algorithm, status):
    criteria = swapped(token, position)
    assert status_of(algorithm, criteria, True, Controls(0, 20))[0] == status


@pytest.mark.parametrize(("error", "status"), [(0.2, "detected"), (0.3, "not_detected")])
def test_small_values_meet_a_criterion_whose_strong_threshold_is_the_smaller(error, status):
    criteria = criteria_of({"logit_slope_error": error}, {}, autoregressive=False)
    assert status_of(ARGMAX, criteria, True, Controls(0, 20))[0] == status


def test_shares_of_swaps_have_their_intervals(texts) -> None:
    criteria = swapped((0.746, 0.835), (0.117, 0.197))
    text = words(MIN_GREATER, Swaps(338, 268 / 338, 52 / 338), Controls(0, 20), criteria)
    texts(text)


@pytest.mark.parametrize(
    ("token", "position"),
    [
        (200, 90),
        (90, 200),
        (150, 140),
    ],
)
def test_of_a_mix_the_prevailing_algorithm_is_named_beyond_the_intervals(token, position, texts):
    evidence = SortingEvidence("detected", None, 20, 0, "", 0.0)
    swaps = Swaps(300, token / 300, position / 300)
    texts(headline("mixed", evidence, swaps))
    texts(headline("mixed", evidence, Swaps(300, 0.5, 0.45)))


@pytest.mark.parametrize(
    ("algorithm", "controls", "status"),
    [
        (MIN_GREATER, Controls(0, 20), "detected"),
        (MIN_GREATER, Controls(3, 20), "uninformative"),
        (MIN_GREATER, Controls(0, 0), "undecided"),
        ("mixed", Controls(1, 20), "uninformative"),
        ("neither", Controls(0, 20), "undecided"),
    ],
)
def test_what_weight_shuffled_models_show_too_is_uninformative(
    algorithm: Algorithm, controls: Controls, status: str, texts
) -> None:
    criteria = swapped(HIGH, HIGH if algorithm == "mixed" else LOW)
    assert status_of(algorithm, criteria, True, controls)[0] == status
    assert status_of(algorithm, [], True, controls)[0] == "undecided"
    text = words(algorithm, None, controls, criteria)
    texts(text)
    assert (f"{controls.alike} of {controls.models} weight-shuffled models meet" in text) == (
        status == "uninformative"
    )


def test_models_that_are_the_same_when_weight_shuffled_are_counted(monkeypatch, texts) -> None:
    """The null taken away: the weight-shuffled model is the model itself."""
    monkeypatch.setattr(analysis, "reinitialised", lambda model, seed: nullcontext())
    found = sorting_fingerprint(sort_min_greater(9, 5), "9 list5 10 sorted5", lists=300, nulls=2)
    assert found.algorithm == MIN_GREATER
    assert (found.evidence.nulls_alike, found.evidence.nulls) == (2, 2)
    texts(found.verdict)


def test_a_sorter_is_detected_with_models_enough_to_compare_with() -> None:
    model = sort_min_greater(9, 5)
    layout = "9 list5 10 sorted5"
    for nulls, status in ((19, "detected"), (18, "undecided")):
        found = sorting_fingerprint(model, layout, lists=300, nulls=nulls)
        assert found.algorithm == MIN_GREATER
        assert found.status == status
