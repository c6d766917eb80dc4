"""The claims, fixed on the seeds 0 and 1, and what other seeds say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

from interp_studies.open.causal_sorting.plan import (
    EARLY,
    Found,
    Key,
    Values,
)
from interp_studies.open.claim import JudgedClaim, coverage_of_each
from interp_studies.open.seed_claim import (
    SeedClaim,
    contrast,
    counted,
    judged_claim,
)

RANKED = 12  # seeds at least whose correlation has an interval that covers as it says
MANY, SOME, LITTLE, ALIKE = 100.0, 3.0, 1.2, 1.5  # ratios of losses
FEW = 0.001  # of hard lists, wrong


class RatioClaim(NamedTuple):
    """That one cell's loss over another's lies above a bound, and below another."""

    words: str
    first: Key
    second: Key
    above: float = 0.0
    below: float = math.inf
    check: bool = False


#: fixed on the seeds 0 and 1. AdamW takes a share of the rate off each weight, 1e-4 of it, which
#: in a run comes to 0.05 %: it is Adam without decay but for that, hence the two checks
RATIOS: Sequence[RatioClaim] = [
    RatioClaim(
        f"causal, Adam: the loss at low rates is more than {LITTLE:g} × that at high ones",
        ("causal", "adam", "low"),
        ("causal", "adam", "high"),
        above=LITTLE,
    ),
    RatioClaim(
        f"causal, high rates: Adam's loss is more than {SOME:g} × AdamW's",
        ("causal", "adam", "high"),
        ("causal", "adamw", "high"),
        above=SOME,
    ),
    RatioClaim(
        f"causal, Adam, high rates: without weight decay the loss is within {SOME:g} × AdamW's",
        ("causal", "adam, no decay", "high"),
        ("causal", "adamw", "high"),
        above=1 / SOME,
        below=SOME,
        check=True,
    ),
    RatioClaim(
        f"fixed query, Adam, high rates: without weight decay it is within {SOME:g} × AdamW's too",
        ("fixed query", "adam, no decay", "high"),
        ("fixed query", "adamw", "high"),
        above=1 / SOME,
        below=SOME,
        check=True,
    ),
    RatioClaim(
        f"Adam, low rates: the causal loss is more than {LITTLE:g} × that of a fixed query",
        ("causal", "adam", "low"),
        ("fixed query", "adam", "low"),
        above=LITTLE,
    ),
    RatioClaim(
        f"Adam, high rates: the causal loss is within {ALIKE:g} × that of a fixed query",
        ("causal", "adam", "high"),
        ("fixed query", "adam", "high"),
        above=1 / ALIKE,
        below=ALIKE,
    ),
    RatioClaim(
        f"AdamW, high rates: the causal loss is more than {MANY:g} × that of a fixed query",
        ("causal", "adamw", "high"),
        ("fixed query", "adamw", "high"),
        above=MANY,
    ),
    RatioClaim(
        f"AdamW, high rates: the causal loss is more than {SOME:g} × a bidirectional layer's",
        ("causal", "adamw", "high"),
        ("bidirectional", "adamw", "high"),
        above=SOME,
    ),
]
CLAIMS = len(RATIOS) + 3


def findings_of(found: Found, early: Sequence[Values]) -> list[JudgedClaim]:
    """What the trained models say of every claim, seed by seed; `early`: of the source's own way.

    Models of one seed start alike and see the same lists, so that two ways are compared by seed.
    """
    level = coverage_of_each(CLAIMS)
    judged = [*(_ratio(found, claim) for claim in RATIOS), _few_wrong(found), _wrong(found)]
    return [*(judged_claim(claim, level) for claim in judged), _foretells(early, level)]


def _ratio(found: Found, claim: RatioClaim) -> SeedClaim:
    """The geometric mean over seeds of one way's loss over another's."""
    pairs = zip(found[claim.first], found[claim.second], strict=True)
    return SeedClaim(
        claim.words,
        [one["loss"] / other["loss"] for one, other in pairs],
        above=claim.above,
        below=claim.below,
        overturned_by="other seeds, steps or rates of the same optimiser",
        check=claim.check,
        factor=True,
    )


def _few_wrong(found: Found) -> SeedClaim:
    """How many hard lists causal models sort wrongly at the high rates."""
    mine = found["causal", "adam", "high"]
    return SeedClaim(
        f"Adam, high rates: causal models sort less than {100 * FEW:g} % of hard lists wrongly",
        _wrong_shares(mine),
        below=FEW,
        overturned_by="seeds that fail",
        examples=mine[0]["searched"],
    )


def _wrong(found: Found) -> SeedClaim:
    """How many more hard lists causal models sort wrongly than bidirectional ones, low rates."""
    causal, other = found["causal", "adam", "low"], found["bidirectional", "adam", "low"]
    return contrast(
        "Adam, low rates: causal models sort more hard lists wrongly than bidirectional ones",
        [_wrong_shares(causal)],
        [_wrong_shares(other)],
        causal[0]["searched"],
        above=0.0,
        overturned_by="as many wrong of both",
    )


def _wrong_shares(seeds: Sequence[Values]) -> list[float]:
    return [v["wrong"] / v["searched"] for v in seeds]


def _foretells(seeds: Sequence[Values], level: float) -> JudgedClaim:
    """Spearman's correlation of early attention above the previous token with the final loss."""
    x = [v["early_lift"] for v in seeds]
    y = [v["loss"] for v in seeds]
    value, low, high = spearman(x, y, level)
    return JudgedClaim(
        f"causal, Adam, low rates: more attention above the previous token at step {EARLY} goes "
        "with a higher final loss",
        value,
        low,
        high,
        f"{len(seeds)} seeds",
        above=0.0,
        overturned_by="no correlation over more seeds",
    )


def spearman(x: Sequence[float], y: Sequence[float], level: float) -> tuple[float, float, float]:
    """Spearman's correlation, and Fisher's interval with Bonett and Wright's (2000) spread.

    Of fewer than `RANKED` pairs that interval covers less often than it says: all is possible.
    """
    n = len(x)
    if n < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return 0.0, -1.0, 1.0
    value = float(stats.spearmanr(x, y).statistic)
    if n < RANKED:
        return value, -1.0, 1.0
    spread = math.sqrt((1 + value**2 / 2) / (n - 3))
    middle = math.atanh(min(max(value, -0.999999), 0.999999))
    reach = float(stats.norm.ppf((1 + level) / 2)) * spread
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return value, min(low, value), max(high, value)


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """Every ratio with its interval, in the order of the causes, and how many claims hold."""
    rates, decay, without, too, low, high, least, other, few, wrong, foretold = findings
    words = {
        "confirmed": "goes with a higher final loss",
        "refuted": "goes with a lower final loss",
        "undecided": "is not settled to go with the final loss",
    }
    return (
        f"A causal layer's loss is {_times(low)} that of one with a fixed query under Adam at low "
        f"rates, {_times(high)} at high ones, and under AdamW {_times(least)} (a bidirectional "
        f"one's: {_times(other)}). In causal layers low rates end with {_times(rates)} the loss of "
        f"high ones; at these Adam with {_times(decay)} that of AdamW, without weight decay "
        f"{_times(without)} (with a fixed query {_times(too)}). At high rates Adam's causal layers "
        f"sort {_percent(few)} of hard lists wrongly; at low ones {_percent(wrong)} more than "
        "bidirectional layers. Attention above the previous token at step "
        f"{EARLY} {words[foretold.judgement]} (Spearman {foretold.value:.2f}, "
        f"{foretold.low:.2f} to {foretold.high:.2f}). "
        f"{counted(findings)}."
    )


def _percent(finding: JudgedClaim) -> str:
    low, high = f"{100 * finding.low:.2g}", f"{100 * finding.high:.2g}"
    return f"{100 * finding.value:.2g} % ({low} to {high})"


def _times(finding: JudgedClaim) -> str:
    value, low, high = (
        f"{x:,.0f}" if 10 <= x < 1e6 else f"{x:.2g}"
        for x in (finding.value, finding.low, finding.high)
    )
    return f"{value} × ({low} to {high})"
