"""ANDs of k features from one layer, with ReLU or with squares as activation.

*ReLU.* Each feature i is connected to a random set S_i of neurons (each with probability p), the
bias is -(k - 1), and the AND of I is read along ∩ S_i / |∩ S_i|: the mean over the shared neurons.
Source: "Computation in superposition", section 1.4.

The worst error over all inputs with at most l features on is exact: let t_Ix be the fraction of
∩ S_i that is connected to x. With all of I on and a set A of others, the readout is
1 + Σ_{x∈A} t_Ix. With all but one on it is Σ_{x∈A} t_Ix. With fewer on it is the mean of
max(0, n - 1 - ...), n of A's features being connected, which is at most the value for A without one
feature and with all but one of I on. So the worst error is the sum of the l - k + 1 largest t_Ix,
from (k + 1)-wise counts alone.

*Squares.* With the activation x -> x^2, products of readouts are readouts of squares. Features are
random unit vectors f_i of r dimensions, many more than r. The AND of i and j on the sum v of the
f-vectors that are on is (v·f_i)(v·f_j), a quadratic function of v; every quadratic function of r
numbers is a linear combination of squares of linear forms. Of these r(r+1)/2 are independent, here
those of v_a and v_a + v_b: the source's r^2 squares ("Computation in superposition", section 1.5)
span no more. A readout weighs them by the symmetric part of f_i f_j^T, since
v_a v_b = ((v_a + v_b)^2 - v_a^2 - v_b^2) / 2.

With δ = f·f' of order 1/√r: on f_i + f_j the product is (1 + δ)^2, an error of 2/√r (rms); on
f_i + f_x it is (1 + δ)(δ' + δ''), an error of √2/√r; on two others of the order of 1/r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.boolean_functions import after_offset
from interp_toolkit.data.composites import random_subsets
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates
from interp_toolkit.toys.superposition.layers.layer import (
    FeatureLayer,
    check_bytes,
    gate_model,
    mean_readoffs,
    own_axes,
    random_unit_features,
)

MOST_GATES = 500_000  # whose exact errors are computed by default
CHUNK_ELEMENTS = 2**24  # gates times neurons held at once
EMPTY_CHANCE = 1e-3  # of an empty intersection, at the least density


@dataclass(frozen=True, eq=False)
class WorstErrors:
    """The exact worst error of each gate over all inputs with at most l features on.

    Attributes:
        worst: the largest |readout - AND|.
        after_offset: the gate's worst error after its best gain and bias.
        empty: gates whose features share no neuron; their error is 1.
    """

    worst: Float[np.ndarray, " gate"]
    after_offset: Float[np.ndarray, " gate"]
    empty: int


@dataclass(frozen=True, eq=False)
class FanInAND(ShortRepr):
    """Universal AND of one fan-in; see the module.

    Attributes:
        layer: its weights.
        connections: the features that each neuron reads.
        fan_in: number of features of a gate.
    """

    layer: FeatureLayer
    connections: Bool[Tensor, "feature neuron"]
    fan_in: int

    def gates(self) -> list[Gate]:
        """All gates: the sets of `fan_in` features."""
        return list(combinations(range(len(self.connections)), self.fan_in))

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The constructed readouts.

        Raises InputError for gates of another fan-in or whose features share no neuron.
        """
        checked = checked_gates(gates, len(self.connections), fan_in=self.fan_in)
        return intersection_readoffs(self.connections, checked)

    def worst_errors(self, most_on: int, gates: Sequence[Gate] | None = None) -> WorstErrors:
        """The exact worst errors of these gates (None: all) with at most `most_on` features on.

        Raises InputError if fewer than `fan_in` features may be on, and for too many gates.
        """
        n_features, k = len(self.connections), self.fan_in
        if not k <= most_on <= n_features:
            raise InputError(f"most_on is {most_on}; it must be between {k} and {n_features}")
        if gates is None:
            n_gates = math.comb(n_features, k)
            if n_gates > MOST_GATES:
                raise InputError(f"{n_gates} gates are too many to measure: name some of them")
            gates = self.gates()
        gates = checked_gates(gates, n_features, fan_in=k)
        step = max(1, CHUNK_ELEMENTS // self.connections.shape[1])
        parts = [self._worst(gates[i : i + step], most_on) for i in range(0, len(gates), step)]
        worst, offset, empty = zip(*parts, strict=True)
        return WorstErrors(np.concatenate(worst), np.concatenate(offset), sum(empty))

    def as_model(self, gates: Sequence[Gate], most_on: int) -> Transformer:
        """The layer as a model whose logits are these gates; see `gate_model`."""
        checked = checked_gates(gates, len(self.connections), fan_in=self.fan_in)
        worst = self.worst_errors(most_on, checked).worst
        name = f"uand-fan-in-{self.fan_in}"
        return gate_model(
            self.layer, self.readoffs(checked), checked, self.connections, most_on, name, worst
        )

    def _worst(
        self, gates: Sequence[Gate], most_on: int
    ) -> tuple[Float[np.ndarray, " gate"], Float[np.ndarray, " gate"], int]:
        shared = intersections(self.connections, gates).float()  # counts below 2^24 are exact
        size = shared.sum(dim=1).double()
        share = (shared @ self.connections.float().T).double() / size.clamp(min=1)[:, None]
        share.scatter_(1, torch.tensor(gates), 0.0)
        others = min(most_on - self.fan_in + 1, len(self.connections) - self.fan_in)
        largest = share.topk(max(others, 1), dim=1).values
        beside_all = largest[:, : most_on - self.fan_in].sum(dim=1).numpy()
        beside_all_but_one = largest.sum(dim=1).numpy()
        empty = (size == 0).numpy()
        ones, zeros = np.ones(len(gates)), np.zeros(len(gates))
        offset = after_offset(ones, 1 + beside_all, zeros, beside_all_but_one)
        worst = np.maximum(beside_all, beside_all_but_one)
        return np.where(empty, 1.0, worst), np.where(empty, 0.5, offset), int(empty.sum())


def fan_in_and(
    n_features: int, n_neurons: int, fan_in: int, density: float, seed: int = 0
) -> FanInAND:
    """Universal AND of fan-in `fan_in`, on features that are the axes of the input.

    Args:
        n_features: number of features of the input.
        n_neurons: number of neurons of the layer.
        fan_in: number of features of a gate, at least 2.
        density: the probability p that a feature is connected to a neuron; see
            `choose_density` and `least_density`.
        seed: random seed of the connections.

    Raises:
        InputError: invalid sizes, a density outside 0..1 (as the source's log²(d0) / d^(1/k) is at
            practical sizes), or one so low that some gate's features probably share no neuron.
    """
    check_sizes(n_features, n_neurons, fan_in)
    check_bytes(n_features, n_neurons, "weights")
    if not 0 < density < 1:
        raise InputError(f"the density must be a probability between 0 and 1, not {density}")
    empty = math.comb(n_features, fan_in) * (1 - density**fan_in) ** n_neurons
    if empty > 1:
        raise InputError(
            f"at density {density} about {empty:.3g} gates of {fan_in} features share no neuron; "
            f"give more neurons, or a density of {least_density(n_features, n_neurons, fan_in):.3f}"
        )
    selected = np.random.default_rng(seed).random((n_features, n_neurons)) < density
    return connected(torch.from_numpy(selected), fan_in)


def connected(connections: Bool[Tensor, "feature neuron"], fan_in: int) -> FanInAND:
    """Universal AND with these connections."""
    n_features, n_neurons = connections.shape
    layer = FeatureLayer(
        connections.double(),
        torch.full((n_neurons,), 1.0 - fan_in, dtype=torch.float64),
        own_axes(n_features),
    )
    return FanInAND(layer, connections, fan_in)


def least_density(
    n_features: int, n_neurons: int, fan_in: int, chance: float = EMPTY_CHANCE
) -> float:
    """The density p, of order d^(-1/k), at which almost every gate's features share a neuron.

    C(d0, k) (1 - p^k)^d, an upper bound of the chance that there is an exception, is `chance`.
    """
    check_sizes(n_features, n_neurons, fan_in)
    if not 0 < chance < 1:
        raise InputError(
            f"the chance of an empty intersection must be between 0 and 1, not {chance}"
        )
    missing = (chance / math.comb(n_features, fan_in)) ** (1 / n_neurons)
    return float((1 - missing) ** (1 / fan_in))


def intersections(
    connections: Bool[Tensor, "feature neuron"], gates: Sequence[Gate]
) -> Bool[Tensor, "gate neuron"]:
    """The neurons that each gate's features share."""
    rows = torch.empty(len(gates), connections.shape[1], dtype=torch.bool)
    for row, gate in enumerate(gates):
        rows[row] = connections[list(gate)].all(dim=0)
    return rows


def intersection_readoffs(
    connections: Bool[Tensor, "feature neuron"], gates: Sequence[Gate]
) -> Float[Tensor, "gate neuron"]:
    """The mean over the neurons that each gate's features share, as readouts.

    Raises InputError if they share none.
    """
    shared = intersections(connections, gates)
    empty = [gate for gate, row in zip(gates, shared, strict=True) if not row.any()]
    if empty:
        raise InputError(
            f"the features of {len(empty)} gates share no neuron, such as {empty[0]}: give a "
            "higher density or more neurons"
        )
    return mean_readoffs(shared)


def check_sizes(n_features: int, n_neurons: int, fan_in: int) -> None:
    """Raise InputError for an invalid fan-in, or too few neurons."""
    if not 2 <= fan_in <= n_features:
        raise InputError(f"the fan-in is {fan_in}; it must be between 2 and {n_features}")
    if n_neurons < fan_in - 1:
        raise InputError(f"n_neurons is {n_neurons}; fan-in {fan_in} needs at least {fan_in - 1}")


MOST_DIMENSIONS = 128  # for which the squares are built as neurons: 8,256 of them
MOST_ERROR = 0.5  # expected (rms) error of a true AND: 2 / sqrt(r), so at least 16 dimensions


class ClassError(NamedTuple):
    """The errors of an AND's readout on inputs of one class: the largest, and root mean square."""

    worst: float
    rms: float


@dataclass(frozen=True, eq=False)
class QuadraticAND(ShortRepr):
    """Universal AND of features in superposition by squares; see the module.

    Attributes:
        features: the f-vectors.
    """

    features: Float[Tensor, "feature dim"]

    def scores(
        self, on: Bool[Tensor, "input feature"], gates: Sequence[Gate]
    ) -> Float[Tensor, "input gate"]:
        """Outputs of these pairs' readouts as products, without the squares' neurons."""
        first, second = self._pairs(gates).T
        own = on.to(self.features) @ self.features @ self.features.T
        return own[:, first] * own[:, second]

    def layer(self) -> FeatureLayer:
        """The r(r+1)/2 squares as neurons.

        Raises InputError above 128 dimensions.
        """
        dim = self.features.shape[1]
        if dim > MOST_DIMENSIONS:
            raise InputError(
                f"{dim} dimensions need {dim * (dim + 1) // 2:,} neurons; a layer is built "
                f"for at most {MOST_DIMENSIONS} dimensions: use the method `scores` instead"
            )
        axes = torch.eye(dim, dtype=torch.float64)
        first, second = torch.triu_indices(dim, dim, offset=1)
        W_in = torch.cat([axes, axes[:, first] + axes[:, second]], dim=1)
        b_in = torch.zeros(W_in.shape[1], dtype=torch.float64)
        return FeatureLayer(W_in, b_in, self.features, "square")

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The pairs' readouts of `layer`'s neurons."""
        dim = self.features.shape[1]
        first, second = torch.triu_indices(dim, dim, offset=1)
        pairs = self._pairs(gates)
        f, g = self.features[pairs[:, 0]], self.features[pairs[:, 1]]
        crossed = f[:, first] * g[:, second] + f[:, second] * g[:, first]
        alone = f * g
        alone.index_add_(1, first, crossed, alpha=-0.5)
        alone.index_add_(1, second, crossed, alpha=-0.5)
        return torch.cat([alone, crossed / 2], dim=1)

    def as_model(self, gates: Sequence[Gate], most_on: int) -> Transformer:
        """The layer as a model whose logits are these pairs; see `gate_model`.

        Raises InputError as `layer` does.
        """
        checked = checked_gates(gates, len(self.features), fan_in=2)
        readoffs = self.readoffs(checked)
        return gate_model(self.layer(), readoffs, checked, None, most_on, "uand-quadratic")

    def sampled_errors(self, most_on: int, n: int, seed: int = 0) -> Mapping[str, ClassError]:
        """Errors of random pairs on inputs of which both, one or none of the pair are on.

        Every input has `most_on` features on.

        Args:
            most_on: number of features that are on, at least 2.
            n: number of pairs, each with its own input in each class.
            seed: random seed of the sample.

        Raises:
            InputError: fewer features than the pair and `most_on` others, or no pairs.
        """
        if n < 1:
            raise InputError(f"{n} pairs to sample: give 1 or more")
        n_features = len(self.features)
        if not 2 <= most_on <= n_features - 2:
            raise InputError(f"most_on is {most_on}; it must be between 2 and {n_features - 2}")
        rng = np.random.default_rng(seed)
        subsets = random_subsets(n, n_features, most_on + 2, rng)
        chosen = torch.from_numpy(rng.permuted(subsets, axis=1))
        return {
            "both": self._class_error(chosen, range(most_on), 1.0),
            "one": self._class_error(chosen, [0, *range(2, most_on + 1)], 0.0),
            "none": self._class_error(chosen, range(2, most_on + 2), 0.0),
        }

    def _class_error(
        self, chosen: Int[Tensor, "n k"], on: Sequence[int], truth: float
    ) -> ClassError:
        vectors = self.features[chosen]
        inputs = vectors[:, list(on)].sum(dim=1)
        scores = (inputs * vectors[:, 0]).sum(dim=1) * (inputs * vectors[:, 1]).sum(dim=1)
        errors = scores - truth
        return ClassError(float(errors.abs().max()), float(errors.square().mean().sqrt()))

    def _pairs(self, gates: Sequence[Gate]) -> Int[Tensor, "gate 2"]:
        return torch.tensor(checked_gates(gates, len(self.features), fan_in=2))


def quadratic_and(n_features: int, dim: int, *, seed: int = 0) -> QuadraticAND:
    """Universal AND of random unit f-vectors.

    Args:
        n_features: m.
        dim: r, the number of dimensions.
        seed: random seed of the f-vectors.

    Raises:
        InputError: no features or no dimensions, sizes too large, or so few dimensions (below 16)
            that the expected error of a true AND is above 1/2.
    """
    if dim >= 1 and 2 / math.sqrt(dim) > MOST_ERROR:
        raise InputError(
            f"{dim} dimensions are too few for squares: the readout of a true AND is off by "
            f"{2 / math.sqrt(dim):.2f} (rms; the limit is {MOST_ERROR}); give "
            f"{math.ceil((2 / MOST_ERROR) ** 2)} or more"
        )
    generator = torch.Generator().manual_seed(seed)
    return QuadraticAND(random_unit_features(n_features, dim, generator))
