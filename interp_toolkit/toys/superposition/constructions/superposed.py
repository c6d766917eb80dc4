"""Universal AND on features in superposition: m > d0 features on d0 axes.

The features are random unit f-vectors, the rows of F, and a neuron reads the sum of the f-vectors
that it is connected to: W = Ŵ F, with Ŵ of 0s and 1s as in `uand`, and the same readoffs. Two
f-vectors have inner products of about 1/sqrt(d0), so that each feature that is on adds noise to all
neurons, of standard deviation sqrt(c/d0) where c = p m features are connected to a neuron. Neurons
misfire where that nears 1, that is, where m is of order d0 / p.

The worst case is not known exactly: ε is sampled (see `layers.sampled`), which gives a lower bound.
Where no density was given and a sample of `N_CHECKED` pairs already has an error of 1, nothing is
built.
Source: "Computation in superposition", section 1.3.
"""

from __future__ import annotations

import math

import torch

from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.uand import (
    Density,
    UniversalAND,
    and_layer,
    draw_connections,
)
from interp_toolkit.toys.superposition.layers.gate_model import random_unit_features
from interp_toolkit.toys.superposition.layers.gates import random_gates

N_CHECKED = 200  # pairs on whose inputs a layer is tried, where no density was given


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

    Noise grows with the density, so the default is the sparsest. A searched density is the best
    without interference, and denser than is good here.

    Args:
        n_features: features.
        d_in: axes of the input.
        n_neurons: the width of the layer.
        density: of connections; None: "sparsest".
        most_on: how many features are on together, where the density is searched for.
        allow_empty: build it although some pairs have no neuron.
        seed: of the connections and the f-vectors.

    Raises:
        InputError: as `universal_and`, where the interference is 1 or more, and, unless a density
            was given, where a readoff is off by 1 or more.
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
            f"{n_neurons:,} neurons cannot be read for the ANDs of {m:,} features on {d_in:,} axes "
            f"with up to {most_on} on: at density {built.density:.2f} a readoff is off by "
            f"{worst:.2f}; take more axes or neurons, or give a density to build it all the same"
        )


def check_interference(per_neuron: float, d_in: int) -> None:
    """Raise InputError where one feature's noise on a neuron is as large as its signal."""
    if d_in < 1:
        raise InputError(f"d_in is {d_in}: the input needs at least one axis")
    noise = math.sqrt(per_neuron / d_in)
    if noise >= 1:
        raise InputError(
            f"neurons misfire: each reads {per_neuron:.1f} features on {d_in} axes, so that any "
            f"feature adds noise of {noise:.2f} where its signal is 1; take fewer features, more "
            "axes or a lower density"
        )
