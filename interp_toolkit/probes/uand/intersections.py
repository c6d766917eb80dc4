"""The construction's own readoff: which neurons two features share.

In the source's layer a neuron listens to a random set of features with weight 1 and has bias -1,
and the AND of two features is read off the neurons that listen to both, with the readoff
1[S_i ∩ S_j] / |S_i ∩ S_j|. Given what each feature adds to each neuron's input, and the neurons'
typical bias -a, the sets are found where these numbers have two levels, 0 and a: cut at a/2, each
side has its mean within NEAR of its level and scatters by no more than SCATTER, both in units of a.
Normal or uniform weights never do: what lies above the cut is a tail's end, or the rest too wide.
Pairs that share more neurons than sets of their sizes would by chance (hypergeometric) are gates
that the layer was built for; where none do, it is universal.
Source: "Computation in superposition", sections 1.2 and 1.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from interp_toolkit.probes.uand.errors import PairErrors, Pairs, groups_together
from interp_toolkit.probes.uand.tiles import TileErrors, gathered, tiles_of
from interp_toolkit.stats import benjamini_yekutieli

NEAR = 0.2
SCATTER = 0.3


@dataclass(frozen=True, eq=False)
class Intersections:
    """What two-level weights say.

    Attributes:
        level: the upper level of the weights, as found; the lower is near 0.
        scatter: root mean square distance of the weights from their levels.
        bias: the neurons' median bias.
        connections: which neurons listen to which features.
        shared: neurons that each pair shares.
        targeted: pairs that share more than chance would have them share.
        errors: of the readoffs along the shared neurons, on held-out rows.
    """

    level: float
    scatter: float
    bias: float
    connections: Bool[np.ndarray, "feature neuron"]
    shared: Int[np.ndarray, " pair"]
    targeted: Bool[np.ndarray, " pair"]
    errors: PairErrors

    @property
    def named(self) -> Bool[np.ndarray, " pair"]:
        """The pairs it computes: the targeted ones, or, where there are none, all that share."""
        return self.targeted if self.targeted.any() else self.shared > 0


def feature_weights(
    pre: Float[np.ndarray, "n neuron"], features: Bool[np.ndarray, "n feature"]
) -> tuple[Float[np.ndarray, "feature neuron"], Float[np.ndarray, " neuron"]]:
    """What each feature adds to each neuron's input, and the rest: a least-squares fit."""
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
    """The construction in these weights, measured on held-out rows; None where it is not there.

    Args:
        weights: what each feature adds to each neuron's input (`feature_weights`).
        bias: what comes in without any feature.
        activations: of the neurons, on held-out rows.
        features: of these rows.
        pairs: whose readoffs to measure.
        level: of the false discoveries among targeted pairs.
    """
    typical = -float(np.median(bias))
    connected = weights > typical / 2
    if typical <= 0 or not connected.any():
        return None
    upper = float(weights[connected].mean())
    if not (
        abs(upper - typical) <= NEAR * typical
        and abs(weights[~connected].mean()) <= NEAR * typical
        and weights[connected].std() <= SCATTER * typical
        and weights[~connected].std() <= SCATTER * typical
    ):
        return None
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
    """Errors of the readoffs; a pair that shares no neuron reads 0."""
    together = groups_together(features, None, pairs)
    tiles = tiles_of(pairs, np.flatnonzero(together))
    on = np.ascontiguousarray(features.T)
    found = [TileErrors(len(tile.partners)) for tile in tiles]
    for tile, errors in zip(tiles, found, strict=True):
        both = connected[tile.first] & connected[tile.partners]
        readoffs = both / np.maximum(both.sum(axis=1), 1)[:, None]
        scores = readoffs.astype(activations.dtype) @ activations.T
        errors.add(scores, on[tile.first], on[tile.partners], step=1)
    return gathered(pairs, np.ones(len(pairs), dtype=np.int64), together, tiles, found)
