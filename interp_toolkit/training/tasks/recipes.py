"""`interp train TASK --variant V`: the model variants on the synthetic tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp_toolkit.registry import Recipe, Session, TrainingRun
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.metrics import FinalScore
from interp_toolkit.training.engine.seeds import SeedRuns, train_seeds
from interp_toolkit.training.engine.trainer import Fitted
from interp_toolkit.training.tasks.problem import TaskProblem
from interp_toolkit.training.tasks.settings import BY_VARIANT, SyntheticTraining
from interp_toolkit.training.tasks.verdict import BITS, task_verdict


def train_task(config: SyntheticTraining, session: Session | None = None) -> TrainingRun:
    """Train every seed and keep the most accurate; raises InputError where there is no device."""
    task = config.task

    def score(problem: TaskProblem, fitted: Fitted) -> Mapping[str, Any]:
        accuracy, trainable = (
            problem.accuracy(problem.test_rows),
            trainable_parameters(problem.model),
        )
        scores = {
            "accuracy": accuracy,
            "error": 1 - accuracy,
            "loss": fitted.loss,
            "trainable": trainable,
        }
        bits = task.stored_bits
        return scores if bits is None else {**scores, BITS: bits * accuracy / trainable}

    runs = train_seeds(
        task.name,
        config,
        lambda seed: TaskProblem(config, seed),
        score,
        session,
        by="error",
        task=task.record(),
    )
    return TrainingRun(
        model=runs.model,
        verdict=task_verdict(config, runs),
        columns=runs.columns,
        rows=runs.rows,
        task=task.record(),
        training={**runs.record(), **_measured(config, runs).recorded()},
    )


def _measured(config: SyntheticTraining, runs: SeedRuns) -> FinalScore:
    return FinalScore(
        name="accuracy",
        value=runs.scores["accuracy"],
        better="higher",
        unit="share",
        guess=config.task.guess,
        examples=config.tested_rows,
        guess_rule=config.task.guess_rule,
    )


def task_recipe(
    summary: str, config: type[SyntheticTraining], presets: Mapping[str, Mapping[str, Any]]
) -> Recipe:
    """The recipe of a task in every variant."""
    return Recipe(
        name=config().task.name,
        summary=summary,
        config=config,
        variants=BY_VARIANT,
        presets=presets,
        train=train_task,
    )
