"""The nodes of a circuit, computed: attention by head, MLPs and other mixers, the unembedding.

Each part is computed from the view of the weights where that agrees with the model, which is fast,
and else by the model's own modules (`models.running.layers`), whatever they do. The output of a
head is what it adds to the sum over heads; `Blocks.added` makes of that sum what the layer adds to
the residual stream: with the output bias, and behind a norm where there is one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.wiring import Stage, Wiring
from interp_toolkit.circuits.weights.token_scores import read_through
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.layers import LayerAttention, ModelLayers, Projected, Stream
from interp_toolkit.models.weights.parts import (
    LayerWeights,
    MLPWeights,
    NormWeights,
    OutputWeights,
    affine,
    converted,
    mixed,
    neurons,
    plain_activation,
    projected,
    soft_capped,
)
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights

#: keys and values of every query head at earlier positions
KeysAndValues = tuple[Float[Tensor, "row pos head d_head"], Float[Tensor, "row pos head d_value"]]
#: channel (0: query, 1: key, 2: value), head, and the number of the input that it reads
ReaderInput = tuple[int, int, int]
MOST_AT_ONCE = 2**24  # numbers of a residual stream for which gradients are pulled back at once


@dataclass(frozen=True, eq=False)
class Change:
    """A change of the input of some readers of a stage.

    Attributes:
        readers: their indices among the stage's readers: for attention the query inputs of all
            heads, then the key inputs, then the value inputs; ascending, each once.
        delta: the change of each reader's input.
    """

    readers: Sequence[int]
    delta: Float[Tensor, "n row pos d_model"]


class _Heads(Protocol):
    """How a layer's attention is computed."""

    def projected(self, x: Stream) -> Projected:
        """Queries, keys and values of every query head."""
        ...

    def project(
        self, inputs: Float[Tensor, "n row pos d_model"], readers: Sequence[ReaderInput]
    ) -> list[Float[Tensor, "row pos d_head"]]:
        """Queries, keys or values of some heads, each from one of the inputs."""
        ...

    def z(
        self, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None
    ) -> Float[Tensor, "row pos head d_value"]:
        """The outputs of these heads before the output projection (None: of all)."""
        ...

    def pattern(self, parts: Sequence[Tensor], head: int) -> Float[Tensor, "row query key"]:
        """The attention pattern of one head, from its queries, keys and values."""
        ...

    def pulled_back(
        self, x: Stream, gradients: Sequence[Tensor]
    ) -> Float[Tensor, "reader row pos d_model"]:
        """Gradients at each reader's input, from those at queries, keys and values."""
        ...


class _WeightHeads:
    """Attention from the weights, at positions behind those of keys and values already made.

    Query heads that share keys and values have them computed once.
    """

    def __init__(self, w: LayerWeights):
        self.w = w
        self.before: KeysAndValues | None = None  # the keys `placed`
        self._alike = [_alike(W, b) for W, b in w.projections]
        self._once = [
            (_flat(W[::n]), b[::n]) for (W, b), n in zip(w.projections, self._alike, strict=True)
        ]

    def behind(self, k: Tensor, v: Tensor) -> _WeightHeads:
        """The same heads at the positions behind these keys and values."""
        return self._with((self.w.placed(k, self.w.k_norm, k.shape[1]), v))

    def at(self, rows: slice) -> _WeightHeads:
        """The same heads for some of the rows of what `behind` was given."""
        return self._with(self.before and (self.before[0][rows], self.before[1][rows]))

    def _with(self, before: KeysAndValues | None) -> _WeightHeads:
        later = copy.copy(self)
        later.before = before
        return later

    def projected(self, x: Stream) -> Projected:
        x = self.w.norm(x)
        made = (projected(x, W, b) for W, b in self._once)
        q, k, v = (
            part if n == 1 else part.repeat_interleave(n, 2)
            for part, n in zip(made, self._alike, strict=True)
        )
        return q, k, v

    def project(self, inputs: Tensor, readers: Sequence[ReaderInput]) -> list[Tensor]:
        x, made = self.w.norm(inputs), dict[ReaderInput, Tensor]()
        parts = []
        for channel, head, number in readers:
            first = head - head % self._alike[channel]
            if (part := made.get((channel, first, number))) is None:
                W, b = self.w.projections[channel]
                part = made[channel, first, number] = affine(x[number], W[first], b[first])
            parts.append(part)
        return parts

    def z(self, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None) -> Tensor:
        n_before = 0 if self.before is None else self.before[0].shape[1]
        n_pos = n_before + k.shape[1]
        q, k = self.w.placed(q, self.w.q_norm, n_pos), self.w.placed(k, self.w.k_norm, n_pos)
        if self.before is not None:
            earlier = (part if heads is None else part[:, :, heads] for part in self.before)
            k, v = (torch.cat([a, b], 1) for a, b in zip(earlier, (k, v), strict=True))
        return mixed(self.w.pattern(self.w.scores_of(q, k, heads), heads), v)

    def pattern(self, parts: Sequence[Tensor], head: int) -> Tensor:
        q, k, _ = parts
        return self.w.pattern(self.w.scores(q, k, [head]), [head])[:, 0]

    def pulled_back(self, x: Stream, gradients: Sequence[Tensor]) -> Tensor:
        norm, parts = self.w.norm, []
        unit = norm.bare(x)
        for gradient, (W, _) in zip(gradients, self.w.projections, strict=True):
            W = read_through(norm, W)
            gradient = gradient / norm.scale(x)[..., None, None]
            back = torch.einsum("bphd,hmd->hbpm", gradient, W)
            if norm.kind is not None:
                along = (gradient * projected(unit, W)).sum(-1) / x.shape[-1]
                back.addcmul_(along.movedim(-1, 0)[..., None], unit, value=-1)
            parts.append(back)
        return torch.cat(parts)


class _ModuleHeads:
    """Attention by the model's own module."""

    def __init__(self, attention: LayerAttention):
        self._attention, self._n_heads = attention, attention.layers.n_heads

    def projected(self, x: Stream) -> Projected:
        q, k, v = (at_least_single(part) for part in self._attention.projected(x))
        return q, k, v

    def project(self, inputs: Tensor, readers: Sequence[ReaderInput]) -> list[Tensor]:
        every = [part.chunk(len(inputs)) for part in self.projected(inputs.flatten(0, 1))]
        return [every[channel][number][:, :, head] for channel, head, number in readers]

    def z(self, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None) -> Tensor:
        if heads is None:
            return at_least_single(self._attention.z(q, k, v))
        z = self._attention.z(*self._among_all((q, k, v), heads))
        return at_least_single(z[:, :, heads])

    def _among_all(self, parts: Sequence[Tensor], heads: list[int]) -> Projected:
        """Queries, keys and values of some heads, with zeros for the others."""
        every = [x.new_zeros(*x.shape[:2], self._n_heads, x.shape[3]) for x in parts]
        at = torch.tensor(heads, device=parts[0].device)
        q, k, v = (whole.index_copy(2, at, x) for whole, x in zip(every, parts, strict=True))
        return q, k, v

    def pattern(self, parts: Sequence[Tensor], head: int) -> Tensor:
        return at_least_single(self._attention.pattern(*self._among_all(parts, [head]), head))

    def pulled_back(self, x: Stream, gradients: Sequence[Tensor]) -> Tensor:
        at_once = max(1, MOST_AT_ONCE // x.numel())
        parts = []
        for channel, gradient in enumerate(gradients):
            for some in torch.split(torch.arange(self._n_heads), at_once):
                with torch.enable_grad():
                    copies = x.detach().expand(len(some), *x.shape).clone().requires_grad_()
                    each = [(channel, head, i) for i, head in enumerate(some.tolist())]
                    read = torch.stack(self.project(copies, each), 2)
                    parts.append(torch.autograd.grad(read, copies, gradient[:, :, some])[0])
        return torch.cat(parts)


class Blocks:
    """The nodes' computations.

    Raises InputError for layers that normalize the residual stream behind each addition (BERT), and
    for a part that neither the weights nor the modules give.

    Args:
        model: the model.
        view: its weights.
        by_modules: whether to leave the view of the weights aside.
        whole: layer -> why its attention is taken as one node.

    Attributes:
        view: the view of the weights.
        d_vocab: number of logits.
        normed: layers with a norm behind the sum over heads.
        whole: layer -> why its attention is one node, `x{layer}`, instead of heads.
        wiring: the nodes and edges.
    """

    def __init__(
        self,
        model: Any,
        view: ModelWeights | None = None,
        *,
        by_modules: bool = False,
        whole: Mapping[int, str] | None = None,
    ):
        view = weights(model) if view is None else view
        self._model, self.view, self.whole = model, view, dict(whole or {})
        self.by_modules = by_modules
        self.d_vocab = int(getattr(model.cfg, "d_vocab_out", 0) or view.d_vocab)
        self._heads: dict[int, _Heads] = {}
        self._out: dict[int, OutputWeights] = {}
        self._mlps: dict[int, MLPWeights] = {}
        layers = range(view.n_layers)
        for layer in layers:
            self._read_attention(layer, view, None if by_modules else _layer(view, layer))
        self.wiring = Wiring(
            n_layers=view.n_layers,
            n_heads=view.n_heads,
            d_model=view.d_model,
            mlps=tuple(self._read_mlp(layer, None if by_modules else view) for layer in layers),
            parallel=bool(getattr(model.cfg, "parallel_attn_mlp", False)),
            mixers=frozenset(layers) - self._heads.keys(),
            beside=frozenset(layer for layer in self._heads if self._mixer_beside(layer)),
            whole=self.whole,
        )
        self.normed = {n for n, w in self._out.items() if w.post_norm.kind is not None}
        self._unembed = None if by_modules else _unembedding(view)

    def sequential(self, n_pos: int) -> bool:
        """Whether positions can be computed behind others: all by weights, attention causal."""
        of_weights = [h for h in self._heads.values() if isinstance(h, _WeightHeads)]
        return (
            len(of_weights) == self.wiring.n_layers
            and len(self._mlps) == sum(self.wiring.mlps)
            and not any(bool(h.w.visible(n_pos).triu(1).any()) for h in of_weights)
        )

    def behind(self, before: Mapping[int, KeysAndValues]) -> Blocks:
        """The same nodes at the positions behind those of these keys and values, by layer."""
        later = copy.copy(self)
        later._heads = {
            layer: heads.behind(*before[layer])
            for layer, heads in self._heads.items()
            if isinstance(heads, _WeightHeads)
        }
        return later

    def at(self, rows: slice) -> Blocks:
        """The same nodes for some of the rows of what `behind` was given."""
        some = copy.copy(self)
        some._heads = {
            layer: heads.at(rows)
            for layer, heads in self._heads.items()
            if isinstance(heads, _WeightHeads)
        }
        return some

    def among(self, tokens: Int[Tensor, " token"]) -> Blocks | None:
        """The same nodes with the logits of these tokens alone; None where modules make logits."""
        if self._unembed is None:
            return None
        some, at = copy.copy(self), tokens.to(self._unembed.W_U.device)
        some._unembed = replace(
            self._unembed, W_U=self._unembed.W_U[:, at], b_U=self._unembed.b_U[at]
        )
        some.d_vocab = len(at)
        return some

    @cached_property
    def _layers(self) -> ModelLayers:
        """The model's layers by its own modules, where a part needs them."""
        return ModelLayers(self._model)

    def _read_attention(self, layer: int, view: ModelWeights, w: LayerWeights | None) -> None:
        if w is not None and layer not in self.whole:
            self._heads[layer], self._out[layer] = _WeightHeads(w), w
            _refuse_residual_norm(w, layer)
        elif not self._layers.parts(layer).apart:
            reason = "nothing between its attention and its MLP is shown"
            self.whole.setdefault(layer, reason)
        elif self._layers.parts(layer).heads and layer not in self.whole:
            try:
                out = _wide(view.outputs(layer))
                _refuse_residual_norm(out, layer)
                if self._layers.parts(layer).factor is None:
                    raise InputError(f"layer {layer} does not add its heads' outputs as they are")
                self._heads[layer] = _ModuleHeads(self._layers.attention(layer))
            except _NotAddedError:
                raise
            except InputError as error:
                self.whole[layer] = str(error)
            else:
                self._out[layer] = out

    def _mixer_beside(self, layer: int) -> bool:
        """Whether something else in a layer with heads moves information between positions."""
        by_modules = isinstance(self._heads[layer], _ModuleHeads)
        return by_modules and self._layers.parts(layer).mixer

    def _read_mlp(self, layer: int, view: ModelWeights | None) -> bool:
        """Whether a layer has an MLP; its weights are kept where the view gives them."""
        if view is not None and layer in self._heads:
            with suppress(InputError):
                mlp = view.mlp(layer)
                if mlp is None:
                    return False
                if plain_activation(mlp.act_fn) is not None:
                    self._mlps[layer] = _wide(mlp)
                    return True
        parts = self._layers.parts(layer)
        return parts.mlp and parts.apart

    @property
    def widest_mlp(self) -> int:
        """Numbers per position inside the widest MLP."""
        cfg = self._model.cfg
        inside = [w.W_in.shape[1] for w in self._mlps.values()]
        if len(inside) < sum(self.wiring.mlps):
            at_once = int(getattr(cfg, "experts_per_token", None) or 1)
            inside.append(at_once * int(getattr(cfg, "d_mlp", None) or 4 * self.wiring.d_model))
        return max(inside, default=0)

    def projected(self, layer: int, x: Stream) -> Projected:
        """Queries, keys and values of every head, with nothing added."""
        return self._heads[layer].projected(x)

    def project(
        self, layer: int, inputs: Float[Tensor, "n row pos d_model"], readers: Sequence[ReaderInput]
    ) -> list[Float[Tensor, "row pos d_head"]]:
        """Queries, keys or values of some heads, each from one of the inputs."""
        return self._heads[layer].project(inputs, readers)

    def heads(
        self, layer: int, x: Stream, plain: Projected, change: Change | None, *, apart: bool
    ) -> Float[Tensor, "node row pos d_model"]:
        """The output of each head, before what the layer does with their sum.

        Args:
            layer: the layer.
            x: the residual stream that the layer reads.
            plain: `projected(layer, x)`.
            change: the change of x for some readers.
            apart: whether to keep the heads apart; False: their sum.
        """
        q, k, v = plain if change is None else self._altered(layer, x, plain, change)
        if apart:
            return self.attend(layer, q, k, v)
        z = self._heads[layer].z(q, k, v, None)
        return (z.flatten(-2) @ self._out[layer].W_O.flatten(0, 1))[None]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, heads: list[int] | None = None
    ) -> Float[Tensor, "head row pos d_model"]:
        """Outputs of the given heads from their queries, keys and values (None: all heads)."""
        z, W_O = self._heads[layer].z(q, k, v, heads), self._out[layer].W_O
        W_O = W_O if heads is None else W_O[heads]
        return torch.bmm(z.flatten(0, 1).transpose(0, 1), W_O).reshape(
            -1, *z.shape[:2], W_O.shape[2]
        )

    def pattern(
        self, layer: int, parts: Sequence[Tensor], head: int
    ) -> Float[Tensor, "row query key"]:
        """The attention pattern of one head, from its queries, keys and values."""
        return self._heads[layer].pattern(parts, head)

    def pulled_back(self, layer: int, x: Stream, gradients: Sequence[Tensor]) -> Tensor:
        """Gradients at each reader's input, from those at queries, keys and values."""
        return self._heads[layer].pulled_back(x, gradients)

    def added(
        self, layer: int, summed: Float[Tensor, "*row pos d_model"]
    ) -> Float[Tensor, "*row pos d_model"]:
        """What an attention layer adds to the residual stream, for a sum over its heads."""
        w = self._out[layer]
        return w.post_norm(summed + w.b_O)

    def _altered(self, layer: int, x: Stream, plain: Projected, change: Change) -> Projected:
        """The projections, with those of the changed readers made again."""
        n = self.wiring.n_heads
        readers = [(*divmod(reader, n), i) for i, reader in enumerate(change.readers)]
        again = self.project(layer, x + change.delta, readers)
        altered = [
            out.clone() if any(of[0] == c for of in readers) else out for c, out in enumerate(plain)
        ]
        for (channel, head, _), part in zip(readers, again, strict=True):
            altered[channel][:, :, head] = part
        q, k, v = altered
        return q, k, v

    def node(self, stage: Stage, x: Stream, change: Change | None) -> Stream:
        """The output of an MLP, its output bias included, or of a layer's mixer."""
        x = x if change is None else x + change.delta[0]
        if stage.kind == "mixer":
            whole = stage.layer in self.whole
            return at_least_single(self._layers.mixed(stage.layer, x, heads=whole))
        w = self._mlps.get(stage.layer)
        if w is None:
            return at_least_single(self._layers.mlp(stage.layer, x))
        return w.post_norm(affine(neurons(w, w.norm(x)), w.W_out, w.b_out))

    def largest_logit(self, x: Stream) -> float:
        """An upper bound of the size of any logit, without biases and before cancellation."""
        if self._unembed is None:
            return 0.0
        read = torch.linalg.vector_norm(self._unembed.norm(x), dim=-1).max()
        return float(read * torch.linalg.vector_norm(self._unembed.W_U, dim=0).max())

    def unembed(self, x: Stream) -> Float[Tensor, "row pos d_vocab"]:
        """The logits."""
        if self._unembed is None:
            return at_least_single(self._layers.logits(x))
        w = self._unembed
        return soft_capped(w.norm(x) @ w.W_U + w.b_U, w.cap)


def _alike(W: Float[Tensor, "head d_model d_head"], b: Float[Tensor, "head d_head"]) -> int:
    """How many heads in a row have the same weights, everywhere."""
    n_heads = len(W)
    for n in range(n_heads, 1, -1):
        if n_heads % n == 0 and all(
            torch.equal(of.reshape(-1, n, *of.shape[1:])[:, i], of[::n])
            for of in (b, W)
            for i in range(1, n)
        ):
            return n
    return 1


def _flat(W: Float[Tensor, "head d_model d_head"]) -> Float[Tensor, "head d_model d_head"]:
    """The same weights, in memory as one matrix [d_model, head times d_head] or its transpose."""
    return W.transpose(0, 1).flatten(1).reshape(W.shape[1], len(W), -1).transpose(0, 1)


class _NotAddedError(InputError):
    """The residual stream is not a sum of the nodes' outputs."""


def _refuse_residual_norm(w: OutputWeights, layer: int) -> None:
    if w.residual_norm.kind is not None:
        raise _NotAddedError(
            f"layer {layer} normalizes the residual stream after each addition, so a node's "
            "input is not the sum of earlier outputs and edges cannot be ablated"
        )


def _layer(view: ModelWeights, layer: int) -> LayerWeights | None:
    """A layer's weights; None if they are not all that its heads compute with."""
    try:
        w: LayerWeights = _wide(view.layer(layer))
    except InputError:
        return None
    # a norm over all heads; a gate that is no weight; a latent that all heads read
    if w.joint or w.gated or w.kv_latent is not None:
        return None
    return w if w.rotary is None else replace(w, rotary=w.rotary.cached())


@dataclass(frozen=True, eq=False)
class _Unembedding:
    norm: NormWeights
    W_U: Tensor
    b_U: Tensor
    cap: float | None


def _unembedding(view: ModelWeights) -> _Unembedding | None:
    """The unembedding's weights; None if the view does not give them."""
    try:
        W_U, b_U = _wide_tensor(view.W_U), _wide_tensor(view.b_U)
        return _Unembedding(_wide(view.final_norm), W_U, b_U, view.logit_soft_cap)
    except InputError:
        return None


def _wide(parts: Any) -> Any:
    """The same weights in float32 or float64: sums over edges lose too much in half precision."""
    return converted(parts, _wide_tensor)


def _wide_tensor(values: Tensor) -> Tensor:
    """The values detached, in at least single precision."""
    return at_least_single(values).detach()
