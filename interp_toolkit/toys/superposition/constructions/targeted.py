"""ANDs of chosen sets of features, of any fan-in, on features in superposition.

Each gate gets s random neurons of its own drawing, and each feature is connected to the union of
its gates' neurons, so that neurons read few features and misfire little. A gate of fan-in k reads
its features with weight K/k, where K is the largest fan-in, and every neuron has bias -K + 1: all
of the gate on gives 1, all but one of it nothing. The readoff is the mean of the gate's neurons.
A feature with gates of several fan-ins on one neuron has the largest of their weights there.

ε is sampled (see `layers.sampled`): gates that happen to share neurons disturb each other, so that
the worst error over all gates on all inputs is much larger than a gate's on inputs about it.
Source: "Computation in superposition", sections 1.3 (pairs) and 1.4 (mixed fan-in).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.superposed import check_interference
from interp_toolkit.toys.superposition.layers.gate_model import (
    check_bytes,
    gate_model,
    mean_readoffs,
    own_axes,
    random_unit_features,
    spread_features,
)
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer
from interp_toolkit.toys.superposition.layers.sampled import SampledEpsilon, sampled_epsilon


@dataclass(frozen=True, eq=False)
class TargetedANDs(Brief):
    """A layer of chosen gates; see the module.

    Attributes:
        layer: its weights, and the features it reads.
        gates: which features each gate is the AND of.
        neurons: which neurons were drawn for each gate.
        connections: which neurons each feature is connected to.
        seed: of the draw.
    """

    layer: FeatureLayer
    gates: tuple[Gate, ...]
    neurons: Bool[Tensor, "gate neuron"]
    connections: Bool[Tensor, "feature neuron"]
    seed: int

    def readoffs(self) -> Float[Tensor, "gate neuron"]:
        """The readoffs of the gates, in order."""
        return mean_readoffs(self.neurons)

    def sampled_epsilon(self, most_on: int, *, rounds: int = 1, seed: int = 0) -> SampledEpsilon:
        """Errors measured on inputs about each gate; see `layers.sampled`."""
        return sampled_epsilon(
            self.layer, self.readoffs(), self.gates, most_on, rounds=rounds, seed=seed
        )

    def as_model(
        self, most_on: int, n_gates: int | None = None, name: str = "uand-targeted"
    ) -> Transformer:
        """The layer as a model that writes the first `n_gates` readoffs, or all of them.

        Raises InputError for gates that are not there, or never true with so few features on.
        """
        if n_gates is not None and not 1 <= n_gates <= len(self.gates):
            raise InputError(f"{n_gates} gates to write: there are 1 to {len(self.gates)}")
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
        gates: sets of feature numbers, each once.
        n_features: features that there are; most may be in no gate.
        n_neurons: the width of the layer.
        neurons_per_gate: random neurons that each gate is given.
        d_in: axes of the input, for random unit f-vectors; None: an axis for each feature.
        spread: whether the f-vectors are spread evenly (`spread_features`) and not random.
        seed: of the neurons and the f-vectors.

    Raises:
        InputError: gates that are not there or come twice, more neurons a gate than there are,
            interference of 1 or more, or sizes that do not fit.
    """
    checked = checked_gates(gates, n_features)
    if len(set(checked)) < len(checked):
        raise InputError("a gate was given twice: give each set of features once")
    if not 1 <= neurons_per_gate <= n_neurons:
        raise InputError(
            f"{neurons_per_gate} neurons a gate, of {n_neurons}: give 1 to {n_neurons}"
        )
    check_bytes(n_features, n_neurons, "weights")
    check_bytes(len(checked), n_neurons, "readoffs")
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
