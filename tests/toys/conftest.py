"""Logits of two ways to write one model, compared to within what rounding allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from interp_toolkit.models.transformer.transformer import Transformer


@torch.no_grad()
def rounding(model: Transformer, tokens: Tensor) -> float:
    """How far logits may be off when each product of matrices is.

    A product over d_model terms is off by up to about d_model eps of its size. An attention score
    that is off by δ moves what is attended to by as large a share, and the logits by that share of
    their size.
    """
    logits, cache = model.run_with_cache(tokens)
    scores = cache["attn_scores", 0]
    steepness = 1 + scores[scores.isfinite()].abs().max()
    eps = torch.finfo(model.cfg.dtype).eps
    return float(model.cfg.d_model * eps * steepness * (1 + logits.abs().max()))


@pytest.fixture
def assert_same_logits() -> Callable[[Transformer, Transformer, Tensor], None]:
    def check(found: Transformer, expected: Transformer, tokens: Tensor) -> None:
        bound = max(rounding(model, tokens) for model in (found, expected))
        torch.testing.assert_close(found(tokens), expected(tokens), rtol=0, atol=bound)

    return check
