"""Audit of a head: does it have the attention pattern, and does the metric depend on it?

The answer is that of the head rule (`circuits.heads.rule`), which `heads` uses too, with the
claim's bound: the task's effect-size threshold, half of the metric ("carries"), or the claim's own
amount. Its parts are reported as questions:

- there: attention to the pattern's keys, against every matched control. It is denied if the excess
  is below LEAST_EXCESS at every query position, by simultaneous intervals, and the knockout does
  not matter: means hide a head that attends so only where the prompts' answers are, or in a few
  prompts;
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

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

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
    Effect,
    Knockouts,
    attention_controls,
    candidates,
    companies,
    faint,
    heads_with_pattern,
    negated,
    with_interval,
)
from interp_toolkit.circuits.heads.rule import measured as effect_of
from interp_toolkit.circuits.heads.scores import detect, is_causal
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.metrics.causal_words import MAJOR
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.evidence import Answer, Control, all_answers, answer_by, answer_of
from interp_toolkit.formatting import percent
from interp_toolkit.models.model import Head
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.read import visibility
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL, Share

ASSERTED = {
    "attends": ("there",),
    "contributes": ("there", "matters", "special"),
    "carries": ("there", "matters", "special"),
}
FEWEST_AT_A_QUERY = 8  # prompts with a key of the pattern at a position that is tested by itself
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
        untested = self._denied_only_with(there, "not_testable")
        if (reason := self.context.untestable) is not None:
            return [untested, *self._not_testable(reason)]
        task = self.context.measured_task
        if not self.runner.targets[self.detector.name](task.rows).any():
            return [
                untested,
                *self._not_testable(f"no {self.detector.name} pattern is in the prompts"),
            ]
        try:
            self.runner.check([self.head, *candidates(self._scores), *faint(self._scores)])
        except InterventionError as error:
            return [untested, *self._not_testable(str(error))]
        matters, special = self._matters(), self._special()
        return [
            self._denied_only_with(there, matters.answer),
            matters,
            self._all(),
            special,
            self._stable(),
        ]

    def _denied_only_with(self, there: Part, matters: Answer) -> Part:
        """Attention of a claim on effects, denied only if its knockout has no such effect either.

        A mean over prompts has no power against attention in a few of them, which may be those
        that matter.
        """
        if self.claim.says == "attends" or there.answer != "refuted" or matters == "refuted":
            return there
        missing = "that it has none in single prompts is not shown, since the knockout may matter"
        return replace(there, answer=answer_by(False), summary=f"{there.summary}; {missing}")

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
            look=self._look,
        ).scores[0]

    @cached_property
    def _by_query(self) -> list[Float[np.ndarray, "row query"]]:
        """Excess attention of each query of the first prompts, NaN without keys of the pattern."""
        return []

    def _look(self, pattern: Float[Tensor, "row head query key"], layer: int) -> None:
        if layer != self.head.layer:
            return
        prompts, model = self.context.prompts, self.context.model
        own = pattern[:, self.head.head].double().cpu().numpy()
        causal = is_causal(model)
        keys = targets_of(self.detector, prompts, torch.arange(len(own)), causal=causal)
        visible = visible_pairs(*visibility(model, layer), prompts.n_pos).numpy()
        keys = keys & visible
        uniform = keys.sum(-1) / visible.sum(-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = ((own * keys).sum(-1) - uniform) / (1 - uniform)
        self._by_query.append(np.where(keys.any(-1) & (uniform < 1), excess, np.nan))

    def _most_at_a_query(self) -> float:
        """Largest upper limit of the mean excess at any query position; NaN if not known.

        Positions where few prompts have a key of the pattern are taken together.
        """
        (excess,) = self._by_query or [np.full((0, 0), np.nan)]
        counts = (~np.isnan(excess)).sum(0)
        groups = [excess[:, at] for at in np.flatnonzero(counts >= FEWEST_AT_A_QUERY)]
        groups.append(excess[:, (counts > 0) & (counts < FEWEST_AT_A_QUERY)].ravel())
        values = [group[~np.isnan(group)] for group in groups if not np.isnan(group).all()]
        if not values or min(map(len, values)) < 2:
            return math.nan
        coverage = self.context.coverage(len(self.asserted), 2 * len(values))
        return max(self.context.mean(group, coverage).high for group in values)

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
        most = math.nan if compared == "confirmed" or np.isnan(p) else self._most_at_a_query()
        if alone:
            answer = all_answers([answer, compared])
        else:
            answer = answer_by(compared == "confirmed", most < LEAST_EXCESS)
        controls = "too few matched controls to compare with" if np.isnan(p) else f"p = {p:.2g}"
        if p > LEVEL:
            rival = RIVALS[scores.weakest[self.head.layer][self.head.head]]
            controls += f", not distinguishable from attention to {rival}"
        elif p > (level := self.context.level / self.context.claims):
            controls += f", above {level:.2g}, the level of each of {self.context.claims} claims"
        score = percent(float(scores.score[self.head]), 1)
        own = percent(float(scores.attention[self.head]), 1)
        apart = score != own
        compared_at = f"{score} at those that matched controls have too, where " if apart else ""
        text = (
            f"{own} of the attention of {self.name} is on "
            f"keys of the pattern, at queries that have such a key; {compared_at}under uniform "
            f"attention it would be {percent(uniform, 1)}; matched controls: {controls}"
        )
        if not math.isnan(most):
            denied = "no query position has" if most < LEAST_EXCESS else "some query may have"
            text += f"; {denied} {percent(LEAST_EXCESS)} or more beyond uniform attention"
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
        asked = "needed" if self.claim.at_least is None else "claimed"
        text = (
            f"knocking out {self.name}'s attention to the pattern's keys costs "
            f"{with_interval(least)} of the metric{self._condition}; "
            f"{asked}: at least {percent(self.bound)}"
        )
        if decision.contradicted:
            text += f", but {decision.because}"
        effects = {"attention": least}
        for name, condition, by_way in self._whole_head():
            text += f". Ablating the whole head{condition} costs {_by_way(by_way)}"
            effects |= {f"{name}, {way}": share for way, share in by_way.items()}
        return measured(
            "matters", answer, text, "intervened", least, self.bound, self.coverage,
            "matters" in self.asserted, effects,
        )  # fmt: skip

    def _whole_head(self) -> Iterator[tuple[str, str, Effect]]:
        """Effects of ablating the whole head, each with a name and its condition as text."""
        alone, company = self.knockouts.output_effect(self.head), self.decision.company
        if company:
            after = self.knockouts.output_effect(self.head, company)
            yield "whole head after others", f"{self._condition},", after
            if self.decision.output not in ({}, alone, after):
                condition = ", after the other heads' whole output,"
                yield "whole head after whole heads", condition, self.decision.output
        yield "whole head alone", " alone" if company else "", alone

    @property
    def _condition(self) -> str:
        """The other heads in which the pattern is knocked out too, as text."""
        company = self.decision.company
        if not company:
            return ""
        in_layer = all(head.layer == self.head.layer for head in company)
        others = "the other heads of its layer" if in_layer else "all other heads that have it"
        return f", with the pattern also knocked out in {others}"

    def _special(self) -> Part:
        """Whether the knockout costs more than a control knockout in this head."""
        asserted = "special" in self.asserted
        company = self.decision.company
        elsewhere = self.knockouts.elsewhere(frozenset([self.head]), company)
        if not elsewhere.control.counts:
            text = "the head has no other attention that could be knocked out instead"
            return untestable("special", text, "intervened", asserted=False)
        answer = answer_by(elsewhere.control.outcome == "passed")
        way, least = min(elsewhere.excess.items(), key=lambda item: item[1].mean)
        own, other = self.decision.effect[way], elsewhere.effect[way]
        changes = f"costs {with_interval(other)} of it"
        if other.mean < 0:
            changes = f"raises it by {with_interval(negated(other))}"
        text = (
            f"knocking out the attention to the pattern's keys costs {with_interval(own)} of the "
            f"metric{self._condition}; knocking out as much of the head's attention elsewhere "
            f"{changes}. The difference is {with_interval(least)}"
        )
        return measured(
            "special", answer, text, "intervened", least, 0.0, self.coverage, asserted,
            {"attention": own, "elsewhere": other},
        )  # fmt: skip

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


def _by_way(effects: Mapping[str, Share]) -> str:
    """Effects of the ways of ablation, as text."""
    return " and ".join(
        f"{with_interval(effect)} of the metric by {way} ablation"
        for way, effect in effects.items()
    )


_ABOVE_NOTHING = 1e-3  # of the metric, or of attention: smaller effects count as none
