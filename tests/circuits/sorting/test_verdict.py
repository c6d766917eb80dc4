"""The words of a verdict say what the numbers beside them say."""

from __future__ import annotations

import pytest

from interp_toolkit.circuits.sorting.criteria import MIN_GREATER, Algorithm
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy
from interp_toolkit.circuits.sorting.fingerprint import sorting_fingerprint
from interp_toolkit.circuits.sorting.measures.swap import Swaps
from interp_toolkit.circuits.sorting.verdict import Alike, evidence_of, sentence
from interp_toolkit.toys.sorting.sorters import sort_min_greater

ACCURACY = {"random": ListAccuracy(0.9995, 0.998, 1.0, 1.0, 0.0, 4000)}


def said(algorithm: Algorithm, swaps: Swaps | None, alike: Alike) -> str:
    return sentence(algorithm, [], ACCURACY, True, distinct=True, swaps=swaps, alike=alike)


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
        (MIN_GREATER, Alike(0, 0), "detected"),
        ("mixed", Alike(1, 20), "uninformative"),
        ("neither", Alike(0, 20), "not_detected"),
    ],
)
def test_what_re_initialised_models_show_too_is_uninformative(
    algorithm: Algorithm, alike: Alike, status: str
) -> None:
    found = evidence_of(algorithm, autoregressive=True, alike=alike, weights_residual=0.0)
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
    assert "do so too of 2 of 2 re-initialised models" in found.verdict
