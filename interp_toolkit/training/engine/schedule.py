"""Learning rates as functions of the step, or of the losses measured, so that resuming is exact.

With t = step / steps, from 0 to 1, the rate falls from `lr` to `final_lr`
    - linear: along a straight line;
    - cosine: along half a cosine, slow at both ends (Loshchilov & Hutter 2017, without restarts);
    - exponential: by the same factor each step;
    - plateau: by √10 whenever the measured loss has not fallen by 1 % over ten measurements,
      and never below `final_lr` (what is often done by hand);
and over the first `warm_up` steps it is multiplied by (step + 1) / warm_up (Goyal et al. 2017).
"""

from __future__ import annotations

import math

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from interp_toolkit.training.engine.settings import TrainingSettings

FACTOR, PATIENCE, THRESHOLD = 10**-0.5, 10, 0.01  # of a plateau


class Plateau:
    """The rate of schedule "plateau", which follows the losses that are measured."""

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
        """Take note of a loss."""
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
    """The schedule's rate as a share of `lr`, from 1 at t = 0 to `final_lr / lr` at t = 1."""
    floor = settings.final_lr / settings.lr
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "exponential":
        return float(floor**t)
    left = 1 - t if settings.schedule == "linear" else (1 + math.cos(math.pi * t)) / 2
    return floor + (1 - floor) * left
