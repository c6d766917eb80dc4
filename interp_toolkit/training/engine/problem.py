"""A training problem: a model, its batches, and their loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.transformer.transformer import Transformer


class Problem(ABC):
    """One seed's model and what it is trained on.

    Attributes:
        model: made from the seed, on the device, without a hook; trained in place.
        watched: what `target` is compared with at each measurement: "loss", that batch's; or
            "smoothed", the mean of the last ten; or a name that `evaluate` gives.
        capturable: whether drawing and loss are the same kernels on the same shapes every step and
            ask nothing of the CPU (no `.item()`, no `if` on a tensor), as a CUDA graph needs.
    """

    model: Transformer
    watched: ClassVar[str] = "loss"
    capturable: ClassVar[bool] = False

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Any:
        """A fresh batch, made on the generator's device from it alone."""

    @abstractmethod
    def loss(self, batch: Any) -> Float[Tensor, ""]:
        """The loss of the model on a batch, a mean over its rows; computes nothing at random."""

    def evaluate(self) -> Mapping[str, float]:
        """Further numbers for the metrics, without gradients, at each measurement of the loss."""
        return {}
