"""Contributions of each head and every other component to the residual stream at a position.

A head adds `z @ W_O`. The sum over heads plus `b_O` is the layer's attention output, and this is
checked against the model's own on every batch. If a norm follows the sum (Gemma 2), a head's
contribution is that of its summand with the norm's scale of the forward pass. A layer without
attention heads (linear attention, convolution, a state-space model) is one component.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.layers import LayerParts, layer_parts
from interp_toolkit.models.running.streaming import ActivationBatch, activations
from interp_toolkit.models.weights.parts import OutputWeights
from interp_toolkit.models.weights.precision import agrees
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name


@torch.no_grad()
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
    parts = {layer: summands(view, layer) for layer in layers}
    hooks = [hook for layer in layers for hook in head_hooks(layer)]
    n_rows = len(getattr(data, "tokens", data))
    scores = np.empty((n_rows, len(parts), view.n_heads))
    for batch in activations(model, data, hooks, position, memory=memory):
        rows = batch.index.numpy()
        for j, (layer, w) in enumerate(parts.items()):
            written, _ = head_outputs(batch, w, layer)
            scores[rows, j] = written.double().cpu().numpy() @ direction
    return scores


def head_hooks(layer: int) -> list[str]:
    """The hook points that `head_outputs` reads."""
    return [f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_attn_out"]


def summands(view: ModelWeights, layer: int) -> OutputWeights:
    """What a layer makes of its heads' outputs.

    Raises InputError if it normalizes the residual stream that it adds to (BERT).
    """
    w = view.outputs(layer)
    if w.residual_norm.kind is not None:
        raise InputError(
            f"layer {layer} normalizes the residual stream it adds to, so the output of a single "
            "head is not defined"
        )
    return w


def head_outputs(
    batch: ActivationBatch, w: OutputWeights, layer: int
) -> tuple[Float[Tensor, "batch head d_model"], Float[Tensor, "batch d_model"]]:
    """What each head of a layer adds to the residual stream at one position, and its biases.

    Raises InputError if their sum does not equal the layer's own attention output.
    """
    z, out = (batch[hook] for hook in head_hooks(layer))
    written = torch.einsum("nhd,hdm->nhm", z.to(w.W_O), w.W_O)
    bias = w.b_O.expand_as(written[:, 0])
    if w.post_norm.kind is not None:
        scale = w.post_norm.scale(written.sum(1) + bias).to(written)
        written = w.post_norm.of_part(written, scale[:, None])
        bias = w.post_norm.of_part(bias, scale)
        bias = bias if w.post_norm.b is None else bias + w.post_norm.b
    if not agrees(written.sum(1) + bias, w.factor * out):
        raise InputError(f"the heads of layer {layer} do not sum to its attention output")
    return written, bias


def _middle(parts: LayerParts) -> list[str]:
    """The hook point behind a layer's mixer, if it has one."""
    return [parts.middle] if parts.mixer and parts.middle is not None else []


class ResidualPart(NamedTuple):
    """A summand of the residual stream; `kind` is embedding, head, bias, mixer or mlp."""

    name: str
    kind: str
    layer: int | None = None
    head: int | None = None


class ResidualParts:
    """The components of a model's residual stream.

    Args:
        model: any TransformerLens model.
        view: its weights.

    Attributes:
        streams: the residual stream's hook points: before every layer, and after the last.
        hooks: the hook points that `of` reads.

    Raises:
        InputError: a layer whose parts do not add up.
    """

    def __init__(self, model: Model, view: ModelWeights):
        before = [f"blocks.{layer}.hook_resid_pre" for layer in range(view.n_layers)]
        self.streams = [*before, f"blocks.{view.n_layers - 1}.hook_resid_post"]
        self._view, self._parts = view, layer_parts(model)
        shown = {n: summands(view, n) for n, parts in enumerate(self._parts) if parts.heads}
        self._heads = {n: w for n, w in shown.items() if self._parts[n].factor is not None}
        read = [
            hook
            for n, parts in enumerate(self._parts)
            for hook in [*(head_hooks(n) if n in self._heads else []), *_middle(parts)]
        ]
        self.hooks = list(dict.fromkeys([*self.streams, *read]))

    def of(
        self, batch: ActivationBatch, tokens: Int[Tensor, " batch"]
    ) -> Iterator[tuple[ResidualPart, Float[Tensor, "batch d_model"]]]:
        """Every component with its contribution to the residual stream at one position.

        Args:
            batch: activations at `hooks`, one position of every prompt.
            tokens: ids of the tokens at these positions; token and position embeddings are
                separate parts if they are summed without a norm.

        Raises:
            InputError: the components do not add up.
        """
        streams = [batch[name] for name in self.streams]
        yield from self._embedded(streams[0], tokens)
        summed = streams[0].double()
        for part, written in self._layers(batch, streams):
            summed = summed + written.double()
            yield part, written
        if not agrees(summed, streams[-1], streams[-1].dtype):
            raise InputError("the components do not sum to the model's residual stream")

    def _embedded(
        self, embedded: Tensor, tokens: Tensor
    ) -> Iterator[tuple[ResidualPart, Float[Tensor, "batch d_model"]]]:
        """The embedding, split into token and position where the view knows them."""
        try:
            view = self._view
            whole = view.W_pos is None or view.embed_norm.kind or view.token_type is not None
        except InputError:
            whole = True
        if whole:
            yield ResidualPart("embedding", "embedding"), embedded
            return
        token = view.W_E[tokens.to(view.W_E.device)].to(embedded)
        yield ResidualPart("token embedding", "embedding"), token
        yield ResidualPart("position embedding", "embedding"), embedded - token

    def _layers(
        self, batch: ActivationBatch, streams: Sequence[Tensor]
    ) -> Iterator[tuple[ResidualPart, Float[Tensor, "batch d_model"]]]:
        for layer, (before, after) in enumerate(pairwise(streams)):
            if layer in self._heads:
                outputs, bias = head_outputs(batch, self._heads[layer], layer)
                for head, written in enumerate(outputs.unbind(1)):
                    yield ResidualPart(head_name(layer, head), "head", layer, head), written
                if bool(bias.any()):
                    yield ResidualPart(f"attention bias {layer}", "bias", layer), bias
                before = before + self._heads[layer].factor * batch[head_hooks(layer)[1]]
            for middle in _middle(self._parts[layer]):
                yield ResidualPart(f"Mixer {layer}", "mixer", layer), batch[middle] - before
                before = batch[middle]
            if self._parts[layer].mlp:
                yield ResidualPart(f"MLP {layer}", "mlp", layer), after - before
