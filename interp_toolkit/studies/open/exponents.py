"""Power laws over seeds: each seed's own exponent, and the claim that their mean lies somewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from interp_toolkit.studies.open.finding import Finding
from interp_toolkit.studies.seed_interval import over_seeds

LEAST = 1e-12  # what a value of 0 is taken for on a logarithmic scale


def exponent(x: Iterable[float | int], y: Iterable[float]) -> float:
    """The k of y ~ x^k, least squares on logarithms; x positive, y at least LEAST."""
    logs = (
        np.log(np.array(list(x), dtype=float)),
        np.log(np.maximum(np.array(list(y), dtype=float), LEAST)),
    )
    return float(np.polyfit(*logs, 1)[0])


def over_seeds_finding(
    claim: str,
    by_seed: Sequence[float],
    level: float,
    *,
    units: str,
    above: float = -math.inf,
    below: float = math.inf,
    overturned_by: str,
) -> Finding:
    """The claim that the mean over seeds lies above, below or between.

    Args:
        claim: in words, with its bound.
        by_seed: the quantity, one a seed.
        level: the coverage of its interval (see `coverage_of_each`).
        units: what the interval is over.
        above: the claim is that the mean lies above this.
        below: and below this.
        overturned_by: what a reader would have to see to give it up.
    """
    mean = over_seeds(by_seed, level=level)
    return Finding(
        claim,
        mean.value,
        mean.low,
        mean.high,
        units,
        above=above,
        below=below,
        overturned_by=overturned_by,
    )


def in_words(finding: Finding, digits: int = 2) -> str:
    """The estimate with its interval."""
    low, value, high = (f"{x:.{digits}f}" for x in (finding.low, finding.value, finding.high))
    return f"{value} ({low} to {high})"
