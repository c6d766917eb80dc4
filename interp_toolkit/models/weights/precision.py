"""Precision of computations on weights, and their agreement with the model's own activations."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def at_least_single(x: Tensor) -> Tensor:
    """Half precisions as float32, in which sums over thousands of products are made."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


LOOSEST = 1e-5  # in double precision too: other orders of summation are not wrong
ROUNDINGS = 32  # units in the last place of what was summed, where the sum itself is near to zero


def agrees(
    ours: Tensor, actual: Tensor, dtype: torch.dtype | None = None, *, summed: float = 0.0
) -> bool:
    """Whether two tensors are equal up to rounding, beside the largest entry of `actual`.

    Args:
        ours: recomputed from the weights.
        actual: the model's own; NaN agrees with nothing.
        dtype: its precision sets the tolerance; None: that of `actual`.
        summed: a bound of the terms that cancel where all of `actual` is near to zero.
    """
    eps = torch.finfo(dtype or actual.dtype).eps
    tolerance = max(math.sqrt(eps), LOOSEST)
    if ours.shape != actual.shape:
        return False
    ours, actual = ours.float(), actual.float()
    allowed = tolerance * float(actual.abs().max())
    if eps <= torch.finfo(torch.float32).eps:  # in half precision rounding is as large as logits
        allowed = max(allowed, ROUNDINGS * eps * summed)
    return float((actual - ours).abs().max()) <= allowed
