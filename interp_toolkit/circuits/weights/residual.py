"""The residual stream of a token to which only the embeddings have written.

It is what layer 0 reads, exactly. In deeper layers it is the direct path: what earlier heads and
MLPs write is left out, and a norm in front of attention takes its statistics from the embedding
alone (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", on paths from the
embedding).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.models.weights.view import ModelWeights


def token_residual(
    view: ModelWeights, tokens: Int[Tensor, " n"], position: int | None = None
) -> Float[Tensor, "n d_model"]:
    """The residual stream entering block 0 for tokens standing at a position.

    Args:
        view: the model's weights.
        tokens: which.
        position: where they stand. None takes the mean position embedding, where the model has
            learned positions: a stand-in that is exact for no position. It makes no difference in
            models without them (rotary, ALiBi, none).

    Raises:
        InputError: a token or position that is not there.
    """
    return view.embed(tokens, None if position is None else torch.full_like(tokens, position))
