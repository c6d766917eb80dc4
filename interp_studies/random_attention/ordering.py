"""Does the ordering of the source's models hold here? Pair by pair, with an outcome for 'unsure'.

What the source's figures say of two models of a group: one is better, if they are more than APART
apart, and they are alike otherwise. Here each model has a range: from the lowest seed to the
highest, each widened by the exact 95 % interval that its test examples allow where the figure is a
share of them. Losses and bits have no such interval: there ranges that are no more than APART apart
count as overlapping. Then a pair is

- "reached" if the ranges do not overlap, the better one is the source's, and all of its range is
  better than guessing; or, of two that are alike there, if nothing in the ranges is more than APART
  apart;
- "not_reached" if they do not overlap the other way round; or, of two that are alike there, if all
  of one range is more than APART from all of the other;
- "undecided" otherwise, where the better one may be guessing, and where two that are alike there
  have not both come half way from guessing to the source's figures: models that learn nothing are
  alike in another sense.

A group holds when all its pairs do, and fails when one does. Of one seed it is said that it is one:
nothing here takes in how much seeds differ.
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
    """A model's figure here.

    Attributes:
        values: by seed.
        low, high: of the range.
        better, unit: of the figure.
    """

    values: Sequence[float]
    low: float
    high: float
    better: Better
    unit: Unit


@dataclass(frozen=True)
class Claim:
    """What the source says of two models.

    Attributes:
        group: group of both.
        first, second: the first is better, unless they are alike.
        alike: whether they are.
        theirs: both figures, in words.
        half_way: what both must reach to be called alike; None: anything will do.
        guess: what guessing reaches here; None: not known.
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
    """A claim, and what is the case here.

    Attributes:
        claim: claim of the source.
        outcome: by the module's rule.
        by_seed: whether each seed, for itself, does as the source's.
        ours: both figures, in words.
    """

    claim: Claim
    outcome: Outcome
    by_seed: Sequence[bool]
    ours: str


def range_of(
    values: Sequence[float], examples: int, *, better: Better = "higher", unit: Unit = "share"
) -> Range:
    """The range of a figure over seeds, each a mean over so many test examples."""
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
    """What the source's figures say of every two models of a group.

    Args:
        group: its name.
        theirs: the source's figures, by model.
        better: which way is better.
        unit: unit of the figures.
        guess: what guessing reaches here; None: not known.
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
    """The claim's outcome here; both ranges are of one figure."""
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
    """Whether all of a range is better than guessing, as far as that is known."""
    if claim.guess is None:
        return True
    return of.low > claim.guess if of.better == "higher" else of.high < claim.guess


def _learnt(claim: Claim, values: Sequence[float], sign: int) -> bool:
    return claim.half_way is None or all(sign * (x - claim.half_way) >= 0 for x in values)


def _alike(least: float, greatest: float, apart: float) -> Outcome:
    """The outcome of two that are alike there, by the bounds of the first's lead here."""
    if -apart <= least and greatest <= apart:
        return "reached"
    return "not_reached" if least > apart or greatest < -apart else "undecided"


def _words(of: Range) -> str:
    low, high = (shown(x, of.unit) for x in (min(of.values), max(of.values)))
    return f"{low}" if low == high else f"{low} to {high}"


def of_group(judged: Sequence[Judged]) -> Outcome:
    """A group's outcome from its pairs'."""
    outcomes = [pair.outcome for pair in judged]
    if "not_reached" in outcomes:
        return "not_reached"
    return "undecided" if "undecided" in outcomes else "reached"


def status_of(outcomes: Sequence[Outcome]) -> Status:
    """The machine word for all groups together."""
    if all(outcome == "reached" for outcome in outcomes):
        return "reached"
    if "reached" in outcomes:
        return "partly_reached"
    return "not_reached" if "not_reached" in outcomes else "undecided"


def sentence(judged: Sequence[Judged]) -> str:
    """Where the source's ordering holds, where it does not, where it is undecided, and why."""
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
    """In how many seeds every pair is as the source's."""
    held = [all(seed) for seed in zip(*(pair.by_seed for pair in pairs), strict=True)]
    return f"{sum(held)} of {len(held)} {'seed' if len(held) == 1 else 'seeds'}"


def _said(pair: Judged) -> str:
    claim = pair.claim
    relation = f"{claim.first} {'and' if claim.alike else 'ahead of'} {claim.second}"
    relation += " about equal" if claim.alike else ""
    theirs = f" ({claim.theirs})" if claim.theirs else ""
    return f"the source has {relation}{theirs}; here {pair.ours}"


def ordering_table(judged: Sequence[Judged]) -> Table:
    """Every pair: the source's relation, ours, the outcome."""
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
