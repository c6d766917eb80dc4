"""Layers of boolean functions, one after another, as a transformer with one block a layer.

The residual stream holds the input of every layer side by side, and the last layer's readoffs. The
first head adds up the f-vectors of the row of tokens at its last position (see `layers.layer`);
after that no head writes anything. Each MLP reads its layer's axes and writes the next one's. Where
functions weigh features themselves, two ReLU neurons for each axis, for x and -x, pass them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.boolean_readoffs import FunctionReadoffs
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer, adding_model


@torch.no_grad()
def stacked_model(
    layers: Sequence[FeatureLayer],
    readoffs: Sequence[FunctionReadoffs],
    most_on: int,
    name: str,
) -> Transformer:
    """The layers as a model (see the module), in float64; its logits are the last readoffs.

    Args:
        layers: each reads the f-vectors of the functions before it.
        readoffs: of each layer's functions.
        most_on: the largest number of features that are on together.
        name: of the model.

    Raises:
        InputError: layers that do not follow each other, or are no ReLU layers; no features that
            are on together.
    """
    n_out = len(readoffs[-1].constant)
    widths = [len(layer.features) for layer in layers[1:]]
    if widths != [len(r.constant) for r in readoffs[:-1]]:
        raise InputError("each layer must read as many features as the one before has functions")
    if any(layer.activation != "relu" for layer in layers):
        raise InputError("only ReLU layers can be stacked")
    targets = [layer.features for layer in layers[1:]]
    targets.append(torch.eye(n_out, dtype=torch.float64))
    blocks = [_mlp(*parts) for parts in zip(layers, readoffs, targets, strict=True)]
    starts = list(accumulate((layer.features.shape[1] for layer in layers), initial=0))
    widest = max(len(b_in) for _, b_in, _, _ in blocks)
    first, n_layers = layers[0].features, len(blocks)
    model = adding_model(first, most_on, n_out, starts[-1], widest, name, n_layers=n_layers)
    ends = [*starts[1:], starts[-1] + n_out]
    for block, (W_in, b_in, W_out, b_out), start, end, stop in zip(
        model.blocks, blocks, starts, starts[1:], ends[1:], strict=False
    ):
        n_neurons = len(b_in)
        block.mlp.W_in[start:end, :n_neurons] = W_in
        block.mlp.b_in[:n_neurons] = b_in
        block.mlp.W_out[:n_neurons, end:stop] = W_out
        block.mlp.b_out[end:stop] = b_out
    model.eval()
    return model


def _mlp(
    layer: FeatureLayer, readoffs: FunctionReadoffs, target: Float[Tensor, "function d_out"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_in, b_in, W_out, b_out of the block that writes each function along its target."""
    W_in, b_in, W_out = layer.W_in, layer.b_in, readoffs.neurons.T @ target
    if readoffs.features.any():
        axes = torch.eye(layer.features.shape[1], dtype=torch.float64)
        passed = layer.features.T @ readoffs.features.T @ target
        W_in = torch.cat([W_in, axes, -axes], dim=1)
        b_in = torch.cat([b_in, torch.zeros(2 * len(axes), dtype=torch.float64)])
        W_out = torch.cat([W_out, passed, -passed])
    return W_in, b_in, W_out, readoffs.constant @ target
