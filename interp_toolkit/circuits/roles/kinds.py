"""Roles of heads: the attention and the direct effect that each requires, in measured terms.

| role | source |
|---|---|
| name-mover, negative-name-mover, s-inhibition | Wang et al. 2023, "Interpretability in the Wild" |
| successor | Gould et al. 2023, "Successor Heads" |
| copy-suppression | McDougall et al. 2023, "Copy Suppression" |
| attention-sink | Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks" |
| delimiter | Clark et al. 2019, "What Does BERT Look At?" |

A side (attention or writing) passes if all of its needs are met: the mean over prompts is
significant in the need's direction (adjusted p-value), and its interval lies beyond the need's
threshold. A head has a role if both sides pass. Otherwise it is undecided if the intervals of both
sides reach the thresholds. The writing side of an S-inhibition head is its effect through later
layers (see `causal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.circuits.roles.measures import HeadMeasures, OfRows
from interp_toolkit.circuits.roles.reading import FEWEST_ROWS
from interp_toolkit.stats import LEVEL, mean_interval, sign_flip_p_values

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
    return size, RoleNeed(displaced, sign, optional=True)


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


ROUNDING = 1e-6  # of the largest contrast: below, contrasts are zero

RoleWord = Literal["named", "undecided", "candidate", "no"]
OfHeads = Float[np.ndarray, "layer head"]


@dataclass(frozen=True, eq=False)
class MeasureMeans:
    """A measure of every head, over prompts; NaN if there are too few prompts.

    Attributes:
        mean, low, high: the mean with its interval at COVERAGE.
        p_value: adjusted for all heads and measures.
        rows: number of prompts.
    """

    mean: OfHeads
    low: OfHeads
    high: OfHeads
    p_value: OfHeads
    rows: int


@dataclass(frozen=True, eq=False)
class RoleSide:
    """The evidence from attention, or from outputs, about every head for one role.

    Attributes:
        size: means of the need whose size is reported, with their own sign.
        p_value: the largest over the needs.
        passes: whether all needs are met.
        reaches: whether every need's interval reaches its threshold.
    """

    size: MeasureMeans
    p_value: OfHeads
    passes: Bool[np.ndarray, "layer head"]
    reaches: Bool[np.ndarray, "layer head"]


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
        at = layer, head
        sides = [self.attention] if self.writing is None else [self.attention, self.writing]
        if all(side.passes[at] for side in sides):
            return "candidate" if self.writing is None else "named"
        return "undecided" if all(side.reaches[at] for side in sides) else "no"


def means_of(
    measures: HeadMeasures, used: Sequence[str], *, seed: int = 0
) -> dict[str, MeasureMeans]:
    """The mean of every used measure over prompts, with p-values adjusted for all of them."""
    cleaned = {name: _without_rounding(measures.of_rows[name]) for name in used}
    stacked = [values.reshape(-1, values.shape[-1]) for values in cleaned.values()]
    enough = [np.where((~np.isnan(v)).sum(1) >= FEWEST_ROWS, 1.0, np.nan) for v in stacked]
    tests = np.concatenate([v * e[:, None] for v, e in zip(stacked, enough, strict=True)])
    p_values = np.split(sign_flip_p_values(tests, seed=seed), len(used)) if used else []
    return {
        name: _mean(values, p.reshape(values.shape[:2]))
        for (name, values), p in zip(cleaned.items(), p_values, strict=True)
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
    passes, reaches, p_values, size = [], [], [], None
    for need in needs:
        mean = means.get(need.measure)
        if mean is None or bool(np.isnan(mean.mean).all()):
            if not need.optional:
                return None
            left_out.append(need.measure)
            continue
        size = size or mean
        threshold = need.threshold * (abs(difference) if need.of_difference else 1.0)
        low, high = (mean.low, mean.high) if need.sign > 0 else (-mean.high, -mean.low)
        with np.errstate(invalid="ignore"):
            passes.append((mean.p_value <= LEVEL) & (low > 0) & (low >= threshold))
            reaches.append((high > 0) & (high >= threshold))
        p_values.append(mean.p_value)
    assert size is not None
    return RoleSide(size, np.max(p_values, axis=0), np.all(passes, axis=0), np.all(reaches, axis=0))


def _without_rounding(values: OfRows) -> OfRows:
    """Set contrasts within rounding error to zero."""
    largest = float(np.nanmax(np.abs(values), initial=0.0)) if values.size else 0.0
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= ROUNDING * largest, 0.0, values)


def _mean(values: OfRows, p_value: OfHeads) -> MeasureMeans:
    n = (~np.isnan(values)).sum(-1)
    enough = np.where(n[..., None] >= FEWEST_ROWS, values, np.nan)
    return MeasureMeans(*mean_interval(np.moveaxis(enough, -1, 0)), p_value, int(n.max(initial=0)))
