"""Layers of the toolkit's transformer that act on each position alone: norms, MLPs, embeddings.

Names, shapes, hook points and equations are those of TransformerLens 3.9's `HookedTransformer`
(`transformer_lens/components`), so that its state dicts and hook names mean the same here.
Weights multiply from the right, and a bias that the configuration leaves out is None, not zero.
Where precision matters, layers use the dtype of their input, never the configuration's: a model
moved with `.to(dtype)` computes like one created in that dtype.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.hooks import HookPoint


def fire(point: nn.Module, x: Tensor) -> Tensor:
    """`x` after the hooks at this point; a point without hooks costs no module call."""
    if (  # has_hooks, inlined: this runs a dozen times per layer
        point._forward_hooks
        or point._backward_hooks
        or point._forward_pre_hooks
        or point._backward_pre_hooks
    ):
        return point(x)  # type: ignore[no-any-return]
    return x


def weight(cfg: TransformerConfig, *shape: int) -> nn.Parameter:
    """An uninitialized parameter of this shape."""
    return nn.Parameter(torch.empty(*shape, dtype=cfg.dtype))


def bias(cfg: TransformerConfig, *shape: int) -> nn.Parameter | None:
    """A parameter of zeros, or None if the model has no biases."""
    return zeros(cfg, *shape) if cfg.biases else None


def zeros(cfg: TransformerConfig, *shape: int) -> nn.Parameter:
    """A parameter of zeros."""
    return nn.Parameter(torch.zeros(*shape, dtype=cfg.dtype))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`, which keeps values within ±cap (Gemma 2); x if cap is not positive."""
    return cap * torch.tanh(x / cap) if cap > 0 else x


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _gelu_fast(x: Tensor) -> Tensor:
    """GPT-J's: √(2/π) is truncated after ten digits, which is visible in float64."""
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,  # GPT-2's name for the tanh approximation
    "gelu_fast": _gelu_fast,
    "gelu_pytorch_tanh": _gelu_tanh,
    "silu": F.silu,
}


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last axis, with or without learned scale and shift.

    `(x - mean) / sqrt(var + eps) * w + b`; RMS leaves out the mean and `b`, the `Pre` kinds (whose
    weights were folded into later ones) leave out `w` and `b`. Half-precision inputs are
    normalized in float32 and rounded back before `w`; the hooks see the float32 values.

    Hook points: hook_scale `[batch, pos, 1]`, hook_normalized `[batch, pos, d_model]` (before `w`).
    """

    def __init__(self, cfg: TransformerConfig, kind: str):
        super().__init__()
        self.eps = cfg.eps
        self.centre = kind.startswith("LN")
        learned = not kind.endswith("Pre")
        ones, zeros = torch.ones(cfg.d_model), torch.zeros(cfg.d_model)
        self.w = nn.Parameter(ones.to(cfg.dtype)) if learned else None
        self.b = nn.Parameter(zeros.to(cfg.dtype)) if learned and self.centre else None
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*rest d_model"]) -> Float[Tensor, "*rest d_model"]:
        """The normalized residual stream, or one for every head."""
        dtype = x.dtype
        if dtype not in (torch.float32, torch.float64):
            x = x.to(torch.float32)
        if self.centre:
            x = x - x.mean(-1, keepdim=True)
        scale = fire(self.hook_scale, (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = fire(self.hook_normalized, x / scale).to(dtype)
        if self.w is None:
            return x
        return x * self.w if self.b is None else torch.addcmul(self.b, x, self.w)


def block_norm(cfg: TransformerConfig) -> nn.Module:
    """The normalization in front of an attention layer or an MLP."""
    kind = cfg.normalization_type
    return nn.Identity() if kind is None else Norm(cfg, kind)


def final_norm(cfg: TransformerConfig) -> Norm:
    """The normalization before the unembedding; `final_rms` makes it RMS if blocks have LN."""
    kind = cfg.normalization_type
    assert kind is not None
    return Norm(cfg, kind.replace("LN", "RMS") if cfg.final_rms else kind)


class MLP(nn.Module):
    """`act(x @ W_in + b_in) @ W_out + b_out`.

    Hook points: hook_pre and hook_post `[batch, pos, d_mlp]`, before and after the activation.
    """

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        assert cfg.d_mlp is not None
        assert cfg.act_fn is not None
        self.activation = ACTIVATIONS[cfg.act_fn]
        self.W_in = weight(cfg, cfg.d_model, cfg.d_mlp)
        self.b_in = bias(cfg, cfg.d_mlp)
        self.W_out = weight(cfg, cfg.d_mlp, cfg.d_model)
        self.b_out = bias(cfg, cfg.d_model)
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The MLP's output, as added to the residual stream."""
        pre = fire(self.hook_pre, F.linear(x, self.W_in.T, self.b_in))
        post = fire(self.hook_post, self.activation(pre))
        return F.linear(post, self.W_out.T, self.b_out)


class GatedMLP(MLP):
    """`(act(x @ W_gate) * (x @ W_in) + b_in) @ W_out + b_out`: the bias comes after the gate.

    With `gate_biases`, `(act(x @ W_gate + b_gate) * (x @ W_in + b_in)) @ W_out + b_out`.

    Hook points `[batch, pos, d_mlp]`: hook_pre is the gate before its activation,
    hook_pre_linear the linear factor, hook_post the input of W_out.
    """

    def __init__(self, cfg: TransformerConfig):
        super().__init__(cfg)
        assert cfg.d_mlp is not None
        self.W_gate = weight(cfg, cfg.d_model, cfg.d_mlp)
        self.b_gate = bias(cfg, cfg.d_mlp) if cfg.gate_biases else None
        self.bias_inside = cfg.gate_biases
        self.hook_pre_linear = HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The MLP's output, as added to the residual stream."""
        inside, behind = (self.b_in, None) if self.bias_inside else (None, self.b_in)
        gate = self.activation(fire(self.hook_pre, F.linear(x, self.W_gate.T, self.b_gate)))
        post = gate * fire(self.hook_pre_linear, F.linear(x, self.W_in.T, inside))
        if behind is not None:
            post = post + behind
        return F.linear(fire(self.hook_post, post), self.W_out.T, self.b_out)


class Embed(nn.Module):
    """Rows of `W_E`, one per token."""

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        self.W_E = weight(cfg, cfg.d_vocab, cfg.d_model)

    def forward(self, tokens: Tensor) -> Float[Tensor, "batch pos d_model"]:
        """`W_E[tokens]`."""
        return F.embedding(tokens, self.W_E)


class PosEmbed(nn.Module):
    """The first rows of `W_pos`, the same for every sequence of the batch."""

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        self.W_pos = weight(cfg, cfg.n_ctx, cfg.d_model)

    def forward(self, tokens: Tensor) -> Float[Tensor, "batch pos d_model"]:
        """A view that repeats `W_pos[:pos]` over the batch; clone it before writing into it."""
        batch, pos = tokens.shape
        return self.W_pos[:pos].expand(batch, -1, -1)


class Unembed(nn.Module):
    """`x @ W_U + b_U`. Hook points: hook_in `[batch, pos, d_model]`, hook_out (the logits)."""

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        self._add_weight(cfg)
        self.b_U = zeros(cfg, cfg.d_vocab_out) if cfg.unembed_bias else None
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    def _add_weight(self, cfg: TransformerConfig) -> None:
        self.W_U = weight(cfg, cfg.d_model, cfg.d_vocab_out)

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits, before any soft cap."""
        return fire(self.hook_out, F.linear(fire(self.hook_in, x), self.W_U.T, self.b_U))


class TiedUnembed(Unembed):
    """An `Unembed` whose W_U is always the embedding's transpose, not a parameter."""

    def __init__(self, cfg: TransformerConfig, embed: Embed):
        super().__init__(cfg)
        self._embed = (embed,)  # in a tuple, so that the embedding is not a submodule

    def _add_weight(self, cfg: TransformerConfig) -> None:
        pass

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:  # type: ignore[override]
        """The embedding's transpose."""
        return self._embed[0].W_E.T
