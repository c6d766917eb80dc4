"""The head rule, which decides from attention knockouts whether a head is of a kind.

A head is of the kind of an attention pattern if all of the following hold. The first part that
fails is the reported reason.

(a) *pattern*: its attention to the pattern's keys is above every matched control (`significance`).
(b) *effect*: knocking out this attention changes the metric. The knockout is made in the head
    alone, or with the pattern also knocked out in the other heads of its layer, or of the model,
    that have it (which reveals redundant heads). The effect must appear both with renormalized
    attention and with the mean value as ablation value, and another prompt's value must not have
    the opposite effect (`attention_knockout`). Replacing the head's whole output, with the same
    other knockouts, must lower the metric too. If heads of the group cancel each other, so that
    knocking out all of them has no effect, no head is named.
(c) *size and specificity*: the knockout in the head, or in all heads of its layer with the pattern
    (in all heads with the pattern, if no layer's heads suffice), costs at least the task's
    effect-size threshold. It must also cost more than knocking out as much attention elsewhere in
    the same heads, or more than TIMES the cost of knocking out displaced keys, since a head may
    need its other attention too. A layer's heads can be specific as part of all heads with the
    pattern.

Attention only selects `candidates`, and knockouts decide. Candidates can have little attention to
the pattern: three heads with 30 % each can do the same work as one head with 90 %. Intervals are
simultaneous within a pattern, over all heads, sets and rounds (Bonferroni). Each round doubles the
number of prompts, until no head is undecided or no prompts are left. With a budget of passes (a
large model) there is one round. Single heads are knocked out only for patterns with a joint effect,
those with the largest apparent effect first, and layers' heads only in the layers of these heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.heads.attention_knockout import INTACT, Knockout, KnockoutRunner, Way
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.metrics.causal_words import (
    NEGLIGIBLE,
    CausalWord,
    causal_word,
    judged,
    matters,
)
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.formatting import percent
from interp_toolkit.models.model import Head
from interp_toolkit.stats import COVERAGE, LEVEL, Share, rows_needed

LEAST_EXCESS = 0.05  # smallest excess attention of a candidate
CANDIDATE_LEVEL = 0.2  # p-value of a candidate: in short prompts a sink may be one of few controls
NO_CHANGE = 1e-5  # nats; a control that changes no prompt's loss by more has no effect
TWICE = 2.0  # smallest score over uniform of a candidate below its detector's threshold
TIMES = 3.0  # factor on the cost of displaced keys
MOST_MEMBERS = 12  # heads of a group that are knocked out one by one, those with the largest excess
RANKED_ROWS = 4  # prompts on which heads are ranked by their apparent effect, with a budget
MOST_ROUNDS = 4  # rounds, each with twice as many prompts as the one before
KEEPS = 0.9  # fraction of the joint effect that the smallest set of heads keeps
WAYS: tuple[Way, ...] = ("renormalize", "mean")  # both must show an effect
OUTPUT_WAYS: tuple[Way, ...] = ("mean", "resample")

DEPENDS = "its effect depends on the ablation value"

Heads = frozenset[Head]
Effect = Mapping[str, Share]  # by way, as a fraction of the metric
Structure = Literal["one head", "shared", "backed up", "spread", "none"]


@dataclass(frozen=True)
class MemberEffect:
    """The effect of knocking out one head's attention to a pattern's keys.

    Attributes:
        head: layer and index of the head.
        own: single-head effect, by way.
        restored: effect with the pattern already knocked out in other heads, by way; equal to `own`
            if that decides.
        claim: the effect (`own` or `restored`) on which the causal word rests.
        output: effect of replacing the head's whole output, with the same other knockouts, by way;
            empty if the word claims no effect.
        word: causal word.
        named: whether the head rule holds.
        reason: why the rule does not hold; None if it does.
        effect: smallest effect of `claim` over ways, with a single 95 % interval. The intervals
            above are wider, since they are simultaneous.
        rows: number of prompts used.
        is_open: whether more prompts could change the verdict.
        rows_needed: estimated number of prompts for a decision; None if decided, or if it cannot be
            estimated.
    """

    head: Head
    own: Effect
    restored: Effect
    claim: Effect
    output: Effect
    word: CausalWord
    named: bool
    reason: str | None
    effect: Share
    rows: int
    is_open: bool = False
    rows_needed: int | None = None


@dataclass(frozen=True)
class Group:
    """Joint knockout of all heads that have an attention pattern.

    Attributes:
        detector: name of the pattern's detector.
        heads: all candidate heads, whether knocked out one by one or not.
        joint: effect of knocking the pattern out in all heads, by way; with a budget only the first
            way if that is undecided.
        control: effect of knocking out as much attention elsewhere in the same heads; empty if not
            tested (also with a budget).
        specific, above_threshold: parts of (c) of the rule, for all heads together; with a budget,
            specific is None (not tested).
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
    specific: bool | None
    above_threshold: bool
    word: CausalWord
    structure: Structure
    smallest: Sequence[Head]
    members: Sequence[MemberEffect]
    rows: int
    coverage: float


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
    heads = [Head(*at) for at in np.argwhere(strong | weak).tolist()]
    return sorted(heads, key=lambda head: -excess[head])


def displaced_name(detector: str) -> str:
    """Name of a pattern's displaced keys in `KnockoutRunner.targets`."""
    return f"{detector}, displaced"


class Knockouts:
    """Knockouts of one pattern on a task's prompts, run when they are needed.

    Args:
        runner: runner with the pattern's keys under the detector's name and, optionally, its
            displaced keys under `displaced_name`.
        detector: name of the pattern.
        heads: heads with the pattern, largest excess first.
        task_check: task performance of the intact model, which must perform the task.
        share: converts losses per prompt to a fraction of the metric with its interval.
        by_layer: heads whose layers' heads are knocked out together; None: all.
    """

    def __init__(
        self,
        runner: KnockoutRunner,
        detector: str,
        heads: Sequence[Head],
        task_check: TaskCheck,
        share: Callable[[Float[np.ndarray, " row"]], Share],
        by_layer: Sequence[Head] | None = None,
    ):
        self.runner, self.detector, self.heads, self.task_check = (
            runner,
            detector,
            list(heads),
            task_check,
        )
        self.share = share
        self.all: Heads = frozenset(heads)
        #: whether the heads of every layer may be knocked out together
        self.all_layers = by_layer is None or (
            {head.layer for head in by_layer} == {head.layer for head in heads}
        )
        self.rows = 0
        #: metric and loss of each prompt under each knockout that was run
        self.readings: dict[Knockout, Float[np.ndarray, "row column"]] = {}

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

    def _takes_away(self, knockouts: Sequence[Knockout]) -> bool:
        """Whether each knockout changes the loss of some prompt."""
        self._make([INTACT, *knockouts])
        intact = self.readings[INTACT]
        return all(
            float(np.abs(self.readings[knockout][:, 1] - intact[:, 1]).max()) > NO_CHANGE
            for knockout in knockouts
        )

    @cached_property
    def _has_displaced_keys(self) -> bool:
        """Whether most prompts with the pattern have displaced keys."""
        name = displaced_name(self.detector)
        if name not in self.runner.targets:
            return False
        rows = self.runner.task.rows
        own, other = (self.runner.targets[n](rows).any((1, 2)) for n in (self.detector, name))
        return bool((own & other).sum() >= 0.5 * max(own.sum(), 1))

    def layer(self, head: Head) -> Heads:
        """Heads of the same layer that have the pattern."""
        return frozenset(h for h in self.heads if h.layer == head.layer)

    def companies(self, head: Head) -> list[Heads]:
        """Sets of other heads in which the pattern is also knocked out."""
        sets = (self.layer(head) - {head}, self.all - {head})
        return [others for others in dict.fromkeys(sets) if others]

    def _knockout(self, heads: Heads, way: Way, *, control: bool = False) -> Knockout:
        return Knockout(heads, self.detector, way, control) if heads else INTACT

    def losses(
        self, heads: Heads, company: Heads = frozenset(), ways: Sequence[Way] = WAYS
    ) -> list[np.ndarray]:
        """Drop of the metric per prompt when these heads are knocked out after others, by way.

        Args:
            heads: heads to knock out.
            company: other heads in which the pattern is knocked out before and after.
            ways: ablation values.
        """
        knockouts = [self._knockout(company, way) for way in ways]
        knockouts += [self._knockout(company | heads, way) for way in ways]
        values = self.values(knockouts)
        return [before - after for before, after in zip(values, values[len(ways) :], strict=False)]

    def effect(self, heads: Heads, company: Heads = frozenset()) -> Effect:
        """Effect of knocking out these heads as a fraction of the metric, by way."""
        losses = self.losses(heads, company)
        return {way: self.share(lost) for way, lost in zip(WAYS, losses, strict=True)}

    def joint_effect(self) -> Effect:
        """Effect of knocking out all heads with the pattern, by way.

        With several heads further ways are left out where the first is undecided, since an effect
        must hold in all.
        """
        losses = self.losses(self.all, ways=WAYS[:1])
        first: Effect = {WAYS[0]: self.share(losses[0])}
        if len(self.all) > 1 and causal_word([list(first.values())]) == "undecided":
            return first
        return self.effect(self.all)

    def output_effect(self, head: Head, company: Heads = frozenset()) -> Effect:
        """Effect of replacing the head's whole output as a fraction of the metric, by way."""
        effects: dict[str, Share] = {}
        for way in OUTPUT_WAYS:
            before = self._knockout(company, way)
            after = Knockout(company, self.detector, way, output=frozenset([head]))
            intact, without = self.values([before, after])
            effects[way] = self.share(intact - without)
        return effects

    def beyond_control(self, heads: Heads, company: Heads = frozenset()) -> dict[str, Effect]:
        """Excess effect over as much attention elsewhere, and over displaced keys, by control.

        A control is left out if the heads have no attention elsewhere, or the prompts no displaced
        keys. Controls are run in the intact model, whatever the company.
        """
        return dict(self._controls(heads, company))

    def _controls(self, heads: Heads, company: Heads) -> Iterator[tuple[str, Effect]]:
        """Iterate over the controls; each is run only when needed."""
        losses = dict(zip(WAYS, self.losses(heads, company), strict=True))

        def beyond(times: float, knockouts: Sequence[Knockout]) -> Effect:
            intact, *others = self.values([INTACT, *knockouts])
            return {
                way: self.share(losses[way] - times * (intact - other))
                for way, other in zip(WAYS, others, strict=True)
            }

        elsewhere = [self._knockout(heads, way, control=True) for way in WAYS]
        if self._takes_away(elsewhere):
            yield "elsewhere", beyond(1.0, elsewhere)
        if self._has_displaced_keys:
            name = displaced_name(self.detector)
            yield "displaced", beyond(TIMES, [Knockout(heads, name, way) for way in WAYS])

    def specific(self, heads: Heads) -> bool:
        """Whether the effect significantly exceeds one of the controls, or there are none."""
        some = False
        for _, effect in self._controls(heads, frozenset()):
            if all(share.low > 0 for share in effect.values()):
                return True
            some = True
        return not some

    def _as_much_elsewhere(self, heads: Heads) -> bool:
        """Whether the excess effect over every control is below the equivalence bound."""
        effects = self.beyond_control(heads).values()
        return bool(effects) and all(any(s.high < NEGLIGIBLE for s in e.values()) for e in effects)

    def is_above_threshold(self, effect: Effect) -> bool:
        """Whether an effect is significant and reaches the task's effect-size threshold."""
        bound = self.runner.task.least(self.task_check.whole) / self.task_check.whole
        return all(share.low > 0 and share.mean >= bound for share in effect.values())

    def cancelled(self, head: Head) -> bool:
        """Whether the joint effect of all heads with the pattern is below the equivalence bound."""
        if self.all <= {head}:
            return False
        return any(share.high < NEGLIGIBLE for share in self.effect(self.all | {head}).values())

    def members_within(
        self, heads: Sequence[Head], until: float, budget: float
    ) -> list[MemberEffect]:
        """Head rule for these heads with a budget of prompts, largest apparent effect first.

        Args:
            heads: heads to test.
            until: number of prompts after which no second head is tested.
            budget: number of prompts after which no head is tested, unless it is the only one with
                the pattern.
        """
        members: list[MemberEffect] = []
        if len(self.all) == 1:
            return [self.member(head, until) for head in heads]
        if self.runner.rows_run >= budget:
            return members
        seem = self._apparent(heads)
        for head in sorted(heads, key=lambda head: -seem[head]):
            if self.runner.rows_run < (until if members else budget):
                members.append(self.member(head, until))
        return members

    def _apparent(self, heads: Sequence[Head]) -> dict[Head, float]:
        """Mean drop of the metric for a knockout of each head, in one way, on a few prompts."""
        rows, self.rows = self.rows, min(RANKED_ROWS, self.rows)
        try:
            return {
                head: float(self.losses(frozenset([head]), ways=WAYS[:1])[0].mean())
                for head in heads
            }
        finally:
            self.rows = rows

    def member(self, head: Head, until: float = math.inf) -> MemberEffect:
        """Head rule for one head; see the module.

        Args:
            head: the head.
            until: number of prompts after which no further set of other heads is tried.
        """
        alone: Heads = frozenset([head])
        own, output = self.effect(alone), dict[str, Share]()
        claims, companies = [own], [frozenset[Head]()]
        word, reason = self._supported(head, own, output)
        for company in self.companies(head):
            if matters(word) or self.runner.rows_run >= until:
                break
            if self.is_above_threshold(self.effect(company | alone)):
                claims.append(self.effect(alone, company))
                companies.append(company)
                more, _ = self._supported(head, claims[-1], output, company)
                if matters(more):
                    word, reason = more, None
        number = len(claims) - 1 if matters(word) else 0
        if not matters(word) and reason is None:
            word, rests_on = judged([list(claim.values()) for claim in claims])
            number = rests_on or 0
            word = "undecided" if matters(word) else word
        restored = claims[number] if number else max(claims, key=lambda by: least(by).low)
        is_open = word == "undecided"
        if reason is None:
            reason, is_open = self._why_not(head, word, own)
        losses = self.losses(alone, companies[number])
        smallest = min(losses, key=lambda lost: abs(float(lost.mean())))
        return MemberEffect(
            head=head,
            own=own,
            restored=restored,
            claim=claims[number],
            output=output,
            word=word,
            named=reason is None,
            reason=reason,
            effect=self.task_check.fraction(smallest, COVERAGE),
            rows=self.rows,
            is_open=is_open,
            rows_needed=self._needed(head) if word == "undecided" else None,
        )

    def _supported(
        self, head: Head, effect: Effect, output: dict[str, Share], company: Heads = frozenset()
    ) -> tuple[CausalWord, str | None]:
        """Causal word of an effect, unless replacing the whole output contradicts it; the reason.

        If the effect matters, the effect of replacing the output is stored in `output`.
        """
        word = causal_word([list(effect.values())])
        if not matters(word):
            return word, None
        (resampled,) = self.losses(frozenset([head]), company, ["resample"])
        if self.share(resampled).high < 0:
            return "undecided", DEPENDS
        output.update(self.output_effect(head, company))
        if all(s.high >= NEGLIGIBLE for s in output.values()):
            return word, None
        within = all(s.low >= -NEGLIGIBLE and s.high <= NEGLIGIBLE for s in output.values())
        reason = (
            "ablating the head's whole output, by its mean and by another prompt's, is not shown "
            "to lower the metric both ways"
        )
        return ("negligible" if within else "undecided"), reason

    def _why_not(self, head: Head, word: CausalWord, own: Effect) -> tuple[str | None, bool]:
        """Reason why the head is not named (None if it is), and whether that is undecided."""
        if word == "negligible":
            return (
                f"knocking out that attention costs within {percent(NEGLIGIBLE)} of the metric",
                False,
            )
        if word == "suppresses":
            return "the metric rises when that attention is knocked out", False
        if matters(word) and self.cancelled(head):
            return (
                "knocking it out in all heads that have this pattern does not lower the metric: "
                "they cancel",
                False,
            )
        if not matters(word):
            lows = [s.low > 0 for s in own.values()]
            if any(lows) and not all(lows):
                return DEPENDS, True
            return "the interval of its effect is too wide", True
        alone: Heads = frozenset([head])
        kinds = [alone] if self.is_above_threshold(own) else []
        if any(map(self.specific, kinds)):  # no further set is knocked out
            return None, False
        kinds += self.counting(head)
        if not kinds:
            sets = (alone, self.layer(head) | alone)
            small = all(self._too_small(self.effect(heads)) for heads in sets)
            if small and not self.all_layers:
                return "its effect, also with its layer's heads, is below the threshold", True
            certain = "the pattern's effect is below the threshold"
            return (certain, False) if small else ("its effect may be below the threshold", True)
        if any(self.specific(heads) or self._whole_is(heads) for heads in kinds):
            return None, False
        if all(self._as_much_elsewhere(heads) for heads in kinds):
            return "knocking out as much attention elsewhere has about the same effect", False
        return (
            "its effect is not significantly larger than that of as much attention elsewhere",
            True,
        )

    def _too_small(self, effect: Effect) -> bool:
        """Whether an effect is significantly below the task's effect-size threshold."""
        bound = self.runner.task.least(self.task_check.whole) / self.task_check.whole
        return any(share.high < bound for share in effect.values())

    def counting(self, head: Head) -> list[Heads]:
        """Sets of heads with a sufficient effect: the head's layer, or all if no layer suffices."""
        own = self.layer(head) | {head}
        if self.is_above_threshold(self.effect(own)):
            return [own]
        others = dict.fromkeys(self.layer(other) for other in self.heads)
        if not self.all_layers or not self.is_above_threshold(self.effect(self.all)):
            return []
        return (
            []
            if any(self.is_above_threshold(self.effect(heads)) for heads in others)
            else [self.all]
        )

    def _whole_is(self, heads: Heads) -> bool:
        """Whether a layer's heads are part of a group that is specific as a whole."""
        return len(heads) > 1 and heads != self.all and self.specific(self.all)

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


def group_effects(
    runner: KnockoutRunner,
    detector: str,
    heads: Sequence[Head],
    task_check: TaskCheck,
    *,
    most: int = MOST_MEMBERS,
    until: float = math.inf,
    budget: float = math.inf,
) -> Group:
    """The effect of knocking out a group of heads' attention to a pattern's keys.

    Args:
        runner: see `Knockouts`.
        detector: name of the pattern.
        heads: heads with the pattern, largest excess first; at least one.
        task_check: task performance of the intact model, which must perform the task.
        most: maximal number of heads to knock out one by one.
        until: number of prompts (`KnockoutRunner.rows_run`) after which no second head is knocked
            out alone. With such a limit there is one round, with all prompts.
        budget: number of prompts after which several heads are knocked out only together.
    """
    task, members, limited = runner.task, list(heads)[:most], math.isfinite(until)
    n_rows = len(task.rows)
    round_sizes = [n_rows] if limited else _round_sizes(task.first_look, n_rows)
    by_layer = members if limited else heads
    layers = {head.layer for head in by_layer}
    by_head = 3 if len({head.layer for head in heads}) == 1 else 4
    figures = by_head * len(members) + 3 * (1 + len(layers))
    coverage = 1 - (1 - COVERAGE) / (len(round_sizes) * figures)
    knockouts = Knockouts(
        runner,
        detector,
        heads,
        task_check,
        lambda lost: task_check.fraction(lost, coverage),
        by_layer,
    )
    effects: list[MemberEffect] = []
    for n_rows in round_sizes:
        knockouts.rows = n_rows
        if not limited:
            effects = [knockouts.member(head) for head in members]
        elif len(heads) == 1 or knockouts.is_above_threshold(knockouts.joint_effect()):
            effects = knockouts.members_within(members, until, budget)
        if not any(member.is_open for member in effects):
            break
    joint = knockouts.joint_effect() if limited else knockouts.effect(knockouts.all)
    word, above_threshold = causal_word([list(joint.values())]), knockouts.is_above_threshold(joint)
    if len(heads) == 1 and effects:
        word = effects[0].word  # replacing the whole output may contradict the knockout
    elif above_threshold and not any(matters(m.word) for m in effects):
        effects = [_only_together(m) for m in effects]
    structure: Structure = "none"
    smallest, control = list[Head](), dict[str, Share]()
    specific: bool | None = None if above_threshold else False
    if above_threshold and not limited:  # structure and specificity of the group
        structure, smallest = knockouts.structure(effects)
        specific = knockouts.specific(knockouts.all)
        intact, *elsewhere = knockouts.values(
            [INTACT, *(Knockout(knockouts.all, detector, way, control=True) for way in WAYS)]
        )
        control = {
            way: knockouts.share(intact - other) for way, other in zip(WAYS, elsewhere, strict=True)
        }
    return Group(
        detector=detector,
        heads=list(heads),
        joint=joint,
        control=control,
        specific=specific,
        above_threshold=above_threshold,
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
    """Change "negligible" to "undecided" for a head of a group with only a joint effect."""
    if member.word != "negligible" or member.output:
        return member
    reason = "the group has an effect together; no effect of this head alone is shown"
    return replace(member, word="undecided", reason=reason, named=False, is_open=True)
