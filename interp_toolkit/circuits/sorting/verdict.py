"""The verdict on a sorting model: what it rests on, and in a sentence; the rule is `criteria`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from interp_toolkit.circuits.sorting.criteria import CAUSAL, Algorithm, Criterion
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy
from interp_toolkit.circuits.sorting.measures.swap import Swaps
from interp_toolkit.evidence import Control, control_of_p, effect_status
from interp_toolkit.results import Evidence, Status
from interp_toolkit.stats import LEVEL

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
    algorithm: Algorithm,
    marks: Sequence[Criterion],
    sorting: bool,
    *,
    autoregressive: bool,
    alike: Alike,
    weights_residual: float,
) -> SortingEvidence:
    """The status, and the numbers that it follows from.

    Args:
        algorithm: that was found.
        marks: the evidence.
        sorting: whether the model sorts at all.
        autoregressive: whether outputs follow one another, so that a previous one can be swapped.
        alike: the re-initialised models that were looked at.
        weights_residual: share of the logits' variance that tables of weights do not rebuild.
    """
    status, reason = judged(algorithm, marks, sorting, alike)
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


def judged(
    algorithm: Algorithm, marks: Sequence[Criterion], sorting: bool, alike: Alike
) -> tuple[Status, str | None]:
    """The status by the rule of evidence, and why it is not "detected".

    An algorithm is *detected* where re-initialised models' marks do not name it and outputs follow
    a swap as it says, certainly more often than theirs. That there is neither is said only where
    swaps could have shown either, and both shares certainly lie below the weak thresholds.
    """
    if not sorting:
        return "not_tested", "the model does not sort"
    swaps = [mark for mark in marks if mark.name in CAUSAL.values() and mark.value is not None]
    if algorithm == "neither":
        return _unnamed(marks, swaps, alike)
    named = CAUSAL if algorithm == "mixed" else {algorithm: CAUSAL[algorithm]}
    controls = [_alike_control(alike)]
    for mark in swaps:
        if mark.name in named.values() and mark.null is not None:
            reason = "after a swap re-initialised models' outputs follow as often as its own"
            # beyond all of them is as likely by chance as that none of their marks is alike
            passed = control_of_p("swaps", 1 / (1 + alike.of), LEVEL, 1 / (1 + alike.of))
            controls.append(passed if mark.beyond_null else Control("swaps", "failed", reason))
    return effect_status(1, 1, 1, controls)


def _alike_control(alike: Alike) -> Control:
    name = "re-initialised models"
    p_value = (1 + alike.models) / (1 + alike.of)
    if alike.models and p_value > LEVEL:
        reason = f"the marks of {alike.models} of {alike.of} {name} name it too"
        return Control(name, "failed", reason)
    return control_of_p(name, p_value, LEVEL, 1 / (1 + alike.of))


def _unnamed(
    marks: Sequence[Criterion], swaps: Sequence[Criterion], alike: Alike
) -> tuple[Status, str | None]:
    """The status of a model that sorts by an algorithm that its marks do not name."""
    if not swaps:
        return "undecided", "too few marks are strong, and no swap of the previous token tells"
    if not alike.of:
        return "undecided", "no re-initialised models were looked at"
    if all(mark.high is not None and mark.high < mark.weak for mark in swaps):
        return "not_detected", "outputs follow neither the swapped token nor the position"
    followed = [mark for mark in swaps if mark.low is not None and mark.low >= mark.weak]
    if not followed:
        return "undecided", "how many outputs follow the swapped token or the position is not sure"
    most = max(followed, key=lambda mark: mark.value or 0.0)
    missing = [m.says for m in marks if m.algorithm == most.algorithm and m.state != "strong"]
    return "undecided", (
        f"after a swap {most.value:.1%} of outputs follow as in {_NUMBERS[most.algorithm]}, but "
        f"not strong are: {', '.join(missing) or 'marks enough'}"
    )


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
    status, reason = judged(algorithm, marks, sorting, alike)
    if status == "uninformative":
        how = (
            f"but how is not told: the marks name {_NUMBERS.get(algorithm, 'a mix')}, but {reason}"
        )
    elif status == "not_detected":
        how = "but by neither algorithm"
    elif algorithm in _PHRASES:
        how = f"by taking {_PHRASES[algorithm]} ({_NUMBERS[algorithm]})"
    elif algorithm == "mixed":
        how = f"by a mix of two algorithms, {' and '.join(_PHRASES.values())}"
    else:
        how = f"but how is undecided: {reason}"
    if status == "undecided" and algorithm != "neither":
        how += f" as far as its marks tell; undecided, as {reason}"
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
