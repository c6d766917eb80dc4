"""Skip-bigram heads as a model: one attention layer, one token for each feature.

Token i is embedded as f-vector i, so that the attention score of a query token for a key token is
what the head says of their features (there is no scale). What a head attends to it copies: the
first d_head coordinates of the residual stream, which the unembedding (the f-vectors again) reads.

With rotary positions a score depends on how far apart the tokens are. Either half of the head's
dimensions turn and carry nothing, so that the bigrams hold at every distance; or all turn, and the
query is turned back so that they hold at one distance, exactly there. Grouped-query heads share
their group's keys: `projected_head` gives heads that can.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.hand_set.heads import head_weights
from interp_toolkit.toys.superposition.skip_bigrams.bigrams import QKHead
from interp_toolkit.toys.zeros import zeros

N_CTX = 32


@torch.no_grad()
def bigram_model(
    heads: Sequence[QKHead],
    features: Float[Tensor, "feature d_model"],
    *,
    rotary: bool = False,
    distance: int | None = None,
    n_key_value_heads: int | None = None,
    n_ctx: int = N_CTX,
    name: str = "skip-bigrams",
) -> Transformer:
    """A one-layer model in float64 with these heads; see the module.

    Args:
        heads: of one d_head.
        features: the f-vectors.
        rotary: positions turn queries and keys; without, there are no positions.
        distance: query position less key position at which the bigrams hold; None: at all, carried
            by dimensions that do not turn.
        n_key_value_heads: None: every head has its own keys.
        n_ctx: positions.
        name: of the model.

    Raises:
        InputError: heads of different shapes, or a context, a distance, a number of groups or
            keys in a group that do not fit.
    """
    d_head = _check(heads, features, rotary, distance, n_key_value_heads, n_ctx)
    still = rotary and distance is None
    config = TransformerConfig(
        n_layers=1,
        d_model=features.shape[1],
        n_ctx=n_ctx,
        d_head=2 * d_head if still else d_head,
        n_heads=len(heads),
        n_key_value_heads=n_key_value_heads,
        d_vocab=len(features),
        attn_only=True,
        biases=False,
        normalization_type=None,
        positional_embedding_type="rotary" if rotary else "none",
        rotary_dim=d_head if rotary else None,
        use_attn_scale=False,
        dtype=torch.float64,
        model_name=name,
    )
    model = zeros(config)
    model.embed.W_E.copy_(features)
    model.unembed.W_U.copy_(features.T)
    carrying = slice(d_head, None) if still else slice(None)
    back = _turn(model, distance).T if rotary and distance else torch.eye(d_head).double()
    for index, head in enumerate(heads):
        head_weights(model, Head(0, index), "W_Q")[:, carrying] = head.W_Q @ back
        head_weights(model, Head(0, index), "W_K")[:, carrying] = head.W_K
        head_weights(model, Head(0, index), "W_V")[:d_head, :d_head] = torch.eye(d_head)
        head_weights(model, Head(0, index), "W_O")[:d_head, :d_head] = torch.eye(d_head)
    model.eval()
    return model


def _turn(model: Transformer, distance: int) -> Float[Tensor, "d_head d_head"]:
    """M with `turned = x @ M` at this position."""
    unit = torch.eye(model.cfg.d_head, dtype=torch.float64)
    rotary = model.blocks[0].attn.rotary
    turned: Tensor = rotary(unit.expand(1, distance + 1, -1, -1))
    return turned[0, distance]


def _check(
    heads: Sequence[QKHead],
    features: Tensor,
    rotary: bool,
    distance: int | None,
    n_key_value_heads: int | None,
    n_ctx: int,
) -> int:
    """d_head, if all fits together."""
    if not heads:
        raise InputError("a model of skip-bigrams needs a head")
    d_head = heads[0].W_Q.shape[1]
    if any(h.W_Q.shape != (features.shape[1], d_head) for h in heads):
        raise InputError(
            "the heads of a model must have the d_model of the features and one d_head"
        )
    if n_ctx < 1:
        raise InputError(f"n_ctx is {n_ctx}: a model needs at least 1 position")
    if rotary and d_head % 2:
        raise InputError(f"rotary positions turn pairs of dimensions: d_head = {d_head} is odd")
    if distance is not None and not rotary:
        raise InputError("a distance at which bigrams hold needs rotary positions")
    if distance is not None and not 0 <= distance < n_ctx:
        raise InputError(f"the distance {distance} is outside the context of {n_ctx} positions")
    if n_key_value_heads is not None:
        if n_key_value_heads < 1 or len(heads) % n_key_value_heads:
            raise InputError(f"{len(heads)} heads cannot share {n_key_value_heads} sets of keys")
        size = len(heads) // n_key_value_heads
        if any(not torch.equal(h.W_K, heads[i - i % size].W_K) for i, h in enumerate(heads)):
            raise InputError("grouped heads must have their group's keys, as grouped_heads' do")
    return d_head
