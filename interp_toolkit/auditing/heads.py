"""Auditing a head: does it attend to the relation, and does the behaviour rest on that attention?

- there: its attention to the relation's keys, above what uniform attention would pay, against
  matched controls (`circuits.heads.significance`), row by row. Of a claim that it contributes,
  attention above uniform is enough, as what it does is asked too; without it (a key that stands
  there by chance on some rows may matter) the claim is not confirmed, and not refuted either, for a
  head may attend so at the asked places alone;
- matters: the relation is cut in this head (`circuits.heads.cuts`), in both ways of cutting; alone,
  and with the relation already cut in all other heads that attend so, in its layer or anywhere:
  what it then restores shows a head whose work another backs up. One of these is enough, in both
  ways. Beside it the whole head is taken out by the mean of other rows, another row's values, and
  zero;
- special: the cut costs more than a cut of as much attention elsewhere in the same head, or three
  times what the same keys of another row cost; random other heads of its layer beside it;
- all: what the relation still carries in other heads once it is cut in this one;
- stable: the effect on rows drawn anew, and in every group of the rows.

The rows are no part of the claim, so nothing was chosen on them but which other heads attend to the
relation, and that by attention alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float

from interp_toolkit.auditing.claims import HeadsClaim
from interp_toolkit.auditing.ground import Ground
from interp_toolkit.auditing.parts import (
    Answer,
    Part,
    answer_of,
    measured,
    of_alternatives,
    of_requirements,
    percent,
)
from interp_toolkit.auditing.stable import stable_part
from interp_toolkit.circuits.behaviour.words import CARRIES, NO_EFFECT, Share
from interp_toolkit.circuits.heads.ablation import ablation_effects
from interp_toolkit.circuits.heads.controls import displaced_targets, targets_of
from interp_toolkit.circuits.heads.cuts import INTACT, WAYS, Cut, Cutter
from interp_toolkit.circuits.heads.detectors import Detector, as_detector
from interp_toolkit.circuits.heads.groups import GROUP_FLOOR, TIMES, candidates, displaced_name
from interp_toolkit.circuits.heads.scores import detect, is_causal
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.heads import Head
from interp_toolkit.models.running.interventions import HOWS
from interp_toolkit.results import head_name

BOUNDS = {"attends": GROUP_FLOOR, "contributes": NO_EFFECT, "carries": CARRIES}
ASSERTED = {
    "attends": ("there",),
    "contributes": ("there", "matters", "special"),
    "carries": ("there", "matters", "special"),
}
MOST_OTHERS = 5  # random other heads
LEFT = 0.1  # of the behaviour: what other heads may still carry by the relation

Values = Mapping[Cut, Float[np.ndarray, " row"]]


def audit_head(claim: HeadsClaim, ground: Ground) -> list[Part]:
    """The parts of a claim about one head.

    Raises:
        InputError: a head or a relation that is not there, or rows that hold no such relation.
    """
    (head,) = claim.heads
    _check(ground, head)
    return _HeadAudit(claim, ground, head).parts()


def _check(ground: Ground, head: Head) -> None:
    cfg = ground.model.cfg
    if head.layer >= int(cfg.n_layers) or head.head >= int(cfg.n_heads):
        raise InputError(
            f"there is no head {head_name(*head)}: the model has {int(cfg.n_layers)} layers of "
            f"{int(cfg.n_heads)} heads"
        )


@dataclass(frozen=True, eq=False)
class _HeadAudit:
    """One head, one relation."""

    claim: HeadsClaim
    ground: Ground
    head: Head

    @property
    def claimed(self) -> float:
        """What the claim's word claims at least."""
        given = self.claim.at_least
        return BOUNDS[self.claim.says] if given is None else given

    @property
    def bound(self) -> float:
        """Of the behaviour."""
        return NO_EFFECT if self.claim.says == "attends" else self.claimed

    @property
    def asserted(self) -> tuple[str, ...]:
        """The questions that the claim rests on."""
        return ASSERTED[self.claim.says]

    @property
    def name(self) -> str:
        """Of the head."""
        return head_name(*self.head)

    @cached_property
    def detector(self) -> Detector:
        """Of the relation."""
        return as_detector(self.claim.relation, self.claim.hops)

    def parts(self) -> list[Part]:
        """All questions."""
        there = self._there()
        if (reason := self.ground.untestable) is not None:
            return [there, *self._not_testable(reason)]
        task, _ = self.ground.task
        assert task is not None
        if not self.cutter.targets[self.detector.name](task.rows).any():
            return [there, *self._not_testable(f"no {self.detector.name} relation is in the rows")]
        try:
            self.cutter.check([self.head, *self.kin])
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
        self.ground.progress(f"attention to {self.detector.name}")
        return detect(
            self.ground.model,
            self.ground.prompts,
            [self.detector],
            seed=self.ground.seed,
            memory=self.ground.memory,
        ).scores[0]

    def _there(self) -> Part:
        """Attention above uniform, and above the controls."""
        scores = self._scores
        asserted = "there" in self.asserted
        if np.isnan(scores.score[self.head]):
            said = f"these rows have no place where a {self.detector.name} head would look"
            return Part("there", "not_testable", said, "observed", asserted)
        alone = self.claim.says == "attends"
        bound = self.claimed if alone else _ABOVE_NOTHING
        uniform = float(scores.uniform[self.head])
        by_row = scores.by_row[self.head.layer, :, self.head.head]
        excess = (by_row[~np.isnan(by_row)] - uniform) / (1 - uniform)
        coverage = self.ground.coverage(len(self.asserted), 2)
        found, p = self.ground.mean(excess, coverage), float(scores.p_value[self.head])
        answer = answer_of(found.low, found.high, bound)
        alpha = (1 - coverage) / 2
        if alone and answer == "confirmed" and not p <= alpha:
            answer = "undecided"
        elif not alone and answer == "refuted":
            answer = "undecided"  # it may attend so only where it is asked
        said = (
            f"{self.name} pays {float(scores.score[self.head]):.1%} of its attention to the "
            f"relation, uniform attention would pay {uniform:.1%}; matched controls: "
            + ("too few to ask" if np.isnan(p) else f"p = {p:.2g}")
        )
        return measured("there", answer, said, "observed", found, bound, coverage, asserted)

    @cached_property
    def kin(self) -> list[Head]:
        """The other heads that attend to the relation, as far as attention alone tells."""
        return [head for head in candidates(self._scores) if head != self.head]

    @cached_property
    def cutter(self) -> Cutter:
        """Cuts of the relation."""
        ground, detector = self.ground, self.detector
        task, _ = ground.task
        assert task is not None
        causal = is_causal(ground.model)
        prompts = ground.prompts
        return Cutter(
            ground.model,
            task,
            {
                detector.name: partial(targets_of, detector, prompts, causal=causal),
                displaced_name(detector.name): partial(
                    displaced_targets, detector, prompts, causal=causal
                ),
            },
            memory=ground.memory,
            seed=ground.seed,
            progress=ground.progress,
        )

    @cached_property
    def companies(self) -> dict[str, frozenset[Head]]:
        """In whose company the head is cut, by name: alone, with its layer's, with all its kin."""
        kin = frozenset(self.kin)
        layer = frozenset(h for h in kin if h.layer == self.head.layer)
        found = {"alone": frozenset[Head](), "layer": layer, "all": kin}
        if layer == kin:
            del found["layer"]
        return {name: heads for name, heads in found.items() if name == "alone" or heads}

    @cached_property
    def values(self) -> Values:
        """The task's value by cut, row by row."""
        task, _ = self.ground.task
        assert task is not None
        name, own = self.detector.name, frozenset([self.head])
        cuts = [INTACT]
        for way in WAYS:
            cuts += [Cut(own, name, way, control=True), Cut(own, displaced_name(name), way)]
            for company in set(self.companies.values()):
                cuts += [Cut(company | own, name, way)]
                cuts += [Cut(company, name, way)] if company else []
        cuts += [Cut(frozenset([h]), name) for h in self.others]
        readings = self.cutter.readings(list(dict.fromkeys(cuts)), task.rows)
        return {cut: found[:, 0] for cut, found in readings.items()}

    @cached_property
    def others(self) -> list[Head]:
        """Random other heads of the layer that are not known to attend so."""
        n_heads = int(self.ground.model.cfg.n_heads)
        pool = [Head(self.head.layer, h) for h in range(n_heads)]
        pool = [h for h in pool if h != self.head and h not in self.kin]
        order = self.ground.rng(2, *self.head).permutation(len(pool))[:MOST_OTHERS]
        return sorted(pool[i] for i in order)

    def lost(self, company: frozenset[Head]) -> list[Float[np.ndarray, " row"]]:
        """By way: what is lost when the head's attention goes after its company's."""
        own, name = frozenset([self.head]), self.detector.name
        found = []
        for way in WAYS:
            before = Cut(company, name, way) if company else INTACT
            found.append(self.values[before] - self.values[Cut(company | own, name, way)])
        return found

    @cached_property
    def judged(self) -> dict[str, tuple[Answer, list[Share]]]:
        """By company: the answer, and the shares by way."""
        coverage = self.coverage
        found = {}
        for company, heads in self.companies.items():
            shares = [self.ground.share(lost, coverage) for lost in self.lost(heads)]
            answers = [answer_of(s.low, s.high, self.bound) for s in shares]
            found[company] = (of_requirements(answers), shares)
        return found

    @property
    def coverage(self) -> float:
        """Of the intervals of `matters`."""
        return self.ground.coverage(len(self.asserted), len(self.companies))

    @cached_property
    def telling(self) -> str:
        """The company in which the head's effect is clearest."""
        return max(self.judged, key=lambda name: min(s.low for s in self.judged[name][1]))

    def _matters(self) -> Part:
        answer = of_alternatives([found for found, _ in self.judged.values()])
        shares = self.judged[self.telling][1]
        least = min(shares, key=lambda s: s.mean)
        company = {
            "alone": "",
            "layer": ", once it is cut in the other heads of its layer that attend so",
            "all": ", once it is cut in all other heads that attend so",
        }[self.telling]
        said = (
            f"without {self.name}'s attention to the relation the behaviour loses "
            f"{percent(least)}{company}; claimed: at least {self.bound:.0%}. {self._taken_out()}"
        )
        return measured(
            "matters", answer, said, "intervened", least, self.bound, self.coverage,
            "matters" in self.asserted,
        )  # fmt: skip

    def _taken_out(self) -> str:
        """The whole head taken out, three ways."""
        task, _ = self.ground.task
        found = []
        for how in HOWS:
            effects = ablation_effects(
                self.ground.model,
                self.ground.prompts,
                [self.head],
                task=task,
                how=how,
                n_others=0,
                seed=self.ground.seed,
                memory=self.ground.memory,
            )
            (one,) = effects.heads
            found.append(f"{how} {one.effect / effects.home.whole:.0%}")
        return f"The whole head taken out costs, by {', '.join(found)} of the behaviour"

    def _special(self) -> Part:
        """More than attention elsewhere in this head, where its effect is clearest."""
        own, name = frozenset([self.head]), self.detector.name
        asserted = "special" in self.asserted
        coverage = self.ground.coverage(len(self.asserted), 2 * len(self.companies))
        by_mass, by_place = [], []
        for way, lost in zip(WAYS, self.lost(self.companies[self.telling]), strict=True):
            intact = self.values[INTACT]
            elsewhere = intact - self.values[Cut(own, name, way, control=True)]
            displaced = intact - self.values[Cut(own, displaced_name(name), way)]
            by_mass.append(self.ground.share(lost - elsewhere, coverage))
            by_place.append(self.ground.share(lost - TIMES * displaced, coverage))
        answers = [
            of_requirements([answer_of(s.low, s.high, _ABOVE_NOTHING) for s in shares])
            for shares in (by_mass, by_place)
        ]
        by_other_keys = answers[0] != "confirmed" and answers[1] == "confirmed"
        least = min(by_place if by_other_keys else by_mass, key=lambda s: s.mean)
        said = f"this costs {percent(least)} of the behaviour more than "
        if by_other_keys:
            said += (
                f"{TIMES:g} times what cutting displaced keys costs (those of another row, or one "
            )
            said += "place further); not so beside as much of its attention elsewhere"
        else:
            said += "cutting as much of its attention elsewhere in the intact model"
        said += f"; {self._other_heads()}"
        answer = of_alternatives(answers)
        return measured("special", answer, said, "intervened", least, 0.0, coverage, asserted)

    def _other_heads(self) -> str:
        """How many random heads would have passed, by their estimates."""
        if not self.others:
            return "there is no other head of its layer to compare with"
        intact, coverage = self.values[INTACT], self.coverage
        shares = [
            self.ground.share(
                intact - self.values[Cut(frozenset([h]), self.detector.name)], coverage
            )
            for h in self.others
        ]
        passed = sum(s.low >= self.bound for s in shares)
        return f"the same test is passed by {passed} of {len(shares)} others of its layer"

    def _all(self) -> Part:
        """What other heads still carry by the relation."""
        coverage = self.ground.coverage(1)
        if not self.kin:
            said = "no other head is seen to attend so"
            return Part("all", "confirmed", said, "observed")
        own, kin, name = frozenset([self.head]), frozenset(self.kin), self.detector.name
        found = [
            self.ground.share(
                self.values[Cut(own, name, way)] - self.values[Cut(own | kin, name, way)], coverage
            )
            for way in WAYS
        ]
        widest = max(found, key=lambda s: s.high)
        answer = of_requirements([_no_more(s) for s in found])
        said = (
            f"once it is cut here, the relation in {len(kin)} other "
            f"{'head' if len(kin) == 1 else 'heads'} still carries {percent(widest)} of the "
            "behaviour"
        )
        return measured("all", answer, said, "intervened", widest, LEFT, coverage, False)

    def _stable(self) -> Part:
        """The clearest effect on rows drawn anew and in groups."""
        assert self.ground.home is not None
        task, _ = self.ground.task
        assert task is not None
        lost = self.lost(self.companies[self.telling])
        least = min(lost, key=lambda values: float(values.mean()))
        groups = self.ground.groups
        groups = None if groups is None else groups[task.rows.numpy()]
        effect = least / self.ground.home.whole
        return stable_part(effect, self.bound, groups, self.ground.rng(3, *self.head))


_ABOVE_NOTHING = 1e-3  # of the behaviour, or of attention: less is no difference


def _no_more(share: Share) -> Answer:
    if share.high <= LEFT:
        return "confirmed"
    return "refuted" if share.low > LEFT else "undecided"
