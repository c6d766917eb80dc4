"""Contributions of each head and every other component to the residual stream at a position.

A head adds `z @ W_O`. The sum over heads plus `b_O` is the layer's attention output, and this is
checked against the model's own on every batch. If a norm follows the sum (Gemma 2), heads are not
additive, and InputError is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import ActivationBatch, activations
from interp_toolkit.models.weights.parts import OVWeights
from interp_toolkit.models.weights.precision import agrees
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name


def head_scores(
    model: Model,
    data: Any,
    layers: Sequence[int],
    direction: Float[np.ndarray, " d_model"],
    position: int | None = None,
    *,
    memory: int | str | None = None,
) -> Float[np.ndarray, "n layer head"]:
    """Each head's contribution to a linear score of the residual stream, for several layers.

    Args:
        model: any TransformerLens model.
        data: prompts, as `activations` takes them.
        layers: indices of the layers.
        direction: the score is `direction · residual`.
        position: position of every row; None: the data's own, or the last.
        memory: bound for the run, as `activations` takes it.

    Raises:
        InputError: from `activations` and `weights`, and if the heads' outputs do not sum to the
            layer's.
    """
    view = weights(model)
    parts = {layer: additive(view, layer) for layer in layers}
    hooks = [hook for layer in layers for hook in head_hooks(layer)]
    n_rows = len(getattr(data, "tokens", data))
    scores = np.empty((n_rows, len(parts), view.n_heads))
    for batch in activations(model, data, hooks, position, memory=memory):
        rows = batch.index.numpy()
        for j, (layer, w) in enumerate(parts.items()):
            written = head_outputs(batch, w, layer)
            scores[rows, j] = written.double().cpu().numpy() @ direction
    return scores


def head_hooks(layer: int) -> list[str]:
    """The hook points that `head_outputs` reads."""
    return [f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_attn_out"]


def additive(view: ModelWeights, layer: int) -> OVWeights:
    """The layer's value and output weights. Raises InputError if its heads are not additive."""
    w = view.ov(layer)
    if not w.additive:
        where = (
            "sum over its heads" if w.residual_norm.kind is None else "residual stream it adds to"
        )
        raise InputError(
            f"layer {layer} normalizes the {where}, so the output of a single head is not defined"
        )
    return w


def head_outputs(
    batch: ActivationBatch, w: OVWeights, layer: int
) -> Float[Tensor, "batch head d_model"]:
    """The contribution of each head of a layer to the residual stream at one position.

    Raises InputError if their sum and `b_O` do not equal the layer's own attention output.
    """
    z, out = (batch[hook] for hook in head_hooks(layer))
    written = torch.einsum("nhd,hdm->nhm", z.to(w.W_O), w.W_O)
    if not agrees(written.sum(1) + w.b_O, out):
        raise InputError(f"the heads of layer {layer} do not sum to its attention output")
    return written


class ResidualPart(NamedTuple):
    """A summand of the residual stream; `kind` is embedding, head, bias or mlp."""

    name: str
    kind: str
    layer: int | None = None
    head: int | None = None


def streams(view: ModelWeights) -> list[str]:
    """The residual stream's hook points: before every layer, and after the last."""
    before = [f"blocks.{layer}.hook_resid_pre" for layer in range(view.n_layers)]
    return [*before, f"blocks.{view.n_layers - 1}.hook_resid_post"]


def part_hooks(view: ModelWeights) -> list[str]:
    """The hook points that `residual_parts` reads; raises InputError if heads are not additive."""
    for layer in range(view.n_layers):
        additive(view, layer)
    return [*streams(view), *(hook for n in range(view.n_layers) for hook in head_hooks(n))]


def residual_parts(
    view: ModelWeights, batch: ActivationBatch, tokens: Int[Tensor, " batch"], *, mlps: bool
) -> Iterator[tuple[ResidualPart, Float[Tensor, "batch d_model"]]]:
    """Every component with its contribution to the residual stream at one position.

    Args:
        view: the model's weights.
        batch: activations at `part_hooks`, one position of every prompt.
        tokens: ids of the tokens at these positions; token and position embeddings are separate
            parts if they are summed without a norm.
        mlps: whether layers have MLPs; their contribution is what remains after attention.

    Raises:
        InputError: heads of a layer are not additive, or the components do not add up.
    """
    names = streams(view)
    embedded, final = batch[names[0]], batch[names[-1]]
    if view.W_pos is None or view.embed_norm.kind is not None or view.token_type is not None:
        parts = {ResidualPart("embedding", "embedding"): embedded}
    else:
        token = view.W_E[tokens.to(view.W_E.device)].to(embedded)
        parts = {ResidualPart("token embedding", "embedding"): token}
        parts[ResidualPart("position embedding", "embedding")] = embedded - token
    yield from parts.items()
    summed = embedded.double()
    for layer in range(view.n_layers):
        w, (_, attention) = additive(view, layer), head_hooks(layer)
        for head, written in enumerate(head_outputs(batch, w, layer).unbind(1)):
            summed = summed + written.double()
            yield ResidualPart(head_name(layer, head), "head", layer, head), written
        if bool(w.b_O.any()):
            summed = summed + w.b_O.double()
            yield ResidualPart(f"attention bias {layer}", "bias", layer), w.b_O.expand_as(embedded)
        if mlps:
            added = batch[names[layer + 1]] - batch[names[layer]] - batch[attention]
            summed = summed + added.double()
            yield ResidualPart(f"MLP {layer}", "mlp", layer), added
    if not agrees(summed, final, final.dtype):
        raise InputError("the components do not sum to the model's residual stream")
