"""What attention reads of a token, when only the embeddings have written to the residual stream.

Exact at layer 0. In deeper layers it is the direct path: what earlier heads and MLPs write is left
out, and the norm in front of attention takes its statistics from the embedding alone (Elhage et
al. 2021, "A Mathematical Framework for Transformer Circuits", on paths from the embedding).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.models.weights.view import ModelWeights


def token_inputs(
    view: ModelWeights,
    layer: int,
    tokens: Int[Tensor, " n"] | None = None,
    position: int | None = None,
) -> Float[Tensor, "n d_model"]:
    """What attention of a layer reads, after its norm, of tokens standing at a position.

    Args:
        view: the model's weights.
        layer: the attention layer; 0 is exact, deeper ones are the direct path.
        tokens: which tokens; None for the whole vocabulary, in its order.
        position: where they stand. None takes the mean position embedding, where the model has
            learned positions: a stand-in that is exact for no position. It makes no difference in
            models without them (rotary, ALiBi, none).

    Raises:
        InputError: a layer, token or position that is not there, or weights that the view cannot
            give exactly.
    """
    if tokens is None:
        tokens = torch.arange(view.d_vocab, device=view.W_E.device)
    return view.layer(layer).norm(token_residual(view, tokens, position))


def token_residual(
    view: ModelWeights, tokens: Int[Tensor, " n"], position: int | None = None
) -> Float[Tensor, "n d_model"]:
    """The residual stream entering block 0 for tokens standing at a position; see `token_inputs`.

    Raises:
        InputError: a token or position that is not there.
    """
    return view.embed(tokens, None if position is None else torch.full_like(tokens, position))
