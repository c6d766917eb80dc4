"""The settings that every training recipe has; each is a `--set` key.

A recipe derives its own from `TrainingSettings` and gives the defaults that its source names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

SAVES_A_RUN = 20


def _numbers(value: Any) -> Any:
    """`"0.9,0.98"`, as the command line gives it, as a list; what is no such text is left alone."""
    if isinstance(value, str) and "," in value:
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


#: how the learning rate falls (see `training.engine.schedule`)
Schedule = Literal["constant", "linear", "cosine", "exponential", "plateau"]
Betas = Annotated[tuple[float, float], BeforeValidator(_numbers)]


class TrainingSettings(BaseModel):
    """What the trainer itself needs to know.

    Attributes:
        steps: updates of the weights.
        lr: the learning rate at its highest.
        final_lr: where the schedule falls to by the last step; a constant one stays at `lr`.
        schedule: "constant", "linear", "cosine", "exponential" or "plateau" (see
            `training.engine.schedule`).
        warm_up: steps over which the learning rate rises from 0, on top of the schedule.
        optimiser: "adam" (weight decay as an L2 term in the gradient) or "adamw" (decoupled).
        betas, weight_decay: of the optimiser.
        target: stop a seed once its watched loss is below this; 0: never.
        seeds, seed: how many seeds, and the first.
        device, dtype: where and in what to train.
        checkpoints: after how many updates to keep the model: a list such as `0,100,1000`, or how
            many of them, spread evenly on a logarithmic scale from 0 to `steps`; 0: none.
        log_every: steps between two measurements of the loss; 0: about a hundred a seed.
        save_every: steps between two saves of the state that `--resume` reads; 0: twenty a seed.
        graphs: whether steps on a GPU are recorded as a CUDA graph and played back; "auto" where
            the recipe's step can be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    #: measurements of the loss when `log_every` is 0
    curve_points: ClassVar[int] = 100

    steps: int = Field(5_000, ge=1)
    lr: float = Field(1e-3, gt=0, le=10, allow_inf_nan=False)
    final_lr: float = Field(0.0, ge=0, allow_inf_nan=False)
    schedule: Schedule = "constant"
    warm_up: int = Field(0, ge=0)
    optimiser: Literal["adam", "adamw"] = "adam"
    betas: Betas = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    target: float = Field(0.0, ge=0, allow_inf_nan=False)
    seeds: int = Field(1, ge=1, le=100_000)
    seed: int = Field(0, ge=0, le=2**31)
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    checkpoints: Annotated[int | tuple[int, ...], BeforeValidator(_numbers)] = 0
    log_every: int = Field(0, ge=0)
    save_every: int = Field(0, ge=0)
    graphs: Literal["auto", "on", "off"] = "auto"

    @model_validator(mode="after")
    def _can_be_run(self) -> TrainingSettings:
        if self.final_lr > self.lr:
            raise ValueError(f"final_lr ({self.final_lr}) is above lr ({self.lr})")
        if self.schedule == "exponential" and self.final_lr == 0:
            raise ValueError("an exponential schedule needs final_lr above 0: it never reaches 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are two numbers from 0 to below 1, not {self.betas}")
        listed = (self.checkpoints,) if isinstance(self.checkpoints, int) else self.checkpoints
        if listed and not 0 <= min(listed) <= max(listed) <= self.steps:
            raise ValueError(f"checkpoints must lie from 0 to the number of steps, {self.steps}")
        return self

    def recorded(self) -> Mapping[str, Any]:
        """The settings as JSON data, for a checkpoint's training record."""
        return self.model_dump(mode="json")

    def log_interval(self) -> int:
        """Steps between two measurements of the loss."""
        return self.log_every or max(1, self.steps // self.curve_points)

    def save_interval(self) -> int:
        """Steps between two saves of the state."""
        return self.save_every or max(1, self.steps // SAVES_A_RUN)

    def kept_steps(self) -> frozenset[int]:
        """After which numbers of updates the model is kept."""
        if not isinstance(self.checkpoints, int):
            return frozenset(self.checkpoints)
        if self.checkpoints < 2:
            return frozenset([self.steps] * self.checkpoints)
        gaps = max(1, self.checkpoints - 2)
        shares = (1 - i / gaps for i in range(self.checkpoints - 1))
        return frozenset([0, *(round(self.steps**share) for share in shares)])
