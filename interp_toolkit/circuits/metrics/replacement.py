"""Recorded activations, and ablation values of heads from the other prompts.

The ablation value of a head is its mean output over the *other* prompts at the same position, or
its output on one of them. Means are computed once for all prompts, so that the result does not
depend on the batch size. A mean that included the prompt itself would leave part of its output.
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
    """The hook point of the outputs of a layer's heads."""
    return f"blocks.{layer}.attn.hook_z"


def capture(
    model: Model, tokens: Int[Tensor, "batch pos"], names: Sequence[str]
) -> tuple[Float[Tensor, "batch pos d_vocab"], dict[str, Tensor]]:
    """Logits, and the activations at these hook points, from one full pass."""
    values: dict[str, Tensor] = {}

    points = hook_points(model)
    logits = run(model, tokens, [(points[name], store_in(values, name)) for name in names])
    assert logits is not None
    return logits, values


class OtherRows:
    """Mean outputs of the heads of some layers over all other prompts, for each prompt.

    Args:
        model: any TransformerLens model.
        tokens: all prompts, at least two.
        layers: layers of the heads.
        memory: bound for the run.
        recorded: activations at `hook_z` of these layers on all prompts, if they were recorded.
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
        """Mean over all other prompts, for prompts with these outputs in the intact model."""
        return ((self._sums[hook_z(layer)] - z.double()) / (self._n - 1)).to(z)
