"""The same function through other weights: what no analysis of a model may depend on.

A one-layer attention-only model computes the same after a rotation of its residual stream, or of
each head's query-key or value space; after an equal vector moves from all token embeddings to all
positions, or from value biases (attention sums to 1) to the output bias; and after its key biases
change, which adds one number to all of a query's scores. Source: Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits", on the products W_Q W_K^T and W_V W_O.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer


@torch.no_grad()
def rewritten(model: Transformer, seed: int) -> Transformer:
    """A copy of the model that computes the same logits, up to rounding, from dense weights.

    Args:
        model: one layer, attention only, no normalization, learned positions, biases, and no
            grouped-query heads.
        seed: of the rotations and shifts, which are drawn at random.
    """
    _check(model)
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    attn, cfg = other.blocks[0].attn, other.cfg
    _shift(other, generator)
    for head in range(cfg.n_heads):
        turn = _rotation(cfg.d_head, generator)
        for name in ("W_Q", "W_K", "b_Q", "b_K"):
            _times(getattr(attn, name)[head], turn)
        turn = _rotation(cfg.d_head, generator)
        for name in ("W_V", "b_V"):
            _times(getattr(attn, name)[head], turn)
        _times(attn.W_O[head].T, turn)
    turn = _rotation(cfg.d_model, generator)
    for written in (other.embed.W_E, other.pos_embed.W_pos, attn.W_O, attn.b_O):
        _times(written, turn)
    for read in (attn.W_Q, attn.W_K, attn.W_V, other.unembed.W_U):
        _times(read.transpose(-1, -2), turn)
    return other


def _check(model: Transformer) -> None:
    cfg = model.cfg
    fits = (
        cfg.n_layers == 1
        and cfg.attn_only
        and cfg.normalization_type is None
        and cfg.positional_embedding_type == "standard"
        and cfg.biases
        and cfg.n_key_value_heads is None
        and cfg.mixing is None
        and not cfg.tied_embeddings
    )
    if not fits:
        raise InputError(
            "only one attention-only layer with biases, learned positions and an unembedding of "
            "its own, without normalization or grouped heads, is rewritten; this model has another "
            "shape"
        )


def _shift(model: Transformer, generator: torch.Generator) -> None:
    """Move parts that add up: embeddings, values and output bias, key biases."""
    attn, cfg = model.blocks[0].attn, model.cfg
    moved = _normal(generator, cfg.d_model)
    model.embed.W_E += moved.to(cfg.dtype)
    model.pos_embed.W_pos -= moved.to(cfg.dtype)
    values = _normal(generator, cfg.n_heads, cfg.d_head).to(cfg.dtype)
    attn.b_V += values
    attn.b_O -= torch.einsum("hd,hdm->m", values, attn.W_O)
    attn.b_K += _normal(generator, cfg.n_heads, cfg.d_head).to(cfg.dtype)


def _normal(generator: torch.Generator, *shape: int) -> Float[Tensor, "..."]:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _rotation(size: int, generator: torch.Generator) -> Float[Tensor, "size size"]:
    """An orthogonal matrix, uniform up to the signs of its columns."""
    turn: Tensor = torch.linalg.qr(_normal(generator, size, size)).Q
    return turn


def _times(weights: Float[Tensor, "... size"], turn: Float[Tensor, "size size"]) -> None:
    """Multiply in place, in float64."""
    weights.copy_((weights.double() @ turn).to(weights.dtype))
