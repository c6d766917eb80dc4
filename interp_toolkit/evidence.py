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

No other module makes a status. It hands over what was measured, or abstains, with a reason
(`untested`, `left_open`, `only_described`): only the rule confirms or denies. An audit's *answers*
are made here too, by the same comparison of an interval with the claimed bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from interp_toolkit.formatting import percent
from interp_toolkit.results import Status
from interp_toolkit.stats import LEVEL

LEAST_COPIES = 19  # the smallest p by rank is then 1 / 20; fewer cannot show what is rare
POWER = 0.8  # chance to find an effect of the size asked for, below which nothing is denied
ANY_EFFECT = 1e-12  # the threshold of a claim that there is any effect at all
TIE = 1e-5  # distance from an audited bound: error of sums in single precision

Verdict = tuple[Status, str | None]  # a status, and why the claim is not confirmed
Answer = Literal["confirmed", "refuted", "undecided", "not_testable"]
Word = TypeVar("Word", bound=str)
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
        return Control(name, "powerless", f"no comparison with {name} was made")
    if smallest > level:
        return Control(name, "powerless", f"with so few {name}, p cannot fall below {smallest:.2g}")
    if p_value <= level:
        return Control(name, "passed")
    return Control(name, "failed", f"not significant against {name} (p = {p_value:.2g})")


def control_of_excess(
    name: str, low: float, high: float, reason: str, *, least: float = 0.0, none: float = 0.0
) -> Control:
    """The control that an effect's excess over another one amounts to.

    Args:
        name: the other effect.
        low: lower end of the excess's interval, which passes above `least`.
        high: upper end, which fails below `none`.
        reason: why it is not passed.
        least: smallest excess that passes, itself excluded.
        none: excess below which there is none.

    Examples:
        >>> control_of_excess("elsewhere", -0.1, 0.2, "no excess is shown").outcome
        'undecided'
    """
    if low > least:
        return Control(name, "passed")
    return Control(name, "failed" if high < none else "undecided", reason)


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
    limit = float(defined.mean() + special.stdtrit(n - 1, 1 - level) * spread)
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


def untested(reason: str) -> Verdict:
    """The status of a claim that was not tested, as of a model that does not perform the task."""
    return "not_tested", reason


def left_open(reason: str) -> Verdict:
    """The status where what was measured decides nothing."""
    return "undecided", reason


def only_described(reason: str | None) -> Verdict:
    """The status where there is a description and no claim; no reason if that was asked for."""
    return "described", reason


def effect_status(
    low: float,
    high: float,
    threshold: float,
    controls: Sequence[Control],
    *,
    unconfirmed: str | None = None,
    effect: str = "effect",
    confirmed: Status = "detected",
    denied: Status = "not_detected",
    shown: Callable[[float], str] = "{:.3g}".format,
) -> Verdict:
    """The status of a claim that an effect is at least `threshold`, and why it is not confirmed.

    Args:
        low: lower end of the effect's confidence interval; NaN if it was not measured.
        high: upper end of the interval.
        threshold: smallest effect that is claimed.
        controls: every comparison that was made or should have been.
        unconfirmed: why no effect of any size would confirm the claim; it can then only be denied.
        effect: what the effect is called in reasons.
        confirmed: what a confirmed claim is called.
        denied: what a denied claim is called.
        shown: the threshold in reasons.

    Examples:
        >>> effect_status(0.2, 0.4, 0.1, [Control("shuffled weights", "passed")])
        ('detected', None)
        >>> effect_status(0.2, 0.4, 0.1, [])
        ('undecided', 'no control to compare the effect with')
    """
    if math.isnan(low) or math.isnan(high):
        return "undecided", f"the {effect} has no interval"
    if not any(control.counts for control in controls):
        reasons = [c.reason for c in controls if c.reason is not None]
        return "undecided", (reasons or ["no control to compare the effect with"])[0]
    if high < threshold:
        return denied, f"the interval of the {effect} is below {shown(threshold)}"
    if unconfirmed is not None:
        return "undecided", unconfirmed
    if low < threshold:
        return "undecided", f"the interval of the {effect} includes {shown(threshold)}"
    return _unless_explained(controls, confirmed)


def _unless_explained(controls: Sequence[Control], confirmed: Status) -> Verdict:
    """The status of an effect that is large enough, by its controls."""
    for outcome, status in _NOT_CONFIRMED:
        matching = [control for control in controls if control.outcome == outcome]
        if matching:
            return status, matching[0].reason
    if absent := [control for control in controls if control.required and not control.counts]:
        return "undecided", absent[0].reason
    return confirmed, None


_NOT_CONFIRMED: Sequence[tuple[Outcome, Status]] = (
    ("failed", "uninformative"),
    ("undecided", "undecided"),
)


def equivalence_status(
    low: float,
    high: float,
    within: float,
    controls: Sequence[Control],
    *,
    nothing: str | None = None,
    effect: str = "share",
) -> Verdict:
    """The status of a claim that a share is 1 within `within`; *partial* if it is only above 0.

    Args:
        low: lower end of the share's confidence interval.
        high: upper end of the interval.
        within: largest distance from 1.
        controls: every comparison that was made or should have been.
        nothing: why such a share would be no claim, but a description.
        effect: what the share is called in reasons.

    Examples:
        >>> equivalence_status(0.4, 1.1, 0.2, [])[0]
        'partial'
    """
    if low >= 1 - within and high <= 1 + within:
        if nothing is not None:
            return only_described(nothing)
        return effect_status(low, high, 1 - within, controls)
    if low > 0:
        return "partial", (
            f"the confidence interval of {effect} reaches beyond {percent(1 - within)} "
            f"to {percent(1 + within)}"
        )
    if high < 0:
        return "undecided", f"{effect} is below 0"
    return "undecided", f"the confidence interval of {effect} includes 0"


def comparisons_status(
    p_adjusted: Float[np.ndarray, " test"],
    level: float,
    *,
    power: float,
    least: str,
    controls: Sequence[Control] = (),
) -> Verdict:
    """The status of a claim that some of several tests are significant, and why it is not.

    Args:
        p_adjusted: p-values corrected for the number of tests; NaN for a test not made.
        level: significance level.
        power: chance of the test with the least power to find an effect of the size asked for.
        least: that effect, as a noun.
        controls: comparisons that could explain significant tests.

    Examples:
        >>> comparisons_status(np.array([0.3, 0.01]), 0.05, power=0.2, least="half a copy")
        ('detected', None)
        >>> comparisons_status(np.array([np.nan]), 0.05, power=0.9, least="half a copy")
        ('undecided', 'no comparison could be made')
        >>> comparisons_status(np.array([0.3]), 0.05, power=0.2, least="half a copy")[0]
        'undecided'
    """
    defined = p_adjusted[~np.isnan(p_adjusted)]
    if not len(defined):
        return "undecided", "no comparison could be made"
    if (defined <= level).any():
        return _unless_explained(controls, "detected")
    if not power >= POWER:
        chance = percent(0.0 if math.isnan(power) else power)
        return "undecided", f"{least} would be detected with a probability of only {chance}"
    which = f"all {len(defined)} comparisons" if len(defined) > 1 else "the only comparison"
    return "not_detected", f"adjusted p above {level:g} in {which}"


def power_of_z(z: Float[np.ndarray, " test"], level: float, tests: int) -> float:
    """The least power of one-sided tests to find effects with these expected z-scores.

    Args:
        z: z-score that each effect would have on average; NaN for a test not made.
        level: significance level.
        tests: number of tests for which the p-values are corrected (Bonferroni's, of Holm's).

    Examples:
        >>> round(power_of_z(np.array([3.0, 5.0]), 0.05, 1), 2)
        0.91
    """
    defined = z[~np.isnan(z)]
    if not len(defined):
        return math.nan
    return float(special.ndtr(special.ndtri(level / max(tests, 1)) + defined.min()))


def any_of(statuses: Sequence[Status], *, complete: bool = True) -> Status:
    """The status of a claim that something is there, from those of all that it may be.

    It is denied only if each is, and `complete`: nothing else could be it.

    Examples:
        >>> any_of(["not_detected", "detected"]), any_of(["not_detected"], complete=False)
        ('detected', 'undecided')
    """
    if not complete or not statuses:
        statuses = [*statuses, "undecided"]
    order: Sequence[Status] = (
        *("detected", "described", "undecided", "uninformative", "not_tested", "not_detected"),
    )
    return min(statuses, key=order.index)


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The status of a claim that requires all of these, and the reason of the decisive one.

    Examples:
        >>> all_of([("detected", None), ("undecided", "few prompts")])
        ('undecided', 'few prompts')
    """
    order: Sequence[Status] = (
        *("not_detected", "not_tested", "uninformative", "undecided", "described", "detected"),
    )
    none: Verdict = "undecided", "nothing was measured"
    return min(verdicts, key=lambda verdict: order.index(verdict[0]), default=none)


def answer_of(low: float, high: float, bound: float) -> Answer:
    """The answer to a claim of at least `bound`, from an interval; a tie reaches the bound.

    Of at most a bound, it is that of the negatives.

    Examples:
        >>> answer_of(0.2, 0.6, 0.05), answer_of(-0.01, 0.03, 0.05), answer_of(0.0, 0.3, 0.05)
        ('confirmed', 'refuted', 'undecided')
    """
    if math.isnan(low) or math.isnan(high):
        return "undecided"
    if low >= bound - TIE:
        return "confirmed"
    return "refuted" if high < bound - TIE else "undecided"


def answer_by(confirms: bool, refutes: bool = False, *, testable: bool = True) -> Answer:
    """The answer of what can be computed, or of a test that can decide to one side only."""
    if not testable:
        return "not_testable"
    return "refuted" if refutes else "confirmed" if confirms else "undecided"


def all_answers(answers: Sequence[Answer], *, alike: bool = False) -> Answer:
    """The answer to a claim that requires all of these.

    Args:
        answers: the answers; without any, nothing can be tested.
        alike: whether they are about the same thing, so that they must agree.

    Examples:
        >>> both = ["confirmed", "refuted"]
        >>> all_answers(both), all_answers(both, alike=True)
        ('refuted', 'undecided')
    """
    if alike and len(set(answers)) > 1:
        return "undecided"
    order: Sequence[Answer] = ("refuted", "not_testable", "undecided", "confirmed")
    return min(answers, key=order.index, default="not_testable")


def first_shown(shown: Mapping[Word, Bool[np.ndarray, " item"]]) -> list[Word]:
    """The first word of each item whose condition holds; where none does, it is undecided."""
    words: list[Word] = np.select(list(shown.values()), list(shown), "undecided").tolist()
    return words
