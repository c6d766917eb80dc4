"""The verdict on a sorting model: what it rests on, and in a sentence; the rule is `criteria`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from interp_toolkit.circuits.sorting.criteria import Algorithm, Criterion
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy
from interp_toolkit.circuits.sorting.measures.swap import Swaps
from interp_toolkit.results import Evidence, Status

_PHRASES = {
    "min_greater_than_previous": "the least value above the previous one",
    "argmax_piecewise_linear": "the largest of f(x) + (k + 0.5) x",
}
_KINDS = {  # by the name of a test set, and whether its lists are distinct
    ("random", False): "random lists",
    ("hard", False): "hard lists",
    ("two_values", False): "lists of two values",
    ("distinct", False): "random lists without repeats",
    ("random", True): "random lists without repeats",
    ("sets", True): "sets",
    ("repeats", True): "random lists with repeats",
}
_NUMBERS = {name: f"algorithm {i}" for i, name in enumerate(_PHRASES, 1)}


class Alike(NamedTuple):
    """How many re-initialised models have marks that name the model's algorithm, of how many."""

    models: int
    of: int


@dataclass(frozen=True)
class SortingEvidence(Evidence):
    """What the verdict on a sorting model rests on.

    Attributes:
        null: what every number is held against; None without any.
        nulls: how many of them.
        nulls_alike: how many of these have marks that name the same algorithm.
        causal: what was done to the model, and looked at.
        weights_residual: share of the logits' variance that tables of weights do not rebuild.
    """

    null: str | None
    nulls: int
    nulls_alike: int
    causal: str
    weights_residual: float


def evidence_of(
    algorithm: Algorithm, *, autoregressive: bool, alike: Alike, weights_residual: float
) -> SortingEvidence:
    """What the verdict rests on.

    Args:
        algorithm: that was found.
        autoregressive: whether outputs follow one another, so that a previous one can be swapped.
        alike: the re-initialised models that were looked at.
        weights_residual: share of the logits' variance that tables of weights do not rebuild.
    """
    status, reason = _status(algorithm, alike)
    swapped = "outputs after the previous token is swapped; "
    return SortingEvidence(
        status=status,
        reason=reason,
        null="the same numbers of re-initialised models" if alike.of else None,
        nulls=alike.of,
        nulls_alike=alike.models,
        causal=f"{swapped if autoregressive else ''}heads replaced by their mean",
        weights_residual=weights_residual,
    )


def _status(algorithm: Algorithm, alike: Alike) -> tuple[Status, str | None]:
    if algorithm == "neither":
        return "not_detected", "it does not sort, or shows too few marks of either algorithm"
    if alike.models:
        return (
            "uninformative",
            f"the marks of {alike.models} of {alike.of} re-initialised models name it too",
        )
    return "detected", None


def sentence(
    algorithm: Algorithm,
    marks: Sequence[Criterion],
    accuracy: Mapping[str, ListAccuracy],
    sorting: bool,
    *,
    distinct: bool,
    swaps: Swaps | None,
    alike: Alike,
) -> str:
    """What is sorted, by which algorithm, and how many marks of each there are.

    Args:
        algorithm: that was found.
        marks: the evidence.
        accuracy: by test set.
        sorting: whether the model sorts at all.
        distinct: whether it was measured on distinct lists.
        swaps: what the output follows, where that was looked at.
        alike: the re-initialised models whose marks name the same algorithm.
    """
    found = ", ".join(
        f"{a.lists_right:.2%} of {a.n:,} {_KINDS[name, distinct]}" for name, a in accuracy.items()
    )
    if not sorting:
        return f"It does not sort ({found} right), so neither algorithm is named."
    tallies = "; ".join(
        f"{number}: {_tally(marks, name)}"
        for name, number in _NUMBERS.items()
        if any(m.algorithm == name for m in marks)
    )
    if algorithm != "neither" and alike.models:
        how = (
            f"but how is not told: the marks, which name {_NUMBERS.get(algorithm, 'a mix')}, do so "
            f"too of {alike.models} of {alike.of} re-initialised models"
        )
    elif algorithm in _PHRASES:
        how = f"by taking {_PHRASES[algorithm]} ({_NUMBERS[algorithm]})"
    elif algorithm == "mixed":
        how = f"by a mix of two algorithms, {' and '.join(_PHRASES.values())}"
    else:
        how = "but by neither algorithm as far as their marks tell"
    return f"It sorts {found}, {how}. {_followed(swaps)}Marks of {tallies}."


def _followed(swaps: Swaps | None) -> str:
    """What the outputs follow, with the intervals."""
    if swaps is None:
        return ""
    token, position = (
        f"{share:.1%} ({low:.1%} to {high:.1%})"
        for share, (low, high) in zip(
            (swaps.token, swaps.position), swaps.intervals.values(), strict=True
        )
    )
    return (
        f"Of {swaps.n:,} outputs after a swap of the previous token, {token} follow the token, "
        f"{position} the position. "
    )


def _tally(marks: Sequence[Criterion], algorithm: str) -> str:
    states = [m.state for m in marks if m.algorithm == algorithm and m.state != "unknown"]
    strong, weak = states.count("strong"), states.count("weak")
    return f"{strong} strong, {weak} weak, of {len(states)}"
