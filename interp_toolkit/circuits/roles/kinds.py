"""Roles of heads: the attention and the direct effect that each requires, in measured terms.

| role | source |
|---|---|
| name-mover, negative-name-mover, s-inhibition | Wang et al. 2023, "Interpretability in the Wild" |
| successor | Gould et al. 2023, "Successor Heads" |
| copy-suppression | McDougall et al. 2023, "Copy Suppression" |
| attention-sink | Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks" |
| delimiter | Clark et al. 2019, "What Does BERT Look At?" |

The rule of `evidence` decides on each need: the interval of the mean over prompts must lie beyond
the need's threshold, and the adjusted p-value of sign flips is the control. A head has a role if
all needs of both sides (attention and writing) are detected, and not if one is not detected;
otherwise it is undecided. The writing side of an S-inhibition head is its effect through later
layers (see `causal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.roles.measures import HeadMeasures, OfRows
from interp_toolkit.circuits.roles.permuted import ORDERS, permutation_p_values
from interp_toolkit.circuits.roles.reading import FEWEST_ROWS
from interp_toolkit.evidence import all_of, control_of_p, effect_status
from interp_toolkit.results import Status
from interp_toolkit.stats import (
    COVERAGE,
    FLIPS,
    LEVEL,
    UNSEEN,
    bounded_interval,
    estimate,
    sign_flip_p_values,
)

ATTENDS = 0.1  # of the attention, beyond that on similar positions
PARKS = 0.4  # of the attention, on the positions that heads park on
QUIET = 0.5  # of what attending elsewhere would write
MUCH = 0.1  # of that preference: heads of no kind that write as much are reported too
WRITES = 0.02  # of the model's own preference for the answer


@dataclass(frozen=True)
class RoleNeed:
    """One condition that a role requires.

    Attributes:
        measure: the name of the measure.
        sign: 1, or -1 if the measure must be negative.
        threshold: least mean in that direction.
        of_difference: whether the threshold is a fraction of the model's preference for the answer.
        optional: whether the need is left out, with a note, on prompts where it cannot be measured.
    """

    measure: str
    sign: int = 1
    threshold: float = 0.0
    of_difference: bool = False
    optional: bool = False


@dataclass(frozen=True)
class HeadKind:
    """A kind of head.

    Attributes:
        name: the name in results.
        singular, plural: the words in sentences.
        attention, writing: needs of each side; the size of the first one is reported.
    """

    name: str
    singular: str
    plural: str
    attention: tuple[RoleNeed, ...]
    writing: tuple[RoleNeed, ...]


def _attends(to: str, threshold: float) -> tuple[RoleNeed, RoleNeed]:
    at_least = RoleNeed(f"{to}: attention", threshold=threshold)
    return at_least, RoleNeed(f"{to}: attention, displaced", optional=True)


def _writes(name: str, sign: int, displaced: str) -> tuple[RoleNeed, RoleNeed]:
    size = RoleNeed(name, sign, WRITES, of_difference=True)
    return size, RoleNeed(displaced, sign, WRITES, of_difference=True, optional=True)


NAME_MOVER = HeadKind(
    "name-mover",
    "name mover",
    "name movers",
    _attends("answer", ATTENDS),
    (*_writes("direct", 1, "direct, displaced"), RoleNeed("copies")),
)
NEGATIVE = HeadKind(
    "negative-name-mover",
    "negative name mover",
    "negative name movers",
    _attends("answer", ATTENDS),
    (*_writes("direct", -1, "direct, displaced"), RoleNeed("copies", -1)),
)
S_INHIBITION = HeadKind(
    "s-inhibition", "S-inhibition head", "S-inhibition heads", _attends("repeat", ATTENDS), ()
)
SUCCESSOR = HeadKind(
    "successor",
    "successor head",
    "successor heads",
    _attends("before", ATTENDS),
    (
        RoleNeed("next, of its list", threshold=WRITES, of_difference=True),
        RoleNeed("next, over the one before"),
        RoleNeed("direct, displaced", optional=True),
    ),
)
SUPPRESSION = HeadKind(
    "copy-suppression",
    "copy-suppression head",
    "copy-suppression heads",
    _attends("predicted", ATTENDS),
    _writes("predicted: written", -1, "predicted: written, displaced"),
)
SINK = HeadKind(
    "attention-sink",
    "attention sink",
    "attention sinks",
    (RoleNeed("first: attention", threshold=PARKS),),
    (RoleNeed("first: quiet", threshold=QUIET),),
)
DELIMITER = HeadKind(
    "delimiter",
    "head parked on delimiters",
    "heads parked on delimiters",
    _attends("delimiter", PARKS),
    (RoleNeed("delimiter: quiet", threshold=QUIET),),
)
#: in the order of results
KINDS = (NAME_MOVER, NEGATIVE, S_INHIBITION, SUCCESSOR, SUPPRESSION, SINK, DELIMITER)


ANY = float(np.finfo(float).tiny)  # threshold of effects of any size
FRACTIONS = ("attention", "quiet")  # measures of at most 1
ROUNDING = 1e-6  # of the largest contrast: below, contrasts are zero

RoleWord = Literal["named", "undecided", "candidate", "no"]
#: a head's word, by the status of what its role requires
WORDS: Mapping[Status, RoleWord] = {
    "detected": "named",
    "not_detected": "no",
    "uninformative": "undecided",
    "undecided": "undecided",
}
STATUSES = {word: status for status, word in WORDS.items()}
OfHeads = Float[np.ndarray, "layer head"]


@dataclass(frozen=True, eq=False)
class MeasureMeans:
    """A measure of every head, over prompts; NaN if there are too few prompts.

    Attributes:
        mean, low, high: the mean with its interval at COVERAGE.
        p_value: adjusted for all heads and all measures with the same null: permuted answers for
            what depends on the answer, sign flips over prompts for the others.
        smallest_p: the smallest p-value that the null can give.
        rows: number of prompts.
    """

    mean: OfHeads
    low: OfHeads
    high: OfHeads
    p_value: OfHeads
    smallest_p: float
    rows: int


@dataclass(frozen=True, eq=False)
class RoleSide:
    """The evidence from attention, or from outputs, about every head for one role.

    Attributes:
        size: means of the need whose size is reported, with their own sign.
        p_value: the largest over the needs.
        statuses: by need, each head's status.
    """

    size: MeasureMeans
    p_value: OfHeads
    statuses: Sequence[list[list[Status]]]

    def of(self, layer: int, head: int) -> set[Status]:
        """The statuses of a head's needs."""
        return {statuses[layer][head] for statuses in self.statuses}

    def passes(self, layer: int, head: int) -> bool:
        """Whether all needs are met."""
        return self.of(layer, head) == {"detected"}


@dataclass(frozen=True, eq=False)
class KindSides:
    """Attention and writing of a role; writing is None if the causal check decides.

    Attributes:
        kind: the kind.
        attention, writing: its sides.
        left_out: needs that cannot be measured on these prompts.
    """

    kind: HeadKind
    attention: RoleSide
    writing: RoleSide | None
    left_out: tuple[str, ...]

    def word(self, layer: int, head: int) -> RoleWord:
        """The verdict on a head before any ablation."""
        sides = [self.attention] if self.writing is None else [self.attention, self.writing]
        status, _ = all_of([(need, None) for side in sides for need in side.of(layer, head)])
        if status == "detected" and self.writing is None:
            return "candidate"
        return WORDS[status]


def means_of(
    measures: HeadMeasures, used: Sequence[str], *, seed: int = 0
) -> dict[str, MeasureMeans]:
    """The mean of every used measure over prompts, with p-values adjusted for all with its null."""
    n_rows = len(measures.difference)
    cleaned = {name: _without_rounding(measures.of_rows[name]) for name in used}
    flipped = [name for name in used if name not in measures.permuted]
    dealt = [name for name in used if name in measures.permuted]
    p_values, smallest = dict[str, np.ndarray](), dict[str, float]()
    if flipped:
        tests = np.concatenate([_enough(cleaned[name]).reshape(-1, n_rows) for name in flipped])
        adjusted = np.split(sign_flip_p_values(tests, seed=seed), len(flipped))
        p_values |= dict(zip(flipped, adjusted, strict=True))
        smallest |= dict.fromkeys(flipped, max(1 / FLIPS, 2.0 ** (1 - n_rows)))
    if dealt:
        orders = np.concatenate(
            [measures.permuted[name][0].reshape(-1, ORDERS + 1) for name in dealt]
        )
        p_values |= dict(
            zip(dealt, np.split(permutation_p_values(orders), len(dealt)), strict=True)
        )
        smallest |= {name: measures.permuted[name][1] for name in dealt}
    return {
        name: _mean(name, values, p_values[name].reshape(values.shape[:2]), smallest[name])
        for name, values in cleaned.items()
    }


def sides_of(
    kind: HeadKind, means: Mapping[str, MeasureMeans], difference: float
) -> KindSides | None:
    """Attention and writing of a role; None if they cannot be measured on these prompts."""
    left_out: list[str] = []
    attention = _side(kind.attention, means, difference, left_out)
    writing = _side(kind.writing, means, difference, left_out) if kind.writing else None
    if attention is None or (kind.writing and writing is None):
        return None
    return KindSides(kind, attention, writing, tuple(left_out))


def _side(
    needs: Sequence[RoleNeed],
    means: Mapping[str, MeasureMeans],
    difference: float,
    left_out: list[str],
) -> RoleSide | None:
    statuses, p_values, size = [], [], None
    for need in needs:
        mean = means.get(need.measure)
        if mean is None or bool(np.isnan(mean.mean).all()):
            if not need.optional:
                return None
            left_out.append(need.measure)
            continue
        size = size or mean
        threshold = need.threshold * (abs(difference) if need.of_difference else 1.0)
        statuses.append(_statuses(mean, need.sign, max(threshold, ANY)))
        p_values.append(mean.p_value)
    assert size is not None
    return RoleSide(size, np.max(p_values, axis=0), statuses)


def _statuses(mean: MeasureMeans, sign: int, threshold: float) -> list[list[Status]]:
    """Each head's status for one need."""
    low, high = (mean.low, mean.high) if sign > 0 else (-mean.high, -mean.low)

    def status(low: float, high: float, p_value: float) -> Status:
        control = control_of_p("sign flips or permuted answers", p_value, LEVEL, mean.smallest_p)
        return effect_status(low, high, threshold, [control])[0]

    judged = np.vectorize(status, otypes=[object])(low, high, mean.p_value)
    statuses: list[list[Status]] = judged.tolist()
    return statuses


def _without_rounding(values: OfRows) -> OfRows:
    """Set contrasts within rounding error to zero."""
    largest = float(np.nanmax(np.abs(values), initial=0.0)) if values.size else 0.0
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= ROUNDING * largest, 0.0, values)


def _enough(values: OfRows) -> OfRows:
    """NaN for heads with too few prompts."""
    n = (~np.isnan(values)).sum(-1, keepdims=True)
    return np.where(n >= FEWEST_ROWS, values, np.nan)


def _mean(name: str, values: OfRows, p_value: OfHeads, smallest_p: float) -> MeasureMeans:
    interval = of_fractions if name.partition(": ")[2].startswith(FRACTIONS) else of_logits
    n = (~np.isnan(values)).sum(-1)
    mean, low, high = (np.full(n.shape, np.nan) for _ in range(3))
    for at in map(tuple, np.argwhere(n >= FEWEST_ROWS)):
        mean[at], low[at], high[at] = interval(values[at][~np.isnan(values[at])])
    return MeasureMeans(mean, low, high, p_value, smallest_p, int(n.max(initial=0)))


def of_fractions(values: Float[np.ndarray, " row"]) -> tuple[float, float, float]:
    """Mean and interval of contrasts of attention and ratios, which are at most 1."""
    low, high = bounded_interval(values, min(-1.0, float(values.min())), 1.0, COVERAGE)
    return float(values.mean()), low, high


def of_logits(values: Float[np.ndarray, " row"]) -> tuple[float, float, float]:
    """Mean and interval of effects without a bound, which prompts not drawn may reverse."""
    effect = estimate(values, COVERAGE, UNSEEN)
    return effect.mean, effect.low, effect.high
