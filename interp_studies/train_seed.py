"""Train one seed of a recipe, as a part of a study's job, going on where a killed one stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.registry import Session, TrainingRun, find
from interp_toolkit.training.engine.run_files import has_unfinished


def train_seed(
    recipe: str,
    settings: Mapping[str, Any],
    seed: int,
    device: str,
    folder: Path,
    log: Callable[[Mapping[str, Any]], None] = lambda line: None,
) -> tuple[Any, TrainingRun]:
    """The recipe's settings as run, and the run of this one seed.

    The job calls `end_run(folder)` when it needs the state no more.

    Args:
        recipe: its name.
        settings: what differs from its defaults.
        seed: random seed of the model and its batches.
        device: where to train.
        folder: for the run's files: metrics, checkpoints of chosen steps, the state to go on from.
        log: is given every measurement.

    Raises:
        InputError: what the recipe says; or the folder cannot be written.
    """
    found = find("recipes", recipe)
    config = found.config(**{**settings, "seeds": 1, "seed": seed, "device": device})
    return config, found.train(config, Session(folder, resume=has_unfinished(folder), log=log))


def variant_of(recipe: str, variant: str | None) -> dict[str, Any]:
    """The settings of a recipe's variant; none without one.

    Raises:
        InputError: the recipe has no such variant.
    """
    variants = find("recipes", recipe).variants
    if variant is not None and variant not in variants:
        raise InputError(f"{recipe} has no variant {variant!r}{suggestion(variant, variants)}")
    return dict(variants[variant]) if variant else {}
