"""Audit of a head: does it have the attention pattern, and does the metric depend on it?

The test is the head rule (`circuits.heads.rule`) with the claim's bound in place of its own:

- there: its attention to the pattern's keys exceeds uniform attention, averaged over prompts, and
  every matched control (`circuits.heads.significance`). A control that could not be compared, or
  that has as much attention, makes a confirmed part undecided. A claim that the head contributes
  or carries is never refuted by its attention, because a head may attend so only at the positions
  of the prompts' answers;
- matters: the pattern is knocked out in this head, with two ablation methods
  (`circuits.heads.attention_knockout`): alone, and with the pattern also knocked out in the other
  heads that have it, those of its layer or all. The joint knockouts reveal a head with backups. One
  of these effects is enough, with both methods, under three conditions: another prompt's value does
  not have the opposite effect; ablating the head's whole output does not cost less than claimed;
  and the knockout in all heads that have the pattern has a cost (heads that cancel each other
  contribute nothing);
- special: the knockout costs more than a knockout of as much attention elsewhere in the same head,
  or more than three times a knockout of displaced keys;
- all: what the pattern still contributes in other heads once it is knocked out in this one;
- stable: the effect on resampled prompts, and in every group of them.

The other heads that have the pattern are selected on the same prompts, by attention alone.
Intervals are corrected for the choice among the joint knockouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from interp_toolkit.auditing.claims.kinds import HeadsClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import (
    Answer,
    Part,
    answer_of,
    measured,
    of_alternatives,
    of_requirements,
)
from interp_toolkit.auditing.threshold import stable_part
from interp_toolkit.circuits.heads.attention_knockout import KnockoutRunner
from interp_toolkit.circuits.heads.controls import displaced_targets, targets_of
from interp_toolkit.circuits.heads.detectors import Detector, as_detector
from interp_toolkit.circuits.heads.rule import (
    LEAST_EXCESS,
    TIMES,
    Effect,
    Heads,
    Knockouts,
    candidates,
    displaced_name,
)
from interp_toolkit.circuits.heads.scores import detect, is_causal
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.heads.verdict import RIVALS
from interp_toolkit.circuits.metrics.causal_words import MAJOR, NEGLIGIBLE
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.models.model import Head
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL, Share

BOUNDS = {"attends": LEAST_EXCESS, "contributes": NEGLIGIBLE, "carries": MAJOR}
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
    def claimed(self) -> float:
        """The smallest effect that the claim asserts."""
        at_least = self.claim.at_least
        return BOUNDS[self.claim.says] if at_least is None else at_least

    @property
    def bound(self) -> float:
        """The claimed fraction of the metric; for a claim about attention only, NEGLIGIBLE."""
        return NEGLIGIBLE if self.claim.says == "attends" else self.claimed

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
            self.runner.check([self.head, *self.same_type])
        except InterventionError as error:
            return [there, *self._not_testable(str(error))]
        matters, special = self._matters(), self._special()
        return [there, matters, self._all(), special, self._stable()]

    def _not_testable(self, reason: str) -> list[Part]:
        return [
            Part(q, "not_testable", reason, "intervened", q in self.asserted)
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
            return Part("there", "not_testable", text, "observed", asserted)
        alone = self.claim.says == "attends"
        bound = self.claimed if alone else _ABOVE_NOTHING
        uniform = float(scores.uniform[self.head])
        by_row = scores.by_row[self.head.layer, :, self.head.head]
        excess = (by_row[~np.isnan(by_row)] - uniform) / (1 - uniform)
        if len(excess) < 2:
            text = f"only one prompt has a position with a key of the {self.detector.name} pattern"
            return Part("there", "not_testable", text, "observed", asserted)
        coverage = self.context.coverage(len(self.asserted), 2)
        share, p = self.context.mean(excess, coverage), float(scores.p_value[self.head])
        answer = answer_of(share.low, share.high, bound)
        if answer == "confirmed" and not p <= (1 - coverage) / 2:
            answer = "undecided"  # a control has as much attention, or none could be compared
        elif not alone and answer == "refuted":
            answer = "undecided"  # it may attend so only at the answers' positions
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

    @cached_property
    def same_type(self) -> list[Head]:
        """The other heads that have the attention pattern, by attention alone."""
        return [head for head in candidates(self._scores) if head != self.head]

    @cached_property
    def runner(self) -> KnockoutRunner:
        """Knockouts of the pattern."""
        context, detector = self.context, self.detector
        task = context.measured_task
        causal = is_causal(context.model)
        prompts = context.prompts
        return KnockoutRunner(
            context.model,
            task,
            {
                detector.name: partial(targets_of, detector, prompts, causal=causal),
                displaced_name(detector.name): partial(
                    displaced_targets, detector, prompts, causal=causal
                ),
            },
            memory=context.memory,
            seed=context.seed,
            progress=context.progress,
        )

    def knockouts(self, coverage: float) -> Knockouts:
        """The pattern's knockouts, with intervals of this coverage."""
        task = self.context.measured_task
        assert self.context.task_check is not None
        built = Knockouts(
            self.runner,
            self.detector.name,
            [self.head, *self.same_type],
            self.context.task_check,
            lambda lost: self.context.share(lost, coverage),
        )
        built.rows = len(task.rows)
        built.readings = self._readings_cache
        return built

    @cached_property
    def _readings_cache(self) -> dict[Any, Any]:
        """Cache of measured knockouts, shared by all coverages of the intervals."""
        return {}

    @cached_property
    def head_sets(self) -> dict[str, Heads]:
        """The sets of other heads in which the pattern is also knocked out, by name."""
        same_type = frozenset(self.same_type)
        layer = frozenset(h for h in same_type if h.layer == self.head.layer)
        groups = {"alone": frozenset[Head](), "layer": layer, "all": same_type}
        if layer == same_type:
            del groups["layer"]
        return {name: heads for name, heads in groups.items() if name == "alone" or heads}

    @cached_property
    def judged(self) -> dict[str, tuple[Answer, Effect]]:
        """The answer and the effects by ablation method, for each set of other heads."""
        knockouts, own = self.knockouts(self.coverage), frozenset([self.head])
        by_group = {}
        for set_name, heads in self.head_sets.items():
            effect = knockouts.effect(own, heads)
            answers = [answer_of(s.low, s.high, self.bound) for s in effect.values()]
            by_group[set_name] = (of_requirements(answers), effect)
        return by_group

    @property
    def coverage(self) -> float:
        """The coverage of the intervals of `matters`."""
        return self.context.coverage(len(self.asserted), len(self.head_sets))

    @cached_property
    def decisive_set(self) -> str:
        """Name of the set of other heads under whose knockout the head's effect is clearest."""
        return max(self.judged, key=lambda name: min(s.low for s in self.judged[name][1].values()))

    def _matters(self) -> Part:
        answer = of_alternatives([answer_of for answer_of, _ in self.judged.values()])
        least = min(self.judged[self.decisive_set][1].values(), key=lambda s: s.mean)
        condition = {
            "alone": "",
            "layer": ", with the pattern also knocked out in the other heads of its layer",
            "all": ", with the pattern also knocked out in all other heads that have it",
        }[self.decisive_set]
        text = (
            f"knocking out {self.name}'s attention to the pattern's keys costs {percent_ci(least)} "
            f"of the metric{condition}; claimed: at least {percent(self.bound)}"
        )
        knockouts = self.knockouts(self.coverage)
        output = knockouts.output_effect(self.head, self.head_sets[self.decisive_set])
        if answer != "refuted" and any(s.high < self.bound for s in output.values()):
            within = all(s.high < self.bound for s in output.values())
            answer = "refuted" if within else "undecided"
            smallest = min(output.values(), key=lambda s: s.mean)
            text += f", but ablating its whole output costs {percent_ci(smallest)}"
        elif answer != "refuted" and self._reversed(knockouts):
            answer = "undecided"
            text += ", but with another prompt's value in its place the metric rises"
        elif answer != "refuted" and knockouts.cancelled(self.head):
            answer = "undecided"
            text += ", but knocked out in all heads that have it, it costs nothing: they cancel"
        text += f". {self._taken_out(knockouts)}"
        return measured(
            "matters", answer, text, "intervened", least, self.bound, self.coverage,
            "matters" in self.asserted,
        )  # fmt: skip

    def _reversed(self, knockouts: Knockouts) -> bool:
        """Whether another prompt's value in place of the attention has the opposite effect."""
        others = self.head_sets[self.decisive_set]
        (lost,) = knockouts.losses(frozenset([self.head]), others, ["resample"])
        return knockouts.share(lost).high < 0

    def _taken_out(self, knockouts: Knockouts) -> str:
        """Effects of ablating the head's whole output, as text."""
        by_way = knockouts.output_effect(self.head)
        effects = " and ".join(
            f"{percent_ci(effect)} ({way} ablation)" for way, effect in by_way.items()
        )
        return f"Ablating the whole head costs {effects} of the metric"

    def _special(self) -> Part:
        """Whether the knockout costs more than a control knockout in this head."""
        asserted = "special" in self.asserted
        coverage = self.context.coverage(len(self.asserted), 2 * len(self.head_sets))
        knockouts, others = self.knockouts(coverage), self.head_sets[self.decisive_set]
        share = knockouts.beyond_control(frozenset([self.head]), others)
        if not share:
            text = "the head has no other attention that could be knocked out instead"
            return Part("special", "not_testable", text, "intervened", False)
        answers = {
            kind: of_requirements([answer_of(s.low, s.high, _ABOVE_NOTHING) for s in by.values()])
            for kind, by in share.items()
        }
        control = next((k for k, a in answers.items() if a == "confirmed"), next(iter(answers)))
        least = min(share[control].values(), key=lambda s: s.mean)
        if control == "displaced":
            text = (
                f"the knockout costs {percent_ci(least)} of the metric more than {TIMES:g} times a "
                "knockout of displaced keys (those of another prompt, or one position further)"
            )
            if "elsewhere" in answers:
                text += "; not shown to cost more than knocking out as much attention elsewhere"
        else:
            text = (
                f"the knockout costs {percent_ci(least)} of the metric more than a knockout of as "
                "much of the head's attention elsewhere in the intact model"
            )
        answer = of_alternatives(list(answers.values()))
        return measured("special", answer, text, "intervened", least, 0.0, coverage, asserted)

    def _all(self) -> Part:
        """Whether no other head contributes to the metric by the pattern."""
        coverage = self.context.coverage(1)
        if not self.same_type:
            if np.isnan(self._scores.p_value).any():
                text = "whether other heads have the pattern could not be compared with controls"
                return Part("all", "undecided", text, "observed")
            text = "no other head is shown to have the pattern"
            return Part("all", "confirmed", text, "observed")
        share = self.knockouts(coverage).effect(frozenset(self.same_type), frozenset([self.head]))
        widest = max(share.values(), key=lambda s: s.high)
        answer = of_requirements([_no_more(s) for s in share.values()])
        text = (
            f"once it is knocked out here, the pattern in {len(self.same_type)} other "
            f"{'head' if len(self.same_type) == 1 else 'heads'} still carries "
            f"{percent_ci(widest)} of the metric"
        )
        return measured("all", answer, text, "intervened", widest, LEFT, coverage, False)

    def _stable(self) -> Part:
        """The clearest effect on resampled prompts and in groups."""
        assert self.context.task_check is not None
        task = self.context.measured_task
        lost = self.knockouts(self.coverage).losses(
            frozenset([self.head]), self.head_sets[self.decisive_set]
        )
        least = min(lost, key=lambda values: float(values.mean()))
        groups = self.context.groups
        groups = None if groups is None else groups[task.rows.numpy()]
        effect = least / self.context.task_check.whole
        return stable_part(effect, self.bound, groups, self.context.rng(3, *self.head))


_ABOVE_NOTHING = 1e-3  # of the metric, or of attention: smaller effects count as none


def _no_more(share: Share) -> Answer:
    if share.high <= LEFT:
        return "confirmed"
    return "refuted" if share.low > LEFT else "undecided"
