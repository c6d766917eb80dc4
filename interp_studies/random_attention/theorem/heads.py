"""The outputs of frozen heads: the random features of the paper's theorem 5.1, and MixiT's.

A token becomes h = (its coordinates, its position one-hot, 1), or without the position. Head i then
outputs at position t, without any trained parameter,

    frozen-qk  Σ_s A_ts h_s, A the causal softmax of h_tᵀ W_Q W_Kᵀ h_s / √d_k with N(0, 1) entries
    of
               W_Q and W_K (B.1 of the paper)
    mixit      Σ_s M_ts h_s, M a fixed random mixing matrix (eq. 2.3, causal): linear in h

The trained parameters, W_V and the MLP, read only these vectors. Each row of A and of M sums to 1,
so at the first position every head outputs h_1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from interp_toolkit.models.transformer.attention import Attention, MixingAttention, mixing_matrices
from interp_toolkit.models.transformer.config import TransformerConfig

Heads = Literal["frozen-qk", "mixit"]
HEADS: tuple[Heads, ...] = ("frozen-qk", "mixit")
D_HEAD = 8  # of queries and keys

Lifted = Float[np.ndarray, "row pos lifted"]
Features = Float[np.ndarray, "row pos feature"]


def lift(tokens: Float[np.ndarray, "row pos coordinate"], *, positions: bool = True) -> Lifted:
    """Tokens with their coordinates, one-hot position and a constant."""
    rows, n_pos, _ = tokens.shape
    beside = np.ones((rows, n_pos, 1))
    if positions:
        beside = np.concatenate([np.broadcast_to(np.eye(n_pos), (rows, n_pos, n_pos)), beside], -1)
    return np.concatenate([tokens, beside], -1)


def features(h: Lifted, heads: Heads, n_heads: int, seed: int) -> Features:
    """The outputs of `n_heads` heads, concatenated: [row, pos, head · lifted].

    The first heads of a seed do not depend on the number of heads.
    """
    rows, n_pos, width = h.shape
    drawn = [np.random.default_rng([seed, head]) for head in range(n_heads)]
    if heads == "mixit":
        mixing = np.stack([mixing_of(n_pos, width, rng) for rng in drawn])
        read = np.einsum("hts,rse->rthe", mixing, h)
    else:
        read = np.stack([pattern_of(h, rng) @ h for rng in drawn], axis=2)
    beside: np.ndarray = read.reshape(rows, n_pos, n_heads * width)
    return beside


def pattern_of(h: Lifted, rng: np.random.Generator) -> Float[np.ndarray, "row query key"]:
    """The attention of one frozen head."""
    n_pos, width = h.shape[1:]
    W_Q, W_K = rng.standard_normal((2, width, D_HEAD))
    scores = (h @ W_Q) @ np.swapaxes(h @ W_K, 1, 2) / math.sqrt(D_HEAD)
    scores = np.where(np.tri(n_pos, dtype=bool), scores, -np.inf)
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    pattern: np.ndarray = weight / weight.sum(-1, keepdims=True)
    return pattern


def mixing_of(n_pos: int, width: int, rng: np.random.Generator) -> Float[np.ndarray, "query key"]:
    """One mixing matrix of the default variance, 1/(width m)."""
    drawn = torch.from_numpy(rng.standard_normal((n_pos, n_pos)) / math.sqrt(width * n_pos))
    mixing: np.ndarray = mixing_matrices(drawn).numpy()
    return mixing


def mixing_rank(n_pos: int, width: int, n_heads: int, seed: int) -> int:
    """The dimension of the span of a seed's mixing matrices.

    It is at most m(m + 1)/2 - (m - 1): lower triangular matrices with equal row sums. With more
    heads, no further head adds anything to what W_V can compute.
    """
    rngs = [np.random.default_rng([seed, head]) for head in range(n_heads)]
    flat = np.stack([mixing_of(n_pos, width, rng).ravel() for rng in rngs])
    return int(np.linalg.matrix_rank(flat))


@torch.no_grad()
def nonlinearity(heads: Heads, n_pos: int, n_heads: int, seed: int) -> float:
    """The deviation of an attention layer of the toolkit from linearity in its input.

    The measure is |f(ax + by) - a f(x) - b f(y)| over |a f(x)| + |b f(y)|, in float64, for inputs
    with N(0, 1) entries and random a, b; at rounding error for a linear map.
    """
    cfg = TransformerConfig(
        n_layers=1,
        d_model=n_heads * D_HEAD,
        n_ctx=n_pos,
        d_head=D_HEAD,
        n_heads=n_heads,
        d_vocab=2,
        attn_only=True,
        biases=False,
        normalization_type=None,
        positional_embedding_type="none",
        mixing="1/(d_head m)" if heads == "mixit" else None,
        dtype=torch.float64,
    )
    generator = torch.Generator().manual_seed(seed)
    layer = MixingAttention(cfg) if heads == "mixit" else Attention(cfg, None)
    for parameter in layer.parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.copy_(drawn / math.sqrt(cfg.d_model))
    if isinstance(layer, MixingAttention):
        layer.draw_mixing(generator)
    shape = (64, n_pos, cfg.d_model)
    x, y = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    a, b = torch.randn(2, generator=generator, dtype=torch.float64)
    parts = a * layer(x), b * layer(y)
    apart = layer(a * x + b * y) - parts[0] - parts[1]
    return float(apart.norm() / (parts[0].norm() + parts[1].norm()))
