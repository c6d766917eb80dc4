"""Settings of a training recipe, learning-rate schedules, and the problem that a recipe trains.

`TrainingSettings` are common to all recipes; each is a `--set` key. A recipe derives its own from
them, with the defaults of its source. `configure` fills them from the preset, the variant and the
user's values, and checks them.

Learning rates are functions of the step, or of the measured losses, so that resuming is exact. With
t = step / steps, from 0 to 1, the rate falls from `lr` to `final_lr`
    - linear: along a straight line;
    - cosine: along half a cosine, slow at both ends (Loshchilov & Hutter 2017, without restarts);
    - exponential: by the same factor each step;
    - plateau: by √10 once more than ten measured losses in a row are not 1 % below the lowest
      before, and never below `final_lr` (an automatic form of a common manual schedule);
and over the first `warm_up` steps it is multiplied by (step + 1) / warm_up (Goyal et al. 2017).

A `Problem` is one seed's model with its batches and its loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.about.info import find_device
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.options import reason_of
from interp_toolkit.registry import Recipe

SAVES_A_RUN = 20


def _numbers(value: Any) -> Any:
    """Split a text such as `"0.9,0.98"` from the command line; other values are unchanged."""
    if isinstance(value, str) and "," in value:
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


#: learning-rate schedules (see `training.engine.settings`)
Schedule = Literal["constant", "linear", "cosine", "exponential", "plateau"]
Betas = Annotated[tuple[float, float], BeforeValidator(_numbers)]


class TrainingSettings(BaseModel):
    """The settings of the trainer.

    Attributes:
        steps: updates of the weights.
        lr: the maximal learning rate.
        final_lr: the learning rate at the end of the schedule (the least of a plateau); a constant
            schedule ignores it.
        schedule: "constant", "linear", "cosine", "exponential" or "plateau" (see
            `training.engine.settings`).
        warm_up: first steps, over which the learning rate rises linearly to the schedule's.
        optimiser: "adam" (weight decay as an L2 term in the gradient) or "adamw" (decoupled).
        betas: decay rates of the optimizer's two moments.
        weight_decay: weight decay of the optimizer.
        target: stop a seed once its watched loss is below this; 0: never.
        seeds: number of seeds.
        seed: the first seed.
        device: device of the training.
        dtype: dtype of the weights in training.
        checkpoints: numbers of updates after which the model is stored: a list such as
            `0,100,1000`, or a number of checkpoints, spread evenly on a logarithmic scale from 0 to
            `steps`; 0: none.
        log_every: steps between two measurements of the loss; 0: about 50 to 150 measurements per
            seed, depending on the recipe.
        save_every: steps between two saves of the state for `--resume`; 0: twenty per seed.
        graphs: whether steps on a GPU are recorded as a CUDA graph and replayed; "auto": if the
            recipe's step allows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    #: number of measurements of the loss if `log_every` is 0
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

    def steps_to_save(self) -> frozenset[int]:
        """Numbers of updates after which the model is stored."""
        if not isinstance(self.checkpoints, int):
            return frozenset(self.checkpoints)
        if self.checkpoints < 2:
            return frozenset([self.steps] * self.checkpoints)
        gaps = max(1, self.checkpoints - 2)
        shares = (1 - i / gaps for i in range(self.checkpoints - 1))
        return frozenset([0, *(round(self.steps**share) for share in shares)])


def configure(
    recipe: Recipe, variant: str | None, preset: str, overrides: Mapping[str, Any]
) -> Any:
    """The recipe's `config`, filled by precedence: overrides, then the variant, then the preset.

    Args:
        recipe: recipe of the settings.
        variant: its name; None: none.
        preset: its name.
        overrides: new values, by setting; texts from the command line are converted to numbers.

    Raises:
        InputError: an unknown variant, preset or setting; or an invalid value.
    """
    for name, chosen, kind in (
        (preset, recipe.presets, "preset"),
        (variant, recipe.variants, "variant"),
    ):
        if name is not None and name not in chosen:
            raise InputError(f"{recipe.name} has no {kind} {name!r}{suggestion(name, chosen)}")
    settings = {
        **recipe.presets[preset],
        **(recipe.variants[variant] if variant else {}),
        **overrides,
    }
    if "device" in recipe.config.model_fields:
        settings["device"] = str(find_device(settings.get("device", "auto")))
    try:
        return recipe.config(**{k: None if v == "none" else v for k, v in settings.items()})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else None  # None: several settings together
        if key is not None and first["type"] == "extra_forbidden":
            hint = suggestion(key, recipe.config.model_fields)
            raise InputError(f"{recipe.name} has no setting {key!r}{hint}") from error
        reason = reason_of(error)
        value = None if key is None else settings[key]
        what = "" if key is None else f"{key} = {'null' if value is None else repr(value)}: "
        raise InputError(f"{recipe.name}: {what}{reason}") from error


FACTOR, PATIENCE, THRESHOLD = 10**-0.5, 10, 0.01  # of a plateau


class Plateau:
    """The learning rate of schedule "plateau", which depends on the measured losses."""

    def __init__(self, settings: TrainingSettings):
        nothing = torch.optim.SGD([torch.zeros((), requires_grad=True)], lr=settings.lr)
        self._watch = ReduceLROnPlateau(
            nothing,
            factor=FACTOR,
            patience=PATIENCE,
            threshold=THRESHOLD,
            min_lr=settings.final_lr,
            eps=0.0,
        )

    def measured(self, loss: float) -> None:
        """Record a measured loss."""
        self._watch.step(loss)

    @property
    def rate(self) -> float:
        """The learning rate after the losses so far."""
        return float(self._watch.optimizer.param_groups[0]["lr"])


def learning_rate(settings: TrainingSettings, step: int, plateau: Plateau | None = None) -> float:
    """The learning rate of the update after `step` updates."""
    warm = min(1.0, (step + 1) / settings.warm_up) if settings.warm_up else 1.0
    if plateau is not None:
        return warm * plateau.rate
    return settings.lr * warm * _share(settings, step / settings.steps)


def _share(settings: TrainingSettings, t: float) -> float:
    """The schedule's rate as a fraction of `lr`, from 1 at t = 0 to `final_lr / lr` at t = 1."""
    floor = settings.final_lr / settings.lr
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "exponential":
        return float(floor**t)
    left = 1 - t if settings.schedule == "linear" else (1 + math.cos(math.pi * t)) / 2
    return floor + (1 - floor) * left


class Problem(ABC):
    """One seed's model and its training data.

    Attributes:
        model: made from the seed, on the device, without hooks; trained in place.
        watched: the measurement compared with `target`: "loss", of the current batch; "smoothed",
            the mean of the last ten; or a name returned by `evaluate`.
        capturable: whether drawing and loss run the same kernels on the same shapes every step and
            do not synchronize with the CPU (no `.item()`, no `if` on a tensor), as a CUDA graph
            requires.
    """

    model: Transformer
    watched: ClassVar[str] = "loss"
    capturable: ClassVar[bool] = False

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Any:
        """A new random batch, from this generator and on its device."""

    @abstractmethod
    def loss(self, batch: Any) -> Float[Tensor, ""]:
        """The loss of the model on a batch, a mean over its rows; without randomness."""

    def evaluate(self) -> Mapping[str, float]:
        """Further metrics, without gradients, at each measurement of the loss."""
        return {}
