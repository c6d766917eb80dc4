"""The precision in which weights are computed with."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_single(x: Tensor) -> Tensor:
    """Half precisions as float32, in which sums over thousands of products are made."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
