"""ANDs of every fan-in from one layer of fan-in 2, by inclusion and exclusion.

Let v_I' be the mean over the neurons that the features of I' share. The AND of I is read along

    Σ_{I'⊆I, |I'|≥2} c(|I'|) v_I',      c(s) = (-1)^s.

If J ⊆ I is on and there is no interference, v_I' is max(0, |I'∩J| - 1), and Σ_{I'⊆I} (-1)^{|I'|}
max(0, |I'∩J| - 1) is 1 for J = I and 0 for every other J ⊆ I. The paper ("Computation in
superposition", section 1.4) prints the sign (-1)^{|I|-|I'|+1}, which differs by (-1)^{|I|+1} and so
gives -AND for even |I|.

However, a neuron that I' shares is also connected to every other feature with probability p. The
expectation of v_I' is E max(0, a + B - 1) with a = |I'∩J| and B binomial (|J| - a, p). The
coefficients that are correct in expectation for every J ⊆ I at this p solve |I| - 1 linear
equations (`coefficients` with a density); for p = 0 they are the signs above. Active features
outside I still interfere.
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
        layer: the weights.
        connections: the features that each neuron reads.
        density: density that the readouts correct for; 0: the paper's readouts.
    """

    layer: FeatureLayer
    connections: Bool[Tensor, "feature neuron"]
    density: float

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The readout vectors; see `inclusion_exclusion`."""
        return inclusion_exclusion(self.connections, gates, self.density)

    def epsilon(self, most_on: int, gates: Sequence[Gate], *, seed: int = 0) -> MeasuredEpsilon:
        """The errors of these gates with at most `most_on` features on; exact for few inputs.

        Raises InputError for gates that do not exist or are never true, and for sizes that do not
        fit.
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
    """A universal AND layer of fan-in 2 with readouts for ANDs of every fan-in.

    Args:
        n_features: number of features of the input.
        n_neurons: number of neurons of the layer.
        density: probability that a feature is connected to a neuron.
        corrected: whether the readouts correct for the density; otherwise they are the paper's.
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
    """Readout vectors of gates of any fan-in from 2, for a layer with bias -1.

    Args:
        connections: connections of the layer, as in `fan_in_and` with fan-in 2.
        gates: features of each gate.
        density: density of connections, to correct for the mean interference within a gate; 0: the
            paper's readout.

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
    """c(2), ..., c(fan_in): the coefficients of the intersections of each size.

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
    """The expected sum over the intersections of this size, with `on` features on."""
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
