"""The parts of a model's weights: attention layers, MLPs and norms, and how they compute.

`models.weights.view` provides them for every kind of model. `models.weights.check`, `doctor` and
the edge analysis of circuits compute layers with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Model
from interp_toolkit.models.transformer.hooks import SUPPORTED_ACTIVATIONS
from interp_toolkit.models.weights.positions import Alibi, RotaryTables

Direction = Literal["causal", "bidirectional"]


@dataclass(frozen=True, eq=False)
class NormWeights(ShortRepr):
    """A normalization over the last axis: `(x - mean) / sqrt(var + eps) * w + b`.

    Attributes:
        kind: "LN", or "RMS" without the mean; None: no normalization at all.
        w, b: None if the norm has none (folded into later weights, or RMS).
        eps: added to the variance.
    """

    kind: Literal["LN", "RMS"] | None
    w: Float[Tensor, " d_model"] | None = None
    b: Float[Tensor, " d_model"] | None = None
    eps: float = 0.0

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The normalized input."""
        if self.kind is None:
            return x
        dtype = x.dtype
        x = x if dtype in (torch.float32, torch.float64) else x.float()
        if self.kind == "LN":
            x = functional.layer_norm(x, x.shape[-1:], eps=self.eps).to(dtype)
        else:
            size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            x = (x * (size.square() / x.shape[-1] + self.eps).rsqrt()).to(dtype)
        x = x if self.w is None else x * self.w
        return x if self.b is None else x + self.b

    @property
    def bare(self) -> NormWeights:
        """The norm without its weights: centering and division."""
        return NormWeights(self.kind, eps=self.eps)

    def scale(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch"]:
        """The number by which the norm divides each vector."""
        x = x if x.dtype in (torch.float32, torch.float64) else x.float()
        if self.kind is None:
            return torch.ones_like(x[..., 0])
        x = x - x.mean(-1, keepdim=True) if self.kind == "LN" else x
        return (x.square().mean(-1) + self.eps).sqrt()

    def of_part(
        self, part: Float[Tensor, "*batch d_model"], scale: Float[Tensor, "..."]
    ) -> Float[Tensor, "*batch d_model"]:
        """The contribution of a summand, with the sum's scale given; without the bias."""
        if self.kind is None:
            return part
        part = part - part.mean(-1, keepdim=True) if self.kind == "LN" else part
        part = part / scale[..., None]
        return part if self.w is None else part * self.w


@dataclass(frozen=True, eq=False)
class Division(ShortRepr):
    """What queries, keys or values are divided by: one positive number for each vector.

    That is the scale of a norm, of queries or keys themselves, or of a *latent*: in multi-head
    latent attention (DeepSeek-V2, arXiv 2405.04434), keys and values are
    `rms_norm(x @ W) @ up`, and so may queries be. The norm's gain and `up` are then in the weights
    of a `LayerWeights`, and so is a division by `unit`.

    Attributes:
        W, b: weights and bias (None: none) of what is normalized, without the norm's gain.
        norm: the norm, without its weights.
        unit: a divisor that the weights of queries, keys or values contain already. For a latent:
            the root mean square of `x @ W` where coordinates are independent, of variance 1 before
            the gain of the norm in front of attention.
        last: how many of the last coordinates are divided; None: all. A key's rotated coordinates,
            which come first in latent attention, are not.
    """

    W: Float[Tensor, "d_model d"]
    norm: NormWeights
    unit: float = 1.0
    last: int | None = None
    b: Float[Tensor, " d"] | None = None

    def __call__(
        self, out: Float[Tensor, "*vectors d_out"], x: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*vectors d_out"]:
        """Queries, keys or values of `x = norm(residual)`, of one head or of several, divided."""
        scale = (self.norm.scale(affine(x, self.W, self.b)) / self.unit).to(out)
        scale = scale[(..., *[None] * (out.ndim - scale.ndim))]
        if self.last is None:
            return out / scale
        direct, through = out.tensor_split([out.shape[-1] - self.last], dim=-1)
        return torch.cat([direct, through / scale], dim=-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputWeights(ShortRepr):
    """What an attention layer makes of its heads' outputs.

    Attributes:
        W_O, b_O: as in `attn_out = post_norm(sum over heads of z @ W_O, + b_O)`; an absent bias is
            zero, and a multiplier of the branch (Granite) is included.
        post_norm: the norm after the sum over heads (usually kind None).
        residual_norm: the norm after the addition to the residual stream, which then is
            `residual_norm(x + attn_out)` (BERT, with no norm before the layer); usually kind None.
        factor: what the model multiplies `hook_attn_out` with before it adds it (Falcon-H1);
            included in W_O and b_O.
    """

    W_O: Float[Tensor, "head d_head d_model"]
    b_O: Float[Tensor, " d_model"]
    post_norm: NormWeights
    residual_norm: NormWeights = field(default_factory=lambda: NormWeights(None))
    factor: float = 1.0

    @property
    def additive(self) -> bool:
        """Whether head outputs are added to the residual stream unchanged.

        They are not if a norm follows their sum (Gemma 2) or the addition (BERT).
        """
        return self.post_norm.kind is None and self.residual_norm.kind is None

    def written(
        self, z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """Sum of all heads' outputs, before `post_norm`."""
        return torch.einsum("bphd,hdm->bpm", z, self.W_O) + self.b_O


@dataclass(frozen=True, eq=False, kw_only=True)
class OVWeights(OutputWeights):
    """The OV weights of an attention layer, every tensor per query head.

    Attributes:
        W_V, b_V: as in `v = norm(x) @ W_V + b_V`; an absent bias is zero.
        direction: "causal", or "bidirectional": every position sees every other.
        window: number of positions back that a query sees, itself included; None: unlimited.
        norm: the norm before the layer.
        parallel: whether the MLP reads the same residual stream as attention, not its output.
        gated: whether each head's output is multiplied with a gate that its own query input sets
            (Qwen3-Next), which is no weight and is left out here.
        kv_latent: the division by the size of the latent that keys and values are computed from;
            None where they are computed directly.
    """

    W_V: Float[Tensor, "head d_model d_head"]
    b_V: Float[Tensor, "head d_head"]
    direction: Direction
    window: int | None
    norm: NormWeights
    parallel: bool
    gated: bool = False
    kv_latent: Division | None = None

    def values(
        self, x: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Values of every head, for `x = norm(residual)`."""
        v, latent = projected(x, self.W_V, self.b_V), self.value_latent
        return v if latent is None else latent(v, x)

    @property
    def value_latent(self) -> Division | None:
        """`kv_latent` as it divides values: all of their coordinates."""
        return None if self.kv_latent is None else replace(self.kv_latent, last=None)

    def visible(self, n_pos: int) -> Bool[Tensor, "query key"]:
        """The visible keys of each query, [query key] booleans."""
        return visible_pairs(self.direction, self.window, n_pos).to(self.W_V.device)


def projected(
    x: Float[Tensor, "batch pos d_model"],
    W: Float[Tensor, "head d_model d_head"],
    b: Float[Tensor, "head d_head"] | None = None,
) -> Float[Tensor, "batch pos head d_head"]:
    """Queries, keys or values of heads, for `x = norm(residual)`."""
    bias = None if b is None else b.flatten()
    return affine(x, W.transpose(0, 1).flatten(1), bias).reshape(*x.shape[:-1], len(W), -1)


def affine(
    x: Float[Tensor, "*n d_in"], W: Float[Tensor, "d_in d_out"], b: Float[Tensor, " d_out"] | None
) -> Float[Tensor, "*n d_out"]:
    """`x @ W + b`, the bias added within the product."""
    return functional.linear(x, W.T, b)


def mixed(
    pattern: Float[Tensor, "batch head query key"], v: Float[Tensor, "batch key head d_head"]
) -> Float[Tensor, "batch query head d_head"]:
    """Values weighted by the attention pattern (`hook_z`); either may be in half precision."""
    wide = torch.promote_types(pattern.dtype, v.dtype)
    return torch.einsum("bhqk,bkhd->bqhd", pattern.to(wide), v.to(wide))


def soft_capped(x: Tensor, cap: float | None) -> Tensor:
    """`cap * tanh(x / cap)`, as Gemma 2 caps scores and logits; None: no cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


def visible_pairs(
    direction: Direction, window: int | None, n_pos: int
) -> Bool[Tensor, "query key"]:
    """The keys visible to each query, by direction and window (None: unlimited)."""
    back = torch.arange(n_pos)[:, None] - torch.arange(n_pos)
    if direction == "bidirectional":
        return torch.ones_like(back, dtype=torch.bool)
    return (back >= 0) & (back < (window or n_pos))


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerWeights(OVWeights):
    """One attention layer, including queries and keys.

    Attributes:
        W_Q, W_K, b_Q, b_K: as in `q = norm(x) @ W_Q + b_Q`; absent biases are zero. In latent
            attention queries and keys have other sizes than values.
        q_norm, k_norm: norms of queries and keys before they are rotated, of each head
            (Qwen 3, Gemma 3) or, with as many weights as all query heads have coordinates, of all
            heads together (OLMo 2); usually kind None.
        attn_scale: scores are `q · k / attn_scale`.
        soft_cap: scores become `soft_cap * tanh(scores / soft_cap)` (Gemma 2), if not None.
        rotary: rotation of q and k, if not None.
        alibi: bias for distance, added to the scores last, if not None.
        sinks: a score of each head beside those of the keys, which takes attention from them
            (GPT-OSS), if not None.
        q_latent: the same of queries.
    """

    W_Q: Float[Tensor, "head d_model d_qk"]
    W_K: Float[Tensor, "head d_model d_qk"]
    b_Q: Float[Tensor, "head d_qk"]
    b_K: Float[Tensor, "head d_qk"]
    attn_scale: float
    soft_cap: float | None
    rotary: RotaryTables | None
    alibi: Alibi | None = None
    q_norm: NormWeights = field(default_factory=lambda: NormWeights(None))
    k_norm: NormWeights = field(default_factory=lambda: NormWeights(None))
    sinks: Float[Tensor, "head"] | None = None
    q_latent: Division | None = None

    def queries_and_keys(
        self, x: Float[Tensor, "batch pos d_model"]
    ) -> tuple[Float[Tensor, "batch pos head d_head"], Float[Tensor, "batch pos head d_head"]]:
        """Queries and keys of every head, for `x = norm(residual)`, not rotated."""
        q, k = projected(x, self.W_Q, self.b_Q), projected(x, self.W_K, self.b_K)
        q = q if self.q_latent is None else self.q_latent(q, x)
        return q, k if self.kv_latent is None else self.kv_latent(k, x)

    @property
    def joint(self) -> bool:
        """Whether a norm of queries or keys is over all heads together."""
        d_head = self.W_Q.shape[-1]
        return any(n.w is not None and len(n.w) > d_head for n in (self.q_norm, self.k_norm))

    def folded(self) -> LayerWeights:
        """The same layer with the gains of query and key norms in its weights.

        Scores are then up to two positive factors, the norms' scales for this query and this key.
        Those of latents, which divide only a key's unrotated coordinates, stay in `kv_latent`.
        """
        none = NormWeights(None)
        W_Q, b_Q = _folded(self.W_Q, self.b_Q, self.q_norm)
        W_K, b_K = _folded(self.W_K, self.b_K, self.k_norm)
        return replace(self, W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, q_norm=none, k_norm=none)

    def scores(
        self,
        q: Float[Tensor, "batch query head d_head"],
        k: Float[Tensor, "batch key head d_head"],
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "batch head query key"]:
        """Scores before the mask, from unrotated queries and keys of some or all heads.

        Queries may be those of the last positions only.
        """
        n_pos = k.shape[1]
        return self.scores_of(
            self.placed(q, self.q_norm, n_pos), self.placed(k, self.k_norm, n_pos), heads
        )

    def placed(
        self, x: Float[Tensor, "batch pos head d_head"], norm: NormWeights, n_pos: int
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Queries or keys at the last of `n_pos` positions, behind their norm and rotated."""
        x = _normed(x, norm)
        return x if self.rotary is None else self.rotary.rotate(x, n_pos)

    def scores_of(
        self,
        q: Float[Tensor, "batch query head d_head"],
        k: Float[Tensor, "batch key head d_head"],
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "batch head query key"]:
        """Scores as in `scores`, from queries and keys that are `placed`."""
        scores = soft_capped(torch.einsum("bqhd,bkhd->bhqk", q, k) / self.attn_scale, self.soft_cap)
        if self.alibi is None:
            return scores
        positions = torch.arange(k.shape[1], device=q.device)
        bias = self.alibi.bias(positions[-q.shape[1] :], positions).to(scores)
        return scores + (bias if heads is None else bias[list(heads)])

    @property
    def projections(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Weights and biases of queries, keys and values."""
        return (self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V)

    def pattern(
        self, scores: Float[Tensor, "batch head query key"], heads: Sequence[int] | None = None
    ) -> Float[Tensor, "batch head query key"]:
        """The attention pattern of some or all heads: a softmax over the visible keys.

        Queries may be those of the last positions only.
        """
        visible = self.visible(scores.shape[-1])[-scores.shape[-2] :]
        scores = scores.masked_fill(~visible, -torch.inf)
        if self.sinks is None:
            return scores.softmax(-1)
        sinks = self.sinks if heads is None else self.sinks[list(heads)]
        sinks = sinks.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]


def _normed(x: Float[Tensor, "batch pos head d_head"], norm: NormWeights) -> Tensor:
    """Queries or keys behind their norm."""
    if norm.w is None or len(norm.w) == x.shape[-1]:
        return norm(x)
    return norm(x.flatten(2)).reshape(x.shape)


def _folded(
    W: Float[Tensor, "head d_model d_head"], b: Float[Tensor, "head d_head"], norm: NormWeights
) -> tuple[Tensor, Tensor]:
    """Weights and biases with a norm's gain and centering, without its division."""
    if norm.kind is None:
        return W, b
    joint = norm.w is not None and len(norm.w) > W.shape[-1]
    axes = (0, -1) if joint else (-1,)
    if norm.kind == "LN":
        W = W - W.mean(axes, keepdim=True)
        b = b - b.mean(axes, keepdim=True)
    if norm.w is None:
        return W, b
    gain = norm.w.reshape(-1, W.shape[-1])
    return W * gain[:, None], b * gain


@dataclass(frozen=True, eq=False)
class MLPWeights(ShortRepr):
    """One MLP: `post @ W_out + b_out`, then `post_norm`.

    `post = act(x @ W_in + b_in)`, or gated `act(x @ W_gate + b_gate) * (x @ W_in + b_in) + b_post`
    with `x = norm(residual)`.

    Attributes:
        act_fn: TransformerLens's name of the activation.
        b_post: bias that HookedTransformer's gated MLPs add after the product (they have no other
            bias inside); zero for other models.
        norm: the norm before the MLP. post_norm: the norm after its output.
        residual_norm: the norm after the addition to the residual stream, as in `LayerWeights`.
    """

    W_in: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, " d_mlp"]
    W_gate: Float[Tensor, "d_model d_mlp"] | None
    b_gate: Float[Tensor, " d_mlp"] | None
    b_post: Float[Tensor, " d_mlp"]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]
    act_fn: str
    norm: NormWeights
    post_norm: NormWeights
    residual_norm: NormWeights = field(default_factory=lambda: NormWeights(None))

    def post(
        self, pre: Float[Tensor, "*n d_mlp"], linear: Float[Tensor, "*n d_mlp"] | None
    ) -> Float[Tensor, "*n d_mlp"]:
        """The neurons' activations (`hook_post`), from `hook_pre` and, if gated, `hook_pre_linear`.

        Raises InputError for an activation with parameters of its own.
        """
        act = plain_activation(self.act_fn)
        if act is None:
            raise InputError(
                f"the activation {self.act_fn} has parameters, which are not supported"
            )
        if linear is None:
            return act(pre)
        post = act(pre) * linear
        return post + self.b_post if self._shifted else post

    @cached_property
    def _shifted(self) -> bool:
        """Whether `b_post` is not zero."""
        return bool(self.b_post.any())


Parts = TypeVar("Parts", bound=OutputWeights | MLPWeights | NormWeights | Division)


def converted(parts: Parts, convert: Callable[[Tensor], Tensor]) -> Parts:
    """The same weights with every tensor converted, including those of norms."""
    changed: dict[str, Any] = {
        f.name: convert(value) if isinstance(value, Tensor) else converted(value, convert)
        for f in dataclasses.fields(parts)
        if isinstance(value := getattr(parts, f.name), Tensor | NormWeights | Division)
    }
    return replace(parts, **changed)


_NO_PLAIN_FUNCTION = ("solu_ln", "xielu")  # with parameters or a norm of their own


def plain_activation(act_fn: str) -> Callable[[Tensor], Tensor] | None:
    """The activation as a function of its input alone; None if it has parameters."""
    return None if act_fn in _NO_PLAIN_FUNCTION else SUPPORTED_ACTIVATIONS.get(act_fn)


def residual_hook(model: Model, layer: int, w: MLPWeights) -> str:
    """The hook point of the residual stream that the MLP's norm reads."""
    if w.residual_norm.kind is not None:
        return f"blocks.{layer}.hook_attn_out"  # on bridges the normalized stream
    parallel = bool(getattr(model.cfg, "parallel_attn_mlp", False))
    return f"blocks.{layer}.hook_resid_{'pre' if parallel else 'mid'}"


def neurons(w: MLPWeights, x: Float[Tensor, "*n d_model"]) -> Float[Tensor, "*n d_mlp"]:
    """The neurons' activations (`mlp.hook_post`) for `x = w.norm(residual)`.

    Raises InputError for an activation with parameters of its own.
    """
    linear = affine(x, w.W_in, w.b_in)
    if w.W_gate is None or w.b_gate is None:
        return w.post(linear, None)
    return w.post(affine(x, w.W_gate, w.b_gate), linear)
