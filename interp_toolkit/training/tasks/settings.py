"""The settings that the recipes of "Is random attention sufficient for sequence modeling?" share.

Preset values are the source's where it gives them: sizes in section 3.1, searched and best
hyperparameters in appendix C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from interp_toolkit.models.transformer.config import DTYPES, MixingVariance
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.random_attention.task import FiniteTask, Task
from interp_toolkit.toys.random_attention.variants import (
    VARIANTS,
    Variant,
    variant_config,
    variant_model,
)
from interp_toolkit.training.engine.settings import Betas, Schedule, TrainingSettings

#: a recipe's variants
BY_VARIANT: dict[str, dict[str, str]] = {variant: {"variant": variant} for variant in VARIANTS}


class VariantTraining(TrainingSettings):
    """Settings of a model variant, beside those of `TrainingSettings`.

    Attributes:
        variant: which weights there are, and which of them learn.
        layers, heads, d_model: of the model; heads share d_model out.
        mixing_variance: of mixit's matrices, n = d_model, m = the task's positions; "1/m unshaped"
            leaves out the identity and the centring.
        biases: whether attention and MLP have biases.
        tied: whether the unembedding is the embedding's transpose.
        initial_std: of the initial weights; 0: 1/sqrt(d_model).
        qk_std: of the initial queries' and keys' weights; 0: as of all others.
        rows: of a batch.
    """

    curve_points: ClassVar[int] = 50

    variant: Variant = "standard"
    layers: int = Field(2, ge=1, le=1_000)
    heads: int = Field(4, ge=1, le=4_096)
    d_model: int = Field(128, ge=2, le=65_536)
    mixing_variance: MixingVariance = "1/(d_head m)"
    biases: bool = False
    tied: bool = False
    initial_std: float = Field(0.0, ge=0, le=10, allow_inf_nan=False)
    qk_std: float = Field(0.0, ge=0, le=10, allow_inf_nan=False)
    rows: int = Field(128, ge=1, le=1_000_000)
    lr: float = Field(1e-3, gt=0, le=10, allow_inf_nan=False)
    optimiser: Literal["adam", "adamw"] = "adamw"
    schedule: Schedule = "cosine"
    warm_up: int = Field(50, ge=0)
    betas: Betas = (0.9, 0.98)
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> VariantTraining:
        if self.d_model % self.heads:
            raise ValueError(f"{self.heads} heads cannot share out a d_model of {self.d_model}")
        if self.variant != "mixit" and (self.d_model // self.heads) % 2:
            raise ValueError(
                f"{self.heads} heads of {self.d_model // self.heads} dimensions each: rotary "
                "positions need an even number"
            )
        return self

    def new_model(self, seed: int, *, d_vocab: int, n_ctx: int, name: str) -> Transformer:
        """A seed's untrained model for these tokens and positions, on the device."""
        cfg = variant_config(
            self.variant,
            n_layers=self.layers,
            n_heads=self.heads,
            d_model=self.d_model,
            n_ctx=n_ctx,
            d_vocab=d_vocab,
            mixing=self.mixing_variance,
            biases=self.biases,
            tied_embeddings=self.tied,
            initial_std=self.initial_std or None,
            dtype=DTYPES[self.dtype],
            seed=seed,
            model_name=f"{name}-{self.variant}",
        )
        model = variant_model(cfg, self.variant, qk_std=self.qk_std or None)
        on_device: Transformer = model.to(self.device)
        return on_device


class SyntheticTraining(VariantTraining, ABC):
    """Settings of a variant on a synthetic task."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """The task with its sizes."""

    @property
    @abstractmethod
    def tested_rows(self) -> int:
        """The number of test rows."""


class TaskTraining(SyntheticTraining, ABC):
    """Settings of a variant on a task that is tested on rows it was not trained on.

    Attributes:
        examples: rows to train on, drawn once; 0: fresh rows every step.
        test_examples: rows to test on; none of them is trained on.
    """

    examples: int = Field(40_000, ge=0, le=100_000_000)
    test_examples: int = Field(4_000, ge=1, le=10_000_000)

    @property
    def tested_rows(self) -> int:
        """The number of test rows."""
        return self.test_examples

    @model_validator(mode="after")
    def _rows_suffice(self) -> TaskTraining:
        task = self.task
        if isinstance(task, FiniteTask) and self.examples + self.test_examples > task.n_rows:
            raise ValueError(
                f"there are {task.n_rows:,} different rows: too few for {self.examples:,} examples "
                f"and {self.test_examples:,} test_examples"
            )
        return self
