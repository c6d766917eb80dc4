"""The constructions at sizes that build at once, as `toy:uand` and its like.

Each has `.ground_truth` (see `layers.gate_model.GatesGroundTruth`), and reads rows of tokens made
by `data.composites` with the task record's sizes.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch

from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.superposition.constructions.superposed import superposed_and
from interp_toolkit.toys.superposition.constructions.targeted import targeted_gates
from interp_toolkit.toys.superposition.constructions.uand import (
    UniversalAND,
    and_layer,
    universal_and,
)
from interp_toolkit.toys.superposition.layers.gates import random_gates

SOURCE = "Computation in superposition, sections 1.1 to 1.3"
MOST_ON = 3

N_FEATURES, N_NEURONS = 32, 1_024
N_SUPERPOSED, D_SUPERPOSED, N_SUPERPOSED_NEURONS = 72, 64, 2_048
N_TARGETED, D_TARGETED, N_TARGETED_NEURONS, N_TARGETS, NEURONS_PER_GATE = 256, 128, 256, 64, 4
TARGETS = random_gates(N_TARGETED, N_TARGETS)


def uand() -> Transformer:
    """Universal AND on 32 features, 1,024 neurons; it writes (0, 1), (2, 3), ... (14, 15).

    Its own readoffs are better than affine ones in the worst case with two features on, not with
    three; readoffs fitted to its neurons are with three (`--probe uand`).
    """
    return universal_and(N_FEATURES, N_NEURONS).as_model(MOST_ON, name="uand")


def uand_superposed() -> Transformer:
    """Universal AND on 72 features on 64 axes, 2,048 neurons.

    So small, the interference makes its own readoffs worse than affine ones in the worst case.
    """
    built = superposed_and(N_SUPERPOSED, D_SUPERPOSED, N_SUPERPOSED_NEURONS)
    return built.as_model(MOST_ON, name="uand-superposed")


def uand_targeted() -> Transformer:
    """64 random pairs of 256 features on 128 axes, by 256 neurons, 4 a pair; it writes them all."""
    built = targeted_gates(TARGETS, N_TARGETED, N_TARGETED_NEURONS, NEURONS_PER_GATE, D_TARGETED)
    return built.as_model(MOST_ON)


def pairs_and_triples(n_features: int) -> UniversalAND:
    """A layer with one neuron for every pair of features and one for every triple, pairs first.

    A pair has m - 1 neurons, its own and m - 2 triples', and shares one with each third feature, so
    that every t is 1/(m-1): with at most l on, the worst error is (l-1)/(m-1), and
    (l-1)/(2(m-1)) after the best gain and bias (both on: at most (l-2)/(m-1) above 1).
    """
    sets = [s for size in (2, 3) for s in combinations(range(n_features), size)]
    connections = torch.zeros(n_features, len(sets), dtype=torch.bool)
    for neuron, members in enumerate(sets):
        connections[list(members), neuron] = True
    layer = and_layer(connections, torch.eye(n_features, dtype=torch.float64))
    density = float(connections.double().mean())
    return UniversalAND(layer, connections, density, "by hand", seed=0)


def _task(name: str, n_features: int, **further: Any) -> dict[str, Any]:
    sizes = {"n_features": n_features, "most_on": MOST_ON}
    return {"function": "uand", **sizes, "name": name, **further}


UAND = Toy(
    "uand",
    "a ReLU layer that computes the AND of every pair of 32 features",
    uand,
    _task("uand", N_FEATURES),
    SOURCE,
)
UAND_SUPERPOSED = Toy(
    "uand-superposed",
    "the same with 72 features on 64 axes",
    uand_superposed,
    _task("uand-superposed", N_SUPERPOSED),
    SOURCE,
)
UAND_TARGETED = Toy(
    "uand-targeted",
    "a ReLU layer that computes 64 chosen ANDs of 256 features on 128 axes",
    uand_targeted,
    _task("uand-targeted", N_TARGETED, gates=[list(gate) for gate in TARGETS]),
    SOURCE,
)
