"""A study of the source whose outcome is claims with intervals, beside quantities over seeds.

Claims are stated before the numbers are looked at, by the rules of `studies.open.finding`; all
intervals of a study hold together at 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from interp_toolkit.results import Table
from interp_toolkit.studies.open.finding import Finding, coverage_of_each, findings_table
from interp_toolkit.studies.result import StudyResult
from interp_toolkit.studies.seed_interval import over_seeds


@dataclass(frozen=True)
class ClaimsResult(StudyResult):
    """A study of the source with claims.

    Attributes:
        findings: the claims and what came of them.
    """

    findings: Sequence[Finding] = field(kw_only=True)

    def tables(self) -> list[Table]:
        """The claims, then as every study has them."""
        return [findings_table(self.findings), *super().tables()]


@dataclass(frozen=True)
class SeedClaim:
    """A claim about the mean over seeds of a number that each seed has.

    Attributes:
        claim: in words, with its bound.
        values: by seed.
        above, below: the claim is that the mean lies above the first and below the second.
        overturned_by: what a reader would have to see to give it up.
    """

    claim: str
    values: Sequence[float]
    above: float = -float("inf")
    below: float = float("inf")
    overturned_by: str = ""


def judged(claims: Sequence[SeedClaim]) -> list[Finding]:
    """Every claim with its interval; of one seed it is unbounded, and nothing is decided."""
    level = coverage_of_each(len(claims))
    found = []
    for claim in claims:
        interval = over_seeds(claim.values, level=level)
        n = len(claim.values)
        found.append(
            Finding(
                claim.claim,
                interval.value,
                interval.low,
                interval.high,
                f"{n} {'seed' if n == 1 else 'seeds'}",
                above=claim.above,
                below=claim.below,
                overturned_by=claim.overturned_by,
            )
        )
    return found


def between(finding: Finding, digits: int = 2) -> str:
    """A finding's value and interval, for a sentence."""
    value, low, high = (
        f"{x:.{digits}f}".replace("-", "−") for x in (finding.value, finding.low, finding.high)
    )
    return f"{value} ({low} to {high})"
