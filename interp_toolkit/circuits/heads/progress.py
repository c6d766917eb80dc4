"""How far a run of forward passes is, in words: passes done, and about how long the rest takes."""

from __future__ import annotations

import time

SOON = 5.0  # seconds: less than that is not told


def passes_done(done: float, total: float, since: float, now: float | None = None) -> str:
    """So many of so many passes, and about how much time is left where that is some seconds.

    Args:
        done: passes that were run.
        total: of how many, at most.
        since: when the first began, of `time.monotonic`.
        now: the time; None: `time.monotonic`.

    Examples:
        >>> passes_done(30.0, 120.0, since=0.0, now=20.0)
        '30 of 120 passes, about 60 s left'
        >>> passes_done(0.0, 120.0, since=0.0, now=0.0)
        '0 of 120 passes'
    """
    now = time.monotonic() if now is None else now
    said = f"{done:.3g} of {total:.4g} passes"
    left = (now - since) / done * (total - done) if done > 0 else 0.0
    if left < SOON:
        return said
    return (
        f"{said}, about {left:.0f} s left"
        if left < 120
        else f"{said}, about {left / 60:.0f} min left"
    )
