"""The words of a verdict say what the numbers beside them say."""

from __future__ import annotations

import pytest

from interp_toolkit.circuits.sorting.criteria import (
    MIN_GREATER,
    Algorithm,
    Criterion,
    Interval,
    criteria_of,
    decide,
)
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy
from interp_toolkit.circuits.sorting.fingerprint import sorting_fingerprint
from interp_toolkit.circuits.sorting.measures.swap import Swaps
from interp_toolkit.circuits.sorting.verdict import Alike, evidence_of, judged, sentence
from interp_toolkit.toys.sorting.sorters import sort_min_greater

ACCURACY = {"random": ListAccuracy(0.9995, 0.998, 1.0, 1.0, 0.0, 4000)}


def said(algorithm: Algorithm, swaps: Swaps | None, alike: Alike, marks=()) -> str:
    return sentence(algorithm, marks, ACCURACY, True, distinct=True, swaps=swaps, alike=alike)


def swapped(
    token: Interval, position: Interval, null: float | None = 0.1, **values: float
) -> list[Criterion]:
    """Marks of a model of whose swapped outputs these shares follow."""
    intervals = {"follows_token": token, "follows_position": position}
    values |= {name: sum(ends) / 2 for name, ends in intervals.items()}
    nulls = {} if null is None else {name: [null] for name in intervals}
    return criteria_of(values, nulls, autoregressive=True, intervals=intervals)


LOW, HIGH = (0.02, 0.05), (0.94, 0.97)


@pytest.mark.parametrize(
    ("token", "position", "alike", "status", "says"),
    [
        (HIGH, LOW, Alike(0, 20), "undecided", "95.5% of outputs follow as in algorithm 1"),
        (LOW, HIGH, Alike(0, 20), "undecided", "95.5% of outputs follow as in algorithm 2"),
        (LOW, LOW, Alike(0, 20), "not_detected", "neither the swapped token nor the position"),
        ((0.1, 0.4), LOW, Alike(0, 20), "undecided", "not sure"),
        (LOW, LOW, Alike(0, 0), "undecided", "no re-initialised models"),
    ],
)
def test_neither_is_said_only_where_swaps_show_neither(token, position, alike, status, says):
    marks = swapped(token, position, above_lift=0.0, kink_r2=0.0)
    assert decide(marks, sorts=True) == "neither"
    found = judged("neither", marks, True, alike)
    assert found[0] == status
    assert says in found[1]
    words = said("neither", None, alike, marks)
    assert ("by neither algorithm" in words) == (status == "not_detected")
    assert ("how is undecided" in words) == (status == "undecided")
    if "as in algorithm 1" in says:
        assert "attention goes to values above the previous" in found[1]
    assert judged("neither", marks, False, alike)[0] == "not_tested"
    assert judged("neither", [], True, alike)[0] == "undecided"


def test_an_algorithm_is_detected_only_beyond_re_initialised_models():
    for null, alike, status in (
        (0.1, Alike(0, 20), "detected"),
        (0.95, Alike(0, 20), "uninformative"),
        (0.1, Alike(0, 5), "undecided"),
        (None, Alike(0, 0), "undecided"),
        (0.1, Alike(1, 5), "uninformative"),
    ):
        marks = swapped(HIGH, LOW, null)
        assert judged(MIN_GREATER, marks, True, alike)[0] == status
        words = said(MIN_GREATER, None, alike, marks)
        assert ("undecided, as" in words) == (status == "undecided")
        assert ("how is not told" in words) == (status == "uninformative")


def test_shares_of_swaps_have_their_intervals() -> None:
    words = said(MIN_GREATER, Swaps(338, 268 / 338, 52 / 338), Alike(0, 20))
    assert (
        "Of 338 outputs after a swap of the previous token, 79.3% (74.6% to 83.5%) follow" in words
    )
    assert "15.4% (11.7% to 19.7%) the position" in words


@pytest.mark.parametrize(
    ("algorithm", "alike", "status"),
    [
        (MIN_GREATER, Alike(0, 20), "detected"),
        (MIN_GREATER, Alike(3, 20), "uninformative"),
        (MIN_GREATER, Alike(0, 0), "undecided"),
        ("mixed", Alike(1, 20), "uninformative"),
        ("neither", Alike(0, 20), "undecided"),
    ],
)
def test_what_re_initialised_models_show_too_is_uninformative(
    algorithm: Algorithm, alike: Alike, status: str
) -> None:
    found = evidence_of(algorithm, [], True, autoregressive=True, alike=alike, weights_residual=0.0)
    assert (found.status, found.nulls, found.nulls_alike) == (status, alike.of, alike.models)
    words = said(algorithm, None, alike)
    assert ("how is not told" in words) == (status == "uninformative")
    assert (f"{alike.models} of {alike.of}" in words) == (status == "uninformative")


def test_models_that_are_the_same_when_re_initialised_are_counted(monkeypatch) -> None:
    """The null taken away: the re-initialised model is the model itself."""
    from contextlib import nullcontext

    from interp_toolkit.circuits.sorting import fingerprint

    monkeypatch.setattr(fingerprint, "reinitialised", lambda model, seed: nullcontext())
    found = sorting_fingerprint(sort_min_greater(9, 5), "9 list5 10 sorted5", lists=300, nulls=2)
    assert found.algorithm == MIN_GREATER
    assert found.alike == (2, 2)
    assert "the marks of 2 of 2 re-initialised models name it too" in found.verdict


def test_a_sorter_is_detected_with_models_enough_to_compare_with() -> None:
    model = sort_min_greater(9, 5)
    layout = "9 list5 10 sorted5"
    for nulls, status in ((19, "detected"), (18, "undecided")):
        found = sorting_fingerprint(model, layout, lists=300, nulls=nulls)
        assert found.algorithm == MIN_GREATER
        assert judged(found.algorithm, found.marks, found.sorting, found.alike)[0] == status
