"""The evidence rule shared by all analyses: the status that the controls allow.

A *control* is a comparison that could have refuted a claim: ablating other attention, shuffled
labels, weight-permuted copies, other edges. A control that could not have failed on this model
and these prompts has no *power* and is ignored. Examples: no other attention to ablate, too few
permutations for the significance level, the same prompts on both sides.

THE RULE. A claim is confirmed (✓) only if the confidence interval of the effect lies above the
claimed size, at least one control had power, and every control with power was passed. If a control
with power failed, the null explains the effect: *uninformative*. If no control had power, or a
required one had none, the claim is *undecided*. A claim is denied (–) only if a comparison with
enough power found no effect. If the interval includes the threshold, the claim is undecided. If the
model does not perform the task, claims about how it does so are *not tested*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

from interp_toolkit.results import Status
from interp_toolkit.stats import LEVEL

LEAST_COPIES = 19  # the smallest p by rank is then 1 / 20; fewer cannot show what is rare

Outcome = Literal["passed", "failed", "undecided", "powerless"]


@dataclass(frozen=True)
class Control:
    """A comparison that could have refuted a claim.

    Attributes:
        name: the comparison or reference, such as "shuffled copies".
        outcome: "powerless" if it could not have failed here.
        reason: why it failed, was undecided, or had no power; None if it was passed.
        required: whether nothing is confirmed without it, whatever other controls say: they would
            not fail where this one would.
    """

    name: str
    outcome: Outcome
    reason: str | None = None
    required: bool = False

    @property
    def counts(self) -> bool:
        """Whether the control had power."""
        return self.outcome != "powerless"


def control_of_p(name: str, p_value: float, level: float, smallest: float = 0.0) -> Control:
    """The control that a p-value amounts to.

    Args:
        name: the reference of the comparison, as a plural.
        p_value: corrected for all comparisons made with it; NaN if none was made.
        level: significance level.
        smallest: smallest p-value that the comparison could give, such as 1 / (draws + 1).
    """
    if math.isnan(p_value):
        return Control(name, "powerless", f"no {name} were compared")
    if smallest > level:
        return Control(name, "powerless", f"with so few {name}, p cannot fall below {smallest:.2g}")
    if p_value <= level:
        return Control(name, "passed")
    return Control(name, "failed", f"not significant against {name} (p = {p_value:.2g})")


def control_of_rank(name: str, reached: int, tried: int, level: float, reason: str) -> Control:
    """The control by rank among draws without the mechanism: p = (1 + reached) / (1 + tried).

    It fails as soon as so many reach the effect that p is above the level, also if there were too
    few draws to pass it.

    Args:
        name: the draws, as a plural.
        reached: number of draws with as large an effect.
        tried: number of draws.
        level: significance level.
        reason: what the draws that reach it do.

    Examples:
        >>> control_of_rank("copies", 0, 19, 0.05, "do too").outcome
        'passed'
        >>> control_of_rank("copies", 1, 2, 0.05, "do too").reason
        '1 of 2 copies do too'
    """
    smallest = 1 / (1 + tried)
    p_value = (1 + reached) * smallest
    if reached and p_value > level:
        return Control(name, "failed", f"{reached} of {tried} {name} {reason}")
    return control_of_p(name, p_value, level, smallest)


def control_of_copies(
    name: str,
    mean: float,
    low: float,
    copies: Float[np.ndarray, " copy"],
    largest: float = math.inf,
    level: float = LEVEL,
) -> Control:
    """The control by copies without the mechanism: does the effect exceed theirs?

    It does if its interval lies above the upper limit of a one-sided prediction interval for one
    more copy: mean + t · sd · √(1 + 1/n). It does not if it lies below that limit, or if its rank
    among the copies has too large a p-value (`control_of_rank`).

    Args:
        name: the copies, as a plural.
        mean: the effect.
        low: lower end of its confidence interval.
        copies: the effect in each copy; NaN if it could not be measured.
        largest: largest possible effect; copies with a prediction limit above it have no power.
        level: chance that one more copy lies above the limit.

    Examples:
        >>> control_of_copies("shuffled copies", 0.5, 0.4, np.tile([0.0, 0.1], 10)).outcome
        'passed'
    """
    defined = copies[~np.isnan(copies)]
    n, reached = len(defined), int((defined >= mean).sum())
    rank = control_of_rank(name, reached, n, level, f"reach {mean:.2g} too")
    if rank.outcome == "failed":
        return rank
    if n < LEAST_COPIES:
        return Control(name, "powerless", f"{name}: {n} of them, fewer than {LEAST_COPIES}")
    spread = float(defined.std(ddof=1)) * math.sqrt(1 + 1 / n)
    limit = float(defined.mean() + stats.t.ppf(1 - level, n - 1) * spread)
    if low > limit:
        return Control(name, "passed")
    if limit >= largest and mean > defined.max():
        return Control(name, "powerless", f"{name}: they differ too much to be exceeded")
    if mean <= limit:
        return Control(
            name,
            "failed",
            f"not above {name} ({mean:.2g}; their upper prediction limit: {limit:.2g})",
        )
    return Control(
        name, "undecided", f"not certainly above {name} (their upper prediction limit: {limit:.2g})"
    )


def effect_status(
    low: float,
    high: float,
    threshold: float,
    controls: Sequence[Control],
    *,
    performs_task: bool = True,
    effect: str = "effect",
) -> tuple[Status, str | None]:
    """The status of a claim that an effect is at least `threshold`, and why it is not confirmed.

    Args:
        low: lower end of the effect's confidence interval; NaN if it was not measured.
        high: upper end of the interval.
        threshold: smallest effect that is claimed.
        controls: every comparison that was made or should have been.
        performs_task: whether the model performs the task on which the effect is measured.
        effect: what the effect is called in reasons.

    Examples:
        >>> effect_status(0.2, 0.4, 0.1, [Control("shuffled weights", "passed")])
        ('detected', None)
        >>> effect_status(0.2, 0.4, 0.1, [])
        ('undecided', 'no control to compare the effect with')
    """
    if not performs_task:
        return "not_tested", "the model has not been shown to perform the task"
    if math.isnan(low) or math.isnan(high):
        return "undecided", f"the {effect} has no interval"
    counting = [control for control in controls if control.counts]
    if not counting:
        reasons = [c.reason for c in controls if c.reason is not None]
        return "undecided", (reasons or ["no control to compare the effect with"])[0]
    if high < threshold:
        return "not_detected", f"the interval of the {effect} is below {threshold:g}"
    if low < threshold:
        return "undecided", f"the interval of the {effect} includes {threshold:g}"
    for outcome, status in _NOT_CONFIRMED:
        matching = [control for control in counting if control.outcome == outcome]
        if matching:
            return status, matching[0].reason
    if absent := [control for control in controls if control.required and not control.counts]:
        return "undecided", absent[0].reason
    return "detected", None


_NOT_CONFIRMED: Sequence[tuple[Outcome, Status]] = (
    ("failed", "uninformative"),
    ("undecided", "undecided"),
)


def comparisons_status(
    p_adjusted: Float[np.ndarray, " test"],
    level: float,
    smallest: float = 0.0,
) -> tuple[Status, str | None]:
    """The status of a claim that some of several tests are significant, and why it is not.

    Args:
        p_adjusted: p-values corrected for the number of tests; NaN for a test not made.
        level: significance level.
        smallest: smallest corrected p-value that a test could give.

    Examples:
        >>> comparisons_status(np.array([0.3, 0.01]), 0.05)
        ('detected', None)
        >>> comparisons_status(np.array([np.nan]), 0.05)
        ('undecided', 'no comparison could be made')
    """
    defined = p_adjusted[~np.isnan(p_adjusted)]
    if not len(defined):
        return "undecided", "no comparison could be made"
    if (defined <= level).any():
        return "detected", None
    if smallest > level:
        return "undecided", f"no p-value could have fallen below {smallest:.2g}"
    which = f"all {len(defined)} comparisons" if len(defined) > 1 else "the only comparison"
    return "not_detected", f"adjusted p above {level:g} in {which}"
