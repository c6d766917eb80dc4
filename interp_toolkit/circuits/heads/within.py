"""Groups of a large model, cut within a price.

The rules are those of `groups`; what is bounded is how much is asked (see `price`), always of one
look at the rows:
1. every relation is cut in its whole group, both ways. Where that costs nothing that counts, no
   more is asked: its heads were cut with the others only, and of none anything is denied;
2. of the relations that count, the control is cut, and displaced keys where it does not tell;
3. heads are cut one by one, the relations in turn (those first that cost more than their control),
   heads first whose cut costs most to first order (`screen`), until the next is a FAINT part of
   the largest, or what is kept for 4 is reached;
4. of heads that matter the other heads of their layer are cut with them, which says whether they
   are of that kind; of the others it is asked what they restore.
Where a layer's group or what a head restores was not asked, nothing is said that would rest on it:
such a head is named by its own effect alone or not at all, and is undecided where it has none.
How heads share the work, and the relation in other heads, is not asked. As the rows that choose are
those that are cut on, intervals are as wide as if every head of a group had been cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.behaviour.task import AtHome
from interp_toolkit.circuits.behaviour.words import matters
from interp_toolkit.circuits.heads.cuts import INTACT, WAYS, Cut, Cutter
from interp_toolkit.circuits.heads.groups import (
    Group,
    GroupPlan,
    JudgedGroup,
    MemberEffect,
    displaced_name,
)
from interp_toolkit.circuits.heads.price import Price
from interp_toolkit.circuits.heads.screen import first_order
from interp_toolkit.models.heads import Head
from interp_toolkit.stats import COVERAGE

FAINT = 0.05  # of the largest estimate: heads with less are not cut alone
KEPT = 0.35  # of the passes, for what is asked of heads that were cut alone


def groups_within(
    cutter: Cutter,
    relations: Mapping[str, Sequence[Head]],
    home: AtHome,
    price: Price,
    *,
    everyone: Iterable[Head],
    seed: int = 0,
) -> list[Group]:
    """What each group's attention is worth, as far as the price allows.

    Args:
        cutter: with the rows to look at and the relations' targets under their names, and their
            displaced keys under `displaced_name`; one that keeps what it ran.
        relations: by name, the group's heads, the clearest first.
        home: what the intact model does.
        price: what may be spent; what was is noted in it.
        everyone: all heads.
        seed: of draws.
    """
    estimates = first_order(cutter, relations)
    everyone = list(everyone)
    asked = [
        _Asked(cutter, price, home, GroupPlan(name, list(heads), everyone, seed, first), estimates)
        for name, heads in relations.items()
        if (first := _first(name, heads, estimates))
    ]
    for relation in asked:
        relation.together()
    counting = [relation for relation in asked if relation.counts()]
    for relation in counting:
        relation.control()
    kept = KEPT * (price.passes - price.spent)
    for told in (True, False):
        _in_turn([relation for relation in counting if relation.specific() == told], kept)
    for relation in counting:
        relation.layers()
    for relation in counting:
        relation.restored()
    return [relation.judged.group() for relation in asked]


def _first(
    name: str, heads: Sequence[Head], estimates: Mapping[tuple[str, Head], float]
) -> list[Head]:
    """The heads in the order in which they are cut."""
    return sorted(heads, key=lambda head: -abs(estimates[name, head]))


def _in_turn(asked: Sequence[_Asked], kept: float) -> None:
    """Heads one by one, the relations in turn, until so many passes are left."""
    left = [(relation, iter(relation.worth())) for relation in asked]
    while left:
        left = [(r, heads) for r, heads in left if (h := next(heads, None)) and r.alone(h, kept)]


class _Asked:
    """One relation: what was cut so far, and what that says."""

    def __init__(
        self,
        cutter: Cutter,
        price: Price,
        home: AtHome,
        plan: GroupPlan,
        estimates: Mapping[tuple[str, Head], float],
    ):
        self.plan, self._cutter, self._price = plan, cutter, price
        self._estimates = estimates
        coverage = 1 - (1 - COVERAGE) / plan.figures
        values: dict[Cut, Float[np.ndarray, " row"]] = {}
        self.judged = JudgedGroup(plan, values, cutter.task, home, coverage)

    def _make(self, cuts: Sequence[Cut], *, kept: float = 0.0, anyway: bool = False) -> bool:
        """Make those cuts that were not made yet; False where the price forbids it."""
        new = [cut for cut in dict.fromkeys(cuts) if cut not in self.judged.values]
        if not new:
            return True
        if not (anyway or self._price.allows(new, kept)):
            return False
        before = self._cutter.repeated
        found = self._cutter.readings(new, self._cutter.task.rows)
        self.judged.values |= {cut: readings[:, 0] for cut, readings in found.items()}
        self._price.pay([cut for cut in new if cut.heads])
        self._price.spent += self._price.share * (self._cutter.repeated - before)
        self._cutter.progress(f"cutting attention, {self._price.said()}")
        return True

    def together(self) -> None:
        """The whole group, both ways, whatever it costs."""
        self._make([INTACT, *self.judged.cuts(self.plan.whole)], anyway=True)

    def counts(self) -> bool:
        """Whether the whole group's cut costs what counts."""
        return self.judged.material(self.plan.whole)

    def control(self) -> None:
        """As much attention elsewhere; and displaced keys, where that does not tell."""
        whole, name = self.plan.whole, displaced_name(self.plan.detector)
        self._make(self.judged.cuts(whole, control=True))
        if not self.judged.specific(whole) and name in self._cutter.targets:
            self._make([Cut(whole, name, way) for way in WAYS])

    def specific(self) -> bool:
        """Whether the whole group's cut costs more than its controls."""
        return self.judged.specific(self.plan.whole)

    def worth(self) -> list[Head]:
        """Heads to be cut one by one."""
        sizes = [abs(self._estimates[self.plan.detector, h]) for h in self.plan.members]
        return [
            h for h, size in zip(self.plan.members, sizes, strict=True) if size >= FAINT * sizes[0]
        ]

    def alone(self, head: Head, kept: float) -> bool:
        """One head, both ways, where that leaves so many passes."""
        return self._make(self.judged.cuts(frozenset([head])), kept=kept)

    def layers(self) -> None:
        """The rest of the layer of heads that matter and are not named yet."""
        for member in self._members(matter=True):
            if not member.named:
                self._make(self.judged.cuts(self.plan.layers[member.head.layer]))
        for member in self._members(matter=True):
            if not member.named:
                self._make(self.judged.cuts(frozenset([member.head]), control=True))

    def restored(self) -> None:
        """What heads that do not matter alone do when the others are cut."""
        for member in self._members(matter=False):
            layer = self.plan.layers[member.head.layer]
            sets = [self.plan.whole - {member.head}, layer, layer - {member.head}]
            self._make([cut for s in sets if s for cut in self.judged.cuts(s)])

    def _members(self, *, matter: bool) -> list[MemberEffect]:
        return [m for m in self.judged.group().members if matters(m.word) == matter]
