"""All fan-ins from 2 to k in one ReLU layer, whose neurons are divided evenly among them.

Each group of neurons is a universal AND of its own fan-in (see `fan_in`), with its own density and
bias. A gate is read from its own group alone, so its exact worst error is that of the group's
`FanInAND`. Source: "Computation in superposition", section 1.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.fan_in import (
    FanInAND,
    WorstErrors,
    check_sizes,
    fan_in_and,
)
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates
from interp_toolkit.toys.superposition.layers.layer import (
    FeatureLayer,
    check_bytes,
    choose_density,
    gate_model,
)


@dataclass(frozen=True, eq=False)
class PartitionedAND:
    """All fan-ins from 2 to k: k - 1 groups of neurons, with a `FanInAND` in each.

    Attributes:
        layer: all groups side by side.
        parts: the groups, by fan-in from 2.
    """

    layer: FeatureLayer
    parts: tuple[FanInAND, ...]

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The constructed readout vectors, each on the neurons of its own fan-in.

        Raises InputError for missing fan-ins and for features that share no neuron.
        """
        check_bytes(len(gates), self.layer.W_in.shape[1], "readoffs")
        rows = torch.zeros(len(gates), self.layer.W_in.shape[1], dtype=torch.float64)
        starts = np.cumsum([0, *(part.connections.shape[1] for part in self.parts)])
        for row, gate in enumerate(gates):
            group = self._group(gate)
            rows[row, starts[group] : starts[group + 1]] = self.parts[group].readoffs([gate])[0]
        return rows

    def gates(self) -> list[Gate]:
        """All gates: those of fan-in 2, of fan-in 3, ..."""
        return [gate for part in self.parts for gate in part.gates()]

    def worst_errors(self, most_on: int, gates: Sequence[Gate] | None = None) -> WorstErrors:
        """The exact worst errors of these gates (None: of all) with at most `most_on` features on.

        Raises InputError as `FanInAND.worst_errors`, and for missing fan-ins.
        """
        if gates is None:
            parts = [part.worst_errors(most_on) for part in self.parts]
            return WorstErrors(
                np.concatenate([part.worst for part in parts]),
                np.concatenate([part.after_offset for part in parts]),
                sum(part.empty for part in parts),
            )
        known = checked_gates(gates, len(self.parts[0].connections))
        groups = np.array([self._group(gate) for gate in known])
        worst, offset, empty = np.zeros(len(known)), np.zeros(len(known)), 0
        for group in np.unique(groups):
            members = np.flatnonzero(groups == group)
            errors = self.parts[group].worst_errors(most_on, [known[k] for k in members])
            worst[members], offset[members], empty = (
                errors.worst,
                errors.after_offset,
                empty + errors.empty,
            )
        return WorstErrors(worst, offset, empty)

    def as_model(self, gates: Sequence[Gate], most_on: int) -> Transformer:
        """The layer as a model whose logits are these gates; see `gate_model`."""
        known = checked_gates(gates, len(self.parts[0].connections))
        connections = torch.cat([part.connections for part in self.parts], dim=1)
        worst = self.worst_errors(most_on, known).worst
        readoffs, name = self.readoffs(known), "uand-partitioned"
        return gate_model(self.layer, readoffs, known, connections, most_on, name, worst)

    def _group(self, gate: Sequence[int]) -> int:
        if not 2 <= len(gate) < len(self.parts) + 2:
            raise InputError(
                f"the gate {tuple(gate)} has {len(gate)} features; "
                f"the layer has fan-ins 2 to {len(self.parts) + 1}"
            )
        return len(gate) - 2


def partitioned_and(
    n_features: int,
    n_neurons: int,
    fan_in: int,
    most_on: int,
    densities: Sequence[float] | None = None,
    seed: int = 0,
) -> PartitionedAND:
    """All fan-ins from 2 to `fan_in`, on neurons divided evenly.

    Args:
        n_features: number of features of the input.
        n_neurons: number of neurons of the layer, in all groups together.
        fan_in: the largest fan-in.
        most_on: number of features that are on together, for the search of densities.
        densities: densities of the groups, from fan-in 2 on; None: by search
            (`density.choose_density`).
        seed: random seed of the connections.

    Raises:
        InputError: as `fan_in_and`; also if the number of densities is wrong, or no density makes
            the worst error less than 1.
    """
    n_groups = fan_in - 1
    check_sizes(n_features, n_neurons, fan_in)
    sizes = [n_neurons // n_groups + (g < n_neurons % n_groups) for g in range(n_groups)]
    if densities is None:
        densities = [
            choose_density(n_features, n, most_on, fan_in=k) for k, n in enumerate(sizes, start=2)
        ]
    if len(densities) != n_groups:
        raise InputError(f"{len(densities)} densities for the {n_groups} fan-ins 2 to {fan_in}")
    seeds = np.random.SeedSequence(seed).generate_state(n_groups)
    parts = tuple(
        fan_in_and(n_features, n, k, density, int(s))
        for k, (n, density, s) in enumerate(zip(sizes, densities, seeds, strict=True), start=2)
    )
    layer = FeatureLayer(
        torch.cat([part.layer.W_in for part in parts], dim=1),
        torch.cat([part.layer.b_in for part in parts]),
        parts[0].layer.features,
    )
    return PartitionedAND(layer, parts)
