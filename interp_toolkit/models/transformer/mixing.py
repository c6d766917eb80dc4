"""Attention whose pattern is a fixed random matrix, the same for every input (MixiT).

Per head a random m × m matrix W is drawn, m = n_ctx: normal entries of the variance that
`cfg.mixing` names, kept on the keys a query sees. The mixing matrix is I + W - W̄, where W̄ is the
mean of each query's row over those keys, so that each row sums to 1. A sequence of t positions is
mixed by the first t rows and columns; in a bidirectional model these are centred anew. The matrix
is a buffer: saved, moved with `.to`, never trained. Values are projected, mixed and written back as
in `models.transformer.attention`; there are no queries, keys or scores.

Source: "Is random attention sufficient for sequence modeling?", section 2, eq. 2.3, in its causal
form; "1/(d_head m)" is the variance of the authors' released code, "1/(n m)" that of the proof
(A.4), "1/sqrt(n m)" that of eq. 2.3 as printed. "1/m unshaped" is what section 2 begins with, and
what the others are a remedy for: W alone, of variance 1/m, without identity and centring; its rows
sum to anything.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from interp_toolkit.models.running.hooks import has_hooks
from interp_toolkit.models.transformer.attention import project
from interp_toolkit.models.transformer.config import UNSHAPED, TransformerConfig
from interp_toolkit.models.transformer.hooks import HookPoint
from interp_toolkit.models.transformer.layers import bias, fire, weight


class MixingAttention(nn.Module):
    """Values mixed by `mixing [head, query, key]`; parameters W_V, W_O and biases.

    Hook points: hook_v, hook_z `[batch, pos, head, d_head]`; hook_pattern
    `[batch, head, query, key]`, the mixing matrix, which an edit replaces for this run;
    hook_result `[batch, pos, head, d_model]` only if `use_attn_result`.
    """

    mixing: Float[Tensor, "head n_ctx n_ctx"]

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        self.std = math.sqrt(mixing_variance(cfg))
        self.causal = cfg.attention_dir == "causal"
        self.shaped = cfg.mixing != UNSHAPED
        self.W_V = weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_O = weight(cfg, cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_V = bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_O = bias(cfg, cfg.d_model)
        empty = torch.empty(cfg.n_heads, cfg.n_ctx, cfg.n_ctx, dtype=cfg.dtype)
        self.register_buffer("mixing", empty)
        self.hook_v = HookPoint()
        self.hook_z = HookPoint()
        self.hook_pattern = HookPoint()
        self.hook_result = HookPoint() if cfg.use_attn_result else None

    def draw_mixing(self, generator: torch.Generator | None) -> None:
        """Draw the mixing matrices anew, in float64, on the generator's device."""
        device = generator.device if generator is not None else torch.device("cpu")
        noise = torch.randn(
            self.mixing.shape, generator=generator, dtype=torch.float64, device=device
        )
        matrices = mixing_matrices(noise * self.std, causal=self.causal, shaped=self.shaped)
        self.mixing.copy_(matrices)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], position: None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The heads' summed output; without queries and keys, positions do not act."""
        v = fire(self.hook_v, project(x, self.W_V, self.b_V))
        z = fire(self.hook_z, self._mixed(v))
        if self.hook_result is None:
            return F.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)
        out = fire(self.hook_result, torch.einsum("bphd,hdm->bphm", z, self.W_O)).sum(2)
        return out if self.b_O is None else out + self.b_O

    def _mixed(
        self, v: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        """The values mixed: one product a head for the whole batch, unless a hook edits it.

        A hook that only looks changes no digit: the product is the same as without it, and what is
        added for the pattern's gradient is zero.
        """
        mixing = self._of_length(v.shape[1])
        if not has_hooks(self.hook_pattern):
            return _product(mixing, v)
        fixed = mixing.expand(len(v), -1, -1, -1)
        needs_grad = torch.is_grad_enabled() and v.requires_grad
        pattern: Tensor = self.hook_pattern(fixed.detach().requires_grad_(needs_grad).clone())
        pattern = pattern.to(v.dtype)
        if not torch.equal(pattern, fixed):
            return (pattern @ v.transpose(1, 2)).transpose(1, 2)
        mixed = _product(mixing, v)
        if not pattern.requires_grad:
            return mixed
        nothing = (pattern - pattern.detach()) @ v.detach().transpose(1, 2)
        return mixed + nothing.transpose(1, 2)

    def _of_length(self, n_pos: int) -> Float[Tensor, "head n_pos n_pos"]:
        """The mixing matrices of a sequence of this length."""
        mixing = self.mixing[:, :n_pos, :n_pos]
        if self.causal or not self.shaped or n_pos == self.mixing.shape[1]:
            return mixing
        return mixing - (mixing.sum(-1, keepdim=True) - 1) / n_pos


def _product(
    mixing: Float[Tensor, "head query key"], v: Float[Tensor, "batch key head d_head"]
) -> Float[Tensor, "batch query head d_head"]:
    """`einsum("hqk,bkhd->bqhd")`, as one product a head of which the whole batch is the width."""
    n_rows, n_pos, n_heads, d_head = v.shape
    wide = v.permute(2, 1, 0, 3).reshape(n_heads, n_pos, n_rows * d_head)
    return (mixing @ wide).view(n_heads, n_pos, n_rows, d_head).permute(2, 1, 0, 3)


def mixing_variance(cfg: TransformerConfig) -> float:
    """The variance of the entries before they are centred."""
    n, m = cfg.d_model, cfg.n_ctx
    named = {
        "1/(d_head m)": 1 / (cfg.d_head * m),
        "1/(n m)": 1 / (n * m),
        "1/sqrt(n m)": 1 / math.sqrt(n * m),
        UNSHAPED: 1 / m,
    }
    assert cfg.mixing is not None
    return named[cfg.mixing]


def mixing_matrices(
    noise: Float[Tensor, "*head m m"], *, causal: bool = True, shaped: bool = True
) -> Float[Tensor, "*head m m"]:
    """I + W - W̄ of random matrices W: each row centred over the keys that its query sees.

    Not `shaped`: W itself, on those keys.
    """
    m = noise.shape[-1]
    visible = torch.ones(m, m, dtype=noise.dtype, device=noise.device)
    visible = visible.tril() if causal else visible
    masked = noise * visible
    if not shaped:
        return masked
    centred = (masked - masked.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)) * visible
    return centred + torch.eye(m, dtype=noise.dtype, device=noise.device)
