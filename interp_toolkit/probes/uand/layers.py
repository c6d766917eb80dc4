"""Controls of a hook point: the layer's input, and the same layer with random weights.

Neurons of an MLP (`mlp.hook_post`) have as input what the MLP's norm leaves of the residual stream.
Random layers of the same shape have the MLP's own weights in random order, the biases among
themselves and the weights on those coordinates of the input that vary at all; so each keeps the
distribution of the layer's weights and loses what was learned, and a layer of independent, alike
weights is as good as any of them. Other hook points have the block's own input before them, and as
random layers the whole model with every weight tensor in random order.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.features.samples import Samples, read_at
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.running.memory import together
from interp_toolkit.models.weights.parts import MLPWeights, neurons, residual_hook
from interp_toolkit.models.weights.view import weights

_NEURONS = re.compile(r"blocks\.(\d+)\.mlp\.hook_post$")
_IN_BLOCK = re.compile(r"(blocks\.\d+)\.(.+)$")


@dataclass(frozen=True, eq=False)
class Layer:
    """A hook point with what stands before it.

    Attributes:
        hook: the hook point.
        input_name: what its input is called; None where it has none.
        activations: at the hook point, float32 like all here.
        input: the layer's input; None where it has none.
        pre: what enters the neurons' nonlinearity, affine in the input: of gated MLPs both parts
            side by side; None for other hook points.
    """

    hook: str
    input_name: str | None
    activations: Float[np.ndarray, "n d"]
    input: Float[np.ndarray, "n _"] | None
    pre: Float[np.ndarray, "n _"] | None
    _mlp: MLPWeights | None
    _model: Any
    _samples: Samples
    _memory: int | str | None

    @property
    def plain_pre(self) -> Float[np.ndarray, "n d"] | None:
        """`pre` of neurons that have one number before their activation function; else None."""
        return self.pre if self._mlp is not None and self._mlp.W_gate is None else None

    @property
    def behind_attention(self) -> bool:
        """Whether what is here may have come from other positions, past what `input` holds."""
        return self._mlp is None and not self.hook.endswith(("hook_mlp_out", "hook_mlp_in"))

    def reinitialised(self, seed: int) -> Float[np.ndarray, "n d"]:
        """The activations of a random layer of the same shape (see the module).

        Raises InputError for an activation function with parameters of its own.
        """
        if self._mlp is None:
            with reinitialised(self._model, seed=seed):
                return _read(self._model, self._samples, [self.hook], self._memory)[self.hook]
        assert self.input is not None
        shuffled = in_random_order(self._mlp, self.input.std(axis=0) > 0, seed)
        x = torch.from_numpy(self.input).to(shuffled.W_in)
        with torch.no_grad():
            return _single(neurons(shuffled, x))


class LayerReader:
    """`reader(hook)` -> its `Layer`; several are read in one pass, as many as the memory allows.

    Args:
        model: any TransformerLens model.
        samples: the places.
        hooks: all that will be asked for, in the order in which they will be.
        memory: bound on each pass, and on what is kept of it.
    """

    def __init__(
        self, model: Model, samples: Samples, hooks: Sequence[str], memory: int | str | None
    ):
        self.model, self.samples, self.hooks, self.memory = model, samples, list(hooks), memory
        self._values: dict[str, Float[np.ndarray, "n _"]] = {}
        self._before: dict[str, str | None] = {}
        self._layer_bytes = 0

    def __call__(self, hook: str) -> Layer:
        """The activations at a hook point and before it; raises InputError as `read_at` does."""
        if hook not in self._before:
            self._fetch(hook)
        mlp, before = _mlp_at(self.model, hook), self._before[hook]
        here, layer_input = self._values[hook], None if before is None else self._values[before]
        about = mlp, self.model, self.samples, self.memory
        if mlp is None:
            return Layer(hook, before, here, layer_input, None, *about)
        assert layer_input is not None
        with torch.no_grad():
            x = mlp.norm(torch.from_numpy(layer_input).to(mlp.W_in))
            pre = x @ mlp.W_in + mlp.b_in
            if mlp.W_gate is not None and mlp.b_gate is not None:
                pre = torch.cat([x @ mlp.W_gate + mlp.b_gate, pre], dim=1)
        name = f"{before}, as the MLP reads it" if mlp.norm.kind else before
        return Layer(hook, name, here, _single(x), _single(pre), *about)

    def _fetch(self, hook: str) -> None:
        """Read this hook and those that come after it, as many as fit in half of the memory."""
        self._values = {}
        hooks = together(self.hooks, hook, self.memory, self._layer_bytes)
        self._before = {one: _before(self.model, one) for one in hooks}
        names = dict.fromkeys([*hooks, *filter(None, self._before.values())])
        self._values = _read(self.model, self.samples, list(names), self.memory)
        self._layer_bytes = sum(values.nbytes for values in self._values.values()) // len(hooks)


def _before(model: Model, hook: str) -> str | None:
    """The hook point where the layer's input is."""
    mlp = _mlp_at(model, hook)
    if mlp is None:
        return _block_input(model, hook)
    return residual_hook(model, int(hook.split(".")[1]), mlp)


def _read(
    model: Model, samples: Samples, hooks: Sequence[str], memory: int | str | None
) -> dict[str, Float[np.ndarray, "n _"]]:
    read = read_at(model, samples, hooks, memory=memory)
    return {hook: values.astype(np.float32, copy=False) for hook, values in read.items()}


def _single(values: Tensor) -> Float[np.ndarray, "n _"]:
    return np.asarray(values.float().cpu().numpy())


def _mlp_at(model: Model, hook: str) -> MLPWeights | None:
    """The weights of the MLP whose neurons are there, where they can be read."""
    match = _NEURONS.match(hook)
    try:
        return weights(model).mlp(int(match[1])) if match else None
    except InputError:
        return None


def _block_input(model: Model, hook: str) -> str | None:
    """The residual stream that the hook's part of the block reads, if it is in a block."""
    match = _IN_BLOCK.match(hook)
    if match is None or match[2] == "hook_resid_pre":
        return None
    after_attention = match[2].startswith(("mlp.", "hook_mlp", "ln2."))
    residual = f"{match[1]}.hook_resid_{'mid' if after_attention else 'pre'}"
    return residual if residual in hook_points(model) else f"{match[1]}.hook_resid_pre"


def in_random_order(
    mlp: MLPWeights, varying: Bool[np.ndarray, " d_model"], seed: int
) -> MLPWeights:
    """The MLP with its weights on varying coordinates, and its biases, in random order."""
    generator = torch.Generator().manual_seed(seed)
    live = torch.from_numpy(varying).to(mlp.W_in.device)

    def shuffled(values: Tensor) -> Tensor:
        order = torch.randperm(values.numel(), generator=generator).to(values.device)
        return values.flatten()[order].view(values.shape)

    def weights_of(W: Tensor) -> Tensor:
        W = W.detach().clone()
        W[live] = shuffled(W[live])
        return W

    gate = None if mlp.W_gate is None else weights_of(mlp.W_gate)
    gate_bias = None if mlp.b_gate is None else shuffled(mlp.b_gate.detach())
    return dataclasses.replace(
        mlp,
        W_in=weights_of(mlp.W_in),
        b_in=shuffled(mlp.b_in.detach()),
        W_gate=gate,
        b_gate=gate_bias,
    )
