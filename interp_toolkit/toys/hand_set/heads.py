"""Building blocks of hand-set attention heads: a model of zeros, and functions that write to it.

The residual stream has one axis for each token and each position, and axes that heads write to:
`previous` (for the previous token), `output` (read by the unembedding). A head that looks for
something adds `score` to the attention score of matching keys, independent of attention scales.
Used by `toys.hand_set.induction`, whose docstrings derive the results.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

ROTARY_PAIRS = 4
ROTARY_BASE = 10.0  # four frequencies from 1 to 0.18: distances up to 1,000 differ from distance 1


@dataclass(frozen=True)
class Axes:
    """Meaning of the residual stream's axes."""

    tokens: range
    previous: range
    output: range
    positions: range


def blank(
    d_vocab: int,
    n_ctx: int,
    *,
    d_head: int,
    dtype: torch.dtype,
    n_layers: int = 1,
    n_heads: int = 2,
    n_key_value_heads: int | None = None,
    rotary: bool | None = None,
) -> tuple[Transformer, Axes]:
    """A model of zeros with one-hot embeddings and the unembedding of `output`.

    `rotary`: None for absolute positions; otherwise two layers, and whether pairs are adjacent.
    """
    if d_vocab < 2 or n_ctx < 2:
        raise InputError(
            f"a model needs at least 2 tokens and 2 positions, got {d_vocab} and {n_ctx}"
        )
    n_positions = n_ctx if rotary is None else 0
    starts = [0, d_vocab, 2 * d_vocab, 3 * d_vocab, 3 * d_vocab + n_positions]
    axes = Axes(*(range(a, b) for a, b in itertools.pairwise(starts)))
    absolute: dict[str, Any] = {"positional_embedding_type": "standard", "biases": False}
    turning: dict[str, Any] = {
        "positional_embedding_type": "rotary",
        "rotary_dim": 2 * ROTARY_PAIRS,
        "rotary_base": ROTARY_BASE,
        "rotary_adjacent_pairs": bool(rotary),
        "biases": True,
    }
    config = TransformerConfig(
        n_layers=n_layers if rotary is None else 2,
        d_model=starts[-1],
        n_ctx=n_ctx,
        d_head=d_head,
        n_heads=n_heads,
        n_key_value_heads=n_key_value_heads,
        d_vocab=d_vocab,
        attn_only=True,
        normalization_type=None,
        dtype=dtype,
        **(absolute if rotary is None else turning),
    )
    model = zeros(config)
    model.embed.W_E.data[:, list(axes.tokens)] = torch.eye(d_vocab, dtype=dtype)
    model.unembed.W_U.data[list(axes.output)] = torch.eye(d_vocab, dtype=dtype)
    if rotary is None:
        model.pos_embed.W_pos.data[:, list(axes.positions)] = torch.eye(n_ctx, dtype=dtype)
    return model.eval(), axes


def head_weights(model: Transformer, head: Head, name: str) -> Float[Tensor, "..."]:
    """A view of a head's weights for writing; a grouped head's keys and values are its group's."""
    layer, index = head
    attn = model.blocks[layer].attn
    groups = model.cfg.n_key_value_heads
    if groups is not None and name[-1] in "KV":
        name, index = f"_{name}", index * groups // model.cfg.n_heads
    weights: Tensor = getattr(attn, name).data[index]
    return weights


def match(
    model: Transformer, head: Head, query: range, key: range, dims: Sequence[int], score: float
) -> None:
    """The head adds `score` where the query's i-th axis and the key's i-th axis are both 1.

    The number of axes is the smallest of the three lengths.
    """
    n = min(len(query), len(key), len(dims))
    dims = list(dims)[:n]
    head_weights(model, head, "W_Q")[list(query)[:n], dims] = score * model.cfg.attn_scale
    head_weights(model, head, "W_K")[list(key)[:n], dims] = 1.0


def look_back(model: Transformer, head: Head, axes: Axes, score: float) -> None:
    """A query at position p + 1 matches the key at position p."""
    match(model, head, axes.positions[1:], axes.positions, range(len(axes.positions)), score)


def look_for_continuation(model: Transformer, head: Head, axes: Axes, score: float) -> None:
    """A token's query matches keys that follow that token, except at position 0."""
    n_tokens = len(axes.tokens)
    match(model, head, axes.tokens, axes.previous, range(n_tokens), score)
    head_weights(model, head, "W_Q")[list(axes.tokens), n_tokens] = score * model.cfg.attn_scale
    head_weights(model, head, "W_K")[axes.positions[0], n_tokens] = -1.0


def look_back_by_angle(model: Transformer, head: Head, score: float) -> None:
    """Query and key biases whose rotated product is c Σ cos(θ_i (q - k - 1))."""
    frequencies, c = rotary_scores(model.cfg.n_ctx, score)
    pairs = torch.arange(ROTARY_PAIRS)
    adjacent = model.cfg.rotary_adjacent_pairs
    first, second = (2 * pairs, 2 * pairs + 1) if adjacent else (pairs, pairs + ROTARY_PAIRS)
    angles = torch.tensor(frequencies, dtype=torch.float64)
    strength = c * model.cfg.attn_scale
    head_weights(model, head, "b_Q")[first] = (strength * angles.cos()).to(model.cfg.dtype)
    head_weights(model, head, "b_Q")[second] = (-strength * angles.sin()).to(model.cfg.dtype)
    head_weights(model, head, "b_K")[first] = 1.0


def rotary_scores(n_ctx: int, score: float) -> tuple[list[float], float]:
    """The frequencies θ_i of `induction_rotary` and the factor c of its previous-token head.

    Args:
        n_ctx: the context: distances 0 to n_ctx - 1 compete with distance 1.
        score: smallest distance of their scores below that of distance 1.
    """
    frequencies = [ROTARY_BASE ** (-i / ROTARY_PAIRS) for i in range(ROTARY_PAIRS)]
    others = [d for d in range(n_ctx) if d != 1]
    best = max(sum(math.cos(f * (d - 1)) for f in frequencies) for d in others)
    return frequencies, score / (ROTARY_PAIRS - best)


def copy_axes(
    model: Transformer, head: Head, source: range, target: range, gain: float = 1.0
) -> None:
    """The head's OV circuit copies source axes to target axes, times `gain`."""
    dims = list(range(len(source)))
    head_weights(model, head, "W_V")[list(source), dims] = 1.0
    head_weights(model, head, "W_O")[dims, list(target)] = gain
