"""Audit of a head: does it have the attention pattern, and does the metric depend on it?

The answer is that of the head rule (`circuits.heads.rule`), which `heads` uses too, with the
claim's bound: the task's effect-size threshold, half of the metric ("carries"), or the claim's own
amount. Its parts are reported as questions:

- there: attention to the pattern's keys, against every matched control. A claim that the head
  contributes or carries is never refuted by its attention, because a head may attend so only at the
  positions of the prompts' answers;
- matters: the effect of the knockouts, alone and with the pattern also knocked out in the other
  heads that have it. If ablating the whole head is not shown to cost as much as claimed, the answer
  is undecided;
- special: the knockout costs more than a knockout of as much attention elsewhere in the same head;
- all: what the pattern still contributes in other heads once it is knocked out in this one;
- stable: the effect on resampled prompts, and in every group of them.

The other heads that have the pattern are selected on the same prompts. Intervals are corrected for
the choice among the joint knockouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from interp_toolkit.auditing.claims.kinds import HeadsClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import Part, measured, untestable
from interp_toolkit.auditing.threshold import stable_part
from interp_toolkit.circuits.heads.attention_knockout import KnockoutRunner
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.detectors import Detector, as_detector
from interp_toolkit.circuits.heads.rule import (
    LEAST_EXCESS,
    RIVALS,
    Decision,
    Knockouts,
    attention_controls,
    candidates,
    companies,
    faint,
    heads_with_pattern,
    with_interval,
)
from interp_toolkit.circuits.heads.rule import measured as effect_of
from interp_toolkit.circuits.heads.scores import detect, is_causal
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.metrics.causal_words import MAJOR
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.evidence import Control, all_answers, answer_by, answer_of
from interp_toolkit.formatting import percent
from interp_toolkit.models.model import Head
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL

ASSERTED = {
    "attends": ("there",),
    "contributes": ("there", "matters", "special"),
    "carries": ("there", "matters", "special"),
}
LEFT = 0.1  # of the metric: largest remaining contribution of other heads by the pattern


def audit_head(claim: HeadsClaim, context: AuditContext) -> list[Part]:
    """The parts of a claim about one head.

    Raises:
        InputError: an unknown head or detector.
    """
    (head,) = claim.heads
    _check(context, head)
    return _HeadAudit(claim, context, head).parts()


def _check(context: AuditContext, head: Head) -> None:
    cfg = context.model.cfg
    if head.layer >= int(cfg.n_layers) or head.head >= int(cfg.n_heads):
        raise InputError(
            f"there is no head {head_name(*head)}: the model has {int(cfg.n_layers)} layers of "
            f"{int(cfg.n_heads)} heads"
        )


@dataclass(frozen=True, eq=False)
class _HeadAudit:
    """Audit of one head and one attention pattern."""

    claim: HeadsClaim
    context: AuditContext
    head: Head

    @property
    def bound(self) -> float:
        """The claimed fraction of the metric; for other claims, the task's threshold."""
        if self.claim.says == "carries" and self.claim.at_least is None:
            return MAJOR
        if self.claim.says == "attends" or self.claim.at_least is None:
            return self.knockouts.threshold
        return self.claim.at_least

    @property
    def asserted(self) -> tuple[str, ...]:
        """The questions on which the claim depends."""
        return ASSERTED[self.claim.says]

    @property
    def name(self) -> str:
        """The head's name."""
        return head_name(*self.head)

    @cached_property
    def detector(self) -> Detector:
        """The detector of the head's type."""
        return as_detector(self.claim.relation, self.claim.hops)

    def parts(self) -> list[Part]:
        """The parts of the claim, one for each question."""
        there = self._there()
        if (reason := self.context.untestable) is not None:
            return [there, *self._not_testable(reason)]
        task = self.context.measured_task
        if not self.runner.targets[self.detector.name](task.rows).any():
            return [
                there,
                *self._not_testable(f"no {self.detector.name} pattern is in the prompts"),
            ]
        try:
            self.runner.check([self.head, *candidates(self._scores), *faint(self._scores)])
        except InterventionError as error:
            return [there, *self._not_testable(str(error))]
        matters, special = self._matters(), self._special()
        return [there, matters, self._all(), special, self._stable()]

    def _not_testable(self, reason: str) -> list[Part]:
        return [
            untestable(q, reason, "intervened", asserted=q in self.asserted)
            for q in ("matters", "special")
        ]

    @cached_property
    def _scores(self) -> DetectorScores:
        self.context.progress(f"attention to {self.detector.name}")
        return detect(
            self.context.model,
            self.context.prompts,
            [self.detector],
            seed=self.context.seed,
            memory=self.context.memory,
        ).scores[0]

    def _there(self) -> Part:
        """Attention above uniform, and above the controls."""
        scores = self._scores
        asserted = "there" in self.asserted
        if np.isnan(scores.score[self.head]):
            text = f"these prompts have no position with a key of the {self.detector.name} pattern"
            return untestable("there", text, "observed", asserted=asserted)
        alone = self.claim.says == "attends"
        at_least = self.claim.at_least
        bound = (LEAST_EXCESS if at_least is None else at_least) if alone else _ABOVE_NOTHING
        uniform = float(scores.uniform[self.head])
        by_row = scores.by_row[self.head.layer, :, self.head.head]
        excess = (by_row[~np.isnan(by_row)] - uniform) / (1 - uniform)
        if len(excess) < 2:
            text = f"only one prompt has a position with a key of the {self.detector.name} pattern"
            return untestable("there", text, "observed", asserted=asserted)
        coverage = self.context.coverage(len(self.asserted), 2)
        share, p = self.context.mean(excess, coverage), float(scores.p_value[self.head])
        answer = answer_of(share.low, share.high, bound)
        compared = answer_by(self._attention.outcome == "passed")
        answer = all_answers([answer, compared]) if alone else compared
        controls = "too few matched controls to compare with" if np.isnan(p) else f"p = {p:.2g}"
        if p > LEVEL:
            rival = RIVALS[scores.weakest[self.head.layer][self.head.head]]
            controls += f", not distinguishable from attention to {rival}"
        text = (
            f"{percent(float(scores.score[self.head]), 1)} of the attention of {self.name} is on "
            "keys of the pattern, at queries that have such a key; under uniform attention it "
            f"would be {percent(uniform, 1)}; matched controls: {controls}"
        )
        return measured("there", answer, text, "observed", share, bound, coverage, asserted)

    @property
    def _attention(self) -> Control:
        """The comparison of the head's attention with matched controls."""
        level = self.context.level / self.context.claims
        return attention_controls(self._scores, level)[self.head]

    @cached_property
    def same_type(self) -> list[Head]:
        """The other heads that have the attention pattern."""
        assert self.context.task_check is not None
        heads = heads_with_pattern(self.runner, self._scores, self.context.task_check)
        return [head for head in heads if head != self.head]

    @property
    def _others(self) -> list[Head]:
        """All other heads with attention to the pattern's keys."""
        layers, heads = self._scores.score.shape
        every = (Head(layer, head) for layer in range(layers) for head in range(heads))
        return [head for head in every if head != self.head and self._scores.score[head] > 0]

    @cached_property
    def runner(self) -> KnockoutRunner:
        """Knockouts of the pattern."""
        context, detector = self.context, self.detector
        causal = is_causal(context.model)
        return KnockoutRunner(
            context.model,
            context.measured_task,
            {detector.name: partial(targets_of, detector, context.prompts, causal=causal)},
            memory=context.memory,
            seed=context.seed,
            progress=context.progress,
        )

    @cached_property
    def knockouts(self) -> Knockouts:
        """The pattern's knockouts, with intervals for the alternatives of `matters`."""
        return self._knockouts(self.coverage)

    def _knockouts(self, coverage: float) -> Knockouts:
        check, task = self.context.task_check, self.context.measured_task
        assert check is not None
        built = Knockouts(
            self.runner,
            self.detector.name,
            [self.head, *self.same_type],
            check,
            lambda lost: effect_of(task, check, lost, coverage),
            {self.head: self._attention},
        )
        built.rows = len(task.rows)
        built.readings = self._readings_cache
        return built

    @cached_property
    def _readings_cache(self) -> dict[Any, Any]:
        """Cache of measured knockouts, shared by all coverages of the intervals."""
        return {}

    @property
    def coverage(self) -> float:
        """The coverage of the intervals of `matters`, for all sets of other heads."""
        alternatives = len(companies(self.head, self.same_type))
        return self.context.coverage(len(self.asserted), alternatives)

    @cached_property
    def decision(self) -> Decision:
        """The head rule's answer with the claim's bound."""
        return self.knockouts.decide(self.head, self.bound)

    def _matters(self) -> Part:
        decision = self.decision
        shares = decision.effect.values()
        answer = answer_of(decision.low, max(s.high for s in shares), self.bound)
        if answer == "refuted":
            answer = answer_by(False, decision.status == "not_detected")
        least = min(shares, key=lambda s: s.mean)
        condition = ""
        if decision.company:
            in_layer = all(head.layer == self.head.layer for head in decision.company)
            others = "the other heads of its layer" if in_layer else "all other heads that have it"
            condition = f", with the pattern also knocked out in {others}"
        text = (
            f"knocking out {self.name}'s attention to the pattern's keys costs "
            f"{with_interval(least)} of the metric{condition}; claimed: at least "
            f"{percent(self.bound)}"
        )
        if decision.contradicted:
            text += f", but {decision.because}"
        text += f". {self._taken_out()}"
        return measured(
            "matters", answer, text, "intervened", least, self.bound, self.coverage,
            "matters" in self.asserted,
        )  # fmt: skip

    def _taken_out(self) -> str:
        """Effects of ablating the head's whole output, as text."""
        by_way = self.knockouts.output_effect(self.head)
        effects = " and ".join(
            f"{with_interval(effect)} of the metric by {way} ablation"
            for way, effect in by_way.items()
        )
        return f"Ablating the whole head costs {effects}"

    def _special(self) -> Part:
        """Whether the knockout costs more than a control knockout in this head."""
        asserted = "special" in self.asserted
        excess, control = self.knockouts.elsewhere(frozenset([self.head]), self.decision.company)
        if not control.counts:
            text = "the head has no other attention that could be knocked out instead"
            return untestable("special", text, "intervened", asserted=False)
        answer = answer_by(control.outcome == "passed")
        least = min(excess.values(), key=lambda s: s.mean)
        text = (
            f"the knockout costs {with_interval(least)} of the metric more than a knockout of as "
            "much of the head's attention elsewhere"
        )
        return measured("special", answer, text, "intervened", least, 0.0, self.coverage, asserted)

    def _all(self) -> Part:
        """Whether no other head contributes to the metric by the pattern."""
        coverage, others = self.context.coverage(1), self.same_type
        if not others and np.isnan(self._scores.p_value).any():
            text = "whether other heads have the pattern could not be compared with controls"
            return Part("all", answer_by(False), text, "observed")
        every = others or self._others
        if not every:
            return Part("all", answer_by(True), "no other head attends to its keys", "observed")
        try:
            self.runner.check(every)
        except InterventionError as error:
            return untestable("all", str(error), "intervened", asserted=False)
        share = self._knockouts(coverage).effect(frozenset(every), frozenset([self.head]))
        widest = max(share.values(), key=lambda s: s.high)
        answer = all_answers(
            [answer_of(-s.high, -s.low, -LEFT) for s in share.values()], alike=True
        )
        heads = f"{len(every)} other {'head' if len(every) == 1 else 'heads'}"
        text = f"once it is knocked out here, the pattern in {heads} still carries "
        if not others:
            answer = answer if answer == "confirmed" else answer_by(False)
            text = (
                "no other head is shown to have the pattern; once it is knocked out here, the "
                f"attention of {heads} to its keys still carries "
            )
        text += f"{with_interval(widest)} of the metric"
        return measured("all", answer, text, "intervened", widest, LEFT, coverage, False)

    def _stable(self) -> Part:
        """The clearest effect on resampled prompts and in groups."""
        assert self.context.task_check is not None
        task = self.context.measured_task
        lost = self.knockouts.losses(frozenset([self.head]), self.decision.company)
        least = min(lost, key=lambda values: float(values.mean()))
        groups = self.context.groups
        groups = None if groups is None else groups[task.rows.numpy()]
        effect = least / self.context.task_check.whole
        return stable_part(effect, self.bound, groups, self.context.rng(3, *self.head))


_ABOVE_NOTHING = 1e-3  # of the metric, or of attention: smaller effects count as none
