"""A mean over a batch's rows, with the activations of only some of them in memory at a time.

The rows are taken in parts. A part's activations are forgotten after its forward pass and made
again when its gradient is due, which costs a second forward pass and nothing else: the gradient is
that of the whole batch, up to the order of additions.
Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def mean_in_parts(
    mean: Callable[..., Float[Tensor, ""]], batch: Sequence[Tensor], rows_at_once: int
) -> Float[Tensor, ""]:
    """The mean that `mean(*batch)` gives, of as many rows at once.

    Args:
        mean: a mean over rows, of tensors whose first axis are the rows; draws nothing at random.
        batch: such tensors.
        rows_at_once: how many rows a part has, at most; 0: all.
    """
    n_rows = len(batch[0])
    if not 0 < rows_at_once < n_rows:
        return mean(*batch)
    total = torch.zeros((), device=batch[0].device)
    for start in range(0, n_rows, rows_at_once):
        part = [tensor[start : start + rows_at_once] for tensor in batch]
        share = len(part[0]) / n_rows
        loss = checkpoint(mean, *part, use_reentrant=False, preserve_rng_state=False)
        total = total + share * loss
    return total
