"""One check and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from interp_toolkit.errors import InputError, one_line
from interp_toolkit.formatting import listed as listed

Answer = Literal["passed", "failed", "differs", "not_applicable", "undecided"]
#: a difference above this share of what is compared is not small, whatever rounding may do
SMALL = 0.02


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        section: what it belongs to: hooks, sums, weights, told, reload, original, conditions,
            prompts.
        name: what was asked.
        answer: passed; failed (a fault of this model); differs (by design of the class or release,
            worth knowing); not_applicable; undecided (could not be run, or not told apart).
        said: what was found, in a phrase.
        difference: the largest found, in the units of what is compared; None where nothing is.
        tolerance: up to which it is rounding.
        basis: where the tolerance comes from.
        places: hook points or tensors that it is about, all of them.
        instead: what to use in their place.
    """

    section: str
    name: str
    answer: Answer
    said: str
    difference: float | None = None
    tolerance: float | None = None
    basis: str | None = None
    places: Sequence[str] = ()
    instead: str | None = None


def measured(
    section: str,
    name: str,
    difference: float,
    tolerance: float,
    scale: float,
    basis: str,
    said: str = "not the same",
    places: Sequence[str] = (),
) -> Check:
    """A difference beside its tolerance: passed, failed (NaN too), or undecided.

    Undecided is what rounding may explain and is not small beside `scale`, the size of what is
    compared; `said` is said of a failure.
    """
    answer = judged(difference, tolerance, scale)
    if answer == "failed":
        return Check(section, name, answer, said, difference, tolerance, basis, places)
    return Check(section, name, answer, WORDS[answer], difference, tolerance, basis)


NOT_ASKED = "could not be asked"
#: what is said of an answer
WORDS: dict[Answer, str] = {
    "passed": "the same up to rounding",
    "undecided": "rounding may explain a difference that is not small: it cannot be told",
}


def judged(difference: float, tolerance: float, scale: float) -> Answer:
    """The answer from a difference, its tolerance and the size of the compared values."""
    if not difference <= tolerance:  # NaN too
        return "failed"
    return "passed" if difference <= max(SMALL * scale, 0.0) else "undecided"


def guarded(section: str, name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """The checks, or one that says why they could not be made."""
    try:
        return list(check())
    except InputError as error:  # it says what the model does not have
        return [Check(section, name, "not_applicable", str(error))]
    except Exception as error:  # strangers' models fail in every way
        reason = f"{NOT_ASKED}: {type(error).__name__}: {one_line(error)}"
        return [Check(section, name, "undecided", reason)]


def largest(values: Iterable[float]) -> float:
    """The largest; NaN where any is."""
    values = list(values)
    return math.nan if any(math.isnan(v) for v in values) else max(values, default=0.0)
