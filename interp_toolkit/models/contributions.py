"""What each head writes to the residual stream at a position: `z @ W_O`, head by head.

The sum over heads plus `b_O` is the layer's attention output, and this is checked against the
model's own on every batch. Where a norm stands behind the sum (Gemma 2), heads do not add up and
nothing is returned.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.activations import activations
from interp_toolkit.models.weights import ModelWeights, weights


def head_outputs(
    model: Any,
    data: Any,
    layer: int,
    position: int | None = None,
    *,
    view: ModelWeights | None = None,
    memory: int | str | None = None,
) -> Float[Tensor, "n head d_model"]:
    """What each head of a layer writes at one position, on the CPU.

    Args:
        model: any TransformerLens model.
        data: as `activations` takes it.
        layer: which layer.
        position: of every row; None: the data's own, or the last.
        view: `weights(model)`, if it is at hand.
        memory: bound for the run, as `activations` takes it.

    Raises:
        InputError: as `activations` and `weights` do, and when the heads' outputs do not sum to
            the layer's.
    """
    w = (weights(model) if view is None else view).layer(layer)
    if w.post_norm.kind is not None:
        raise InputError(
            f"layer {layer} normalises the sum over its heads, so what one head writes is not "
            "defined"
        )
    hook_z, hook_out = f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_attn_out"
    n_rows = len(getattr(data, "tokens", data))
    out: Tensor | None = None
    for batch in activations(model, data, [hook_z, hook_out], position, memory=memory):
        written = torch.einsum("nhd,hdm->nhm", batch[hook_z].to(w.W_O), w.W_O)
        _check_sum(written.sum(1) + w.b_O, batch[hook_out], layer)
        if out is None:
            out = written.new_empty((n_rows, *written.shape[1:]), device="cpu")
        out[batch.index] = written.cpu()
    assert out is not None
    return out


def _check_sum(ours: Tensor, theirs: Tensor, layer: int) -> None:
    tolerance = math.sqrt(torch.finfo(theirs.dtype).eps)
    difference = (ours.float() - theirs.float()).abs().max()
    if bool(difference > tolerance * theirs.float().abs().max().clamp(min=1e-6)):
        raise InputError(f"the heads of layer {layer} do not sum to its attention output")
