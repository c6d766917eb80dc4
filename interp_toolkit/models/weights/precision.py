"""Precision of computations on weights, and their agreement with the model's own activations."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def at_least_single(x: Tensor) -> Tensor:
    """Half precision converted to float32, for sums over thousands of products."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


LOOSEST = 1e-5  # also in double precision, since another order of summation is not an error
ROUNDINGS = 32  # units in the last place of the summands, if the sum itself is near zero


def agrees(
    ours: Tensor, actual: Tensor, dtype: torch.dtype | None = None, *, summed: float = 0.0
) -> bool:
    """Whether two tensors are equal up to rounding, relative to the largest entry of `actual`.

    Args:
        ours: recomputed from the weights.
        actual: the model's own; NaN agrees with nothing.
        dtype: its precision sets the tolerance; None: that of `actual`.
        summed: bound on the terms that cancel if all of `actual` is near zero.
    """
    eps = torch.finfo(dtype or actual.dtype).eps
    tolerance = max(math.sqrt(eps), LOOSEST)
    if ours.shape != actual.shape:
        return False
    ours, actual = ours.float(), actual.float()
    allowed = tolerance * float(actual.abs().max())
    if eps <= torch.finfo(torch.float32).eps:  # in half precision, rounding can be as large
        allowed = max(allowed, ROUNDINGS * eps * summed)
    return float((actual - ours).abs().max()) <= allowed
