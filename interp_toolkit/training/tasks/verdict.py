"""The sentences that sum a run of a task up: how many rows are right, how sure, and guessing."""

from __future__ import annotations

from interp_toolkit.stats import clopper_pearson
from interp_toolkit.training.engine.metrics import percent
from interp_toolkit.training.engine.seeds import SeedRuns
from interp_toolkit.training.tasks.settings import SyntheticTraining, TaskTraining

BITS = "bits_per_parameter"


def task_verdict(config: SyntheticTraining, runs: SeedRuns) -> str:
    """The verdict on a recipe: the best seed, the other seeds, and the size of the model."""
    task, scores = config.task, runs.scores
    parts = [
        f"{task.name}, {config.variant}: {percent(scores['accuracy'])} of {_tested(config)} "
        "are right"
    ]
    if isinstance(config, TaskTraining):
        rows = config.test_examples
        low, high = clopper_pearson(scores["accuracy"] * rows, rows)
        parts[0] += f" (95 % interval {percent(low)} to {percent(high)})"
    if task.guess is not None:
        parts.append(f"{task.guess_rule} is right in {percent(task.guess)}")
    parts.append(f"{scores['trainable']:,} parameters are trained")
    if BITS in scores:
        parts[-1] += f" and hold {scores[BITS]:.3g} bits each"
    return "; ".join(parts) + "." + _of_seeds(runs)


def _tested(config: SyntheticTraining) -> str:
    rows = f"{config.tested_rows:,} rows"
    if not isinstance(config, TaskTraining):
        return f"all {rows}, which are those trained on,"
    return (
        f"{rows} not trained on"
        if config.task.whole_rows
        else f"the answers in {rows} not trained on"
    )


def _of_seeds(runs: SeedRuns) -> str:
    """That it is the best of several, which flatters it; nothing of a single seed."""
    if len(runs.by_seed) < 2:
        return ""
    reached = sorted(scores["accuracy"] for scores in runs.by_seed.values())
    return (
        f" The best of {len(reached)} seeds, chosen on these rows; their accuracies go from "
        f"{percent(reached[0])} to {percent(reached[-1])}."
    )
