"""Universal AND: one ReLU layer from which the AND of every pair of features can be read.

Each feature i is connected to a random set S_i of neurons, each with probability p; a neuron adds
up its features and subtracts 1, so that it fires if at least two of them are on. The AND of i
and j is read out as the mean of the neurons in S_i ∩ S_j. If features have their own axes, the
worst error over all pairs and inputs follows from counting (see `layers.readouts`).

`superposed_and` is the same layer on features in superposition; its error is sampled.
Source: "Computation in superposition", sections 1.1 to 1.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr, counted
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gates import (
    Gate,
    all_pairs,
    checked_gates,
    random_gates,
)
from interp_toolkit.toys.superposition.layers.layer import (
    FeatureLayer,
    SampledEpsilon,
    check_bytes,
    checked_density,
    choose_density,
    expected_worst,
    gate_model,
    mean_readoffs,
    own_axes,
    sampled_epsilon,
    source_density,
    sparsest_density,
)
from interp_toolkit.toys.superposition.layers.readouts import (
    ExactEpsilon,
    exact_epsilon,
    pair_sizes,
)

Density = float | str  # a probability, or one of CHOICES
CHOICES = ("search", "sparsest", "source")
N_GATES = 8  # gates of a model by default
N_SAMPLED = 500  # gates measured by default
STEP = 1.05  # factor by which a searched density is raised until every pair can be read


@dataclass(frozen=True, eq=False)
class UniversalAND(ShortRepr):
    """A universal AND layer; see the module.

    Attributes:
        layer: its weights, and the features it reads.
        connections: the neurons to which each feature is connected, the sets S_i.
        density: the probability of a connection.
        chosen: how the density was chosen: "given", "search", "sparsest" or "source".
        seed: random seed of the draw.
    """

    layer: FeatureLayer
    connections: Bool[Tensor, "feature neuron"]
    density: float
    chosen: str
    seed: int

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.connections)

    @property
    def n_neurons(self) -> int:
        """The number of neurons."""
        return self.connections.shape[1]

    @property
    def pairs_per_neuron(self) -> float:
        """Number of ANDs that are read out per neuron."""
        return math.comb(self.n_features, 2) / self.n_neurons

    @cached_property
    def in_superposition(self) -> bool:
        """Whether features share the axes of the input."""
        features = self.layer.features
        return features.shape[0] != features.shape[1] or not torch.equal(
            features, torch.eye(len(features), dtype=features.dtype)
        )

    @property
    def interference(self) -> float:
        """Standard deviation of the input that a feature that is on adds to an unconnected neuron.

        sqrt(connections per neuron / d_in) for random f-vectors, 0 without superposition.
        """
        if not self.in_superposition:
            return 0.0
        per_neuron = float(self.connections.sum()) / self.n_neurons
        return math.sqrt(per_neuron / self.layer.W_in.shape[0])

    @cached_property
    def n_empty(self) -> int:
        """The number of pairs without a common neuron."""
        return count_empty(self.connections)

    def neurons_of(self, gates: Sequence[Sequence[int]]) -> Bool[Tensor, "gate neuron"]:
        """The intersections S_i ∩ S_j of these pairs, one per row."""
        pairs = torch.tensor(checked_gates(gates, self.n_features, fan_in=2))
        return self.connections[pairs[:, 0]] & self.connections[pairs[:, 1]]

    def readoffs(
        self, gates: Sequence[Sequence[int]] | None = None
    ) -> Float[Tensor, "gate neuron"]:
        """The readouts of these pairs; None: all, in the order (0, 1), (0, 2), ...

        Raises InputError for gates that are not pairs of features, or too many to fit in memory.
        """
        n_gates = math.comb(self.n_features, 2) if gates is None else len(gates)
        check_bytes(n_gates, self.n_neurons, "readouts")
        return mean_readoffs(
            self.neurons_of(all_pairs(self.n_features) if gates is None else gates)
        )

    def epsilon(self, most_on: int) -> ExactEpsilon:
        """Each pair's exact worst error over all inputs with at most `most_on` features on.

        Raises InputError for features in superposition, for which counting is not exact.
        """
        if self.in_superposition:
            raise InputError(
                "the worst case of features in superposition is not known exactly: "
                "use sampled_epsilon"
            )
        return exact_epsilon(self.connections, most_on)

    def sampled_epsilon(
        self,
        most_on: int,
        gates: Sequence[Sequence[int]] | None = None,
        *,
        rounds: int = 1,
        seed: int = 0,
    ) -> SampledEpsilon:
        """Errors on inputs sampled for these pairs, or for up to N_SAMPLED random pairs."""
        if gates is None:
            n_gates = min(N_SAMPLED, math.comb(self.n_features, 2))
            gates = random_gates(self.n_features, n_gates, seed=seed)
        checked = checked_gates(gates, self.n_features, fan_in=2)
        return sampled_epsilon(
            self.layer, self.readoffs(checked), checked, most_on, rounds=rounds, seed=seed
        )

    def as_model(
        self,
        most_on: int,
        gates: Sequence[Sequence[int]] | None = None,
        name: str = "uand",
    ) -> Transformer:
        """The layer as a model that writes the readouts of some pairs, with `.ground_truth`.

        `gates` None: the first N_GATES of the disjoint pairs (0, 1), (2, 3), ...
        """
        if gates is None:
            gates = [(i, i + 1) for i in range(0, self.n_features - 1, 2)][:N_GATES]
        checked = checked_gates(gates, self.n_features, fan_in=2)
        return gate_model(
            self.layer,
            self.readoffs(checked),
            checked,
            self.connections,
            most_on,
            name,
            None if self.in_superposition else self._worst_of(checked, most_on),
        )

    def _worst_of(self, gates: Sequence[Gate], most_on: int) -> Float[np.ndarray, " gate"]:
        by_pair = self.epsilon(most_on).by_pair
        first, second = np.array(gates).T
        rows = first * (2 * self.n_features - first - 1) // 2 + second - first - 1
        return np.asarray(by_pair[rows])


def universal_and(
    n_features: int,
    n_neurons: int,
    density: Density | None = None,
    *,
    most_on: int = 2,
    allow_empty: bool = False,
    seed: int = 0,
) -> UniversalAND:
    """A universal AND layer on features that have their own axes.

    Args:
        n_features: number of features, and the width of the input.
        n_neurons: the width of the layer.
        density: the probability that a feature is connected to a neuron. "search" or None: the one
            that minimizes the expected worst error; "sparsest": the one at which a single pair is
            expected to have no neuron. Both are raised by 5 % at a time until every pair has a
            neuron and the expected worst error is below 1. "source": the source's.
        most_on: largest number of features that are on together, for the search of the density.
        allow_empty: build it even if some pairs have no neuron, so that their error is 1.
        seed: random seed of the connections; those of a higher density include those of a lower.

    Raises:
        InputError: invalid sizes or sizes that do not fit, a density that is not a probability,
            pairs without neurons, or no density at which the worst error is expected below 1.
    """
    connections, used, chosen = draw_connections(
        n_features,
        n_neurons,
        "search" if density is None else density,
        most_on,
        allow_empty,
        torch.Generator().manual_seed(seed),
    )
    layer = and_layer(connections, own_axes(n_features))
    return UniversalAND(layer, connections, used, chosen, seed)


def and_layer(
    connections: Bool[Tensor, "feature neuron"], features: Float[Tensor, "feature d_in"]
) -> FeatureLayer:
    """Neurons that add up the features that they are connected to, and subtract 1."""
    bias = -torch.ones(connections.shape[1], dtype=torch.float64)
    return FeatureLayer(features.T @ connections.double(), bias, features)


def draw_connections(
    n_features: int,
    n_neurons: int,
    density: Density,
    most_on: int,
    allow_empty: bool,
    generator: torch.Generator,
) -> tuple[Bool[Tensor, "feature neuron"], float, str]:
    """Random connections, their density and how it was chosen; see `universal_and`."""
    if n_features < 2:
        raise InputError(f"an AND needs two features; there is {n_features}")
    check_bytes(n_features, n_neurons, "weights")
    check_bytes(n_features, n_features, "pairs of features")
    p = _density(density, n_features, n_neurons, most_on)
    levels = torch.rand(n_features, n_neurons, generator=generator, dtype=torch.float64)
    if density in ("search", "sparsest"):
        p = _readable(levels, p, most_on)
    n_empty = count_empty(levels < p)
    if n_empty and not allow_empty:
        raise InputError(_empty(n_empty, n_features, n_neurons, p))
    return levels < p, p, density if isinstance(density, str) else "given"


def _readable(levels: Float[Tensor, "feature neuron"], density: float, most_on: int) -> float:
    """The density, raised until every pair has a neuron and an expected worst error below 1."""
    (m, d), p = levels.shape, density
    while count_empty(levels < p) or expected_worst(m, d, p, most_on) >= 1:
        if p == 1:
            raise InputError(
                f"{counted(d, 'neuron')} are too few for the ANDs of {m} features with up to "
                f"{most_on} on: at every density from {density:.2f} to 1 the worst error is "
                "about 1 or more; give more neurons or fewer features, or set the density to "
                "build it anyway"
            )
        p = min(1.0, STEP * p)
    return p


def _density(density: Density, n_features: int, n_neurons: int, most_on: int) -> float:
    if density == "search":
        return choose_density(n_features, n_neurons, most_on)
    if density == "sparsest":
        return sparsest_density(n_features, n_neurons)
    if not isinstance(density, str):
        return checked_density(density)
    if density != "source":
        raise InputError(
            f"the density {density!r} is not understood: give a probability or one of "
            f"{', '.join(CHOICES)}"
        )
    p = source_density(n_features, n_neurons)
    if not 0 < p <= 1:
        raise InputError(
            f"the source's density, log(m)^2 / sqrt(d), is {p:.2f} for {n_features} features and "
            f"{n_neurons} neurons, which is not a probability: leave the density out"
        )
    return p


def count_empty(connections: Bool[Tensor, "feature neuron"]) -> int:
    """The number of pairs without a common neuron."""
    return int((pair_sizes(connections) == 0).triu(1).sum())


def _empty(n_empty: int, n_features: int, n_neurons: int, density: float) -> str:
    """Message for pairs without neurons: the sizes at which less than one is expected."""
    n_pairs = math.comb(n_features, 2)
    enough = sparsest_density(n_features, n_neurons)
    width = math.ceil(-math.log(n_pairs) / math.log1p(-(density**2))) if n_pairs > 1 else 1
    return (
        f"{n_empty:,} of {counted(n_pairs, 'pair')} have no neuron in common at density "
        f"{density:.4g} and {counted(n_neurons, 'neuron')}, so that their AND "
        f"cannot be read: it takes a density above {enough:.2f}, or more than "
        f"{counted(width, 'neuron')} (allow_empty=True builds it all the same)"
    )
