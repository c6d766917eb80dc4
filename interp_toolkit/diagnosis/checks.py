"""One check and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from interp_toolkit.models.loading.quietly import one_line

Answer = Literal["passed", "failed", "differs", "not_applicable", "undecided"]
#: a tolerance above this share of what is compared separates nothing
BLUNT = 0.1


@dataclass(frozen=True)
class Check:
    """What one check found.

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
    said: str = "",
    places: Sequence[str] = (),
) -> Check:
    """A difference beside its tolerance: passed, failed, or undecided where that separates nothing.

    Args:
        section, name: see `Check`.
        difference: the largest found; NaN fails.
        tolerance: see `Check`.
        scale: the size of what is compared.
        basis, said, places: see `Check`.
    """
    numbers = {"difference": difference, "tolerance": tolerance, "basis": basis}
    if not difference <= tolerance:  # NaN too
        return Check(section, name, "failed", said or "not the same", **numbers, places=places)  # type: ignore[arg-type]
    if tolerance > BLUNT * scale > 0:
        reason = "the same up to rounding, which here is too coarse to tell"
        return Check(section, name, "undecided", reason, **numbers, places=places)  # type: ignore[arg-type]
    return Check(section, name, "passed", "the same up to rounding", **numbers)  # type: ignore[arg-type]


def guarded(section: str, name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """The checks, or one that says why they could not be made."""
    try:
        return list(check())
    except Exception as error:  # strangers' models fail in every way
        reason = f"could not be asked: {type(error).__name__}: {one_line(error)}"
        return [Check(section, name, "undecided", reason)]


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def largest(values: Iterable[float]) -> float:
    """The largest; NaN where any is."""
    values = list(values)
    return math.nan if any(math.isnan(v) for v in values) else max(values, default=0.0)
