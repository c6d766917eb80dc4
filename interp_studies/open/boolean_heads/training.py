"""Train one attention-only layer for every boolean function of three bits, all of them at once.

The model is that of `training.xor` with a third bit: token and position embeddings, h heads, a
linear readout with a threshold at '='. The query of '=' is the same for all inputs, so a layer is
its embeddings, its heads' keys and values, and the readout; the functions are trained side by side
as a batch of models, each from its own start.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

D_MODEL, D_HEAD = 8, 4
LR = 0.02
STEPS = 1_500
SOLVED = 0.01  # nats, as of `training.xor`


class Layers:
    """A batch of one-layer models of n bits, with h heads each.

    Args:
        n_models: how many.
        n_bits: of their inputs.
        n_heads: of each.
        seed: of their weights.
    """

    def __init__(self, n_models: int, n_bits: int, n_heads: int, seed: int):
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> Tensor:
            values: Tensor = torch.randn(n_models, *shape, generator=generator) * D_MODEL**-0.5
            return values.requires_grad_()

        self.tokens = drawn(3, D_MODEL)  # 0, 1, '='
        self.places = drawn(n_bits + 1, D_MODEL)
        self.W_Q, self.W_K, self.W_V = (drawn(n_heads, D_MODEL, D_HEAD) for _ in range(3))
        self.W_O = drawn(n_heads, D_HEAD, D_MODEL)
        self.readout = drawn(D_MODEL)
        self.threshold = torch.zeros(n_models, requires_grad=True)
        self.inputs = torch.tensor(
            [[*bits, 2] for bits in itertools.product((0, 1), repeat=n_bits)]
        )

    @property
    def parameters(self) -> list[Tensor]:
        """All that is trained."""
        heads = [self.W_Q, self.W_K, self.W_V, self.W_O]
        return [self.tokens, self.places, *heads, self.readout, self.threshold]

    def updates(self) -> Float[Tensor, "model input d_model"]:
        """What the heads write at '=', for every input."""
        embedded = self.tokens[:, self.inputs] + self.places[:, None]
        query = torch.einsum("md,mhde->mhe", embedded[:, 0, -1], self.W_Q)
        toward = torch.einsum("mhe,mhde->mhd", query, self.W_K) / math.sqrt(D_HEAD)
        pattern = torch.einsum("mhd,mipd->miph", toward, embedded).softmax(2)
        mixed = torch.einsum("miph,mipd->mihd", pattern, embedded)
        values = torch.einsum("mihd,mhde->mihe", mixed, self.W_V)
        return torch.einsum("mihe,mhed->mid", values, self.W_O)

    def logits(self) -> Float[Tensor, "model input"]:
        """The readout's score of every input, less the threshold."""
        scores = torch.einsum("mid,md->mi", self.updates(), self.readout)
        return scores - self.threshold[:, None]


def train(tables: Sequence[str], n_heads: int, seed: int, steps: int = STEPS) -> Layers:
    """A layer for each function, after so many steps of Adam on all inputs."""
    n_bits = len(tables[0]).bit_length() - 1
    layers = Layers(len(tables), n_bits, n_heads, seed)
    truth = _truth(tables)
    optimizer = torch.optim.Adam(layers.parameters, lr=LR)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        total = _losses(layers, truth).sum()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return layers


def solved(layers: Layers, tables: Sequence[str]) -> Bool[Tensor, " model"]:
    """Which answer all inputs rightly, with a mean cross-entropy below `SOLVED`."""
    truth = _truth(tables)
    with torch.no_grad():
        right = ((layers.logits() > 0) == truth.bool()).all(1)
        return right & (_losses(layers, truth) < SOLVED)


def _truth(tables: Sequence[str]) -> Float[Tensor, "model input"]:
    return torch.tensor([[float(bit) for bit in table] for table in tables])


def _losses(layers: Layers, truth: Float[Tensor, "model input"]) -> Float[Tensor, " model"]:
    """The mean cross-entropy of each model."""
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        layers.logits(), truth, reduction="none"
    )
    return loss.mean(1)
