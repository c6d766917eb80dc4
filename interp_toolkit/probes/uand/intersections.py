"""The readout of the source's construction, from the neurons that two features share.

In the source's layer a neuron has weight 1 on a random set of features and bias -1, and the AND of
two features is read from the neurons with weight on both, with the readout
1[S_i ∩ S_j] / |S_i ∩ S_j|. Given the weights from features to neurons and the neurons' typical bias
-a, the construction is detected if the weights have two levels, 0 and a. Split at a/2, each side
has its mean within NEAR of its level and a spread of at most SCATTER, both in units of a. Normal or
uniform weights never satisfy this: the upper side is a tail, or the lower side is too wide.

If nearly all pairs share a neuron, the layer is universal. Otherwise pairs that share more neurons
than expected by chance for their set sizes (hypergeometric) are the gates that it was built for.
(In a universal layer, similar features in superposition also share more neurons than chance.) With
a bias of -(k-1) times the upper level, neurons fire if k of their features are on, and the ANDs of
k features are read from the neurons shared by all k (`find_higher`).

Source: "Computation in superposition", sections 1.2 to 1.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from interp_toolkit.boolean_functions import gate_after_offset
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.probes.uand.errors import (
    PairErrors,
    Pairs,
    TileErrors,
    gathered,
    groups_together,
    tiles_of,
)
from interp_toolkit.stats import benjamini_yekutieli

NEAR = 0.2
SCATTER = 0.3
UNIVERSAL = 0.9  # fraction of pairs that share a neuron above which a layer is universal
FAN_INS = (3, 4)  # tested in addition to 2
MOST_GATES = 2_000  # of a higher fan-in that are measured


@dataclass(frozen=True, eq=False)
class Intersections(ShortRepr):
    """The intersections shown by two-level weights.

    Attributes:
        level: the upper level of the weights; the lower is near 0.
        scatter: root mean square distance of the weights from their levels.
        bias: the neurons' median bias.
        connections: whether each neuron has weight on each feature.
        shared: number of neurons that each pair shares.
        targeted: pairs that share significantly more neurons than expected by chance.
        errors: errors of the readouts along the shared neurons, on held-out rows.
    """

    level: float
    scatter: float
    bias: float
    connections: Bool[np.ndarray, "feature neuron"]
    shared: Int[np.ndarray, " pair"]
    targeted: Bool[np.ndarray, " pair"]
    errors: PairErrors

    @property
    def universal(self) -> bool:
        """Whether nearly all pairs share a neuron, so that no pairs are singled out."""
        return bool((self.shared > 0).mean() >= UNIVERSAL)

    @property
    def named(self) -> Bool[np.ndarray, " pair"]:
        """The pairs that the layer computes by construction.

        If it is universal or has no targeted pairs, all that share a neuron; else the targeted.
        """
        all_of_them = self.universal or not self.targeted.any()
        return self.shared > 0 if all_of_them else self.targeted


@dataclass(frozen=True, eq=False)
class HigherFanIn:
    """The construction for ANDs of three features or more.

    Attributes:
        fan_in: features of a gate.
        level, scatter, bias: see `Intersections`.
        gates: number of sets of `fan_in` features that share a neuron; an estimate if sampled.
        sampled: number of random sets on which `gates` was counted; None if all were.
        measured: number of these sets that have an error: on together in held-out rows (a sample
            if there are many).
        separated: number of measured sets whose scores are separated.
        worst, worst_after_offset: errors of the measured sets; NaN if no set was measured.
    """

    fan_in: int
    level: float
    scatter: float
    bias: float
    gates: int
    sampled: int | None
    measured: int
    separated: int
    worst: float
    worst_after_offset: float


def feature_weights(
    pre: Float[np.ndarray, "n neuron"], features: Bool[np.ndarray, "n feature"]
) -> tuple[Float[np.ndarray, "feature neuron"], Float[np.ndarray, " neuron"]]:
    """Weights from features to neurons and the neurons' bias, by least squares."""
    on = np.column_stack([features, np.ones(len(features))]).astype(np.float64)
    fitted = np.linalg.lstsq(on.T @ on, on.T @ pre.astype(np.float64), rcond=None)[0]
    return fitted[:-1], fitted[-1]


def find_intersections(
    weights: Float[np.ndarray, "feature neuron"],
    bias: Float[np.ndarray, " neuron"],
    activations: Float[np.ndarray, "n neuron"],
    features: Bool[np.ndarray, "n feature"],
    pairs: Pairs,
    level: float,
) -> Intersections | None:
    """The construction in these weights, measured on held-out rows; None if it is absent.

    Args:
        weights: the contribution of each feature to each neuron's input (`feature_weights`).
        bias: the neurons' input without any feature.
        activations: activations of the neurons, on held-out rows.
        features: features of these rows.
        pairs: the pairs to measure.
        level: false discovery rate among targeted pairs.
    """
    intersections = _two_levels(weights, bias, 2)
    if intersections is None:
        return None
    connected, upper, typical = intersections
    as_numbers = connected.astype(np.float64)
    counts = (as_numbers @ as_numbers.T)[pairs[:, 0], pairs[:, 1]].astype(np.int64)
    if not counts.any():
        return None
    return Intersections(
        level=upper,
        scatter=float(np.sqrt(np.mean((weights - upper * connected) ** 2))),
        bias=-typical,
        connections=connected,
        shared=counts,
        targeted=_more_than_chance(connected, counts, pairs, level),
        errors=_measure(connected, counts, activations / upper, features, pairs),
    )


def find_higher(
    weights: Float[np.ndarray, "feature neuron"],
    bias: Float[np.ndarray, " neuron"],
    activations: Float[np.ndarray, "n neuron"],
    features: Bool[np.ndarray, "n feature"],
    seed: int,
) -> HigherFanIn | None:
    """The construction for a fan-in above 2, measured on held-out rows; None if it is absent.

    Arguments as in `find_intersections`; the seed selects the measured gates.
    """
    for fan_in in FAN_INS:
        intersections = _two_levels(weights, bias, fan_in)
        if intersections is None or len(weights) < fan_in:
            continue
        connected, upper, typical = intersections
        gates = _gates_of(connected, fan_in, seed)
        shared = np.stack([connected[list(gate)].all(axis=0) for gate in gates])
        truth = np.stack([features[:, list(gate)].all(axis=1) for gate in gates], axis=1)
        some = shared.any(axis=1)
        if not some.any():
            return None
        share = float(some.mean())
        informative = some & truth.any(axis=0)
        readouts = shared[informative] / shared[informative].sum(axis=1, keepdims=True)
        scores = activations @ readouts.T.astype(activations.dtype) / upper
        truth = truth[:, informative]
        least = gate_after_offset(scores, truth)
        on = np.where(truth, scores, np.inf).min(axis=0)
        off = np.where(truth, -np.inf, scores).max(axis=0)
        return HigherFanIn(
            fan_in=fan_in,
            level=upper,
            scatter=float(np.sqrt(np.mean((weights - upper * connected) ** 2))),
            bias=-typical,
            gates=round(share * math.comb(len(weights), fan_in)),
            sampled=len(gates) if len(gates) < math.comb(len(weights), fan_in) else None,
            measured=int(informative.sum()),
            separated=int((on > off).sum()),
            worst=float(np.abs(scores - truth).max()) if informative.any() else float("nan"),
            worst_after_offset=float(np.nanmax(least)) if informative.any() else float("nan"),
        )
    return None


def _gates_of(
    connected: Bool[np.ndarray, "feature neuron"], fan_in: int, seed: int
) -> Sequence[Sequence[int]]:
    """All sets of `fan_in` features, or a random sample of them."""
    m = len(connected)
    if math.comb(m, fan_in) <= MOST_GATES:
        return list(combinations(range(m), fan_in))
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(m, fan_in, replace=False)).tolist() for _ in range(MOST_GATES)]


def _two_levels(
    weights: Float[np.ndarray, "feature neuron"], bias: Float[np.ndarray, " neuron"], fan_in: int
) -> tuple[Bool[np.ndarray, "feature neuron"], float, float] | None:
    """The upper weights, their mean, and the bias without features; None without two levels.

    The levels are 0 and a / (k - 1), where -a is the bias and k the fan-in.
    """
    below = -float(np.median(bias))
    level = below / (fan_in - 1)
    connected = weights > level / 2
    if below <= 0 or not connected.any() or connected.all():
        return None
    upper = float(weights[connected].mean())
    fits = (
        abs(upper - level) <= NEAR * level
        and abs(weights[~connected].mean()) <= NEAR * level
        and weights[connected].std() <= SCATTER * level
        and weights[~connected].std() <= SCATTER * level
    )
    return (connected, upper, below) if fits else None


def _more_than_chance(
    connected: Bool[np.ndarray, "feature neuron"],
    shared: Int[np.ndarray, " pair"],
    pairs: Pairs,
    level: float,
) -> Bool[np.ndarray, " pair"]:
    sizes = connected.sum(axis=1)
    p = stats.hypergeom.sf(shared - 1, connected.shape[1], sizes[pairs[:, 0]], sizes[pairs[:, 1]])
    return np.asarray(benjamini_yekutieli(np.minimum(p, 1.0)) <= level)


def _measure(
    connected: Bool[np.ndarray, "feature neuron"],
    shared: Int[np.ndarray, " pair"],
    activations: Float[np.ndarray, "n neuron"],
    features: Bool[np.ndarray, "n feature"],
    pairs: Pairs,
) -> PairErrors:
    """Errors of the readouts; the readout of a pair that shares no neuron is 0."""
    together = groups_together(features, None, pairs)
    tiles = tiles_of(pairs, np.flatnonzero(together))
    on = np.ascontiguousarray(features.T)
    tile_errors = [TileErrors(len(tile.partners)) for tile in tiles]
    for tile, errors in zip(tiles, tile_errors, strict=True):
        both = connected[tile.first] & connected[tile.partners]
        readouts = both / np.maximum(both.sum(axis=1), 1)[:, None]
        scores = readouts.astype(activations.dtype) @ activations.T
        errors.add(scores, on[tile.first], on[tile.partners], step=1)
    return gathered(pairs, np.ones(len(pairs), dtype=np.int64), together, tiles, tile_errors)
