"""Learning rates as functions of the step alone, so that a resumed run goes on exactly.

With t = step / steps, from 0 to 1, the rate falls from `lr` to `final_lr`
    - linear: along a straight line;
    - cosine: along half a cosine, slow at both ends (Loshchilov & Hutter 2017, without restarts);
    - exponential: by the same factor each step;
and over the first `warm_up` steps it is multiplied by (step + 1) / warm_up (Goyal et al. 2017).
"""

from __future__ import annotations

import math

from interp_toolkit.training.engine.settings import TrainingSettings


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """The learning rate of the update after `step` updates."""
    warm = min(1.0, (step + 1) / settings.warm_up) if settings.warm_up else 1.0
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
