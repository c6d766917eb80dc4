"""One neuron for each AND: exact, and nothing in superposition; what the others are beside.

The neuron of I adds up its features and subtracts |I| - 1, so it holds the AND itself. It takes as
many neurons as ANDs: Σ_{s=2..k} C(m, s) for all up to fan-in k of m features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.gate_model import check_bytes, own_axes
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer

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

        Raises InputError for a gate that has none.
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
        raise InputError(f"a fan-in of {fan_in} is not between 2 and the {n_features} features")
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
