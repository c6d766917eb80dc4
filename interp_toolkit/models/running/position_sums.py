"""What heads hold, summed over rows position by position: what means over rows are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.model import Model
from interp_toolkit.models.running.hooks import layer_of
from interp_toolkit.models.running.streaming import activations


def position_sums(
    model: Model, data: Any, hooks: Sequence[str], *, memory: int | str | None = None
) -> tuple[dict[int, Float[Tensor, "pos ..."]], Float[Tensor, " pos"]]:
    """By layer, the sums over the rows that reach each position; and how many rows those are.

    Args:
        model: any TransformerLens model.
        data: tokens or data, as `activations` takes them.
        hooks: names of hook points, one a layer.
        memory: bound for the run.
    """
    sums: dict[int, Tensor] = {}
    n_ctx = int(model.cfg.n_ctx)
    counts, longest = torch.zeros(n_ctx), 0
    for batch in activations(model, data, hooks, "all", memory=memory):
        for name, values in batch.items():
            layer = layer_of(name)
            assert layer is not None
            found = values.double().sum(0)
            total = sums.setdefault(layer, found.new_zeros((n_ctx, *found.shape[1:])))
            total[: len(found)] += found
        n_pos = len(found)
        counts[:n_pos] += len(batch.index)
        longest = max(longest, n_pos)
    return {layer: total[:longest] for layer, total in sums.items()}, counts[:longest]
