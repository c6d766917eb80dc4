"""What each head adds to a score of the residual stream at a position: `z @ W_O`, head by head.

The sum over heads plus `b_O` is the layer's attention output, and this is checked against the
model's own on every batch. Where a norm stands behind the sum (Gemma 2), heads do not add up and
nothing is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import ActivationBatch, activations
from interp_toolkit.models.weights.parts import OVWeights
from interp_toolkit.models.weights.precision import agrees
from interp_toolkit.models.weights.view import ModelWeights, weights


def head_scores(
    model: Model,
    data: Any,
    layers: Sequence[int],
    direction: Float[np.ndarray, " d_model"],
    position: int | None = None,
    *,
    memory: int | str | None = None,
) -> Float[np.ndarray, "n layer head"]:
    """What each head adds to a linear score of the residual stream, several layers in one pass.

    Args:
        model: any TransformerLens model.
        data: as `activations` takes it.
        layers: which layers.
        direction: the score is `direction · residual`.
        position: of every row; None: the data's own, or the last.
        memory: bound for the run, as `activations` takes it.

    Raises:
        InputError: as `activations` and `weights` do, and when the heads' outputs do not sum to
            the layer's.
    """
    view = weights(model)
    parts = {layer: _additive(view, layer) for layer in layers}
    hooks = [hook for layer in layers for hook in _hooks(layer)]
    n_rows = len(getattr(data, "tokens", data))
    scores = np.empty((n_rows, len(parts), view.n_heads))
    for batch in activations(model, data, hooks, position, memory=memory):
        rows = batch.index.numpy()
        for j, (layer, w) in enumerate(parts.items()):
            written = _written(batch, w, layer)
            scores[rows, j] = written.double().cpu().numpy() @ direction
    return scores


def _hooks(layer: int) -> list[str]:
    return [f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_attn_out"]


def _additive(view: ModelWeights, layer: int) -> OVWeights:
    """The layer's weights; InputError where its heads do not add up."""
    w = view.ov(layer)
    if not w.additive:
        where = (
            "sum over its heads" if w.residual_norm.kind is None else "residual stream it adds to"
        )
        raise InputError(
            f"layer {layer} normalises the {where}, so what one head writes is not defined"
        )
    return w


def _written(
    batch: ActivationBatch, w: OVWeights, layer: int
) -> Float[Tensor, "batch head d_model"]:
    z, out = (batch[hook] for hook in _hooks(layer))
    written = torch.einsum("nhd,hdm->nhm", z.to(w.W_O), w.W_O)
    _check_sum(written.sum(1) + w.b_O, out, layer)
    return written


def _check_sum(ours: Tensor, theirs: Tensor, layer: int) -> None:
    if not agrees(ours, theirs):
        raise InputError(f"the heads of layer {layer} do not sum to its attention output")
