"""Train one seed of a recipe in a study's job, continuing an interrupted run."""

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
    """Train one seed; returns the recipe's settings and the run.

    The job calls `end_run(folder)` when it no longer needs the saved state.

    Args:
        recipe: name of the recipe.
        settings: settings that differ from its defaults.
        seed: random seed of the model and its batches.
        device: device of the training.
        folder: folder of the run's files: metrics, checkpoints of selected steps, saved state.
        log: called with every measurement.

    Raises:
        InputError: from the recipe, or because the folder cannot be written.
    """
    found = find("recipes", recipe)
    config = found.config(**{**settings, "seeds": 1, "seed": seed, "device": device})
    return config, found.train(config, Session(folder, resume=has_unfinished(folder), log=log))


def variant_of(recipe: str, variant: str | None) -> dict[str, Any]:
    """The settings of a recipe's variant; empty without a variant.

    Raises:
        InputError: the recipe does not have the variant.
    """
    variants = find("recipes", recipe).variants
    if variant is not None and variant not in variants:
        raise InputError(f"{recipe} has no variant {variant!r}{suggestion(variant, variants)}")
    return dict(variants[variant]) if variant else {}
