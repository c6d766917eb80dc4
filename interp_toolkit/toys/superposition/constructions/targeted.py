"""ANDs of features in superposition, ANDs of chosen sets, and ANDs with one neuron each.

*Universal AND in superposition*: m > d0 features on d0 axes. The features are random unit
f-vectors, the rows of F. A neuron reads the sum of the f-vectors that it is connected to:
W = Ŵ F, with Ŵ of 0s and 1s as in `uand`, and the same readouts. Two f-vectors have inner products
of about 1/sqrt(d0), so each feature that is on adds noise to all neurons, of standard deviation
sqrt(c/d0) if c = p m features are connected to a neuron. Neurons misfire when that approaches 1,
that is, when m is of order d0 / p. The worst case is not known exactly: ε is sampled (see
`layers.layer`), which gives a lower bound. If no density is given and a sample of `N_CHECKED` pairs
already has an error of 1, nothing is built. Source: "Computation in superposition", section 1.3.

*Chosen sets of features*, of any fan-in: each gate gets s random neurons, and each feature is
connected to the union of its gates' neurons, so that neurons read few features and rarely misfire.
A gate of fan-in k reads its features with weight K/k, where K is the largest fan-in, and every
neuron has bias -K + 1: the neuron is 1 with all of the gate on, and 0 with all but one. The readout
is the mean of the gate's neurons. A feature with gates of several fan-ins on one neuron has the
largest of their weights there. ε is sampled: gates that share neurons by chance disturb each other,
so the worst error over all gates on all inputs is much larger than a gate's own on inputs about it.
Source: sections 1.3 (pairs) and 1.4 (mixed fan-in).

*One neuron per AND* is exact and without superposition, for comparison. The neuron of I adds up its
features and subtracts |I| - 1, so it holds the AND itself. This takes as many neurons as ANDs:
Σ_{s=2..k} C(m, s) for all up to fan-in k of m features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.uand import (
    Density,
    UniversalAND,
    and_layer,
    draw_connections,
)
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates, random_gates
from interp_toolkit.toys.superposition.layers.layer import (
    FeatureLayer,
    SampledEpsilon,
    check_bytes,
    gate_model,
    mean_readoffs,
    own_axes,
    random_unit_features,
    sampled_epsilon,
    spread_features,
)

N_CHECKED = 200  # pairs on whose inputs a layer is tested if the density is not set


def superposed_and(
    n_features: int,
    d_in: int,
    n_neurons: int,
    density: Density | None = None,
    *,
    most_on: int = 2,
    allow_empty: bool = False,
    seed: int = 0,
) -> UniversalAND:
    """A universal AND layer on random unit f-vectors; the other arguments are `universal_and`'s.

    Noise grows with the density, so the default is the sparsest. A searched density is optimal
    without interference, which makes it too dense here.

    Args:
        n_features: features.
        d_in: axes of the input.
        n_neurons: the width of the layer.
        density: density of connections; None: "sparsest".
        most_on: number of features that are on together, for the search of the density.
        allow_empty: build it even if some pairs have no neuron.
        seed: random seed of the connections and the f-vectors.

    Raises:
        InputError: as `universal_and`; an interference of 1 or more; and, unless a density is set,
            a readout error of 1 or more.
    """
    generator = torch.Generator().manual_seed(seed)
    connections, used, chosen = draw_connections(
        n_features,
        n_neurons,
        "sparsest" if density is None else density,
        most_on,
        allow_empty,
        generator,
    )
    check_interference(float(connections.sum()) / n_neurons, d_in)
    features = random_unit_features(n_features, d_in, generator)
    built = UniversalAND(and_layer(connections, features), connections, used, chosen, seed)
    if chosen in ("search", "sparsest"):
        _check_readable(built, min(most_on, n_features))
    return built


def _check_readable(built: UniversalAND, most_on: int) -> None:
    m, (d_in, n_neurons) = built.n_features, built.layer.W_in.shape
    gates = random_gates(m, min(N_CHECKED, math.comb(m, 2)))
    worst = built.sampled_epsilon(most_on, gates).own.worst
    if worst >= 1:
        raise InputError(
            f"{n_neurons:,} neurons are too few for the ANDs of {m:,} features on {d_in:,} "
            f"axes with up to {most_on} on: at density {built.density:.2f} a readout is off by "
            f"{worst:.2f}; give more axes or neurons, or set the density to build it anyway"
        )


def check_interference(per_neuron: float, d_in: int) -> None:
    """Raise InputError if one feature's noise on a neuron is as large as its signal."""
    if d_in < 1:
        raise InputError(f"d_in is {d_in}: the input needs at least one axis")
    noise = math.sqrt(per_neuron / d_in)
    if noise >= 1:
        raise InputError(
            f"neurons misfire: each reads {per_neuron:.1f} features on {d_in} axes with noise of "
            f"{noise:.2f} against a signal of 1; give fewer features, more axes or a lower "
            "density"
        )


@dataclass(frozen=True, eq=False)
class TargetedANDs(ShortRepr):
    """A layer of chosen gates; see the module.

    Attributes:
        layer: its weights, and the features it reads.
        gates: the features of each gate.
        neurons: the neurons drawn for each gate.
        connections: the neurons to which each feature is connected.
        seed: random seed of the draw.
    """

    layer: FeatureLayer
    gates: tuple[Gate, ...]
    neurons: Bool[Tensor, "gate neuron"]
    connections: Bool[Tensor, "feature neuron"]
    seed: int

    def readoffs(self) -> Float[Tensor, "gate neuron"]:
        """The readouts of the gates, in order."""
        return mean_readoffs(self.neurons)

    def sampled_epsilon(self, most_on: int, *, rounds: int = 1, seed: int = 0) -> SampledEpsilon:
        """Errors measured on inputs about each gate; see `layers.layer`."""
        return sampled_epsilon(
            self.layer, self.readoffs(), self.gates, most_on, rounds=rounds, seed=seed
        )

    def as_model(
        self, most_on: int, n_gates: int | None = None, name: str = "uand-targeted"
    ) -> Transformer:
        """The layer as a model that writes the first `n_gates` readouts, or all of them.

        Raises InputError for `n_gates` out of range, or gates that cannot be true with so few
        features on.
        """
        if n_gates is not None and not 1 <= n_gates <= len(self.gates):
            raise InputError(f"n_gates is {n_gates}; it must be between 1 and {len(self.gates)}")
        gates = self.gates[:n_gates]
        readoffs = self.readoffs()[: len(gates)]
        return gate_model(
            self.layer, readoffs, gates, self.connections, most_on, name, about=self.gates
        )


def targeted_gates(
    gates: Sequence[Sequence[int]],
    n_features: int,
    n_neurons: int,
    neurons_per_gate: int,
    d_in: int | None = None,
    *,
    spread: bool = False,
    seed: int = 0,
) -> TargetedANDs:
    """A layer that computes these gates.

    Args:
        gates: sets of feature indices, without duplicates.
        n_features: number of features; most may be in no gate.
        n_neurons: the width of the layer.
        neurons_per_gate: random neurons for each gate.
        d_in: axes of the input, for random unit f-vectors; None: an axis for each feature.
        spread: whether the f-vectors are spread evenly (`spread_features`) instead of random.
        seed: random seed of the neurons and the f-vectors.

    Raises:
        InputError: unknown or duplicate gates, more neurons per gate than there are, interference
            of 1 or more, or sizes that do not fit.
    """
    checked = checked_gates(gates, n_features)
    if len(set(checked)) < len(checked):
        raise InputError("a gate occurs twice: give each set of features once")
    if not 1 <= neurons_per_gate <= n_neurons:
        raise InputError(
            f"neurons_per_gate is {neurons_per_gate}; it must be between 1 and {n_neurons}"
        )
    check_bytes(n_features, n_neurons, "weights")
    check_bytes(len(checked), n_neurons, "readouts")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(len(checked), n_neurons, generator=generator).topk(neurons_per_gate).indices
    weights = _weights(checked, chosen, n_features, n_neurons)
    if d_in is None:
        features = own_axes(n_features)
    else:
        check_interference(float(weights.square().sum()) / n_neurons, d_in)
        draw = spread_features if spread else random_unit_features
        features = draw(n_features, d_in, generator)
    bias = torch.full((n_neurons,), 1.0 - max(map(len, checked)), dtype=torch.float64)
    neurons = torch.zeros(len(checked), n_neurons, dtype=torch.bool).scatter_(1, chosen, True)
    layer = FeatureLayer(features.T @ weights, bias, features)
    return TargetedANDs(layer, tuple(checked), neurons, weights > 0, seed)


def _weights(
    gates: Sequence[Gate], neurons: Tensor, n_features: int, n_neurons: int
) -> Float[Tensor, "feature neuron"]:
    """Each feature's weight on each neuron: the largest K/k over its gates there."""
    largest = max(map(len, gates))
    weights = torch.zeros(n_features, n_neurons, dtype=torch.float64)
    for gate in sorted(range(len(gates)), key=lambda g: -len(gates[g])):
        rows = torch.tensor(gates[gate])[:, None]
        weights[rows, neurons[gate]] = largest / len(gates[gate])
    return weights


MOST_NEURONS = 20_000


@dataclass(frozen=True, eq=False)
class SeparateANDs:
    """A layer with a neuron for each AND.

    Attributes:
        layer: its weights.
        gates: the ANDs, in the order of the neurons.
    """

    layer: FeatureLayer
    gates: tuple[Gate, ...]

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The gates' own neurons.

        Raises InputError for a gate without a neuron.
        """
        neuron_of = {gate: neuron for neuron, gate in enumerate(self.gates)}
        checked = checked_gates(gates, len(self.layer.features))
        missing = [gate for gate in checked if gate not in neuron_of]
        if missing:
            raise InputError(f"no neuron computes the gate {missing[0]}")
        rows = torch.zeros(len(checked), len(self.gates), dtype=torch.float64)
        rows[torch.arange(len(checked)), [neuron_of[gate] for gate in checked]] = 1.0
        return rows


def separate_ands(n_features: int, fan_in: int) -> SeparateANDs:
    """A neuron for each AND of 2 to `fan_in` features.

    Raises InputError for a fan-in out of range, or too many neurons.
    """
    if not 2 <= fan_in <= n_features:
        raise InputError(f"the fan-in is {fan_in}; it must be between 2 and {n_features}")
    sizes = range(2, fan_in + 1)
    n_gates = sum(comb(n_features, size) for size in sizes)
    if n_gates > MOST_NEURONS:
        raise InputError(f"{n_gates} ANDs, each with a neuron, are too many")
    check_bytes(n_features, n_gates, "weights")
    gates = tuple(gate for size in sizes for gate in combinations(range(n_features), size))
    reads = torch.zeros(n_features, n_gates, dtype=torch.float64)
    for neuron, gate in enumerate(gates):
        reads[list(gate), neuron] = 1.0
    features = own_axes(n_features)
    return SeparateANDs(FeatureLayer(reads, 1 - reads.sum(dim=0), features), gates)
