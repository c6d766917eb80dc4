"""What heads hold, summed over rows position by position: what means over rows are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.model import Model
from interp_toolkit.models.running.hooks import layer_of
from interp_toolkit.models.running.memory import itemsize_of, together
from interp_toolkit.models.running.streaming import activations, kept_numbers, rows_of

BATCH = 32  # rows that a batch should have, where hooks are read together


def position_sums(
    model: Model, data: Any, hooks: Sequence[str], *, memory: int | str | None = None
) -> tuple[dict[int, Float[Tensor, "pos ..."]], Float[Tensor, " pos"]]:
    """By layer, the sums over the rows that reach each position; and how many rows those are.

    Args:
        model: any TransformerLens model.
        data: tokens or data, as `activations` takes them.
        hooks: names of hook points, one a layer.
        memory: bound for the run: hooks are read together as far as it goes.
    """
    lengths = torch.tensor([len(row) for row in rows_of(data, model)])
    longest = int(lengths.max())
    counts = (lengths[:, None] > torch.arange(longest)).sum(0).float()
    # of a hook: what is held of BATCH rows, and its sums
    kept = kept_numbers(model.cfg, hooks[:1], longest, longest)
    hook_bytes = kept * (itemsize_of(model) * min(len(lengths), BATCH) + 4)
    sums: dict[int, Tensor] = {}
    left = list(hooks)
    while left:
        some = together(left, left[0], memory, hook_bytes)
        left = left[len(some) :]
        for batch in activations(model, data, some, "all", memory=memory):
            for name, values in batch.items():
                layer = layer_of(name)
                assert layer is not None
                found = values.double().sum(0)
                total = sums.setdefault(layer, found.new_zeros((longest, *found.shape[1:])))
                total[: len(found)] += found
    return sums, counts
