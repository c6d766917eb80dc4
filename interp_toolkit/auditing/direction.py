"""Auditing a direction: does it read a function of features, do the answers rest on it?

*Reads*: a threshold on the component along it, set on a part of the rows, is held against the
function on the others. The claim is of a share of rows told right in each class, so that a rare
class counts as much as the other. Beside it: random directions with the activations' own covariance
(how often do they read as well), other functions of the same features, and the same direction in
re-initialised models.

*Carries* (interchange): the component along it is exchanged with the corrupted row's,
    x' = x + ((x_corrupted - x) . u) u,    u = direction / |direction|,
and the share of the way that the row's worth moves to the corrupted row's is measured (a ratio with
Fieller's interval). Beside it: the component at the mean of the rows, at zero, and the other way
round, from the clean row into the corrupted one.
A direction may move the answers without the model using what it reads there: half of it follows the
feature and goes nowhere, the other half is dormant, does not vary, and is what later layers read
(Makelov, Lange and Nanda 2023, arXiv 2311.17030). So the part of the direction that later layers
read (in the span of the worth's gradients along the way to the corrupted row) is exchanged by
itself: where it does not vary with the feature, nothing moves, and the claim is refuted. Where
later layers read a single direction, that is what is then exchanged, whatever the claim: a dormant
part beside the true one at the same site cannot be told from it.

*Steers*: `by` times the direction is added; the share of rows that then prefer the wrong answer, of
those that did not before, beside random directions of the same length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.auditing.claims import DirectionClaim
from interp_toolkit.auditing.ground import Ground
from interp_toolkit.auditing.parts import (
    Answer,
    Part,
    answer_of,
    least_seen,
    measured,
    percent,
    share_of_random,
)
from interp_toolkit.auditing.ratio import ratio_share
from interp_toolkit.auditing.site import Change, Rows, VectorSite, site_of
from interp_toolkit.auditing.stable import stable_part
from interp_toolkit.auditing.threshold import best_threshold, right_by_class, worst_class
from interp_toolkit.circuits.behaviour.objective import AskedObjective, LogitDifference, objective
from interp_toolkit.circuits.behaviour.words import Share
from interp_toolkit.circuits.edges.faithfulness import ratio_interval
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.stats import clopper_pearson

BOUNDS = {"reads": 0.8, "carries": 0.5, "steers": 0.5}
ASSERTED = {"reads": ("there",), "carries": ("matters", "special"), "steers": ("matters",)}
RANDOM = 200  # directions that are read
MOVED = 24  # random directions that are exchanged or added: a pass each
NULLS = 3  # re-initialised models
READ_BY = 1 - 1e-6  # of the gradients' squared length: the span that later layers read in
LEAST_READ = 1e-3  # of a direction's squared length, for that part of it to stand for it
KEEPS = 0.5  # of what the direction moves: what its read part moves at least
LONGEST_STEP = 1e6  # a component that is added: beyond it nothing but overflow is seen
TRAIN = 0.25  # of the rows, for thresholds
GRADED, STEPS = 64, 8  # rows, and steps of the way to the corrupted one, for gradients
MOST_FEATURES = 3  # whose functions are all looked at

Values = Float[np.ndarray, " row"]


def audit_direction(claim: DirectionClaim, ground: Ground) -> list[Part]:
    """The parts of a claim about a direction.

    Raises:
        InputError: a hook, position, head or feature that is not there, another number of
            components, or no rows.
    """
    if ground.data is None:
        raise InputError("a claim about a direction needs rows; give --data")
    unit = np.asarray(claim.direction)
    if not np.abs(unit).max() > 0:
        raise InputError("the direction is zero")
    site = site_of(ground, claim.hook, claim.position, claim.head, len(unit))
    audit = _DirectionAudit(claim, ground, site)
    if claim.says == "reads":
        return audit.reading()
    return audit.moving()


@dataclass(frozen=True, eq=False)
class _DirectionAudit:
    """One direction."""

    claim: DirectionClaim
    ground: Ground
    site: VectorSite

    @property
    def bound(self) -> float:
        """What is claimed at least."""
        return BOUNDS[self.claim.says] if self.claim.at_least is None else self.claim.at_least

    @cached_property
    def unit(self) -> Float[Tensor, " d"]:
        """The direction at length 1."""
        vector = torch.tensor(self.claim.direction, dtype=torch.float64)
        vector = vector / vector.abs().max()  # squares of large numbers overflow
        length: Tensor = vector.norm()
        return vector / length

    @cached_property
    def clean(self) -> Float[Tensor, "row d"]:
        """What stands at the site."""
        self.ground.progress(f"activations at {self.site.hook}")
        return self.site.read(self.ground.prompts.tokens)

    # what is read there

    def reading(self) -> list[Part]:
        """The parts of a claim that it reads a function."""
        labels = self._labels()
        if labels.all() or not labels.any():
            said = f"{self.claim.function} is the same on all rows"
            return [Part("there", "not_testable", said, "observed", True)]
        train, test = self._split(labels)
        if test is None:
            said = f"{int(labels.sum())} of {len(labels)} rows are on: too few to set a threshold"
            return [Part("there", "not_testable", said, "observed", True)]
        right = right_by_class((self.clean @ self.unit).numpy(), labels, train, test)
        _, reachable = best_threshold(
            (self.clean @ self.unit).numpy()[test], np.asarray(labels[test])
        )
        there, least = self._there(right, reachable)
        special = self._random_readers(labels, train, test)
        stable = stable_part(least.astype(float), self.bound, None, self.ground.rng(6), "observed")
        return [there, special, self._elsewhere(labels, train, test), stable]

    def _labels(self) -> Bool[np.ndarray, " row"]:
        """The function on each row."""
        data, names = self.ground.data, self.claim.features
        assert data is not None
        if not names:
            raise InputError("a claim that a direction reads something needs features")
        return function_of(np.stack([data.column(name) for name in names], 1), self.claim.table)

    def _split(self, labels: Bool[np.ndarray, " row"]) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows that thresholds are set on, and those they are judged on, of both classes."""
        everything = np.arange(len(labels))
        if self.ground.exhaustive:
            return everything, everything
        rng, train = self.ground.rng(7), []
        for kind in (False, True):
            rows = rng.permutation(np.flatnonzero(labels == kind))
            if len(rows) < 4:
                return everything, None
            train += rows[: max(2, int(TRAIN * len(rows)))].tolist()
        return np.array(sorted(train)), np.setdiff1d(everything, train)

    def _there(
        self, right: tuple[np.ndarray, np.ndarray], reachable: float
    ) -> tuple[Part, np.ndarray]:
        """The share told right in each class; and the worse class's rows.

        What the threshold falls short of may be its fault: the claim is refuted only where no
        threshold does it, on the very rows that are judged (`reachable`).
        """
        coverage = self.ground.coverage(1, 2)
        shares = []
        for rows in right:
            hit, n = int(rows.sum()), len(rows)
            low, high = clopper_pearson(hit, n, coverage)
            exact = self.ground.exhaustive
            shares.append(Share(hit / n, *((hit / n, hit / n) if exact else (low, high))))
        answers = [answer_of(s.low, s.high, self.bound) for s in shares]
        answer: Answer = "undecided"
        fewest = min(len(rows) for rows in right)
        most = clopper_pearson(reachable * fewest, fewest, coverage)[1]
        most = reachable if self.ground.exhaustive else most
        if "refuted" in answers and answer_of(most, most, self.bound) == "refuted":
            answer = "refuted"
        elif set(answers) == {"confirmed"}:
            answer = "confirmed"
        off, on = shares
        worse = min(shares, key=lambda s: s.mean)
        said = (
            f"a threshold on it tells {percent(on)} of the rows where {self.claim.function} holds "
            f"and {percent(off)} of the others; claimed: at least {self.bound:.0%} of each"
        )
        part = measured("there", answer, said, "observed", worse, self.bound, coverage, True)
        return part, right[shares.index(worse)]

    def _random_readers(
        self, labels: Bool[np.ndarray, " row"], train: np.ndarray, test: np.ndarray
    ) -> Part:
        """Random directions with the activations' covariance."""
        drawn = random_directions(self.clean, RANDOM, self.ground.rng(8))
        scores = (self.clean @ drawn.T).numpy()
        good = sum(
            worst_class(right_by_class(scores[:, i], labels, train, test)) >= self.bound
            for i in range(scores.shape[1])
        )
        said = f"{good} of {RANDOM} random directions of these activations read it as well"
        return share_of_random(good, RANDOM, said, "observed", self.ground.coverage(1))

    def _elsewhere(
        self, labels: Bool[np.ndarray, " row"], train: np.ndarray, test: np.ndarray
    ) -> Part:
        """Other functions of the same features, and re-initialised models."""
        data, names = self.ground.data, self.claim.features
        assert data is not None
        scores = (self.clean @ self.unit).numpy()
        said = ""
        if len(names) <= MOST_FEATURES:
            columns = np.stack([data.column(name) for name in names], 1)
            tables = [f"{n:0{2 ** len(names)}b}" for n in range(1, 2 ** (2 ** len(names)) - 1)]
            functions = np.unique([function_of(columns, table) for table in tables], axis=0)
            others = [f for f in functions if (f != labels).any() and (f == labels).any()]
            others = [f for f in others if f[train].any() and not f[train].all()]
            read = sum(
                worst_class(right_by_class(scores, f, train, test)) >= self.bound for f in others
            )
            said = f"of {len(others)} other functions of these features it reads {read}; "
        found = []
        for seed in range(NULLS):
            try:
                with reinitialised(self.ground.model, seed):
                    values = (self.site.read(self.ground.prompts.tokens) @ self.unit).numpy()
            except InterventionError:
                continue
            if np.isfinite(values).all():
                found.append(worst_class(right_by_class(values, labels, train, test)))
        good = sum(value >= self.bound for value in found)
        said += f"in {good} of {len(found)} re-initialised models it reads it too"
        answer: Answer = "refuted" if good else "undecided"
        return Part("special", answer, said, "intervened")

    # what rests on it

    def moving(self) -> list[Part]:
        """The parts of a claim that answers rest on it."""
        reason = self._unmovable()
        asserted = ASSERTED[self.claim.says]
        if reason is not None:
            return [Part(q, "not_testable", reason, "intervened", True) for q in asserted]  # type: ignore[arg-type]
        return self.carrying() if self.claim.says == "carries" else self.steering()

    def _unmovable(self) -> str | None:
        """Why nothing can be exchanged here."""
        if (reason := self.ground.untestable) is not None:
            return reason
        prompts = self.ground.prompts
        if prompts.answers is None:
            return "these rows have no answers, so nothing is seen to move; give answers"
        if self.claim.says == "carries" and prompts.corrupted is None:
            return "these rows have no corrupted counterparts to exchange with; give corrupted"
        if self.claim.says == "steers" and prompts.wrong is None:
            return "these rows have no wrong answers to steer to; give wrong"
        try:
            self.site.require_effect()
        except InterventionError as error:
            return str(error)
        return None

    @cached_property
    def judged(self) -> AskedObjective:
        """What a row is worth."""
        found, _ = objective(self.ground.model, self.ground.prompts, self.ground.memory)
        assert isinstance(found, AskedObjective)
        return found

    @cached_property
    def corrupted(self) -> Float[Tensor, "row d"]:
        """What stands at the site on the corrupted rows."""
        assert self.ground.prompts.corrupted is not None
        return self.site.read(self.ground.prompts.corrupted)

    @cached_property
    def worth(self) -> Values:
        """Of each row as it is."""
        return self.site.values(self.judged, self.ground.prompts.tokens)

    @cached_property
    def corrupted_worth(self) -> Values:
        """Of each corrupted row."""
        assert self.ground.prompts.corrupted is not None
        return self.site.values(self.judged, self.ground.prompts.corrupted)

    def changed(self, change: Change) -> Values:
        """Of each row, changed."""
        return self.site.values(self.judged, self.ground.prompts.tokens, change)

    def exchanged(self, unit: Float[Tensor, " d"]) -> Values:
        """Of each row, with the component along a direction exchanged."""
        return self.changed(partial(_put, unit, self.corrupted @ unit))

    @cached_property
    def whole(self) -> Values:
        """What corruption moves."""
        found: np.ndarray = self.worth - self.corrupted_worth
        return found

    def moved(self, values: Values, coverage: float, less: Values | float = 0.0) -> Share:
        """The share of the way from the clean rows' worth to the corrupted rows'."""
        part = self.worth - values - less
        mean = float(part.mean() / self.whole.mean())
        if self.ground.exhaustive:
            return Share(mean, mean, mean)
        return ratio_share(part, self.whole, coverage)

    def carrying(self) -> list[Part]:
        """Interchange along it."""
        low, high = ratio_interval(self.whole, np.ones(len(self.whole)))
        if low <= 0 <= high:
            said = "corrupting the rows is not certain to move the answers, so nothing is carried"
            return [
                Part("matters", "not_testable", said, "intervened", True),
                Part("special", "not_testable", said, "intervened", True),
            ]
        self.ground.progress("exchanging the direction")
        values = self.exchanged(self.unit)
        coverage = self.ground.coverage(2)
        found = self.moved(values, coverage)
        answer = answer_of(found.low, found.high, self.bound)
        said = (
            f"exchanged with the corrupted rows', it moves the {self.judged.name} "
            f"{percent(found)} of the way; claimed: at least {self.bound:.0%}. {self._other_ways()}"
        )
        matters = measured("matters", answer, said, "intervened", found, self.bound, coverage, True)
        effect = (self.worth - values) / self.whole.mean()
        stable = stable_part(effect, self.bound, self.ground.groups, self.ground.rng(9))
        return [matters, self._read_part(values), self._rest(), self._random_movers(), stable]

    def _other_ways(self) -> str:
        """Mean, zero, and the other way round."""
        along = self.clean @ self.unit
        mean = self.changed(partial(_put, self.unit, along.mean().expand(len(along))))
        zero = self.changed(partial(_put, self.unit, torch.zeros(len(along), dtype=along.dtype)))
        assert self.ground.prompts.corrupted is not None
        put = partial(_put, self.unit, along)
        back = self.site.values(self.judged, self.ground.prompts.corrupted, put)
        whole = self.changed(lambda x, rows: self.corrupted[rows].to(x))
        total = float(self.whole.mean())
        restored = float((back - self.corrupted_worth).mean()) / total
        shares = [float((self.worth - values).mean()) / total for values in (mean, zero, whole)]
        return (
            f"At the mean of all rows it moves {shares[0]:.0%}, at zero {shares[1]:.0%}; put into "
            f"the corrupted rows it brings back {restored:.0%}. All that stands at the site, "
            f"exchanged, moves {shares[2]:.0%}"
        )

    def _read_part(self, values: Values) -> Part:
        """The part that later layers read, exchanged by itself; see the module."""
        prompts, coverage = self.ground.prompts, self.ground.coverage(2)
        drawn = self.ground.rng(16).permutation(len(prompts))[:GRADED]
        rows = torch.from_numpy(np.sort(drawn))
        clean, corrupted = self.clean[rows], self.corrupted[rows]
        gradients = torch.cat(
            [
                self.site.gradients(
                    self.judged, prompts.tokens, rows, clean + (corrupted - clean) * share
                )
                for share in (torch.arange(STEPS) + 0.5) / STEPS
            ]
        )
        inside = read_part(self.unit, gradients)
        if inside is None:
            said = f"no gradient of the answers has a part along it, on {len(rows)} rows"
            return Part("special", "undecided", said, "intervened", True, 0.0, bound=KEEPS)
        share, unit = inside
        alone = self.exchanged(unit)
        found = self.moved(alone, coverage)
        less = KEEPS * (self.worth - values)
        more = self.moved(alone, coverage, less)
        answer = answer_of(more.low, more.high, 0.0)
        said = (
            f"{share:.0%} of it (squared length) lies where later layers read; exchanged by "
            f"itself, that part moves {percent(found)} of the way"
            + {
                "confirmed": "",
                "refuted": ": what they read of it does not vary with the rows, it is dormant",
            }.get(answer, ", so it is not told apart from a dormant one")
        )
        bound = found.mean - more.mean
        return Part(
            "special", answer, said, "intervened", True, found.mean, found.low, found.high,
            bound, least_seen(more, coverage),
        )  # fmt: skip

    def _rest(self) -> Part:
        """Everything but the direction exchanged."""

        def change(x: Float[Tensor, "row d"], rows: Rows) -> Float[Tensor, "row d"]:
            other, u = self.corrupted[rows].to(x), self.unit.to(x)
            return other + ((x - other) @ u)[:, None] * u

        coverage = self.ground.coverage(1)
        found = self.moved(self.changed(change), coverage)
        answer: Answer = "undecided"
        if found.high <= 1 - self.bound:
            answer = "confirmed"
        elif found.low > 1 - self.bound:
            answer = "refuted"
        said = f"everything at the site but it, exchanged, moves {percent(found)} of the way"
        return measured("all", answer, said, "intervened", found, 1 - self.bound, coverage, False)

    def _random_movers(self) -> Part:
        """Random directions with the activations' covariance, exchanged."""
        drawn = random_directions(self.clean, MOVED, self.ground.rng(10))
        total = float(self.whole.mean())
        good = sum(
            float((self.worth - self.exchanged(unit)).mean()) / total >= self.bound
            for unit in drawn
        )
        said = f"{good} of {MOVED} random directions of these activations move as much"
        return share_of_random(good, MOVED, said, "intervened", self.ground.coverage(1))

    def steering(self) -> list[Part]:
        """The direction added."""
        assert isinstance(self.judged, LogitDifference)
        step = torch.tensor(self.claim.direction, dtype=torch.float64) * self.claim.by
        if not bool(step.isfinite().all()) or float(step.abs().max()) > LONGEST_STEP:
            raise InputError(
                f"the direction times by={self.claim.by:g} is too long to be added to activations"
            )
        before = self.worth > 0
        if before.sum() < 4:
            said = "the model prefers the answer on fewer than 4 rows: there is little to steer"
            return [Part("matters", "not_testable", said, "intervened", True)]
        self.ground.progress("steering along the direction")
        turned = (self.changed(partial(_add, step)) < 0)[before]
        coverage = self.ground.coverage(1)
        hit, n = int(turned.sum()), len(turned)
        ends = clopper_pearson(hit, n, coverage)
        found = Share(hit / n, *((hit / n, hit / n) if self.ground.exhaustive else ends))
        answer = answer_of(found.low, found.high, self.bound)
        size = float(step.norm())
        spread = float((self.clean @ self.unit).std()) or float("nan")
        said = (
            f"added with length {size:.3g} ({size / spread:.2g} standard deviations along it) it "
            f"turns {percent(found)} of {n} rows to the wrong answer; claimed: at least "
            f"{self.bound:.0%}"
        )
        matters = measured("matters", answer, said, "intervened", found, self.bound, coverage, True)
        drawn = random_directions(self.clean, MOVED, self.ground.rng(11)) * size
        good = sum(
            float((self.changed(partial(_add, one)) < 0)[before].mean()) >= self.bound
            for one in drawn
        )
        said = f"{good} of {MOVED} random directions of that length turn as many"
        special = share_of_random(good, MOVED, said, "intervened", self.ground.coverage(1))
        groups = None if self.ground.groups is None else self.ground.groups[before]
        effect = turned.astype(float)
        return [matters, special, stable_part(effect, self.bound, groups, self.ground.rng(12))]


def function_of(
    columns: Bool[np.ndarray, "row feature"], table: str | None
) -> Bool[np.ndarray, " row"]:
    """A truth table's value on each row, the first feature the most significant.

    Raises InputError for a table of another length, or several features without one.
    """
    n = columns.shape[1]
    if table is None:
        if n > 1:
            raise InputError(f"{n} features need a table of {2**n} digits, such as 0110 of two")
        return columns[:, 0].astype(bool)
    if len(table) != 2**n:
        raise InputError(f"the table {table} has {len(table)} entries; {n} features need {2**n}")
    index = columns.astype(int) @ (2 ** np.arange(n)[::-1])
    return np.array([digit == "1" for digit in table])[index]


def random_directions(
    x: Float[Tensor, "row d"], n: int, rng: np.random.Generator
) -> Float[Tensor, "n d"]:
    """Unit vectors drawn with the covariance of these activations: where they vary, more often."""
    centred = x - x.mean(0)
    weights = torch.from_numpy(rng.standard_normal((n, len(x))))
    drawn = weights @ centred
    norms = drawn.norm(dim=1, keepdim=True)
    return drawn / torch.where(norms > 0, norms, torch.ones_like(norms))


def read_part(
    unit: Float[Tensor, " d"], gradients: Float[Tensor, "row d"]
) -> tuple[float, Float[Tensor, " d"]] | None:
    """The part of a direction in the span of the gradients, at length 1, and its squared length.

    The span is of as many principal directions as hold READ_BY of the gradients' squared length.
    None where there is hardly any.
    """
    _, sizes, directions = torch.linalg.svd(gradients, full_matrices=False)
    energy = sizes.square().cumsum(0)
    if not float(energy[-1]) > 0:
        return None
    count = int((energy < READ_BY * energy[-1]).sum()) + 1
    basis = directions[:count]
    inside = basis.T @ (basis @ unit)
    share = float(inside.square().sum())
    return None if share < LEAST_READ else (share, inside / inside.norm())


def _put(
    unit: Float[Tensor, " d"], wanted: Float[Tensor, " all"], x: Float[Tensor, "row d"], rows: Rows
) -> Float[Tensor, "row d"]:
    """The component along a direction replaced."""
    u = unit.to(x)
    return x + (wanted[rows].to(x) - x @ u)[:, None] * u


def _add(
    step: Float[Tensor, " d"], x: Float[Tensor, "row d"], rows: Rows
) -> Float[Tensor, "row d"]:
    return x + step.to(x)
