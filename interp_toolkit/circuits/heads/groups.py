"""Groups before floors: do the heads that attend to a relation matter by it, alone or together?

All heads whose attention to a relation may be more than its controls', below the detector's floor
too, are one group (`candidates`). Attention is only a hint here (HINT, uncorrected): cutting tells
which heads matter, and its intervals are what bounds the error. Three heads that share a job at
30 % of their attention each are no less its heads than one at 90 %. The relation is cut (`cuts`),
in both ways:
- in the whole group and in the group's heads of each layer: the joint effect;
- in each head alone: its own effect;
- in all others of the group, and of its layer: what the head then *restores* of the joint effect.
The control cuts as much attention elsewhere in the same heads (all there is, where a head has less
elsewhere: then it says little), and the same relation in other heads
of the same layers.

A group is *specific* where the relation's cut costs more than the control's, in both ways; or, as a
head may have other attention that it needs too, TIMES as much as a cut of as many keys displaced
(those of another row; for relations by position, one place further). It is
*material* where its joint effect is at least the task's `least`. A member that contributes is a
head of that kind if its layer's group is material, and specific or part of a specific whole; where
no layer's group is material, but all layers' together is (heads that stand in for each other), if
that is specific.

Intervals are simultaneous within a relation, over all figures of a detector and over the looks that
adding rows takes, by Bonferroni. Rows are added until no word is undecided, or there are none left.
How the work is shared (`structure`) is an estimate, by cutting in one way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import Estimate
from interp_toolkit.circuits.behaviour.task import AtHome, RowTask, rows_needed
from interp_toolkit.circuits.behaviour.words import (
    NO_EFFECT,
    CausalWord,
    Claim,
    Share,
    causal_word,
    judged,
    matters,
)
from interp_toolkit.circuits.heads.cuts import INTACT, WAYS, Cut, Cutter
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.models.heads import Head
from interp_toolkit.stats import COVERAGE, LEVEL

#: least excess of a group's head: half of what three heads that share a job have each
GROUP_FLOOR = 0.05
HINT = 0.2  # p-value of attention alone: in short rows a sink can stand among a dozen controls
TWICE = 2.0  # times uniform attention: least score of a head below the floor
TIMES = 3.0  # the cost of displaced keys
N_OTHERS = 5  # random groups of other heads of the same layers
MOST_CUT = 12  # heads of a group that are looked at one by one, those with the largest excess
MOST_LOOKS = 4  # each at twice as many rows as the one before
KEEPS = 0.9  # of the joint effect: what the smallest subset keeps

UNKNOWN = Share(math.nan, math.nan, math.nan)
PARTLY = "what it does when the rest of its group is cut was not asked: the price is bounded"

Structure = Literal["one head", "shared", "backed up", "spread", "none"]


@dataclass(frozen=True)
class MemberEffect:
    """What the behaviour loses when one head no longer attends to the relation.

    Attributes:
        head: which.
        own: by way of cutting, as a share of the behaviour.
        restored: by way, with the rest of the group cut already; of the larger of group and layer.
        claim: that of the two which the word rests on.
        word: the causal word.
        named: whether it is a head of that kind by what it does (see the module).
        reason: why not; None where it is.
        rows_needed: about how many would decide it; None where it is decided, or cannot be told.
    """

    head: Head
    own: Mapping[str, Share]
    restored: Mapping[str, Share]
    claim: Mapping[str, Share]
    word: CausalWord
    named: bool
    reason: str | None
    rows_needed: int | None = None

    @property
    def effect(self) -> Share:
        """Of the claim that its word rests on, the way with the smaller effect."""
        return least(self.claim)


@dataclass(frozen=True)
class Group:
    """The heads that attend to a relation, together.

    Attributes:
        detector: of the relation.
        heads: all of them, cut one by one or not.
        joint: effect of cutting the relation in all, by way, as a share of the behaviour.
        control: of cutting as much attention elsewhere.
        others_largest: largest effect of cutting it in other heads of these layers; None without.
        specific, material: see the module.
        word: of the joint effect.
        structure: how the heads share the work.
        smallest: heads that keep KEEPS of the joint effect together; empty where there is none.
        members: one entry for each head that was cut alone.
        rows: that were run.
        coverage: of each interval.
    """

    detector: str
    heads: Sequence[Head]
    joint: Mapping[str, Share]
    control: Mapping[str, Share]
    others_largest: float | None
    specific: bool
    material: bool
    word: CausalWord
    structure: Structure
    smallest: Sequence[Head]
    members: Sequence[MemberEffect]
    rows: int
    coverage: float

    @property
    def decided(self) -> bool:
        """Whether more rows would tell little: a material group is specific, or there is none."""
        return self.specific or not self.material


def least(by_way: Mapping[str, Share]) -> Share:
    """Of two ways of cutting, the one with the smaller effect."""
    return min(by_way.values(), key=lambda s: abs(s.mean))


def candidates(scores: DetectorScores) -> list[Head]:
    """The heads of a group, the largest excess first.

    Those above the floor that are significant by themselves, and those at TWICE uniform attention
    of which there is a hint; none where there were no controls to ask.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        over_null = (scores.score - scores.null_mean) / (1 - scores.uniform)
        excess = np.minimum(scores.excess, over_null)
        above = (excess >= scores.floor) & (scores.p_value <= LEVEL)
        twice = scores.score >= TWICE * scores.uniform
        below = (excess >= GROUP_FLOOR) & (scores.p_value <= HINT) & twice
    found = [Head(*at) for at in np.argwhere(above | below).tolist()]
    return sorted(found, key=lambda head: -excess[head])


def group_effects(
    cutter: Cutter,
    detector: str,
    heads: Sequence[Head],
    home: AtHome,
    *,
    everyone: Iterable[Head],
    seed: int = 0,
) -> Group:
    """What a group's attention to a relation is worth.

    Args:
        cutter: with the task's rows and the relation's targets under the detector's name, and maybe
            its displaced keys under `displaced_name`.
        detector: name of the relation.
        heads: the group, the clearest first; at least one.
        home: what the intact model does on these rows; it must be at home there.
        everyone: all heads that could be cut, from which other groups are drawn.
        seed: of the draws.
    """
    plan = GroupPlan(detector, list(heads), list(everyone), seed)
    rows = cutter.task.rows
    looks = _looks(cutter.task.first_look, len(rows))
    coverage = 1 - (1 - COVERAGE) / (len(looks) * plan.figures)
    readings: dict[Cut, list[np.ndarray]] = {cut: [] for cut in plan.cuts}
    done = 0
    for n_rows in looks:
        for cut, found in cutter.readings(plan.cuts, rows[done:n_rows]).items():
            readings[cut].append(found[:, 0])
        done = n_rows
        judged = JudgedGroup(
            plan, {c: np.concatenate(v) for c, v in readings.items()}, cutter.task, home, coverage
        )
        group = judged.group()
        if not any(m.word == "undecided" for m in group.members) and group.decided:
            break
    doubtful = judged.doubtful()
    if doubtful and displaced_name(detector) in cutter.targets:
        cuts = [Cut(s, displaced_name(detector), way) for s in doubtful for way in WAYS]
        values = judged.values | _values(cutter, cuts, rows[:done])
        judged = JudgedGroup(plan, values, cutter.task, home, coverage)
        group = judged.group()
    return judged.with_structure(group, lambda cuts: _values(cutter, cuts, rows[:done]))


def displaced_name(detector: str) -> str:
    """The name that a relation's displaced keys go by among the cutter's targets."""
    return f"{detector}, displaced"


def _values(cutter: Cutter, cuts: Sequence[Cut], rows: Tensor) -> dict[Cut, np.ndarray]:
    return {cut: found[:, 0] for cut, found in cutter.readings(cuts, rows).items()}


def _looks(size: int, n_rows: int) -> list[int]:
    """How many rows each look has, from the first look's size."""
    looks: list[int] = []
    while size < n_rows and len(looks) < MOST_LOOKS - 1:
        looks.append(size)
        size *= 2
    return [*looks, n_rows]


class GroupPlan:
    """Every cut of a group.

    Args:
        detector: name of the relation.
        heads: the group, the clearest first.
        everyone: from which other groups are drawn.
        seed: of the draws.
        first: the heads that are cut one by one first; None: the clearest.
    """

    def __init__(
        self,
        detector: str,
        heads: list[Head],
        everyone: list[Head],
        seed: int,
        first: Sequence[Head] | None = None,
    ):
        self.detector, self.heads = detector, heads
        self.members = list(heads if first is None else first)[:MOST_CUT]
        self.whole = frozenset(heads)
        self.layers = {
            layer: frozenset(h for h in heads if h.layer == layer)
            for layer in sorted({h.layer for h in heads})
        }
        self.others = _drawn(heads, everyone, seed)
        sets = {self.whole, *self.layers.values()}
        sets |= {frozenset([h]) for h in self.members}
        for head in self.members:
            sets |= {self.whole - {head}, self.layers[head.layer] - {head}}
        controlled = {self.whole, *self.layers.values(), *(frozenset([h]) for h in self.members)}
        sets.discard(frozenset())
        ordered = sorted(sets, key=lambda s: (len(s), sorted(s)))
        self.cuts: list[Cut] = [INTACT]
        for way in WAYS:
            self.cuts += [Cut(s, detector, way) for s in ordered]
            self.cuts += [Cut(s, detector, way, control=True) for s in ordered if s in controlled]
        self.cuts += [Cut(s, detector) for s in self.others]
        #: intervals that are read together: of each head its claims and whether it is specific; of
        #: the group and its layers effects, controls, and whether they are specific. Heads that
        #: were chosen by their gradients on the same rows were chosen among all
        claims = 2 if len(self.layers) == 1 else 3
        among = self.members if first is None else heads
        self.figures = (claims + 1) * len(among) + 3 * (1 + len(self.layers))


def _drawn(heads: list[Head], everyone: list[Head], seed: int) -> list[frozenset[Head]]:
    """Random other heads of the group's layers, as many as it has in each where there are."""
    rng = np.random.default_rng(seed)
    wanted = {layer: sum(h.layer == layer for h in heads) for layer in {h.layer for h in heads}}
    pools = {n: sorted(h for h in everyone if h.layer == n and h not in heads) for n in wanted}
    drawn = []
    for _ in range(N_OTHERS):
        one = [
            pool[i]
            for n, pool in pools.items()
            for i in rng.permutation(len(pool))[: wanted[n]].tolist()
        ]
        drawn.append(frozenset(one))
    return [s for s in dict.fromkeys(drawn) if s]


class JudgedGroup:
    """The readings of a plan's cuts, or of some of them, and what they say.

    What was not cut has no effect that is known (NaN) and supports no word: heads that were not cut
    alone are no members, and of a head that was not cut with the others it is not said that it has
    no effect, or works against.
    """

    def __init__(
        self,
        plan: GroupPlan,
        values: Mapping[Cut, Float[np.ndarray, " row"]],
        task: RowTask,
        home: AtHome,
        coverage: float,
    ):
        self.plan, self.task, self.home = plan, task, home
        self.values = dict(values)
        self.coverage = coverage

    def _share(self, differences: Float[np.ndarray, " row"]) -> Share:
        return self.home.share(self.task.interval(differences, self.coverage))

    def _lost(self, heads: frozenset[Head], *, control: bool = False) -> dict[str, Share]:
        """By way: what the intact model loses."""
        return {way: self._between(INTACT, self._cut(heads, way, control)) for way in WAYS}

    def _between(self, before: Cut, after: Cut) -> Share:
        """What is lost from one to the other; NaN where one of them was not made."""
        if not self.has([before, after]):
            return UNKNOWN
        return self._share(self.values[before] - self.values[after])

    def has(self, cuts: Iterable[Cut]) -> bool:
        """Whether all of these were made."""
        return all(cut in self.values for cut in cuts)

    def cuts(self, heads: frozenset[Head], *, control: bool = False) -> list[Cut]:
        """The relation cut in these heads, both ways."""
        return [self._cut(heads, way, control) for way in WAYS]

    def _cut(self, heads: frozenset[Head], way: str, control: bool = False) -> Cut:
        return Cut(heads, self.plan.detector, way, control) if heads else INTACT  # type: ignore[arg-type]

    def _restored(self, head: Head, among: frozenset[Head]) -> dict[str, Share]:
        return {
            way: self._between(self._cut(among - {head}, way), self._cut(among, way))
            for way in WAYS
        }

    def specific(self, heads: frozenset[Head]) -> bool:
        """Whether the relation's attention costs more than attention elsewhere."""
        intact = self.values[INTACT]
        by_mass, by_place = [], []
        if not self.has([*self.cuts(heads), *self.cuts(heads, control=True)]):
            return False
        for way in WAYS:
            lost = intact - self.values[self._cut(heads, way)]
            elsewhere = intact - self.values[self._cut(heads, way, control=True)]
            by_mass.append(self._share(lost - elsewhere))
            displaced = self.values.get(Cut(heads, displaced_name(self.plan.detector), way))
            if displaced is not None:
                by_place.append(self._share(lost - TIMES * (intact - displaced)))
        return any(b and all(s.low > 0 for s in b) for b in (by_mass, by_place))

    def doubtful(self) -> list[frozenset[Head]]:
        """Sets that are material, and cost no more than as much attention from elsewhere."""
        plan = self.plan
        sets = [plan.whole, *plan.layers.values(), *(frozenset([h]) for h in plan.members)]
        return [s for s in dict.fromkeys(sets) if self.material(s) and not self.specific(s)]

    def group(self) -> Group:
        """All but the structure."""
        plan = self.plan
        joint, control = self._lost(plan.whole), self._lost(plan.whole, control=True)
        specific = {s: self.specific(s) for s in {plan.whole, *plan.layers.values()}}
        material = {s: self.material(s) for s in specific}
        everywhere, layers = specific[plan.whole], list(plan.layers.values())
        kinds = [s for s in layers if material[s] and (specific[s] or everywhere)]
        known = all(self.has(self.cuts(s)) for s in layers)
        if known and not any(material[s] for s in layers) and material[plan.whole]:
            kinds = [plan.whole] if everywhere else []
        others = [
            float((self.values[INTACT] - self.values[Cut(s, plan.detector)]).mean())
            / self.home.whole
            for s in plan.others
            if Cut(s, plan.detector) in self.values
        ]
        members = [self._member(head, kinds, specific, material) for head in self.members()]
        if material[plan.whole] and not any(matters(m.word) for m in members):
            members = [_only_together(m) for m in members]
        return Group(
            detector=plan.detector,
            heads=plan.heads,
            joint=joint,
            control=control,
            others_largest=max(others, default=None),
            specific=specific[plan.whole],
            material=material[plan.whole],
            word=causal_word([list(joint.values())]),
            structure="none",
            smallest=(),
            members=members,
            rows=len(self.values[INTACT]),
            coverage=self.coverage,
        )

    def members(self) -> list[Head]:
        """The heads that were cut alone."""
        return [h for h in self.plan.members if self.has(self.cuts(frozenset([h])))]

    def material(self, heads: frozenset[Head]) -> bool:
        """Whether the relation's cut in these heads costs what counts."""
        return self._is_material(self._lost(heads))

    def _member(
        self,
        head: Head,
        kinds: Sequence[frozenset[Head]],
        specific: Mapping[frozenset[Head], bool],
        material: Mapping[frozenset[Head], bool],
    ) -> MemberEffect:
        plan = self.plan
        own = self._lost(frozenset([head]))
        back = [self._restored(head, s) for s in (plan.whole, plan.layers[head.layer])]
        claims: list[Claim] = [list(c.values()) for c in (own, *back)]
        word, number = judged(claims)
        partly = not matters(word) and any(math.isnan(s.mean) for c in claims for s in c)
        word = "undecided" if partly else word
        if judged(claims[:1])[0] == word:
            number = 0  # its own effect is enough
        restored = back[number - 1] if number else max(back, key=lambda by: least(by).low)
        mine = [s for s in kinds if head in s]
        alone = self.specific(frozenset([head])) and self._is_material(own)
        named = matters(word) and bool(mine or alone)
        return MemberEffect(
            head=head,
            own=own,
            restored=restored,
            claim=restored if number else own,
            word=word,
            named=named,
            reason=None
            if named
            else PARTLY
            if partly
            else _why_not(word, own, head, specific, material),
            rows_needed=self._needed(head) if word == "undecided" and not partly else None,
        )

    def _is_material(self, by_way: Mapping[str, Share]) -> bool:
        bound = self.task.least(self.home.whole) / self.home.whole
        return all(share.low > 0 and share.mean >= bound for share in by_way.values())

    def _needed(self, head: Head) -> int | None:
        """Rows for an interval of the bound's half-width."""
        intact = self.values[INTACT]
        found: list[Estimate] = [
            self.task.interval(
                intact - self.values[self._cut(frozenset([head]), way)], self.coverage
            )
            for way in WAYS
        ]
        needed = [rows_needed(f, NO_EFFECT * self.home.whole) for f in found]
        return max((n for n in needed if n is not None), default=None)

    def with_structure(
        self, group: Group, run: Callable[[Sequence[Cut]], Mapping[Cut, np.ndarray]]
    ) -> Group:
        """How the heads share the work, if there is any."""
        if not (matters(group.word) and group.material):
            return group
        structure, smallest = self._structure(run)
        return replace(group, structure=structure, smallest=smallest)

    def _structure(
        self, run: Callable[[Sequence[Cut]], Mapping[Cut, np.ndarray]]
    ) -> tuple[Structure, list[Head]]:
        """The smallest set found that keeps KEEPS of the joint effect, clearest heads first."""
        plan = self.plan
        intact, bare = self.values[INTACT], self.values[self._cut(plan.whole, "renormalise")]
        joint = float((intact - bare).mean())

        def kept(without: np.ndarray) -> float:
            return float((without - bare).mean()) / joint

        def lost(head: Head) -> float:
            alone = self.values[self._cut(frozenset([head]), "renormalise")]
            return float((intact - alone).mean()) / joint

        if len(plan.whole) == 1:
            return "one head", list(plan.heads)
        order = sorted(plan.members, key=lambda h: -lost(h))
        order += [h for h in plan.heads if h not in order]
        for size in range(1, len(order) + 1):
            some = order[:size]
            rest = plan.whole - set(some)
            cut = self._cut(rest, "renormalise")
            values = self.values.get(cut)
            if values is None:
                values = run([cut])[cut]
            if kept(values) >= KEEPS or size == len(order):
                break
        if size == 1:
            return ("one head" if lost(some[0]) >= KEEPS else "backed up"), some
        return ("spread" if size > max(4, len(order) // 2) else "shared"), some


def _only_together(member: MemberEffect) -> MemberEffect:
    """Of a group that matters while no head of it does: nothing is denied of its heads."""
    if member.word != "no_effect_found":
        return member
    reason = "the group matters together; what this head alone does is not seen"
    return replace(member, word="undecided", reason=reason)


def _why_not(
    word: CausalWord,
    own: Mapping[str, Share],
    head: Head,
    specific: Mapping[frozenset[Head], bool],
    material: Mapping[frozenset[Head], bool],
) -> str:
    """Why a member is not named by the relation."""
    if word == "no_effect_found":
        return f"cutting that attention costs within {NO_EFFECT:.0%} of the behaviour"
    if word == "works_against":
        return "the behaviour gains when that attention is cut"
    if word == "undecided":
        shares = list(own.values())
        if any(s.low > 0 for s in shares) and not all(s.low > 0 for s in shares):
            return "its effect depends on what stands in for the attention"
        return "the interval of its effect is too wide"
    mine = [s for s in specific if head in s]
    if not any(material[s] for s in mine):
        return "the relation is worth too little of the behaviour"
    if not any(specific[s] for s in mine):
        return "as much attention from elsewhere costs about as much"
    return "no part of its group is both material and specific"
