"""The rules of the litmus test: the decision that the seeds of both variants allow, and its reason.

The gap is the figure of standard minus that of MixiT, positive if standard is better, with an
interval (see `seed_interval`).

    needs          the interval lies above the margin, standard is clearly above guessing, MixiT has
                   stopped improving, and MixiT has not merely learned the task less well, which
                   more heads or a larger width may correct
    does not need  MixiT has solved the task; or the interval lies below the margin, both variants
                   have learned the task, and standard has stopped improving
    undecided      everything else, and always with one seed, whose interval is unbounded

Conventions, not theorems:

    margin           5 points of an accuracy, or 0.1 nats
    clearly above    the worse end of the interval is better than guessing by more than the margin
    learned          clearly above guessing, and for an accuracy at least halfway from guessing to
                     perfect: a lower accuracy may be a plateau before attention has learned
                     anything. The perfect loss in nats is unknown, so a loss needs only be clearly
                     above guessing
    solved           the worse end of an accuracy's interval is within 5 points of perfect (or
                     within the margin, if it is smaller), and at least three quarters of the way
                     from guessing to perfect
    still improving  in the last quarter of the steps the curve of some seed has improved by more
                     than the margin. A learning rate that falls to zero flattens every curve, so a
                     flat curve does not show that longer training would not improve it
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from interp_studies.seed_interval import Interval, difference, over_seeds
from interp_toolkit.training.engine.metrics import FinalScore

MARGINS = {"share": 0.05, "nats": 0.1}
MOST_MARGIN = 0.5  # of a share
UNSOLVED = 0.25  # of the way from guessing to perfect, at most, that is left where a task is solved
LAST = 0.25  # the share of the steps in which a curve that still rises is one still improving

Status = Literal["needs", "does_not_need", "undecided"]
SENTENCES: dict[Status, str] = {
    "needs": "{task} needs in-context reasoning",
    "does_not_need": "{task} does not need in-context reasoning",
    "undecided": "Whether {task} needs in-context reasoning is undecided",
}


@dataclass(frozen=True)
class Trained:
    """The result of one seed of a variant.

    Attributes:
        seed: random seed of model and batches.
        measured: the figure at the end of training.
        steps, curve: steps and values of the figure during training, if the recipe measures it.
    """

    seed: int
    measured: FinalScore
    steps: Sequence[int] = ()
    curve: Sequence[float] = ()

    @property
    def rise(self) -> float | None:
        """Improvement of the curve in the last quarter of its steps; None without a curve."""
        from_step = (1 - LAST) * self.steps[-1] if self.steps else 0
        earlier = [i for i, step in enumerate(self.steps) if step <= from_step]
        if len(self.curve) < 2 or not earlier:
            return None
        before = earlier[-1]
        return _sign(self.measured) * (self.curve[-1] - self.curve[before])


@dataclass(frozen=True)
class Seeds:
    """The seeds of one variant.

    Attributes:
        name: name of the variant in sentences.
        runs: one result per seed.
    """

    name: str
    runs: Sequence[Trained]

    @property
    def measured(self) -> FinalScore:
        """The figure of the first seed, which carries its name and unit."""
        return self.runs[0].measured

    @cached_property
    def interval(self) -> Interval:
        """The interval of the mean over seeds."""
        examples = self.measured.examples if self.measured.unit == "share" else None
        return over_seeds([run.measured.value for run in self.runs], examples)

    @property
    def worse_end(self) -> float:
        """The end of the interval that is worse."""
        return self.interval.low if _sign(self.measured) > 0 else self.interval.high

    @property
    def rise(self) -> float | None:
        """The largest improvement of a seed in the last quarter of the steps."""
        rises = [run.rise for run in self.runs]
        known = [rise for rise in rises if rise is not None]
        return max(known) if len(known) == len(rises) else None

    def above_guess(self, value: float) -> float:
        """By how much a value is better than guessing; infinite if guessing is unknown."""
        guess = self.measured.guess
        return math.inf if guess is None else _sign(self.measured) * (value - guess)

    def clearly_above_guess(self, margin: float) -> bool | None:
        """Whether the worse end is above guessing by more than the margin; None: unknown."""
        if self.measured.guess is None:
            return None
        return self.above_guess(self.worse_end) > margin

    def learned(self, margin: float) -> bool:
        """Whether the variant is clearly above guessing, and halfway to perfect if known."""
        if not self.clearly_above_guess(margin):
            return False
        perfect, guess = _perfect(self.measured), self.measured.guess
        if perfect is None or guess is None:
            return True
        return abs(perfect - self.worse_end) <= abs(perfect - guess) / 2

    def solved(self, margin: float) -> bool:
        """Whether the worse end is near perfect and far from guessing."""
        perfect, guess = _perfect(self.measured), self.measured.guess
        if perfect is None:
            return False
        allowed = min(margin, MARGINS["share"])
        if guess is not None:
            allowed = min(allowed, UNSOLVED * abs(perfect - guess))
        return abs(perfect - self.worse_end) <= allowed

    def improving(self, margin: float) -> bool | None:
        """Whether a seed still improves in the last quarter of its steps; None without a curve."""
        return None if self.rise is None else self.rise > margin


@dataclass(frozen=True)
class Decision:
    """A decision and its reason.

    Attributes:
        status: the decision.
        why: the reason as text.
        gap: figure of standard minus that of MixiT, positive if standard is better.
        margin: the smallest gap that counts.
    """

    status: Status
    why: str
    gap: Interval
    margin: float


def decide(standard: Seeds, mixit: Seeds, margin: float | None = None) -> Decision:
    """The decision that the rules allow; `margin` None is the convention for the figure's unit."""
    if margin is None:
        margin = MARGINS[standard.measured.unit]
    gap = difference(standard.interval, mixit.interval)
    if _sign(standard.measured) < 0:
        gap = Interval(-gap.value, gap.above, gap.below, -gap.most, -gap.least)
    status: Status
    useless = _useless(standard.measured, margin)
    if useless is not None:
        status, why = "undecided", useless
    elif mixit.solved(margin):
        status, why = "does_not_need", "MixiT solves it"
    elif gap.low > margin:
        status, why = _apart(standard, mixit, margin)
    elif gap.high < margin:
        status, why = _alike(standard, mixit, margin)
    else:
        status, why = "undecided", _why_across(standard, mixit, margin)
    return Decision(status, why, gap, margin)


def _useless(measured: FinalScore, margin: float) -> str | None:
    """Why this margin or task allows no decision; None if it allows one."""
    perfect = _perfect(measured)
    if perfect is None:
        return None
    if margin >= MOST_MARGIN:
        return f"a margin of {margin:g} is {100 * margin:g} points: give one below {MOST_MARGIN:g}"
    if measured.guess is not None and abs(perfect - measured.guess) <= 2 * margin:
        return "guessing is already within two margins of perfect: make the task harder"
    return None


def _why_across(standard: Seeds, mixit: Seeds, margin: float) -> str:
    """Why the gap's interval contains the margin."""
    if min(len(standard.runs), len(mixit.runs)) < 2:
        return "one seed does not show how much seeds differ: give --seeds 3"
    if all(s.above_guess(s.interval.value) <= margin for s in (standard, mixit)):
        return "neither is clearly above guessing: give more --steps"
    return "the gap's interval contains the margin: give more --seeds"


def _apart(standard: Seeds, mixit: Seeds, margin: float) -> tuple[Status, str]:
    """The decision if standard is better by more than the margin."""
    if standard.clearly_above_guess(margin) is False:
        return "undecided", (
            "standard is ahead of MixiT and not clearly above guessing: give more --steps"
        )
    if mixit.improving(margin) is None:
        return "undecided", "the recipe keeps no curve to see whether MixiT has stopped improving"
    if mixit.improving(margin):
        return "undecided", "MixiT is still improving: give more --steps"
    if _perfect(mixit.measured) is not None and mixit.learned(margin):
        return "undecided", (
            "MixiT has learned it too, though less well: give it more heads or width"
        )
    return "needs", "standard is ahead of MixiT by more than the margin"


def _alike(standard: Seeds, mixit: Seeds, margin: float) -> tuple[Status, str]:
    """The decision if standard is not better by more than the margin."""
    within = "MixiT is within the margin of standard, or ahead"
    if standard.measured.guess is None:
        return "undecided", f"{within}, and nobody knows what guessing reaches"
    behind = [seeds.name for seeds in (standard, mixit) if not seeds.learned(margin)]
    if behind:
        who = f"{behind[0]} has not" if len(behind) == 1 else "neither has"
        return "undecided", f"{who} clearly learned the task: give more --steps"
    if standard.improving(margin) is None:
        return "undecided", "the recipe keeps no curve to see whether standard would move ahead"
    if standard.improving(margin):
        return "undecided", "standard is still improving and may move ahead: give more --steps"
    return "does_not_need", within


def _sign(measured: FinalScore) -> int:
    return 1 if measured.better == "higher" else -1


def _perfect(measured: FinalScore) -> float | None:
    """The best possible figure; None if it is unknown."""
    if measured.unit != "share":
        return None
    return 1.0 if measured.better == "higher" else 0.0
