"""Does the ordering of the paper's models hold here? Pair by pair, with an undecided outcome.

Of two models in a group, the paper's values say that one is better if they differ by more than
APART, and otherwise that they are alike. Here each model has a range from the lowest to the highest
seed. If the value is a fraction of test examples, both ends are widened by its exact 95 % interval.
Losses and bits have no such interval; for them, ranges that are at most APART apart count as
overlapping. A pair is

- "reached" if the ranges do not overlap, the better model is the paper's, and its whole range is
  better than guessing; for alike models, if no two values in the ranges differ by more than APART
- "not_reached" if the ranges do not overlap and the order is reversed; for alike models, if every
  value of one range differs by more than APART from every value of the other
- "undecided" otherwise, also if the better model may be guessing, and if two alike models have not
  both come half way from guessing to the paper's value (models that learn nothing are alike for
  another reason).

A group holds if all its pairs hold, and fails if one fails. With one seed, the result says so,
because differences between seeds are then unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from interp_studies.result import Better, Unit, shown
from interp_toolkit.results import Status, Table
from interp_toolkit.stats import clopper_pearson

Outcome = Literal["reached", "not_reached", "undecided"]
APART: Mapping[Unit, float] = {"share": 0.05, "nats": 0.1, "": 0.1}


@dataclass(frozen=True)
class Range:
    """The values of a model here.

    Attributes:
        values: values by seed.
        low, high: ends of the range.
        better, unit: direction and unit of the values.
    """

    values: Sequence[float]
    low: float
    high: float
    better: Better
    unit: Unit


@dataclass(frozen=True)
class Claim:
    """The paper's ordering of two models.

    Attributes:
        group: group of both models.
        first, second: names of the models; the first is better, unless they are alike.
        alike: whether they are alike.
        theirs: both values of the paper, as text.
        half_way: value that both must reach to count as alike; None: no minimum.
        guess: value of guessing here; None: not known.
    """

    group: str
    first: str
    second: str
    alike: bool = False
    theirs: str = ""
    half_way: float | None = None
    guess: float | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its outcome here.

    Attributes:
        claim: the paper's claim.
        outcome: outcome by the module's rule.
        by_seed: for each seed: whether it agrees with the paper.
        ours: both values here, as text.
    """

    claim: Claim
    outcome: Outcome
    by_seed: Sequence[bool]
    ours: str


def range_of(
    values: Sequence[float], examples: int, *, better: Better = "higher", unit: Unit = "share"
) -> Range:
    """The range over seeds of a value that is a mean over `examples` test examples."""
    ends = [_interval(value, examples) if unit == "share" else (value, value) for value in values]
    return Range(values, min(low for low, _ in ends), max(high for _, high in ends), better, unit)


def _interval(share: float, examples: int) -> tuple[float, float]:
    right = min(examples, max(0, round(share * examples)))
    low, high = clopper_pearson(right, examples)
    return min(share, low), max(share, high)


def claims_of(
    group: str,
    theirs: Mapping[str, float],
    better: Better = "higher",
    unit: Unit = "share",
    guess: float | None = None,
) -> list[Claim]:
    """The paper's ordering of every two models of a group.

    Args:
        group: name of the group.
        theirs: the paper's values, by model.
        better: direction that is better.
        unit: unit of the values.
        guess: value of guessing here; None: not known.
    """
    sign = 1 if better == "higher" else -1
    claims = []
    for pair in combinations(theirs, 2):
        first, second = sorted(pair, key=lambda name: -sign * theirs[name])
        gap = abs(theirs[first] - theirs[second])
        words = f"{shown(theirs[first], unit)} and {shown(theirs[second], unit)}"
        half_way = None if guess is None else (guess + theirs[second]) / 2
        claims.append(Claim(group, first, second, gap <= APART[unit], words, half_way, guess))
    return claims


def judge(claim: Claim, first: Range, second: Range) -> Judged:
    """The claim's outcome here, from the ranges of both models."""
    sign = 1 if first.better == "higher" else -1
    leads = [sign * (a - b) for a, b in zip(first.values, second.values, strict=True)]
    ends = [sign * (first.low - second.high), sign * (first.high - second.low)]
    least, greatest = min(ends), max(ends)
    ours = f"{claim.first} {_words(first)}, {claim.second} {_words(second)}"
    if not claim.alike:
        outcome: Outcome = "undecided"
        room = 0.0 if first.unit == "share" else APART[first.unit]
        if least > room or greatest < -room:
            outcome = "reached" if least > 0 else "not_reached"
        if outcome == "reached" and not _beats_guessing(claim, first):
            outcome, ours = "undecided", f"{ours} ({claim.first} not clearly above guessing)"
        return Judged(claim, outcome, [lead > 0 for lead in leads], ours)
    apart = APART[first.unit]
    outcome = _alike(least, greatest, apart)
    learnt = _learnt(claim, (*first.values, *second.values), sign)
    if not learnt:
        outcome = "undecided" if outcome == "reached" else outcome
        ours += " (not half way from guessing to the source's)"
    return Judged(claim, outcome, [learnt and abs(lead) <= apart for lead in leads], ours)


def _beats_guessing(claim: Claim, of: Range) -> bool:
    """Whether a whole range is better than guessing; true if guessing is not known."""
    if claim.guess is None:
        return True
    return of.low > claim.guess if of.better == "higher" else of.high < claim.guess


def _learnt(claim: Claim, values: Sequence[float], sign: int) -> bool:
    return claim.half_way is None or all(sign * (x - claim.half_way) >= 0 for x in values)


def _alike(least: float, greatest: float, apart: float) -> Outcome:
    """The outcome for two alike models, from the bounds of the difference here."""
    if -apart <= least and greatest <= apart:
        return "reached"
    return "not_reached" if least > apart or greatest < -apart else "undecided"


def _words(of: Range) -> str:
    low, high = (shown(x, of.unit) for x in (min(of.values), max(of.values)))
    return f"{low}" if low == high else f"{low} to {high}"


def of_group(judged: Sequence[Judged]) -> Outcome:
    """The outcome of a group, from its pairs."""
    outcomes = [pair.outcome for pair in judged]
    if "not_reached" in outcomes:
        return "not_reached"
    return "undecided" if "undecided" in outcomes else "reached"


def status_of(outcomes: Sequence[Outcome]) -> Status:
    """The status of all groups together."""
    if all(outcome == "reached" for outcome in outcomes):
        return "reached"
    if "reached" in outcomes:
        return "partly_reached"
    return "not_reached" if "not_reached" in outcomes else "undecided"


def sentence(judged: Sequence[Judged]) -> str:
    """Where the paper's ordering holds, fails, or is undecided, and why."""
    groups = list(dict.fromkeys(pair.claim.group for pair in judged))
    by_group = {g: [pair for pair in judged if pair.claim.group == g] for g in groups}
    parts = []
    held = [g for g in groups if of_group(by_group[g]) == "reached"]
    if held:
        if all(len(pair.by_seed) == 1 for g in held for pair in by_group[g]):
            where = ", ".join(held)
            parts.append(
                f"The source's ordering holds on {where}, in the one seed trained (others may "
                "differ: --seeds 3)."
            )
        else:
            counts = "; ".join(f"{g}, {_seeds(by_group[g])}" for g in held)
            parts.append(f"The source's ordering holds ({counts}).")
    for word, text in (("not_reached", "does not hold"), ("undecided", "is undecided")):
        for group in groups:
            if of_group(by_group[group]) != word:
                continue
            ordering = "it" if parts else "the source's ordering"
            pair = next(p for p in by_group[group] if p.outcome == word)
            parts.append(f"On {group} {ordering} {text}: {_said(pair)}.")
    return " ".join(parts)


def _seeds(pairs: Sequence[Judged]) -> str:
    """The number of seeds in which every pair agrees with the paper."""
    held = [all(seed) for seed in zip(*(pair.by_seed for pair in pairs), strict=True)]
    return f"{sum(held)} of {len(held)} {'seed' if len(held) == 1 else 'seeds'}"


def _said(pair: Judged) -> str:
    claim = pair.claim
    relation = f"{claim.first} {'and' if claim.alike else 'ahead of'} {claim.second}"
    relation += " about equal" if claim.alike else ""
    theirs = f" ({claim.theirs})" if claim.theirs else ""
    return f"the source has {relation}{theirs}; here {pair.ours}"


def ordering_table(judged: Sequence[Judged]) -> Table:
    """Every pair: the paper's relation, ours, and the outcome."""
    rows = [
        [
            pair.claim.group,
            f"{pair.claim.first} {'≈' if pair.claim.alike else '>'} {pair.claim.second}",
            pair.claim.theirs or None,
            pair.ours,
            f"{sum(pair.by_seed)} of {len(pair.by_seed)}",
            pair.outcome,
        ]
        for pair in judged
    ]
    caption = (
        f">: better. ≈: the source's figures are within {100 * APART['share']:g} points of "
        f"accuracy, {APART['nats']:g} nats or {APART['']:g} bits of each other. A pair is "
        "undecided where the ranges over seeds do not tell; shares are widened by what the test "
        "examples allow, nats and bits must be further apart than that."
    )
    columns = ["of", "the source's ordering", "theirs", "ours", "seeds", "outcome"]
    return Table("The ordering", columns, rows, caption)
