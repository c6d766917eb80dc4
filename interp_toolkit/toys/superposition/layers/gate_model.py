"""A layer of gates as a model, with what is known about it: gates, connections, worst errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief
from interp_toolkit.models.about.record import ModelRecord, plain_config, set_record
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gates import Gate
from interp_toolkit.toys.superposition.layers.layer import (
    HOOK,
    FeatureLayer,
    layer_model,
    layer_task,
)

#: the most bytes that a construction's weights or its readoffs may take
MOST_BYTES = 2**31
SPREAD_STEPS = 50


@dataclass(frozen=True, eq=False)
class GatesGroundTruth(Brief):
    """The ground truth of a model of a layer of gates.

    Attributes:
        hook: where its neurons are.
        n_features: features of its inputs.
        most_on: how many of them are on together, at most.
        gates: in the order of the logits; logit g is the readoff of gate g.
        connections: which features each neuron was made to read; None where neurons read axes.
        readoffs: of the gates, from the neurons.
        worst: each gate's worst |logit - AND| over all inputs; None where only sampling can tell.
    """

    hook: str
    n_features: int
    most_on: int
    gates: tuple[Gate, ...]
    connections: Bool[np.ndarray, "feature neuron"] | None
    readoffs: Float[np.ndarray, "gate neuron"]
    worst: Float[np.ndarray, " gate"] | None


def gate_model(
    layer: FeatureLayer,
    readoffs: Float[Tensor, "gate neuron"],
    gates: Sequence[Gate],
    connections: Bool[Tensor, "feature neuron"] | None,
    most_on: int,
    name: str,
    worst: Float[np.ndarray, " gate"] | None = None,
    *,
    about: Sequence[Gate] = (),
) -> Transformer:
    """The layer as a model (see `layer`), with `.ground_truth` and a task record.

    `about` are gates that sampled inputs should turn on, where uniform ones hardly would.

    Raises InputError where so few features are on together that a gate is never true.
    """
    fan_in = max(map(len, gates), default=0)
    if most_on < fan_in:
        raise InputError(
            f"with at most {most_on} features on a gate of {fan_in} is never true: "
            f"give most_on = {fan_in} or more"
        )
    model = layer_model(layer, readoffs, most_on, name)
    model.eval()
    model.ground_truth = GatesGroundTruth(
        hook=HOOK,
        n_features=len(layer.features),
        most_on=most_on,
        gates=tuple(gates),
        connections=None if connections is None else connections.numpy(),
        readoffs=readoffs.numpy(),
        worst=worst,
    )
    further = {"gates": [list(gate) for gate in about]} if about else {}
    task = layer_task(layer, most_on, name=name, **further)
    set_record(model, ModelRecord(name, "live", config=plain_config(model.cfg), task=task))
    return model


def mean_readoffs(neurons: Bool[Tensor, "gate neuron"]) -> Float[Tensor, "gate neuron"]:
    """The mean over each gate's neurons; zero for a gate without any."""
    counts = neurons.sum(dim=1, keepdim=True).clamp(min=1)
    return neurons.double() / counts


def random_unit_features(
    n_features: int, d_in: int, generator: torch.Generator
) -> Float[Tensor, "feature d_in"]:
    """Random f-vectors of length 1, one a row."""
    check_bytes(n_features, d_in, "f-vectors")
    directions = torch.randn(n_features, d_in, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(directions, dim=1)


def spread_features(
    n_features: int, d_in: int, generator: torch.Generator
) -> Float[Tensor, "feature d_in"]:
    """F-vectors of length 1 that interfere less than random ones: a nearly tight frame.

    From random ones, the rows are made of one length and the columns orthonormal in turn; the mean
    square of inner products comes to (m - d) / (d (m - 1)), the least there is (Welch), not 1/d.

    Raises InputError for more axes than features.
    """
    if d_in > n_features:
        raise InputError(f"{n_features} features can be spread over as many axes, not {d_in}")
    vectors = random_unit_features(n_features, d_in, generator)
    for _ in range(SPREAD_STEPS):
        U, _, V = torch.linalg.svd(vectors, full_matrices=False)
        vectors = torch.nn.functional.normalize(U @ V, dim=1)
    return vectors


def own_axes(n_features: int) -> Float[Tensor, "feature d_in"]:
    """F-vectors with an axis each; InputError where they do not fit."""
    check_bytes(n_features, n_features, "features with an axis each")
    return torch.eye(n_features, dtype=torch.float64)


def check_bytes(rows: int, columns: int, what: str) -> None:
    """Raise InputError where so many numbers are too many, or are none at all."""
    if rows < 1 or columns < 1:
        raise InputError(f"{what} of {rows} x {columns}: give sizes of at least 1")
    if 8 * rows * columns > MOST_BYTES:
        raise InputError(
            f"{what} of {rows:,} x {columns:,} take {8 * rows * columns / 2**30:.1f} GiB, more "
            f"than {MOST_BYTES / 2**30:.0f}: ask for less at once"
        )
