"""One model of the sorting study: trained, tested, searched for failures, its algorithm read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Outcome
from interp_studies.train_seed import train_seed
from interp_toolkit.circuits.sorting.analysis import sorting_fingerprint
from interp_toolkit.circuits.sorting.evaluation import counterexamples, hard_lists, hardest
from interp_toolkit.circuits.sorting.measures import sorting_evolution
from interp_toolkit.training.engine.run_files import end_run, kept_checkpoints
from interp_toolkit.training.sorting import TESTED_ON, held_out_right

EXAMPLES = 3  # wrongly sorted lists that are kept of each model


def sorting_model(
    *,
    folder: Path,
    recipe: str,
    settings: Mapping[str, Any],
    seed: int,
    device: str,
    searched: int,
) -> Outcome:
    """Train one seed and say how it sorts.

    Args:
        folder: for the training run's files.
        recipe: "sort-causal" or one of its kin.
        settings: what differs from the recipe's defaults.
        seed: of the model and its batches.
        device: where to compute.
        searched: lists, drawn as in training, among which wrongly sorted ones are looked for.
    """
    config, run = train_seed(recipe, settings, seed, device, folder)
    layout, distinct = config.layout, config.distinct
    search = counterexamples(run.model, layout, config.source, n=searched, keep=EXAMPLES)
    fingerprint = sorting_fingerprint(run.model, layout, distinct=distinct)
    tests = fingerprint.accuracy
    values: dict[str, Any] = {
        "seed": seed,
        "loss": tests[TESTED_ON[config.source.kind]].loss,
        "tests": tests,
        "search": search,
        "algorithm": fingerprint.algorithm,
        "algorithm_verdict": fingerprint.verdict,
        "metrics": fingerprint.metrics,
        "hardest": hardest(run.model, layout, hard_lists(layout, distinct), keep=EXAMPLES),
        "held_out": held_out_right(run.model, config),
        "curve": run.training["curve"],
    }
    if kept_checkpoints(folder):
        values["evolution"] = sorting_evolution(folder, layout, distinct=distinct)
    end_run(folder)
    return Outcome(values, run.model, run.task, run.training)
