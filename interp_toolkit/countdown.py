"""How far a long run of like steps is, in words: how many of how many, and about how long still."""

from __future__ import annotations

import time
from collections.abc import Callable

SOON = 3.0  # seconds below which nothing is said of the time left
ENOUGH = 2.0  # seconds that must be spent before they say how long the rest will take


class Countdown:
    """Says after every step what is done and about what time is left.

    Args:
        say: is told, in words.
        total: steps.
        what: is being done.
        unit: what a step is, in the plural.

    Examples:
        >>> said = []
        >>> count = Countdown(said.append, 3, "cutting edges")
        >>> count.step()
        >>> said
        ['cutting edges: 1 of 3 passes']
    """

    def __init__(self, say: Callable[[str], None], total: int, what: str, unit: str = "passes"):
        self._say, self._total, self._what, self._unit = say, total, what, unit
        self._done, self._began = 0, time.monotonic()

    def step(self, steps: int = 1) -> None:
        """One step more, or several."""
        self._done += steps
        self._say(f"{self._what}: {so_far(self._done, self._total, self._began, self._unit)}")


def so_far(done: float, total: float, since: float, unit: str = "passes") -> str:
    """So many of so many, and about how much time is left where that is known and some seconds.

    Args:
        done: steps that were made; parts count.
        total: of how many, at most.
        since: when the first began, of `time.monotonic`.
        unit: what a step is, in the plural.
    """
    left = time_left(time.monotonic() - since, done, total - done)
    told = f", {left} left" if left else ""
    return f"{_number(done)} of {_number(total)} {unit}{told}"


def time_left(spent: float, done: float, rest: float) -> str | None:
    """About how long the rest takes, in words; None where that is not known yet, or nearly over.

    Args:
        spent: seconds, on the steps that were made.
        done: these steps.
        rest: the steps to be made.

    Examples:
        >>> time_left(10.0, 2, 8), time_left(1.0, 2, 8), time_left(10.0, 9, 1)
        ('40 s', None, None)
    """
    if done <= 0 or spent < ENOUGH:
        return None
    left = spent * rest / done
    return in_words(left) if left >= SOON else None


def in_words(seconds: float) -> str:
    """About how long, as people say it: `40 s`, `3 min`, `2.5 h`.

    Examples:
        >>> in_words(41.7), in_words(200), in_words(9000)
        ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _number(steps: float) -> str:
    return f"{steps:,.0f}" if float(steps).is_integer() else f"{steps:.1f}"
