"""The rules of the litmus test: which sentence the seeds of both variants allow, and why.

The gap is how much better standard is than MixiT, with an interval (see `seed_interval`).

    needs          the interval lies above the margin; standard is clearly above guessing; MixiT
                   has stopped improving, so that more steps are no answer; and it has not learned
                   the task less well, which more heads or width may mend
    does not need  MixiT has solved the task; or the interval lies below the margin, both have
                   learned the task, and standard has stopped improving: no gap is to come
    undecided      everything else; so always with one seed, whose interval is everything

Conventions, not theorems:

    margin           5 points of a share, 0.1 nats
    clearly above    the interval's worse end beats guessing by more than the margin
    learned          so, and for shares at least half the way from guessing to perfect: what is
                     below may be a plateau before attention has learned anything. In nats nobody
                     knows what is perfect, so there "learned" means less
    solved           a share whose interval's worse end is within 5 points of perfect (within the
                     margin, if that is less), three quarters of the way from guessing or more
    still improving  in the last quarter of the steps some seed's curve has risen by more than the
                     margin. A learning rate that falls to zero flattens every curve, so a flat one
                     does not say that a longer run would end in the same place
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
    """What one seed of a variant reached.

    Attributes:
        seed: random seed of model and batches.
        measured: the figure, at the end.
        steps, curve: the same figure along training, as far as the recipe measures it.
    """

    seed: int
    measured: FinalScore
    steps: Sequence[int] = ()
    curve: Sequence[float] = ()

    @property
    def rise(self) -> float | None:
        """How much the curve improved in the last quarter of its steps; None: no curve."""
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
        name: name of the variant, as a sentence has it.
        runs: one a seed.
    """

    name: str
    runs: Sequence[Trained]

    @property
    def measured(self) -> FinalScore:
        """The first seed's figure, which says what is measured."""
        return self.runs[0].measured

    @cached_property
    def interval(self) -> Interval:
        """The mean over seeds."""
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
        """By how much a value is better than guessing; infinite where nobody knows guessing."""
        guess = self.measured.guess
        return math.inf if guess is None else _sign(self.measured) * (value - guess)

    def clearly_above_guess(self, margin: float) -> bool | None:
        """Whether the worse end beats guessing by more than the margin; None: nobody knows."""
        if self.measured.guess is None:
            return None
        return self.above_guess(self.worse_end) > margin

    def learned(self, margin: float) -> bool:
        """Clearly above guessing, and half the way to perfect where that is known."""
        if not self.clearly_above_guess(margin):
            return False
        perfect, guess = _perfect(self.measured), self.measured.guess
        if perfect is None or guess is None:
            return True
        return abs(perfect - self.worse_end) <= abs(perfect - guess) / 2

    def solved(self, margin: float) -> bool:
        """Whether the worse end is near perfect, and far from guessing."""
        perfect, guess = _perfect(self.measured), self.measured.guess
        if perfect is None:
            return False
        allowed = min(margin, MARGINS["share"])
        if guess is not None:
            allowed = min(allowed, UNSOLVED * abs(perfect - guess))
        return abs(perfect - self.worse_end) <= allowed

    def improving(self, margin: float) -> bool | None:
        """Whether more steps would help a seed, by its last quarter; None: no curve."""
        return None if self.rise is None else self.rise > margin


@dataclass(frozen=True)
class Decision:
    """A sentence and what it rests on.

    Attributes:
        status: which sentence.
        why: the reason in words.
        gap: how much better standard is, positive where it is.
        margin: what the gap is held against.
    """

    status: Status
    why: str
    gap: Interval
    margin: float


def decide(standard: Seeds, mixit: Seeds, margin: float | None = None) -> Decision:
    """Which sentence the rules allow; `margin` None: the convention of the figure's unit."""
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
    """Why nothing can be learned from this margin, or this task; None: something can."""
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
    """Standard is better by more than the margin: is that the task's doing?"""
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
    """Standard is not better by the margin: is that because both can do the task?"""
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
    """The best possible figure; None: not known."""
    if measured.unit != "share":
        return None
    return 1.0 if measured.better == "higher" else 0.0
