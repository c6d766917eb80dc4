"""Whether what is computed from a model's weights is what the model computes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOOSEST = 1e-5  # in double precision too: other orders of summation are not wrong


def agrees(ours: Tensor, theirs: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether two tensors are equal up to rounding, beside the largest entry of `theirs`.

    Args:
        ours: computed anew.
        theirs: the model's own; NaN agrees with nothing.
        dtype: whose precision counts; None: that of `theirs`.
    """
    tolerance = max(math.sqrt(torch.finfo(dtype or theirs.dtype).eps), LOOSEST)
    if ours.shape != theirs.shape:
        return False
    ours, theirs = ours.float(), theirs.float()
    return bool(((theirs - ours).abs().max() <= tolerance * theirs.abs().max()).item())
