"""A claim, fixed before the numbers are seen, and what its interval says of it.

A claim is that a quantity lies above a bound, below one, or between two. It is confirmed where the
whole interval does, refuted where the whole interval does not, and undecided elsewhere. A study
with k claims gives each an interval of 1 - 0.05/k, so that all of them hold together at 95 %.
A *check* follows from a theorem or from how the thing is made: it can show a fault of the code, and
counts neither for nor against an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from interp_toolkit.results import Table
from interp_toolkit.stats import COVERAGE

Judgement = Literal["confirmed", "refuted", "undecided"]


def coverage_of_each(n_claims: int) -> float:
    """The coverage of each of so many intervals that all hold together at 95 %."""
    return 1 - (1 - COVERAGE) / n_claims


@dataclass(frozen=True)
class JudgedClaim:
    """One claim of a study and what came of it.

    Attributes:
        claim: in words, with its bound.
        value, low, high: the estimate and its interval; NaN where nothing is known of it.
        units: what the interval is over, such as "64 seeds".
        above, below: the claim is that the quantity lies above the first and below the second.
        overturned_by: what a reader would have to see to give it up.
        check: whether it holds by a theorem or by construction.
    """

    claim: str
    value: float
    low: float
    high: float
    units: str
    above: float = -math.inf
    below: float = math.inf
    overturned_by: str = ""
    check: bool = False

    def __post_init__(self) -> None:
        nothing = math.isnan(self.value) and self.high == math.inf
        if not nothing and not self.low <= self.value <= self.high:
            raise ValueError(f"{self.claim}: {self.value} lies outside {self.low} to {self.high}")
        if not self.above < self.below:
            raise ValueError(
                f"{self.claim}: nothing lies above {self.above} and below {self.below}"
            )

    @property
    def judgement(self) -> Judgement:
        """What the interval says of the claim."""
        if self.above < self.low and self.high < self.below:
            return "confirmed"
        return "refuted" if self.high < self.above or self.low > self.below else "undecided"


def claims_table(findings: Sequence[JudgedClaim]) -> Table:
    """Every claim with its interval and its outcome."""
    rows = [
        [
            f.claim,
            "check" if f.check else "claim",
            f.judgement,
            f.value,
            f.low,
            f.high,
            f.units,
            f.overturned_by or None,
        ]
        for f in findings
    ]
    columns = ["claim", "kind", "outcome", "found", "low", "high", "over", "overturned by"]
    caption = (
        "Intervals hold together at 95 %. A claim is confirmed where its whole interval is. Checks "
        "hold by a theorem or by construction."
    )
    return Table("Claims", columns, rows, caption)
