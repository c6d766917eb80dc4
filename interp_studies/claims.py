"""Claims, stated before the numbers are seen and judged together by intervals over seeds.

A claim is that a quantity lies above a bound, below a bound, or between two bounds. It is confirmed
if its whole interval does, refuted if no part of the interval does, and undecided otherwise. A
study with k claims uses intervals of coverage 1 - 0.05/k, so that all hold simultaneously at 95 %.
A *check* follows from a theorem or from the construction. It can reveal a fault of the code, and is
not counted among the claims.

For claims about fractions of a test set, all seeds usually read the same rows. The interval then
includes both errors, from seeds and from test rows (see `seed_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from interp_studies.seed_interval import Interval, over_seeds, over_seeds_contrast
from interp_toolkit.results import Table
from interp_toolkit.stats import COVERAGE

Judgement = Literal["confirmed", "refuted", "undecided"]
UNKNOWN = "not known"


def coverage_of_each(n_claims: int) -> float:
    """The coverage of each of `n_claims` intervals that hold simultaneously at 95 %."""
    return 1 - (1 - COVERAGE) / n_claims


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of a study with its judgment.

    Attributes:
        claim: text of the claim, with its bound.
        value, low, high: the estimate and its interval; NaN if unknown.
        units: what the interval is over, such as "64 seeds".
        above, below: the claimed range of the quantity.
        overturned_by: evidence that would overturn the claim.
        check: whether the claim holds by a theorem or by construction.
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
        """The judgment of the claim by its interval."""
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
        "The 95 % intervals are simultaneous. A claim is confirmed if its whole interval lies in "
        "the claimed range. Checks hold by a theorem or by construction."
    )
    return Table("Claims", columns, rows, caption)


@dataclass(frozen=True)
class SeedClaim:
    """A claim about the mean over seeds of a quantity.

    Attributes:
        claim: text of the claim, with its bound.
        values: values by seed; for a contrast, `shares` minus `less`.
        above, below: the claimed range of the mean.
        overturned_by: evidence that would overturn the claim.
        examples: number of test examples that the seeds share, if values are fractions of these or
            a contrast of such fractions; else None.
        shares, less: fractions by seed, added and subtracted to give the values; empty if the
            values are fractions themselves.
        check: whether the claim holds by a theorem or by construction.
        units: what the interval is over; empty: number of seeds.
        factor: whether the values are ratios or sizes: the mean is then geometric, and its interval
            is computed on logarithms and stays above 0.
    """

    claim: str
    values: Sequence[float]
    above: float = -float("inf")
    below: float = float("inf")
    overturned_by: str = ""
    examples: int | None = None
    shares: Sequence[Sequence[float]] = ()
    less: Sequence[Sequence[float]] = ()
    check: bool = False
    units: str = ""
    factor: bool = False

    @property
    def known(self) -> bool:
        """Whether every seed has a finite value."""
        return all(math.isfinite(x) and (x > 0 or not self.factor) for x in self.values)

    def interval(self, level: float) -> Interval:
        """The interval of the mean; for a factor, of its logarithm."""
        if self.factor:
            return over_seeds([math.log(x) for x in self.values], level=level)
        if self.examples is None or not self.shares:
            return over_seeds(self.values, self.examples, level)
        return over_seeds_contrast(self.shares, self.less, self.examples, level)


def contrast(
    claim: str,
    shares: Sequence[Sequence[float]],
    less: Sequence[Sequence[float]],
    examples: int,
    *,
    above: float = -float("inf"),
    below: float = float("inf"),
    overturned_by: str = "",
    units: str = "",
) -> SeedClaim:
    """A claim about fractions minus other fractions, by seed.

    Args:
        claim: text of the claim, with its bound.
        shares: fractions of a test set, by seed.
        less: fractions of the test set that are subtracted.
        examples: number of test examples.
        above: lower end of the claimed range of the mean.
        below: upper end of the claimed range.
        overturned_by: evidence that would overturn the claim.
        units: what the interval is over; empty: number of seeds.
    """
    signed = [(1, by_seed) for by_seed in shares] + [(-1, by_seed) for by_seed in less]
    values = [
        sum(sign * by_seed[seed] for sign, by_seed in signed) for seed in range(len(shares[0]))
    ]
    return SeedClaim(
        claim, values, above, below, overturned_by, examples, shares, less, units=units
    )


def judged(claims: Sequence[SeedClaim]) -> list[JudgedClaim]:
    """All claims with their intervals; with one seed, no claim is decided."""
    level = coverage_of_each(len(claims))
    return [judged_claim(claim, level) for claim in claims]


def judged_claim(claim: SeedClaim, level: float) -> JudgedClaim:
    """The judgment of a claim by an interval of coverage `level` (see `coverage_of_each`).

    If a seed has no finite value, the mean is unknown.
    """
    low, value, high, n = -math.inf, math.nan, math.inf, len(claim.values)
    if claim.known:
        interval = claim.interval(level)
        low, value, high = interval.low, interval.value, interval.high
    if claim.factor:
        low, value, high = math.exp(low), math.exp(value), math.exp(high)
    return JudgedClaim(
        claim.claim,
        value,
        low,
        high,
        claim.units or f"{n} {'seed' if n == 1 else 'seeds'}",
        above=claim.above,
        below=claim.below,
        overturned_by=claim.overturned_by,
        check=claim.check,
    )


def counted(findings: Sequence[JudgedClaim]) -> str:
    """The numbers of confirmed and refuted claims and, separately, of checks that hold."""
    claims, checks = ([f for f in findings if f.check is kind] for kind in (False, True))
    confirmed, refuted = (
        sum(f.judgement == word for f in claims) for word in ("confirmed", "refuted")
    )
    text = f"{confirmed} of {len(claims)} claims are confirmed, {refuted} refuted"
    if checks:
        held = sum(f.judgement == "confirmed" for f in checks)
        text += f"; {held} of {len(checks)} checks, which should hold by construction, hold"
    return text


def in_words(finding: JudgedClaim, digits: int = 2) -> str:
    """The estimate with its interval, or a statement that it is not known."""
    ends = finding.value, finding.low, finding.high
    if not all(math.isfinite(x) for x in ends):
        return UNKNOWN
    value, low, high = (f"{x:.{digits}f}".replace("-", "−") for x in ends)
    return f"{value} ({low} to {high})"


def outcome_in_words(finding: JudgedClaim, confirmed: str, refuted: str, subject: str) -> str:
    """A clause that is no stronger than the finding's judgment, with the estimate.

    Args:
        finding: the claim with its judgment.
        confirmed: what holds if the claim is confirmed; the estimate follows.
        refuted: what holds if the claim is refuted; the estimate follows.
        subject: the question, such as "how it grows", for an undecided claim.
    """
    outcome = {"confirmed": confirmed, "refuted": refuted}.get(finding.judgement)
    estimate = in_words(finding)
    if outcome is None:
        return f"{subject} is {UNKNOWN}" + ("" if estimate == UNKNOWN else f": {estimate}")
    return f"{outcome} {estimate}"


@dataclass(frozen=True)
class Claim:
    """A claim as a study states it, before it has numbers; for its bounds see `SeedClaim`.

    Attributes:
        measure: key of the study's measure that the claim is about.
        claim: text of the claim, with its bound.
        clauses: clauses of the verdict for a confirmed, refuted and undecided claim (see
            `outcome_in_words`).
    """

    measure: Any
    claim: str
    above: float = -math.inf
    below: float = math.inf
    overturned_by: str = ""
    clauses: tuple[str, str, str] = ("", "", "")
    check: bool = False
    factor: bool = False


def measured(
    claims: Sequence[Claim], measures: Mapping[Any, Sequence[float]], unit: str = ""
) -> list[SeedClaim]:
    """The claims with their measures.

    Args:
        claims: claims of the study.
        measures: measures by seed.
        unit: plural name of a seed, such as "draws"; "": seeds.
    """
    return [
        SeedClaim(
            claim.claim,
            by_seed,
            claim.above,
            claim.below,
            claim.overturned_by,
            check=claim.check,
            units=unit and f"{len(by_seed)} {unit}",
            factor=claim.factor,
        )
        for claim in claims
        for by_seed in [measures[claim.measure]]
    ]


def judge(
    claims: Sequence[Claim], measures: Mapping[Any, Sequence[float]], unit: str = ""
) -> list[JudgedClaim]:
    """All claims with intervals that hold simultaneously at 95 %; see `measured`."""
    return judged(measured(claims, measures, unit))


def clauses(claims: Sequence[Claim], findings: Sequence[JudgedClaim]) -> list[str]:
    """Each claim's clause of the verdict, by its judgment, with the estimate."""
    return [
        outcome_in_words(finding, *claim.clauses)
        for claim, finding in zip(claims, findings, strict=True)
    ]
