"""ANDs of every fan-in from the one layer of fan-in 2, by inclusion and exclusion.

With v_I' the mean over the neurons that the features of I' share, the AND of I is read along

    Σ_{I'⊆I, |I'|≥2} c(|I'|) v_I',      c(s) = (-1)^s,

since v_I' answers max(0, |I'∩J| - 1) where J of I is on and interference is nil, and
Σ_{I'⊆I} (-1)^{|I'|} max(0, |I'∩J| - 1) is 1 for J = I and 0 for every other J ⊆ I. The source
("Computation in superposition", section 1.4) prints the sign (-1)^{|I|-|I'|+1}, which differs by
(-1)^{|I|+1} and so gives -AND for even |I|.

A neuron that I' shares is connected to each other feature with probability p, however, and in the
mean v_I' answers E max(0, a + B - 1), a = |I'∩J|, B binomial (|J| - a, p). The coefficients that
are right in the mean for every J ⊆ I at this p solve |I| - 1 linear equations (`coefficients` with
a density); for p = 0 they are the signs above. Features on beside I still interfere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.constructions.fan_in import fan_in_and, intersection_readoffs
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates, gate_truth
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, check_bytes, gate_model
from interp_toolkit.toys.superposition.layers.readouts import MeasuredEpsilon, measured_epsilon

MOST_FAN_IN = 10


@dataclass(frozen=True, eq=False)
class InclusionExclusionAND(ShortRepr):
    """ANDs of every fan-in from one layer of fan-in 2; see the module.

    Attributes:
        layer: its weights.
        connections: which features each neuron reads.
        density: that the readoffs take into account; 0: the source's.
    """

    layer: FeatureLayer
    connections: Bool[Tensor, "feature neuron"]
    density: float

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The readoffs; see `inclusion_exclusion`."""
        return inclusion_exclusion(self.connections, gates, self.density)

    def epsilon(self, most_on: int, gates: Sequence[Gate], *, seed: int = 0) -> MeasuredEpsilon:
        """The errors of these gates at most `most_on` features on, exact where inputs are few.

        Raises InputError for gates that are not there or never true, and sizes that do not fit.
        """
        known = checked_gates(gates, len(self.connections))
        widest = max(map(len, known))
        if most_on < widest:
            raise InputError(f"{most_on} features on at most: a gate of {widest} is never true")
        readoffs = self.readoffs(known)
        return measured_epsilon(
            lambda on: self.layer.activations(on) @ readoffs.T,
            lambda on: gate_truth(on, known),
            known,
            len(self.connections),
            most_on,
            seed=seed,
        )

    def as_model(
        self, gates: Sequence[Gate], most_on: int, name: str = "uand-inclusion-exclusion"
    ) -> Transformer:
        """The layer as a model whose logits are these gates; see `gate_model`."""
        known = checked_gates(gates, len(self.connections))
        readoffs = self.readoffs(known)
        measured = self.epsilon(most_on, known)
        worst = measured.worst if measured.exact else None
        return gate_model(self.layer, readoffs, known, self.connections, most_on, name, worst)


def inclusion_exclusion_and(
    n_features: int, n_neurons: int, density: float, *, corrected: bool = True, seed: int = 0
) -> InclusionExclusionAND:
    """A universal AND layer of fan-in 2, to be read for ANDs of every fan-in.

    Args:
        n_features: number of features of the input.
        n_neurons: number of neurons of the layer.
        density: the chance that a feature is connected to a neuron.
        corrected: whether readoffs take the density into account; otherwise they are the source's.
        seed: random seed of the connections.

    Raises:
        InputError: as `fan_in_and`.
    """
    built = fan_in_and(n_features, n_neurons, 2, density, seed)
    taken = density if corrected else 0.0
    return InclusionExclusionAND(built.layer, built.connections, taken)


def inclusion_exclusion(
    connections: Bool[Tensor, "feature neuron"],
    gates: Sequence[Gate],
    density: float = 0.0,
) -> Float[Tensor, "gate neuron"]:
    """Readoffs of gates of any fan-in from 2 for a layer of bias -1 with these connections.

    Args:
        connections: connections of the layer, as `fan_in_and`'s with fan-in 2.
        gates: the features of each.
        density: density of connections, to take the mean interference within a gate into account; 0
            is the source's readoff.

    Raises:
        InputError: fan-ins out of range, or features that share no neuron.
    """
    check_bytes(len(gates), connections.shape[1], "readoffs")
    rows = torch.zeros(len(gates), connections.shape[1], dtype=torch.float64)
    for row, gate in enumerate(checked_gates(gates, len(connections))):
        for size, weight in enumerate(coefficients(len(gate), density), start=2):
            parts = intersection_readoffs(connections, list(combinations(gate, size)))
            rows[row] += weight * parts.sum(dim=0)
    return rows


@cache
def coefficients(fan_in: int, density: float = 0.0) -> tuple[float, ...]:
    """c(2), ..., c(fan_in): the weight of the intersections of each size.

    Raises InputError for a fan-in below 2 or above 10, or a density outside 0..1.
    """
    if not 2 <= fan_in <= MOST_FAN_IN:
        raise InputError(f"fan_in must be 2 to {MOST_FAN_IN}, got {fan_in}")
    if not 0 <= density < 1:
        raise InputError(f"the density must be a probability below 1, not {density}")
    sizes = range(2, fan_in + 1)
    if density == 0:
        return tuple((-1.0) ** size for size in sizes)
    answers = [[_answer(fan_in, on, size, density) for size in sizes] for on in sizes]
    right = [float(on == fan_in) for on in sizes]
    return tuple(float(c) for c in np.linalg.solve(np.array(answers), np.array(right)))


def _answer(fan_in: int, on: int, size: int, density: float) -> float:
    """The sum of what the intersections of this size answer in the mean, `on` features on."""
    return sum(
        comb(on, inside) * comb(fan_in - on, size - inside) * _mean(inside, on - inside, density)
        for inside in range(min(on, size) + 1)
        if size - inside <= fan_in - on
    )


def _mean(inside: int, outside: int, density: float) -> float:
    """E max(0, inside + B - 1), B binomial (outside, density)."""
    return sum(
        comb(outside, n) * density**n * (1 - density) ** (outside - n) * max(0, inside + n - 1)
        for n in range(outside + 1)
    )
