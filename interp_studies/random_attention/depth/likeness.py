"""Similarity of the hidden states of different tokens after the last block, in three measures.

For every pair of positions of a prompt with different tokens, let h and h' be the hidden states, of
width n:

    cosine             h·h' / |h||h'|, independent of scale; after the final RMS norm (with gains of
                       1) h·h'/n is this cosine too
    covariance         mean over the n coordinates of (h - h̄)(h' - h̄'), h̄ the mean of h's
                       coordinates, before the final norm: it has the residual stream's scale, which
                       grows with depth
    normed covariance  as covariance, after the final norm

The paper's "covariance between hidden representations of different tokens", averaged within a
prompt and then over prompts, may be any of these: the paper specifies neither the measure nor the
scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.models.transformer.transformer import Transformer

MEASURES = ("cosine", "covariance", "normed covariance")
AT_ONCE = 32  # rows


@torch.no_grad()
def likeness(model: Transformer, tokens: Int[Tensor, "row pos"]) -> dict[str, float]:
    """Every measure: the mean over a prompt's pairs, then over all prompts with pairs."""
    by_measure: dict[str, list[float]] = {name: [] for name in MEASURES}
    for part in torch.split(tokens, AT_ONCE):
        hidden = model(part, stop_at_layer=model.cfg.n_layers)
        normed = model.ln_final(hidden)
        differ = part[:, :, None] != part[:, None]
        for name, x in zip(MEASURES, (_directions(normed), hidden, normed), strict=True):
            products = x if name == "cosine" else x - x.mean(-1, keepdim=True)
            scale = 1 if name == "cosine" else x.shape[-1]
            by_measure[name] += _mean_of_pairs(products, differ, scale)
    return {name: float(np.mean(values)) for name, values in by_measure.items()}


def _directions(x: Float[Tensor, "row pos d"]) -> Float[Tensor, "row pos d"]:
    units: Tensor = x / x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return units


def _mean_of_pairs(
    x: Float[Tensor, "row pos d"], differ: Bool[Tensor, "row pos pos"], scale: int
) -> list[float]:
    products = (x @ x.transpose(1, 2)).double() / scale
    return [
        float(one[which].mean()) for one, which in zip(products, differ, strict=True) if which.any()
    ]


def before_and_after(problem: Any, trained: Transformer, n_rows: int) -> dict[str, Any]:
    """Similarity on test prompts of a training problem, for the untrained and the trained model.

    Args:
        problem: the problem, made again from its seed; its test rows are or contain token ids.
        trained: the trained model.
        n_rows: largest number of test rows.
    """
    rows = problem.test_rows
    tokens = (rows if isinstance(rows, Tensor) else rows.tokens)[:n_rows]
    tokens = tokens.to(problem.config.device).long()
    return {
        "untrained": likeness(problem.model, tokens),
        "trained": likeness(trained, tokens),
        "rows": len(tokens),
    }
