"""The head rule: `heads` and `audit` decide by it whether a head is of a kind.

A head is of the kind of an attention pattern if knocking out its attention to the pattern's keys
(`attention_knockout`) has an effect of at least a bound, by `evidence.effect_status`. The bound is
the task's effect-size threshold, or the amount that a claim asserts.

- *Effect*: of the knockout in the head alone, or after the pattern is knocked out in the other
  heads of its layer, or of the model, that have it (which reveals redundant heads). The effect must
  reach the bound with renormalized attention and with the mean value as ablation value. Two other
  interventions must bear it, by a significant effect whose estimate reaches the bound: replacing
  the head's whole output, alone or after that of others of its group, and (here the bound is the
  threshold) zero ablation, since the other values can be louder than what the head wrote. Another
  prompt's value, and the knockout in all heads with the pattern (which can cancel each other), must
  not have an effect below the threshold.
- *Controls*: the attention's p-value against each matched control (`significance`) is at most
  LEVEL, and the knockout costs more than knocking out as much attention elsewhere in the same head.

A head is denied only if its knockout, alone and after others, has an effect below the bound. Heads
without a knockout of their own are denied only by `screen`: the pattern is knocked out in all heads
of each layer, and of the model, with an effect below the threshold.

Attention only selects heads to knock out (`heads_with_pattern`). Intervals are simultaneous within
a pattern, over all heads, sets of other heads and rounds (Bonferroni). Each round doubles the
number of prompts, until no head is undecided or no prompts are left. With a budget of passes (a
large model) there is one round. Every head that has the pattern by attention, or whose effect a
gradient estimates above the threshold (`first_order`), is then knocked out alone in one way on
RANKED_ROWS prompts. Those whose effect reaches the threshold there are tested by the whole rule,
largest effect first, for patterns with a joint effect; the others stay undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.heads.attention_knockout import INTACT, Knockout, KnockoutRunner, Way
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.metrics.causal_words import (
    NEGLIGIBLE,
    UNDECIDED,
    CausalWord,
    causal_word,
    judged,
    matters,
)
from interp_toolkit.circuits.metrics.task import CircuitTask, TaskCheck
from interp_toolkit.evidence import (
    Control,
    control_of_excess,
    control_of_p,
    effect_status,
    left_open,
)
from interp_toolkit.formatting import fixed, percent, percent_ci
from interp_toolkit.models.model import Head
from interp_toolkit.results import Status
from interp_toolkit.stats import COVERAGE, LEVEL, Estimate, Share, rows_needed

LEAST_EXCESS = 0.05  # smallest excess attention of a candidate
CANDIDATE_LEVEL = 0.2  # p-value of a candidate; above LEVEL it is never confirmed
NO_CHANGE = 1e-5  # nats; a control that changes no prompt's loss by more has no effect
TWICE = 2.0  # smallest score over uniform of a candidate below its detector's threshold
MOST_MEMBERS = 12  # heads of a group that are knocked out one by one, those with the largest excess
ROUNDS_TO_ZERO = 0.0005  # fraction of the metric below which effects are printed as 0.0 %
RANKED_ROWS = 4  # prompts on which heads are knocked out alone in one way, with a budget
MOST_ROUNDS = 4  # rounds, each with twice as many prompts as the one before
KEEPS = 0.9  # fraction of the joint effect that the smallest set of heads keeps
WAYS: tuple[Way, ...] = ("renormalize", "mean")  # both must show an effect
OUTPUT_WAYS: tuple[Way, ...] = ("mean", "resample")

#: other explanation of the attention, by family of controls
RIVALS = {
    "shifted": "nearby keys (a window)",
    "relabelled": "other tokens (a class of tokens)",
    "displaced": "the same positions with any token (a fixed position or distance)",
    "other queries": (
        "the same keys from every query (a fixed position, a separator or a class of tokens)"
    ),
}

DEPENDS = "its effect depends on the ablation value"


@dataclass(frozen=True)
class MeasuredShare(Share):
    """An effect as a fraction of the metric, and in the metric's own unit.

    Attributes:
        amount: the effect in the unit of the metric; None if only the fraction is known.
        unit: unit of a metric that an ablation can lower by more than all of it, so that effects
            are reported in that unit; empty where a fraction is at most 1.
    """

    amount: Estimate | None = None
    unit: str = ""


def measured(
    task: CircuitTask,
    task_check: TaskCheck,
    lost: Float[np.ndarray, " row"],
    coverage: float = COVERAGE,
) -> MeasuredShare:
    """A loss per prompt as a fraction of the metric and in its unit, with intervals."""
    fraction, amount = task_check.fraction(lost, coverage), task.interval(lost, coverage)
    unit = "" if math.isfinite(task_check.most) else task_check.unit
    return MeasuredShare(fraction.mean, fraction.low, fraction.high, amount, unit)


def negated(share: Share) -> Share:
    """The gain of the metric that an effect below zero is."""
    turned = share.negated()
    if not isinstance(share, MeasuredShare):
        return turned
    lost = share.amount
    amount = lost and replace(lost, mean=-lost.mean, low=-lost.high, high=-lost.low)
    return MeasuredShare(turned.mean, turned.low, turned.high, amount, share.unit)


def in_unit(share: Share) -> tuple[Estimate, str] | None:
    """An effect as an amount with its unit; None where it is reported as a fraction."""
    if isinstance(share, MeasuredShare) and share.unit and share.amount is not None:
        return share.amount, share.unit
    return None


def with_interval(share: Share) -> str:
    """An effect with its interval: a fraction, or an amount where the metric can be exceeded.

    An amount that certainly exceeds the metric makes the model worse than chance, which it says.
    """
    if (amount := in_unit(share)) is not None:
        lost, unit = amount
        bounded = share.low >= 0 and share.high <= 1 + ROUNDS_TO_ZERO
        fraction = f" ({percent(share.mean)})" if bounded else ""
        if share.low > 1 + ROUNDS_TO_ZERO:
            fraction = " (worse than chance)"
        return f"{fixed(lost.mean)} {unit} [{fixed(lost.low)}, {fixed(lost.high)}]{fraction}"
    if not (math.isfinite(share.low) or math.isfinite(share.high)):
        return f"{percent(share.mean, 1)} [no bounds]"
    return percent_ci(share, 1)


def cost(share: Share, digits: int = 1) -> str:
    """An effect in words: a percentage, or an amount where the metric can be exceeded."""
    if (amount := in_unit(share)) is not None:
        return f"{amount[0].mean:.2g} {amount[1]}"
    return percent(share.mean, digits)


Heads = frozenset[Head]
Effect = Mapping[str, Share]  # by way, as a fraction of the metric
Structure = Literal["one head", "shared", "backed up", "spread", "none"]


@dataclass(frozen=True)
class Decision:
    """Whether the metric depends on a head's attention to a pattern's keys.

    Attributes:
        status, reason: by `evidence.effect_status`.
        company: other heads in which the pattern is also knocked out.
        effect: effect of the knockout, by way.
        output: effect of replacing the head's whole output, by way; empty if not measured.
        low: lower end of the effect, over all interventions that must reach the bound.
        is_open: whether more prompts could change the status.
        because: the intervention that does not bear the effect of the knockout; None if all do.
    """

    status: Status
    reason: str | None
    company: Heads
    effect: Effect
    output: Effect
    low: float
    is_open: bool
    because: str | None

    @property
    def contradicted(self) -> bool:
        """Whether another intervention does not bear the effect of the knockout."""
        return self.because is not None


@dataclass(frozen=True)
class Elsewhere:
    """A knockout of as much attention to other keys in the same heads.

    Attributes:
        effect: its effect, by way; below 0 where the metric rises.
        excess: the effect of the pattern's knockout minus this one, by way.
        control: passed if the excess is above 0, failed if it is negligible, and without power if
            that knockout changes no prompt's loss.
    """

    effect: Effect
    excess: Effect
    control: Control


#: of several decisions, with different other heads knocked out, the first of these is the answer
_ORDER: Sequence[Status] = ("detected", "uninformative", "undecided", "not_detected")


@dataclass(frozen=True)
class MemberEffect:
    """The effect of knocking out one head's attention to a pattern's keys.

    Attributes:
        head: layer and index of the head.
        status: the head rule's (see the module).
        reason: why the head is not detected; None if it is.
        own: single-head effect, by way.
        restored: effect with the pattern already knocked out in other heads, by way; equal to `own`
            if that decides.
        claim: the effect (`own` or `restored`) on which the causal word rests.
        output: effect of replacing the head's whole output, with the same other knockouts, by way;
            empty if the word claims no effect.
        word: causal word.
        effect: smallest effect of `claim` over ways, with a single 95 % interval. The intervals
            above are wider, since they are simultaneous.
        rows: number of prompts used.
        is_open: whether more prompts could change the verdict.
        rows_needed: estimated number of prompts for a decision; None if decided, or if it cannot be
            estimated.
    """

    head: Head
    status: Status
    reason: str | None
    own: Effect
    restored: Effect
    claim: Effect
    output: Effect
    word: CausalWord
    effect: Share
    rows: int
    is_open: bool = False
    rows_needed: int | None = None

    @property
    def named(self) -> bool:
        """Whether the head rule holds."""
        return self.status == "detected"

    @property
    def others(self) -> Literal["intact", "knocked out"]:
        """The pattern in other heads while `effect` was measured."""
        return "intact" if self.claim == self.own else "knocked out"

    @property
    def is_partial(self) -> bool:
        """Whether the head was knocked out in one way only, which decides nothing."""
        return len(self.own) < len(WAYS)


@dataclass(frozen=True)
class Group:
    """Joint knockout of all heads that have an attention pattern.

    Attributes:
        detector: name of the pattern's detector.
        heads: all candidate heads, whether knocked out one by one or not.
        joint: effect of knocking the pattern out in all heads, by way; with a budget only the first
            way unless a head is detected.
        control: effect of knocking out as much attention elsewhere in the same heads; empty if not
            tested (also with a budget).
        word: causal word of the joint effect.
        structure: how the heads share the work; "none" with a budget.
        smallest: smallest set of heads that keeps KEEPS of the joint effect; may be empty.
        members: one entry per head that was knocked out alone.
        rows: number of prompts used.
        coverage: coverage of each interval.
    """

    detector: str
    heads: Sequence[Head]
    joint: Effect
    control: Effect
    word: CausalWord
    structure: Structure
    smallest: Sequence[Head]
    members: Sequence[MemberEffect]
    rows: int
    coverage: float


@dataclass(frozen=True)
class Screen:
    """Joint knockout of a pattern in all heads of one layer or of the model.

    Attributes:
        detector: name of the pattern's detector.
        layer: the layer; None for all heads of the model.
        effect: effect of the knockout, by way.
        status: "not_detected" if the effect is below the threshold; otherwise "undecided", since no
            head was knocked out alone.
        reason: why the status is not "detected".
    """

    detector: str
    layer: int | None
    effect: Effect
    status: Status
    reason: str


def least(by_way: Effect) -> Share:
    """Smallest effect over ways, by absolute value."""
    return min(by_way.values(), key=lambda s: abs(s.mean))


def candidates(scores: DetectorScores) -> list[Head]:
    """Heads that may have a detector's pattern, sorted by excess, largest first.

    The list is empty if there were no controls to compare with.
    """
    excess = scores.over_null
    with np.errstate(invalid="ignore"):
        strong = (excess >= scores.floor) & (scores.p_value <= LEVEL)
        weak = (excess >= LEAST_EXCESS) & (scores.p_value <= CANDIDATE_LEVEL)
        weak &= scores.score >= TWICE * scores.uniform
    return _by_excess(strong | weak, scores)


def faint(scores: DetectorScores) -> list[Head]:
    """Other heads whose attention to the pattern's keys is significant, sorted by excess."""
    with np.errstate(invalid="ignore"):
        significant = (scores.over_null > 0) & (scores.p_value <= LEVEL)
    chosen = set(candidates(scores))
    return [head for head in _by_excess(significant, scores) if head not in chosen]


def _by_excess(chosen: np.ndarray, scores: DetectorScores) -> list[Head]:
    heads = [Head(*at) for at in np.argwhere(chosen).tolist()]
    return sorted(heads, key=lambda head: -scores.over_null[head])


def attention_controls(scores: DetectorScores, level: float = LEVEL) -> dict[Head, Control]:
    """The comparison of every head's attention with matched controls, named by the closest one."""
    return {
        Head(*at): control_of_p(
            f"attention to {rival}" if (rival := RIVALS.get(scores.weakest[at[0]][at[1]]))
            else "matched controls",
            float(p),
            level,
        )
        for at, p in np.ndenumerate(scores.p_value)
        if np.isfinite(scores.score[at]) or not np.isfinite(scores.score).any()
    }  # fmt: skip


def companies(head: Head, heads: Sequence[Head]) -> list[Heads]:
    """Sets of other heads in which the pattern is knocked out too: none, its layer's, and all."""
    others = [other for other in heads if other != head]
    layer = frozenset(other for other in others if other.layer == head.layer)
    return list(dict.fromkeys((frozenset[Head](), layer, frozenset(others))))


class Knockouts:
    """Knockouts of one pattern on a task's prompts, run when they are needed.

    Args:
        runner: runner with the pattern's keys under the detector's name.
        detector: name of the pattern.
        heads: heads with the pattern, largest excess first.
        task_check: task performance of the intact model, which must perform the task.
        share: converts losses per prompt to an effect with its interval (see `measured`).
        attention: comparison of each head's attention with matched controls; a head without one is
            decided by its knockouts alone.
    """

    def __init__(
        self,
        runner: KnockoutRunner,
        detector: str,
        heads: Sequence[Head],
        task_check: TaskCheck,
        share: Callable[[Float[np.ndarray, " row"]], Share],
        attention: Mapping[Head, Control] | None = None,
    ):
        self.runner, self.detector, self.heads = runner, detector, list(heads)
        self.task_check, self.share, self.attention = task_check, share, attention or {}
        self.all: Heads = frozenset(heads)
        self.rows = 0
        #: metric and loss of each prompt under each knockout that was run
        self.readings: dict[Knockout, Float[np.ndarray, "row column"]] = {}

    @property
    def threshold(self) -> float:
        """The task's effect-size threshold, as a fraction of the metric."""
        return self.runner.task.least(self.task_check.whole) / self.task_check.whole

    def values(self, knockouts: Sequence[Knockout]) -> list[Float[np.ndarray, " row"]]:
        """Metric of the first `rows` prompts under each knockout."""
        self._make(knockouts)
        return [self.readings[knockout][: self.rows, 0] for knockout in knockouts]

    def _make(self, knockouts: Sequence[Knockout]) -> None:
        lengths = {knockout: len(self.readings.get(knockout, ())) for knockout in knockouts}
        for done in sorted({length for length in lengths.values() if length < self.rows}):
            new = [knockout for knockout, length in lengths.items() if length == done]
            readings = self.runner.readings(new, self.runner.task.rows[done : self.rows])
            for knockout, reading in readings.items():
                parts = (
                    [self.readings[knockout], reading] if knockout in self.readings else [reading]
                )
                self.readings[knockout] = np.concatenate(parts)

    def _knockout(self, heads: Heads, way: Way, elsewhere: Heads = frozenset()) -> Knockout:
        return Knockout(heads, self.detector, way, elsewhere) if heads or elsewhere else INTACT

    def _before(self, company: Heads, way: Way) -> Knockout:
        return self._knockout(company, way if way in WAYS else "mean")

    def losses(
        self, heads: Heads, company: Heads = frozenset(), ways: Sequence[Way] = WAYS
    ) -> list[np.ndarray]:
        """Drop of the metric per prompt when these heads are knocked out after others, by way.

        Args:
            heads: heads to knock out.
            company: other heads in which the pattern is knocked out before and after.
            ways: ablation values; where they are not among WAYS, mean values replace the company's,
                since other values in many heads can leave nothing of the metric to lose.
        """
        knockouts = [self._before(company, way) for way in ways]
        knockouts += [
            self._knockout(company | heads, way)
            if way in WAYS or not company
            else Knockout(heads, self.detector, way, beside=self._before(company, way))
            for way in ways
        ]
        values = self.values(knockouts)
        return [before - after for before, after in zip(values, values[len(ways) :], strict=False)]

    def effect(
        self, heads: Heads, company: Heads = frozenset(), ways: Sequence[Way] = WAYS
    ) -> Effect:
        """Effect of knocking out these heads as a fraction of the metric, by way."""
        losses = self.losses(heads, company, ways)
        return {way: self.share(lost) for way, lost in zip(ways, losses, strict=True)}

    def joint_effect(self) -> Effect:
        """Effect of knocking out all heads with the pattern, in the ways that were run.

        The first way always is; an effect must hold in all, which a detected head requires.
        """
        ways = [way for way in WAYS[1:] if self._was_run(self._knockout(self.all, way))]
        return self.effect(self.all, ways=[*WAYS[:1], *ways])

    def _was_run(self, knockout: Knockout) -> bool:
        return len(self.readings.get(knockout, ())) >= self.rows

    def output_effect(
        self, head: Head, company: Heads = frozenset(), *, whole: bool = False
    ) -> Effect:
        """Effect of replacing the head's whole output as a fraction of the metric, by way.

        Args:
            head: the head.
            company: other heads, with mean values in place of what they write.
            whole: whether the company's whole output is replaced; otherwise only the pattern is
                knocked out in it.
        """
        before = self._before(company, "mean")
        if whole:
            before = Knockout(relation=self.detector, way="mean", output=company)
        effects: dict[str, Share] = {}
        for way in OUTPUT_WAYS:
            after = Knockout(
                relation=self.detector,
                way=way,
                output=frozenset([head]),
                beside=before if company else None,
            )
            intact, without = self.values([before, after])
            effects[way] = self.share(intact - without)
        return effects

    def elsewhere(self, heads: Heads, company: Heads = frozenset()) -> Elsewhere:
        """A knockout of as much attention elsewhere in the same heads, after the company's."""
        name = "as much attention elsewhere in the head"
        before = [self._knockout(company, way) for way in WAYS]
        others = [self._knockout(company, way, heads) for way in WAYS]
        pairs = zip(self.values(before), self.values(others), strict=True)
        lost = [base - other for base, other in pairs]
        own = self.losses(heads, company)
        by_way = list(zip(WAYS, own, lost, strict=True))
        excess: Effect = {way: self.share(here - there) for way, here, there in by_way}
        effect: Effect = {way: self.share(there) for way, _, there in by_way}
        changes = [
            np.abs(self.readings[other][:, 1] - self.readings[base][:, 1]).max()
            for base, other in zip(before, others, strict=True)
        ]
        if min(changes) <= NO_CHANGE:
            none = Control(name, "powerless", f"there is not {name}")
            return Elsewhere(effect, excess, none)
        low = min(share.low for share in excess.values())
        high = max(share.high for share in excess.values())
        reason = f"its effect is not significantly larger than that of {name}"
        if high < NEGLIGIBLE:
            reason = f"knocking out {name} has about the same effect"
        control = control_of_excess(name, low, high, reason, none=NEGLIGIBLE)
        return Elsewhere(effect, excess, control)

    def decide(self, head: Head, bound: float, until: float = math.inf) -> Decision:
        """The head rule for a claim of at least `bound`; see the module.

        Args:
            head: the head.
            bound: smallest effect claimed, as a fraction of the metric.
            until: number of prompts (`KnockoutRunner.rows_run`) after which no further set of other
                heads is tried.
        """
        decisions: list[Decision] = []
        complete = True
        for company in companies(head, self.heads):
            if company and self.runner.rows_run >= until:
                complete = False
                break
            if company and self.is_below_threshold(self.effect(company | {head})):
                continue  # so it has no effect after the others either
            decisions.append(self._decide(head, company, bound))
            if decisions[-1].status == "detected":
                break
        decision = min(decisions, key=lambda d: (_ORDER.index(d.status), -d.low))
        if decision.status == "not_detected" and not complete:
            reason = "it was not knocked out together with the other heads that have the pattern"
            return replace(decision, status=left_open(reason)[0], reason=reason, is_open=True)
        return decision

    def _decide(self, head: Head, company: Heads, bound: float) -> Decision:
        effect = self.effect(frozenset([head]), company)
        low = min(share.low for share in effect.values())
        high = max(share.high for share in effect.values())
        controls = [self.attention[head]] if head in self.attention else []
        output: dict[str, Share] = {}
        because, is_open = None, True
        if low >= bound:
            for name, share, holds, least_effect in self._interventions(
                head, company, bound, output
            ):
                if not holds:
                    low, is_open = min(low, share.low), share.high >= least_effect
                    because = f"{name} costs {cost(share)} of the metric"
                    break
        if low >= bound or not any(control.counts for control in controls):
            controls.append(self.elsewhere(frozenset([head]), company).control)
        over = (
            f"effect over all interventions, {percent(low, 1)} to {percent(high, 1)} of the metric,"
        )
        status, reason = effect_status(low, high, bound, controls, effect=over, shown=_percent)
        if status == "undecided" and because is not None:
            reason = because
        elif status == "undecided" and min(share.high for share in effect.values()) < bound:
            reason = DEPENDS
        is_open = status == "undecided" and is_open
        return Decision(status, reason, company, effect, output, low, is_open, because)

    def _interventions(
        self, head: Head, company: Heads, bound: float, output: dict[str, Share]
    ) -> Iterator[tuple[str, Share, bool, float]]:
        """Further interventions, with their effect, whether it suffices, and the size it must have.

        The effects of replacing the whole output are stored in `output`.
        """
        alone: Heads = frozenset([head])
        for way, share in self.effect(alone, company, ("zero", "resample")).items():
            if way == "zero":
                name = "what takes the place of that attention is louder: zero ablation of it"
                yield name, share, self._bears(share, self.threshold), self.threshold
            else:
                name = "another prompt's value in its place"
                yield name, share, share.high >= self.threshold, self.threshold
        output.update(self._whole_output(head, company, bound))
        for share in output.values():
            yield "ablating the head's whole output", share, self._bears(share, bound), bound
        if self.all | alone != alone:
            name = "they cancel: knocking it out in all heads that have this pattern"
            for share in self.effect(self.all | alone).values():
                yield name, share, share.high >= self.threshold, self.threshold

    def _bears(self, share: Share, bound: float) -> bool:
        """Whether an intervention has a significant effect, estimated as at least `bound`.

        An amount that a claim asserts must lie below the whole interval.
        """
        if bound > self.threshold:
            return share.low >= bound
        return share.low > 0 and share.mean >= bound

    def _whole_output(self, head: Head, company: Heads, bound: float) -> Effect:
        """Effect of replacing the head's whole output where its attention was knocked out.

        After others, with the pattern knocked out in them; or, if only that bears the bound, with
        their whole output replaced too.
        """
        if bound > self.threshold:  # an amount is asserted of this head, not of it among others
            return self.output_effect(head)
        first = self.output_effect(head, company)
        if not company or all(self._bears(share, bound) for share in first.values()):
            return first
        whole = self.output_effect(head, company, whole=True)
        return whole if all(self._bears(share, bound) for share in whole.values()) else first

    def reaches_threshold(self, effect: Effect) -> bool:
        """Whether an effect is significant and reaches the task's effect-size threshold."""
        return all(share.low > 0 and share.mean >= self.threshold for share in effect.values())

    def is_below_threshold(self, effect: Effect) -> bool:
        """Whether an effect is significantly below the task's effect-size threshold."""
        return all(share.high < self.threshold for share in effect.values())

    def members_within(
        self, heads: Sequence[Head], until: float, budget: float
    ) -> list[MemberEffect]:
        """Effects of these heads with a budget of prompts, largest first.

        Every head is knocked out alone in one way on a few prompts. The head rule is applied to the
        head with the largest effect there, if it reaches the threshold, and to the next ones while
        the budget lasts; to none without a joint effect.

        Args:
            heads: heads to test.
            until: number of prompts after which the rule is not applied to a second head.
            budget: number of prompts after which the rule is applied to no head, unless it is the
                only one with the pattern.
        """
        if len(self.all) == 1:
            return [self.member(head, until) for head in heads]
        within_budget = self.runner.rows_run < budget
        apart = self.apart(heads)
        if not within_budget or not self.reaches_threshold(self.joint_effect()):
            return apart
        members: list[MemberEffect] = []
        for member in sorted(apart, key=lambda member: -member.effect.mean):
            first = not members and member.effect.mean >= self.threshold
            if first or self.runner.rows_run < until:
                member = self.member(member.head, until)
            members.append(member)
        return members

    def apart(self, heads: Sequence[Head]) -> list[MemberEffect]:
        """The effect of each head alone, in one way on a few prompts, which decides nothing."""
        rows, self.rows = self.rows, min(RANKED_ROWS, self.rows)
        members: list[MemberEffect] = []
        try:
            self.values([INTACT, *(self._knockout(frozenset([head]), WAYS[0]) for head in heads)])
            for head in heads:
                (lost,) = self.losses(frozenset([head]), ways=WAYS[:1])
                own: Effect = {WAYS[0]: self.share(lost)}
                reason = f"it was knocked out alone in one way only, on {self.rows} prompts"
                members.append(
                    MemberEffect(
                        head=head,
                        status=left_open(reason)[0],
                        reason=reason,
                        own=own,
                        restored=own,
                        claim=own,
                        output={},
                        word=UNDECIDED,
                        effect=measured(self.runner.task, self.task_check, lost),
                        rows=self.rows,
                        is_open=True,
                    )
                )
        finally:
            self.rows = rows
        return members

    def member(self, head: Head, until: float = math.inf) -> MemberEffect:
        """The head rule with the task's threshold for one head.

        Args:
            head: the head.
            until: number of prompts after which no further set of other heads is tried.
        """
        decision = self.decide(head, self.threshold, until)
        alone: Heads = frozenset([head])
        own = self.effect(alone)
        tried = [own, decision.effect] if decision.company else [own]
        word, rests_on = judged([list(effect.values()) for effect in tried])
        claim = tried[-1] if decision.status == "detected" else tried[rests_on or 0]
        if decision.status == "detected":
            word = causal_word([list(claim.values())])
        elif decision.contradicted and matters(word):
            word = UNDECIDED
        reason = decision.reason
        if decision.status == "not_detected" and word in _WHY_NOT:
            reason = _WHY_NOT[word]
        company = frozenset[Head]() if claim is own else decision.company
        smallest = min(self.losses(alone, company), key=lambda lost: abs(float(lost.mean())))
        return MemberEffect(
            head=head,
            status=decision.status,
            reason=reason,
            own=own,
            restored=tried[-1],
            claim=claim,
            output=decision.output,
            word=word,
            effect=measured(self.runner.task, self.task_check, smallest),
            rows=self.rows,
            is_open=decision.is_open,
            rows_needed=self._needed(head) if word == UNDECIDED else None,
        )

    def _needed(self, head: Head) -> int | None:
        """Number of prompts for an interval as narrow as the equivalence bound."""
        task, bound = self.runner.task, NEGLIGIBLE * self.task_check.whole
        counts = [
            rows_needed(task.interval(lost, COVERAGE), bound)
            for lost in self.losses(frozenset([head]))
        ]
        return max((n for n in counts if n is not None), default=None)

    def structure(self, members: Sequence[MemberEffect]) -> tuple[Structure, list[Head]]:
        """How the heads share the work, and the smallest set that keeps KEEPS of the joint effect.

        Heads are added in the order of their single-head effects. If no set of tested heads keeps
        as much, the set is all heads.
        """
        intact, bare = self.values([INTACT, self._knockout(self.all, "renormalize")])
        joint = float((intact - bare).mean())
        if len(self.all) == 1:
            return "one head", list(self.heads)
        lost = {m.head: m.own["renormalize"].mean for m in members}
        order = sorted(lost, key=lambda h: -lost[h])
        order += [h for h in self.heads if h not in lost]
        some = order
        for size in range(1, min(len(order), len(lost) + 1)):
            (without,) = self.values([self._knockout(self.all - set(order[:size]), "renormalize")])
            if float((without - bare).mean()) >= KEEPS * joint:
                some = order[:size]
                break
        if len(some) == 1:
            (alone,) = self.values([self._knockout(frozenset(some), "renormalize")])
            return (
                "one head" if float((intact - alone).mean()) >= KEEPS * joint else "backed up"
            ), some
        return ("spread" if len(some) > max(4, len(order) // 2) else "shared"), some


_WHY_NOT: Mapping[CausalWord, str] = {
    "negligible": f"knocking out that attention costs within {percent(NEGLIGIBLE)} of the metric",
    "suppresses": "the metric rises when that attention is knocked out",
}


def heads_with_pattern(
    runner: KnockoutRunner, scores: DetectorScores, task_check: TaskCheck
) -> list[Head]:
    """Candidates, and heads with little but significant attention that may matter together.

    The latter (`faint`) are left out of a layer in which knocking out the pattern in all of them,
    in the intact model and after the candidates, has an effect below the threshold.
    """
    heads, weak = candidates(scores), faint(scores)
    layers = sorted({head.layer for head in weak})
    coverage = 1 - (1 - COVERAGE) / (2 * max(len(layers), 1))
    share = partial(measured, runner.task, task_check, coverage=coverage)
    knockouts = Knockouts(runner, scores.detector, heads, task_check, share)
    knockouts.rows = min(runner.task.first_look, len(runner.task.rows))
    for layer in layers:
        together = frozenset(head for head in weak if head.layer == layer)
        companies = dict.fromkeys((frozenset[Head](), knockouts.all))
        effects = [knockouts.effect(together, company, WAYS[:1]) for company in companies]
        if not all(map(knockouts.is_below_threshold, effects)):
            heads += [head for head in weak if head.layer == layer]
    return heads


def screen(
    runner: KnockoutRunner,
    scores: DetectorScores,
    task_check: TaskCheck,
    *,
    by_layer: bool = True,
) -> list[Screen]:
    """Knockouts of a pattern in all heads of the model and of each layer, until one may matter.

    Args:
        runner: see `Knockouts`.
        scores: scores of every head; heads without a comparison deny nothing.
        task_check: task performance of the intact model, which must perform the task.
        by_layer: whether single layers are knocked out too.
    """
    n_layers = len(scores.p_value)
    layers: list[int | None] = [None, *(range(n_layers) if by_layer and n_layers > 1 else ())]
    coverage = 1 - (1 - COVERAGE) / len(layers)
    attention = attention_controls(scores)
    share = partial(measured, runner.task, task_check, coverage=coverage)
    knockouts = Knockouts(runner, scores.detector, [], task_check, share)
    knockouts.rows = len(runner.task.rows)
    screens: list[Screen] = []
    for layer in layers:
        heads = [head for head in attention if layer is None or head.layer == layer]
        if not heads:  # no attention in this layer
            continue
        effect = knockouts.effect(frozenset(heads))
        where = "" if layer is None else f" of layer {layer}"
        status, reason = effect_status(
            min(share.low for share in effect.values()),
            max(share.high for share in effect.values()),
            knockouts.threshold,
            [attention[head] for head in heads],
            effect="joint effect of all heads",
            shown=_percent,
            unconfirmed=(  # of no head is it shown that it has the pattern
                f"knocking out this pattern in all heads{where} costs "
                f"{cost(least(effect))} of the metric, and none was tested alone"
            ),
        )
        screens.append(Screen(scores.detector, layer, effect, status, reason or ""))
        if status != "not_detected":
            break
    return screens


_percent = partial(percent, digits=1)


def group_effects(
    runner: KnockoutRunner,
    detector: str,
    heads: Sequence[Head],
    task_check: TaskCheck,
    *,
    attention: Mapping[Head, Control] | None = None,
    most: int = MOST_MEMBERS,
    until: float = math.inf,
    budget: float = math.inf,
    alone: Sequence[Head] | None = None,
    selected_on: bool = False,
) -> Group:
    """The effect of knocking out a group of heads' attention to a pattern's keys.

    Args:
        runner: see `Knockouts`.
        detector: name of the pattern.
        heads: heads with the pattern, largest excess first; at least one.
        task_check: task performance of the intact model, which must perform the task.
        attention: see `Knockouts`.
        most: maximal number of heads to knock out one by one.
        until: number of prompts (`KnockoutRunner.rows_run`) after which no second head is knocked
            out alone. With such a limit there is one round, with all prompts.
        budget: number of prompts after which the whole rule is not applied to several heads.
        alone: heads to knock out one by one; None: the first `most`.
        selected_on: whether they were selected by effects on the prompts of the task, so that
            intervals are simultaneous over all heads.
    """
    task, limited = runner.task, math.isfinite(until)
    members = list(heads)[:most] if alone is None else list(alone)
    n_rows = len(task.rows)
    round_sizes = [n_rows] if limited else _round_sizes(task.first_look, n_rows)
    sets = max((len(companies(head, heads)) for head in members), default=0)
    figures = 1 + sets * (len(heads) if selected_on else len(members))
    coverage = 1 - (1 - COVERAGE) / (len(round_sizes) * figures)
    share = partial(measured, task, task_check, coverage=coverage)
    knockouts = Knockouts(runner, detector, heads, task_check, share, attention)
    effects: list[MemberEffect] = []
    for n_rows in round_sizes:
        knockouts.rows = n_rows
        if not limited:
            effects = [knockouts.member(head) for head in members]
        else:
            effects = knockouts.members_within(members, until, budget)
        if not any(member.is_open for member in effects):
            break
    joint = knockouts.joint_effect() if limited else knockouts.effect(knockouts.all)
    word, above_threshold = causal_word([list(joint.values())]), knockouts.reaches_threshold(joint)
    if len(joint) < len(WAYS):
        word = UNDECIDED  # an effect must hold in all ways
    if len(heads) == 1 and effects:
        word = effects[0].word  # replacing the whole output may contradict the knockout
    elif above_threshold and not any(matters(m.word) for m in effects):
        effects = [_only_together(m) for m in effects]
    structure: Structure = "none"
    smallest, control = list[Head](), dict[str, Share]()
    if above_threshold and not limited:  # structure and control of the group
        structure, smallest = knockouts.structure(effects)
        intact, *elsewhere = knockouts.values(
            [INTACT, *(Knockout(relation=detector, way=w, elsewhere=knockouts.all) for w in WAYS)]
        )
        control = {
            way: knockouts.share(intact - other) for way, other in zip(WAYS, elsewhere, strict=True)
        }
    return Group(
        detector=detector,
        heads=list(heads),
        joint=joint,
        control=control,
        word=word,
        structure=structure,
        smallest=smallest,
        members=effects,
        rows=knockouts.rows,
        coverage=coverage,
    )


def _round_sizes(size: int, n_rows: int) -> list[int]:
    """Number of prompts in each round, from that of the first round."""
    sizes: list[int] = []
    while size < n_rows and len(sizes) < MOST_ROUNDS - 1:
        sizes.append(size)
        size *= 2
    return [*sizes, n_rows]


def _only_together(member: MemberEffect) -> MemberEffect:
    """Change "not detected" to "undecided" for a head of a group with only a joint effect."""
    if member.status != "not_detected" or member.word == "suppresses":
        return member
    reason = "the group has an effect together; no effect of this head alone is shown"
    status, _ = left_open(reason)
    return replace(member, status=status, word=UNDECIDED, reason=reason, is_open=True)
