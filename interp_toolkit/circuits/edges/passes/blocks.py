"""Outputs of each node of a transformer from its inputs, where readers have different inputs.

The arithmetic of attention, MLP and unembedding on the checked view of the weights, with one
addition: to what a stage reads, something may be added for some of its readers alone (one channel
of one head, say), in front of the norm. Nothing here knows edges; see `patched_pass`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.weights.parts import (
    LayerWeights,
    MLPWeights,
    Parts,
    converted,
    mixed,
    neurons,
    plain_activation,
    projected,
    soft_capped,
)
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import weights

Stream = Float[Tensor, "row pos d_model"]
#: queries, keys and values, before any turn
Projected = tuple[
    Float[Tensor, "row pos head d_head"],
    Float[Tensor, "row pos head d_head"],
    Float[Tensor, "row pos head d_head"],
]


@dataclass(frozen=True, eq=False)
class Change:
    """A change of the input of some readers of a stage.

    Attributes:
        readers: their places among the stage's readers: for attention the query inputs of all
            heads, then the key inputs, then the value inputs; ascending, each once.
        delta: what is added for each.
    """

    readers: Int[Tensor, " n"]
    delta: Float[Tensor, "n row pos d_model"]


class Blocks:
    """The nodes' computations.

    Raises InputError for a part that the view of the weights cannot give, for layers that
    normalise the sum over their heads (Gemma 2) or the residual stream behind each addition
    (BERT), and for an unknown activation function.

    Attributes:
        n_layers, n_heads, d_model: sizes.
        layers: attention weights, at least float32.
        mlps: MLP weights, None where a layer has none.
        W_U: the unembedding.
    """

    def __init__(self, model: Any):
        view = weights(model)
        self.n_layers, self.n_heads, self.d_model = view.n_layers, view.n_heads, view.d_model
        self.layers = [_wide(_additive(view.layer(i), i)) for i in range(view.n_layers)]
        self.mlps = [_usable(view.mlp(i), i) for i in range(view.n_layers)]
        self._final = _wide(view.final_norm)
        self.W_U, self._b_U = _wide_tensor(view.W_U), _wide_tensor(view.b_U)
        self._cap = view.logit_soft_cap

    def projected(self, layer: int, x: Stream) -> Projected:
        """Queries, keys and values of every head, with nothing added."""
        w = self.layers[layer]
        x = w.norm(x)
        q, k, v = (projected(x, W, b) for W, b in w.projections)
        return q, k, v

    def heads(
        self, layer: int, x: Stream, plain: Projected, change: Change | None, *, apart: bool
    ) -> list[Stream]:
        """The output of each head, without the layer's output bias.

        Args:
            layer: which.
            x: the residual stream that the layer reads.
            plain: `projected(layer, x)`.
            change: what is added to x for some readers.
            apart: whether to keep the heads apart; False gives their sum alone.
        """
        w = self.layers[layer]
        q, k, v = plain if change is None else self._altered(w, x, plain, change)
        if apart:
            return list(self.attend(layer, q, k, v).unbind(0))
        z = _attended(w, q, k, v, None)
        return [z.flatten(-2) @ w.W_O.flatten(0, 1)]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None = None
    ) -> Float[Tensor, "head row pos d_model"]:
        """Outputs of the given heads from their queries, keys and values (None: all heads)."""
        w = self.layers[layer]
        z = _attended(w, q, k, v, heads)
        W_O = w.W_O if heads is None else w.W_O[heads]
        return torch.stack([z[:, :, i] @ W for i, W in enumerate(W_O)])

    def project(
        self, layer: int, channel: int, x: Float[Tensor, "n row pos d_model"], heads: list[int]
    ) -> Float[Tensor, "row pos n d_head"]:
        """Queries (channel 0), keys (1) or values (2) of some heads, each from its own input."""
        w = self.layers[layer]
        W, b = w.projections[channel]
        return torch.einsum("nbpm,nmd->bpnd", w.norm(x), W[heads]) + b[heads]

    def _altered(self, w: LayerWeights, x: Stream, plain: Projected, change: Change) -> Projected:
        """The projections, with those of the changed readers made anew."""
        altered = []
        for c, ((W, b), out) in enumerate(zip(w.projections, plain, strict=True)):
            here = (change.readers >= c * len(W)) & (change.readers < (c + 1) * len(W))
            if bool(here.any()):
                heads = change.readers[here] - c * len(W)
                normalized = w.norm(x + change.delta[here])
                normalized = torch.einsum("nbpm,nmd->bpnd", normalized, W[heads]) + b[heads]
                out = out.index_copy(2, heads, normalized)
            altered.append(out)
        q, k, v = altered
        return q, k, v

    def mlp(self, layer: int, x: Stream, change: Change | None) -> Stream:
        """The output of an MLP, its output bias included."""
        w = self.mlps[layer]
        assert w is not None
        x = w.norm(x if change is None else x + change.delta[0])
        return w.post_norm(neurons(w, x) @ w.W_out + w.b_out)

    def largest_logit(self, x: Stream) -> float:
        """An upper bound of the size of any logit (biases aside), whatever cancels in it."""
        read = torch.linalg.vector_norm(self._final(x), dim=-1).max()
        return float(read * torch.linalg.vector_norm(self.W_U, dim=0).max())

    def unembed(self, x: Stream) -> Float[Tensor, "row pos d_vocab"]:
        """The logits."""
        logits = self._final(x) @ self.W_U + self._b_U
        return soft_capped(logits, self._cap)


def _attended(
    w: LayerWeights, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None
) -> Float[Tensor, "row pos head d_head"]:
    return mixed(w.pattern(w.scores(q, k, heads)), v)


def _additive(layer: LayerWeights, number: int) -> LayerWeights:
    if layer.post_norm.kind is not None:
        raise InputError(
            f"layer {number} normalises the sum over its heads, so what one head writes is not "
            "defined and its edges cannot be cut"
        )
    if layer.residual_norm.kind is not None:
        raise InputError(
            f"layer {number} normalises the residual stream behind each addition, so what a node "
            "reads is no sum of what others wrote and edges cannot be cut"
        )
    return layer


def _usable(mlp: MLPWeights | None, number: int) -> MLPWeights | None:
    if mlp is None:
        return None
    if plain_activation(mlp.act_fn) is None:
        raise InputError(
            f"the activation function of layer {number}, {mlp.act_fn}, is none that edges can be "
            "cut in front of"
        )
    return _wide(mlp)


def _wide(parts: Parts) -> Parts:
    """The same weights in float32 or float64: sums over edges lose too much in half precision."""
    return converted(parts, _wide_tensor)


def _wide_tensor(values: Tensor) -> Tensor:
    """A detached copy in float32 or float64."""
    return at_least_single(values).detach()
