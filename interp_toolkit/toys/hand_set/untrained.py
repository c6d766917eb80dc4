"""Untrained models, in which a head detector must find nothing."""

from __future__ import annotations

import math
from typing import Literal

import torch

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import Normalization, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

Positions = Literal["standard", "rotary", "none"]


def random_model(
    seed: int,
    *,
    n_layers: int = 2,
    n_heads: int = 4,
    d_model: int = 64,
    d_head: int = 32,
    d_vocab: int = 16,
    n_ctx: int = 64,
    positions: Positions = "standard",
    n_key_value_heads: int | None = None,
    normalization: Normalization | None = None,
    d_mlp: int | None = None,
    gain: float = 1.0,
    biases: bool = False,
    bidirectional: bool = False,
    rotary_dim: int | None = None,
    rotary_base: float = 10000.0,
    dtype: torch.dtype = torch.float32,
) -> Transformer:
    """An untrained model: normal weights of standard deviation gain * 0.8 / sqrt(d_model).

    Args:
        seed: random seed of the weights.
        n_layers: number of layers.
        n_heads: heads per layer.
        d_model: width of the residual stream.
        d_head: width of a head.
        d_vocab: number of tokens.
        n_ctx: number of positions.
        positions: learned absolute ones, rotary ones, or none.
        n_key_value_heads: fewer than n_heads for grouped-query attention.
        normalization: "LN", "RMS", ...; None: none.
        d_mlp: neurons (GELU) of an MLP in each layer; None: attention only.
        gain: scale of all weights; 1: TransformerLens's initialization.
        biases: whether there are biases, which are zero.
        bidirectional: whether every position sees every other.
        rotary_dim: rotated dimensions of a head, with rotary positions; None: all.
        rotary_base: base of the rotary frequencies.
        dtype: dtype of the parameters.
    """
    if not (gain > 0 and math.isfinite(gain)):
        raise InputError(f"gain must be positive and finite, got {gain}")
    config = TransformerConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_ctx=n_ctx,
        d_head=d_head,
        n_heads=n_heads,
        n_key_value_heads=n_key_value_heads,
        d_vocab=d_vocab,
        attn_only=d_mlp is None,
        d_mlp=d_mlp,
        act_fn=None if d_mlp is None else "gelu",
        biases=biases,
        normalization_type=normalization,
        positional_embedding_type=positions,
        attention_dir="bidirectional" if bidirectional else "causal",
        rotary_dim=rotary_dim if positions == "rotary" else None,
        rotary_base=rotary_base,
        dtype=dtype,
        initializer_range=gain * 0.8 / math.sqrt(d_model),
        seed=seed,
    )
    model = Transformer(config)
    model.eval()
    return model
