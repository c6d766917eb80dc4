"""Attention, learned or by fixed mixing matrices (MixiT).

*Learned attention* computes what `HookedTransformer` does, with a hook point at every step. q, k, v
are projected (in shortformer models q and k from the input plus the position embedding) and, in
rotary models, q and k are rotated by their positions. Scores are scaled, capped, masked with -inf
and put through a softmax; the pattern mixes the values into z, and W_O projects z back. No fused
kernel replaces these steps when no hook is attached: attaching a hook must not change the last
digits of a result.

Source: TransformerLens 3.9, `components/abstract_attention.py` and
`components/grouped_query_attention.py`.

*Fixed mixing* uses a random matrix as pattern, the same for every input. For each head a random
m × m matrix W is sampled, m = n_ctx: normal entries of the variance that `cfg.mixing` names, kept
on the keys a query sees. The mixing matrix is I + W - W̄, where W̄ is the mean of each query's row
over those keys, so that each row sums to 1. A sequence of t positions is mixed by the first t rows
and columns; in a bidirectional model these are centered again. The matrix is a buffer: saved, moved
with `.to`, never trained. Values are projected, mixed and projected back as above; there are no
queries, keys or scores.

Source: "Is random attention sufficient for sequence modeling?", section 2, eq. 2.3, in its causal
form; "1/(d_head m)" is the variance of the authors' released code, "1/(n m)" that of the proof
(A.4), "1/sqrt(n m)" that of eq. 2.3 as printed. "1/m unshaped" is the starting point of section 2,
which the others improve on: W alone, of variance 1/m, without identity and centering; its rows do
not sum to 1.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from interp_toolkit.models.running.hooks import has_hooks
from interp_toolkit.models.transformer.config import UNSHAPED, TransformerConfig
from interp_toolkit.models.transformer.hooks import HookPoint
from interp_toolkit.models.transformer.layers import bias, fire, soft_cap, weight
from interp_toolkit.models.weights.positions import turned

WIDE = (torch.float32, torch.float64)  # dtypes in whose range scores stay
FIRST_TABLE = 2048  # positions a rotary table starts with, if the context is that long
FILLS_VECTOR = 16  # single-precision numbers in the widest registers of a CPU


class RotaryEmbedding:
    """Turns pairs of coordinates of q and k by angles proportional to the position (RoPE).

    Pair `i` turns by `position / rotary_base ** (2 i / rotary_dim)`. The pairs are neighbors
    `(2 i, 2 i + 1)` with `rotary_adjacent_pairs` (GPT-J), else `(i, i + rotary_dim / 2)` (GPT-NeoX,
    Llama); coordinates from `rotary_dim` on are unchanged.
    The tables of sines are computed on first use, in the input's dtype and on its device, and kept;
    they are in no state dict. Angles are computed in float64 for float64 tensors and in float32 for
    all others, as in TransformerLens.
    """

    def __init__(self, cfg: TransformerConfig):
        assert cfg.rotary_dim is not None
        self.dim = cfg.rotary_dim
        self.base = cfg.rotary_base
        self.adjacent = cfg.rotary_adjacent_pairs
        self.n_ctx = cfg.n_ctx
        self._tables: tuple[Tensor, Tensor] | None = None

    def __call__(
        self, x: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        """`x` with each vector rotated by the angles of its position."""
        sin, cos = self.tables(x.shape[1], x)
        return turned(x, cos[:, None], sin[:, None], adjacent=self.adjacent)

    def tables(
        self, n_positions: int, like: Tensor
    ) -> tuple[Float[Tensor, "pos rotary_dim"], Float[Tensor, "pos rotary_dim"]]:
        """Sines and cosines of the angles of positions 0 to `n_positions - 1`."""
        cached = self._tables
        if (
            cached is None
            or len(cached[0]) < n_positions
            or cached[0].dtype != like.dtype
            or cached[0].device != like.device
        ):
            cached = self._tables = self._make_tables(n_positions, like)
        return cached[0][:n_positions], cached[1][:n_positions]

    def _make_tables(self, n_positions: int, like: Tensor) -> tuple[Tensor, Tensor]:
        n_positions = max(n_positions, min(self.n_ctx, FIRST_TABLE))
        precise = torch.float64 if like.dtype == torch.float64 else torch.float32
        with torch.inference_mode(False):  # so that the tables can be used in training later
            pair = torch.arange(self.dim // 2, dtype=precise)
            wavelength = self.base ** (pair / (self.dim / 2))
            spread = wavelength.repeat_interleave(2) if self.adjacent else wavelength.repeat(2)
            angles = torch.arange(n_positions, dtype=precise)[:, None] / spread
            return angles.sin().to(like), angles.cos().to(like)


def project(
    x: Float[Tensor, "batch pos d_model"],
    W: Float[Tensor, "head d_model d_head"],
    b: Float[Tensor, "head d_head"] | None,
) -> Float[Tensor, "batch pos head d_head"]:
    """`x @ W[head] + b[head]` for every head."""
    n_heads, d_model, d_head = W.shape
    rows = W.transpose(1, 2).reshape(n_heads * d_head, d_model)
    out = F.linear(x, rows, None if b is None else b.reshape(-1))
    return out.view(*x.shape[:2], n_heads, d_head)


def softmax_of_keys(scores: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest key"]:
    """The softmax over keys: `scores.softmax(-1)`, up to the order of additions.

    PyTorch's CPU kernel is seven times slower over a last axis that does not fill a vector.
    """
    if scores.is_cuda or not 1 < scores.shape[-1] < FILLS_VECTOR:
        return scores.softmax(-1)
    return scores.movedim(-1, 0).contiguous().softmax(0).movedim(0, -1)


class Attention(nn.Module):
    """Multi-head attention; parameters `W_Q, W_K, W_V [head d_model d_head]`, `W_O`, and biases.

    A query whose scores are all masked, or all NaN, attends to nothing, as in `HookedTransformer`.
    With gradients, and 32 bits or more, this is checked only if hooks are attached before the
    pattern: without edits, NaN scores mean that the model has diverged.

    Hook points: hook_q, hook_k, hook_v, hook_z `[batch, pos, head, d_head]`, hook_rot_q and
    hook_rot_k (rotary models: q and k after turning), hook_attn_scores (masked, -inf) and
    hook_pattern `[batch, head, query, key]`; hook_result `[batch, pos, head, d_model]` only if
    `use_attn_result`, so that no edit can be attached where it would do nothing.
    """

    def __init__(self, cfg: TransformerConfig, rotary: RotaryEmbedding | None):
        super().__init__()
        self.rotary = rotary
        self.scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        self.scores_soft_cap = cfg.attn_scores_soft_cap
        self.causal = cfg.attention_dir == "causal"
        self.W_Q = weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_O = weight(cfg, cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_Q = bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_O = bias(cfg, cfg.d_model)
        self._add_keys_and_values(cfg)
        self.hook_q = HookPoint()
        self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        self.hook_z = HookPoint()
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()
        if rotary is not None:
            self.hook_rot_q = HookPoint()
            self.hook_rot_k = HookPoint()
        self.hook_result = HookPoint() if cfg.use_attn_result else None
        names = ("hook_q", "hook_k", "hook_rot_q", "hook_rot_k", "hook_attn_scores")
        #: hook points at which an edit can make a row of scores NaN, which then attends to nothing
        self.before_pattern = [getattr(self, name) for name in names if hasattr(self, name)]

    def _add_keys_and_values(self, cfg: TransformerConfig) -> None:
        self.W_K = weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_V = weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.b_K = bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_V = bias(cfg, cfg.n_heads, cfg.d_head)

    def forward(
        self,
        x: Float[Tensor, "batch pos d_model"],
        position: Float[Tensor, "batch pos d_model"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The heads' summed output; `position` is added for queries and keys only."""
        compared = x if position is None else x + position
        q = fire(self.hook_q, project(compared, self.W_Q, self.b_Q))
        k = fire(self.hook_k, self._keys(compared))
        v = fire(self.hook_v, self._values(x))
        return self._write(self.mix(q, k, v))

    def mix(
        self,
        q: Float[Tensor, "batch pos head d_head"],
        k: Float[Tensor, "batch pos kv_head d_head"],
        v: Float[Tensor, "batch pos kv_head d_head"],
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Z of every head, from its own queries, keys and values."""
        if self.rotary is not None:
            q = fire(self.hook_rot_q, self.rotary(q))
            k = fire(self.hook_rot_k, self.rotary(k))
        scores = fire(self.hook_attn_scores, self._scores(q, self._per_query_head(k)))
        pattern = softmax_of_keys(scores).contiguous()  # hooks expect contiguous tensors
        if not torch.is_grad_enabled():
            pattern.nan_to_num_(nan=0.0)
        elif scores.dtype not in WIDE or any(map(has_hooks, self.before_pattern)):
            pattern = pattern.nan_to_num(nan=0.0)
        pattern = fire(self.hook_pattern, pattern).to(v.dtype)
        mixed = pattern @ self._per_query_head(v).transpose(1, 2)
        return fire(self.hook_z, mixed.transpose(1, 2))

    def _keys(self, x: Tensor) -> Tensor:
        return project(x, self.W_K, self.b_K)

    def _values(self, x: Tensor) -> Tensor:
        return project(x, self.W_V, self.b_V)

    def _per_query_head(
        self, x: Float[Tensor, "batch pos kv_head d_head"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        return x

    def _scores(
        self, q: Float[Tensor, "batch pos head d_head"], k: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch head pos pos"]:
        scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).div_(self.scale)
        scores = soft_cap(scores, self.scores_soft_cap)
        if not self.causal:
            return scores
        positions = torch.arange(q.shape[1], device=q.device)
        return scores.masked_fill_(positions > positions[:, None], -torch.inf)

    def _write(
        self, z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos d_model"]:
        z = z.to(self.W_O.dtype)
        if self.hook_result is None:
            return F.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)
        by_head = torch.einsum("bphd,hdm->bphm", z, self.W_O)
        out = fire(self.hook_result, by_head).sum(2)
        return out if self.b_O is None else out + self.b_O


class GroupedQueryAttention(Attention):
    """Attention in which groups of consecutive query heads share one key and one value head.

    The parameters are `_W_K`, `_W_V`, `_b_K`, `_b_V` with one entry per key-value head; `W_K`,
    `W_V`, `b_K`, `b_V` repeat them for every query head. hook_k, hook_v and hook_rot_k see the
    `n_key_value_heads` heads. Source: Ainslie et al. 2023, arXiv 2305.13245.
    """

    def _add_keys_and_values(self, cfg: TransformerConfig) -> None:
        n_heads = cfg.n_key_value_heads
        assert n_heads is not None
        self.group = cfg.n_heads // n_heads
        self._W_K = weight(cfg, n_heads, cfg.d_model, cfg.d_head)
        self._W_V = weight(cfg, n_heads, cfg.d_model, cfg.d_head)
        self._b_K = bias(cfg, n_heads, cfg.d_head)
        self._b_V = bias(cfg, n_heads, cfg.d_head)

    def _keys(self, x: Tensor) -> Tensor:
        return project(x, self._W_K, self._b_K)

    def _values(self, x: Tensor) -> Tensor:
        return project(x, self._W_V, self._b_V)

    def _per_query_head(
        self, x: Float[Tensor, "batch pos kv_head d_head"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        return x.repeat_interleave(self.group, dim=2)

    @property
    def W_K(self) -> Float[Tensor, "head d_model d_head"]:  # type: ignore[override]
        """Key weights, one per query head."""
        return self._W_K.repeat_interleave(self.group, dim=0)

    @property
    def W_V(self) -> Float[Tensor, "head d_model d_head"]:  # type: ignore[override]
        """Value weights, one per query head."""
        return self._W_V.repeat_interleave(self.group, dim=0)

    @property
    def b_K(self) -> Float[Tensor, "head d_head"] | None:  # type: ignore[override]
        """Key biases, one per query head."""
        return None if self._b_K is None else self._b_K.repeat_interleave(self.group, dim=0)

    @property
    def b_V(self) -> Float[Tensor, "head d_head"] | None:  # type: ignore[override]
        """Value biases, one per query head."""
        return None if self._b_V is None else self._b_V.repeat_interleave(self.group, dim=0)


def attention(cfg: TransformerConfig, rotary: RotaryEmbedding | None) -> Attention:
    """The attention layer of this configuration."""
    kind = Attention if cfg.n_key_value_heads is None else GroupedQueryAttention
    return kind(cfg, rotary)


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
        """Draw new mixing matrices, in float64, on the generator's device."""
        device = generator.device if generator is not None else torch.device("cpu")
        noise = torch.randn(
            self.mixing.shape, generator=generator, dtype=torch.float64, device=device
        )
        matrices = mixing_matrices(noise * self.std, causal=self.causal, shaped=self.shaped)
        self.mixing.copy_(matrices)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], position: None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The heads' summed output; `position` has no effect without queries and keys."""
        v = fire(self.hook_v, project(x, self.W_V, self.b_V))
        z = fire(self.hook_z, self._mixed(v))
        if self.hook_result is None:
            return F.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)
        out = fire(self.hook_result, torch.einsum("bphd,hdm->bphm", z, self.W_O)).sum(2)
        return out if self.b_O is None else out + self.b_O

    def _mixed(
        self, v: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        """The mixed values: one product per head for the whole batch, unless a hook edits them.

        A hook that only reads does not change the result: the product is the same as without it,
        and the term added for the pattern's gradient is zero.
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
    """`einsum("hqk,bkhd->bqhd")`, as one product per head over the whole batch."""
    n_rows, n_pos, n_heads, d_head = v.shape
    wide = v.permute(2, 1, 0, 3).reshape(n_heads, n_pos, n_rows * d_head)
    return (mixing @ wide).view(n_heads, n_pos, n_rows, d_head).permute(2, 1, 0, 3)


def mixing_variance(cfg: TransformerConfig) -> float:
    """The variance of the entries before they are centered."""
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
    """I + W - W̄ of random matrices W: each row centered over the keys that its query sees.

    If not `shaped`: W itself, restricted to those keys.
    """
    m = noise.shape[-1]
    visible = torch.ones(m, m, dtype=noise.dtype, device=noise.device)
    visible = visible.tril() if causal else visible
    masked = noise * visible
    if not shaped:
        return masked
    centred = (masked - masked.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)) * visible
    return centred + torch.eye(m, dtype=noise.dtype, device=noise.device)
