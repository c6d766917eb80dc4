"""A toy: one layer whose head 0 attends two tokens back, and whose head 1 does nothing.

At a query q > 1, head 0 gives A/(A + q) to key q - 2 and 1/(A + q) to each other key up to q,
with A = exp(SCORE); it predicts the token at q - 2. Head 1 has zero weights and attends uniformly.
"""

from __future__ import annotations

import math

import torch

from interp_toolkit.models import Transformer, TransformerConfig
from interp_toolkit.registry import Toy

SCORE, GAIN = 12.0, 10.0


@torch.no_grad()
def build(d_vocab: int = 24, n_ctx: int = 32) -> Transformer:
    """The model, in float64; axes of its residual stream: tokens, positions, answer."""
    config = TransformerConfig(
        n_layers=1,
        d_model=2 * d_vocab + n_ctx,
        n_ctx=n_ctx,
        d_head=max(d_vocab, n_ctx),
        n_heads=2,
        d_vocab=d_vocab,
        attn_only=True,
        biases=False,
        normalization_type=None,
        dtype=torch.float64,
    )
    model = Transformer(config)
    for parameter in model.parameters():
        parameter.zero_()
    one_token, one_place = (torch.eye(n, dtype=config.dtype) for n in (d_vocab, n_ctx))
    places = slice(d_vocab, d_vocab + n_ctx)
    model.embed.W_E[:, :d_vocab] = one_token
    model.pos_embed.W_pos[:, places] = one_place
    model.unembed.W_U[d_vocab + n_ctx :] = one_token
    attn = model.blocks[0].attn
    attn.W_Q[0, places, :n_ctx] = SCORE * math.sqrt(config.d_head) * one_place.roll(-2, 1)
    attn.W_Q[0, d_vocab : d_vocab + 2] = 0  # no key lies two before the first two queries
    attn.W_K[0, places, :n_ctx] = one_place
    attn.W_V[0, :d_vocab, :d_vocab] = one_token
    attn.W_O[0, :d_vocab, d_vocab + n_ctx :] = GAIN * one_token
    return model.eval()


TWO_BACK_TOY = Toy(
    "two-back",
    "one head attends two tokens back, another everywhere",
    build,
    {"name": "two-back", "heads": {"two-back": [[0, 0]]}},
    "",
)
