"""A quantity of each seed, the claim that its mean lies somewhere, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from interp_toolkit.studies.open.finding import Finding
from interp_toolkit.studies.seed_interval import over_seeds

UNKNOWN = "not known"


def over_seeds_finding(
    claim: str,
    by_seed: Sequence[float],
    level: float,
    *,
    units: str,
    above: float = -math.inf,
    below: float = math.inf,
    overturned_by: str,
    factor: bool = False,
    check: bool = False,
) -> Finding:
    """The claim that the mean over seeds lies above, below or between.

    Where a seed's quantity is not finite, nothing is known of the mean.

    Args:
        claim: in words, with its bound.
        by_seed: the quantity, one a seed.
        level: the coverage of its interval (see `coverage_of_each`).
        units: what the interval is over.
        above: the claim is that the mean lies above this.
        below: and below this.
        overturned_by: what a reader would have to see to give it up.
        factor: the quantity is a ratio or a size: the mean is geometric, and its interval, taken
            on logarithms, stays above 0.
        check: whether it holds by a theorem or by construction.
    """
    known = all(math.isfinite(x) and (x > 0 or not factor) for x in by_seed)
    if known:
        mean = over_seeds([math.log(x) for x in by_seed] if factor else by_seed, level=level)
        low, value, high = mean.low, mean.value, mean.high
    else:
        low, value, high = -math.inf, math.nan, math.inf
    if factor:
        low, value, high = math.exp(low), math.exp(value), math.exp(high)
    return Finding(
        claim,
        value,
        low,
        high,
        units,
        above=above,
        below=below,
        overturned_by=overturned_by,
        check=check,
    )


def in_words(finding: Finding, digits: int = 2) -> str:
    """The estimate with its interval; that it is not known where the interval is everything."""
    if not all(math.isfinite(x) for x in (finding.low, finding.value, finding.high)):
        return UNKNOWN
    low, value, high = (f"{x:.{digits}f}" for x in (finding.low, finding.value, finding.high))
    return f"{value} ({low} to {high})"


def outcome_in_words(finding: Finding, confirmed: str, refuted: str, subject: str) -> str:
    """A clause that says no more than the finding's judgement, with the estimate.

    Args:
        finding: the claim, and what came of it.
        confirmed: what holds where it is confirmed; the estimate follows.
        refuted: what holds where it is refuted, in the same way.
        subject: what is asked, such as "how it grows", for where neither is known.
    """
    said = {"confirmed": confirmed, "refuted": refuted}.get(finding.judgement)
    found = in_words(finding)
    if said is None:
        return f"{subject} is {UNKNOWN}" + ("" if found == UNKNOWN else f": {found}")
    return f"{said} {found}"
