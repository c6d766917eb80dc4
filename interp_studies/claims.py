"""Claims: stated before the numbers are seen, judged together by intervals over seeds.

A claim is that a quantity lies above a bound, below one, or between two. It is confirmed where the
whole interval does, refuted where the whole interval does not, and undecided elsewhere. A study
with k claims gives each an interval of 1 - 0.05/k, so that all of them hold together at 95 %.
A *check* follows from a theorem or from how the thing is made: it can show a fault of the code, and
counts neither for nor against an answer.

Where a claim is about shares of a test, all seeds as a rule read the same rows; the interval then
has both errors, that of another seed and that of another test (see `seed_interval`).
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
        "The 95 % intervals are simultaneous. A claim is confirmed if its whole interval lies in "
        "the claimed range. Checks hold by a theorem or by construction."
    )
    return Table("Claims", columns, rows, caption)


@dataclass(frozen=True)
class SeedClaim:
    """A claim about the mean over seeds of a number that each seed has.

    Attributes:
        claim: in words, with its bound.
        values: by seed; of a contrast, what `shares` and `less` come to.
        above, below: the claim is that the mean lies above the first and below the second.
        overturned_by: what a reader would have to see to give it up.
        examples: examples of the test that the seeds share, where values are shares of it or a
            contrast of such; None: they are neither.
        shares, less: by seed, the shares that the values are the sum of and those taken off it;
            none, where the values are shares themselves.
        check: whether it holds by a theorem or by construction.
        units: what the interval is over; none: so many seeds.
        factor: whether the values are ratios or sizes: the mean is then geometric, and its
            interval, taken on logarithms, stays above 0.
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
        """Whether every seed has a value that a mean can be taken of."""
        return all(math.isfinite(x) and (x > 0 or not self.factor) for x in self.values)

    def interval(self, level: float) -> Interval:
        """The mean's; of a factor, its logarithm's."""
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
    """A claim about shares less other shares, seed by seed.

    Args:
        claim: in words, with its bound.
        shares: fractions of a test set, by seed.
        less: the same, to be taken off.
        examples: examples of the test.
        above: the claim is that the mean lies above this.
        below: and below this.
        overturned_by: what a reader would have to see to give it up.
        units: what the interval is over; none: so many seeds.
    """
    signed = [(1, by_seed) for by_seed in shares] + [(-1, by_seed) for by_seed in less]
    values = [
        sum(sign * by_seed[seed] for sign, by_seed in signed) for seed in range(len(shares[0]))
    ]
    return SeedClaim(
        claim, values, above, below, overturned_by, examples, shares, less, units=units
    )


def judged(claims: Sequence[SeedClaim]) -> list[JudgedClaim]:
    """Every claim with its interval; of one seed it says nothing, and nothing is decided."""
    level = coverage_of_each(len(claims))
    return [judged_claim(claim, level) for claim in claims]


def judged_claim(claim: SeedClaim, level: float) -> JudgedClaim:
    """What came of a claim by an interval of this coverage (see `coverage_of_each`).

    Where a seed has no finite value nothing is known of the mean.
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
    """How many claims are confirmed and refuted, and apart from them how many checks hold."""
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
    """The estimate with its interval; that it is not known where the interval is everything."""
    ends = finding.value, finding.low, finding.high
    if not all(math.isfinite(x) for x in ends):
        return UNKNOWN
    value, low, high = (f"{x:.{digits}f}".replace("-", "−") for x in ends)
    return f"{value} ({low} to {high})"


def outcome_in_words(finding: JudgedClaim, confirmed: str, refuted: str, subject: str) -> str:
    """A clause that says no more than the finding's judgement, with the estimate.

    Args:
        finding: the claim, and what came of it.
        confirmed: what holds where it is confirmed; the estimate follows.
        refuted: what holds where it is refuted, in the same way.
        subject: what is asked, such as "how it grows", for where neither is known.
    """
    outcome = {"confirmed": confirmed, "refuted": refuted}.get(finding.judgement)
    estimate = in_words(finding)
    if outcome is None:
        return f"{subject} is {UNKNOWN}" + ("" if estimate == UNKNOWN else f": {estimate}")
    return f"{outcome} {estimate}"


@dataclass(frozen=True)
class Claim:
    """A claim as a study states it, before it has any numbers; see `SeedClaim` for its bounds.

    Attributes:
        measure: which of the study's measures, by seed, it is about.
        claim: in words, with its bound.
        clauses: its part of the verdict where it is confirmed, refuted and undecided (see
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
        measures: each by seed.
        unit: what a seed is called, in the plural, such as "draws"; "": a seed.
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
    """Every claim with its interval, all of them together at 95 %; see `measured`."""
    return judged(measured(claims, measures, unit))


def clauses(claims: Sequence[Claim], findings: Sequence[JudgedClaim]) -> list[str]:
    """Each claim's clause of the verdict, by its judgement, with the estimate."""
    return [
        outcome_in_words(finding, *claim.clauses)
        for claim, finding in zip(claims, findings, strict=True)
    ]
