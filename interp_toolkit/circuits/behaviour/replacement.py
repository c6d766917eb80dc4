"""Forward passes for experiments on heads: what is kept of them, and what stands in for a head.

What a head is replaced with comes from the *other* rows of the same prompts, position by position:
their mean, or one of them. It is found once for all rows, so that running them in batches of any
size gives the same result. A mean that included the row itself would leave part of it in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points, store_in
from interp_toolkit.models.running.streaming import position_sums


def hook_z(layer: int) -> str:
    """The hook point at which the heads of a layer are read and edited."""
    return f"blocks.{layer}.attn.hook_z"


def capture(
    model: Model, tokens: Int[Tensor, "batch pos"], names: Sequence[str]
) -> tuple[Float[Tensor, "batch pos d_vocab"], dict[str, Tensor]]:
    """The logits, and what these hook points carry: one full pass."""
    values: dict[str, Tensor] = {}

    points = hook_points(model)
    logits = run(model, tokens, [(points[name], store_in(values, name)) for name in names])
    assert logits is not None
    return logits, values


class OtherRows:
    """For each row, the mean over all other rows of what the heads of some layers hold.

    Args:
        model: any TransformerLens model.
        tokens: at least two rows, all of them.
        layers: which layers.
        memory: bound for the run.
        recorded: what `hook_z` of these layers carries on all the rows, if it is at hand.
    """

    def __init__(
        self,
        model: Model,
        tokens: Int[Tensor, "row pos"],
        layers: Sequence[int],
        memory: int | str | None,
        recorded: Mapping[str, Tensor] | None = None,
    ):
        self._n = len(tokens)
        hooks = [hook_z(layer) for layer in layers]
        if recorded is None:
            self._sums, _ = position_sums(model, tokens, hooks, memory=memory)
        else:
            self._sums = {name: recorded[name].double().sum(0) for name in hooks}

    def mean(
        self, layer: int, z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Mean over all other rows, for each row with these outputs in the intact model."""
        return ((self._sums[hook_z(layer)] - z.double()) / (self._n - 1)).to(z)
