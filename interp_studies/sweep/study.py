"""Train a recipe at all points of a grid, over seeds, and select the best point.

Every run is a job, so an interrupted sweep can be resumed, on any engine. A run that fails, or
whose process is killed twice, is reported as missing, and the other runs go on. The result is
written after every run, so its file is always complete and lists the missing runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.sweep.file import Point, SweepFile, grid_points
from interp_studies.sweep.result import SweepResult, sweep_result
from interp_studies.texts import check_texts
from interp_studies.train_seed import train_seed
from interp_toolkit.errors import InputError
from interp_toolkit.training.engine.metrics import KEY, check_log, final_score_of, tracked
from interp_toolkit.training.engine.run_files import end_run, has_unfinished

NOT_YET = "not done yet"


def train_point(
    *,
    folder: Path,
    recipe: str,
    settings: Mapping[str, Any],
    seed: int,
    device: str,
    log: Mapping[str, str] | None = None,
) -> Outcome:
    """Train one seed at a point; returns its figure.

    Args:
        folder: folder of the training run's files.
        recipe: name of the recipe.
        settings: settings that differ from the recipe's defaults.
        seed: random seed of the model and its batches.
        device: device of the training.
        log: destination of measurements: `to`, `folder` and `name` of `tracked`.
    """
    began = time.monotonic()
    nowhere = {"to": None, "folder": None, "name": ""}
    with tracked(**(log or nowhere), restart=not has_unfinished(folder)) as send:
        _, run = train_seed(recipe, settings, seed, device, folder, send)
    end_run(folder)
    loss = run.training["loss"]
    figure = asdict(final_score_of(run.training)) if KEY in run.training else _of_loss(loss)
    values = {"seed": seed, KEY: figure, "loss": loss}
    return Outcome({**values, "seconds": time.monotonic() - began})


def _of_loss(loss: float) -> dict[str, Any]:
    """The final loss as the compared figure, for recipes that define none."""
    return {"name": "loss", "value": loss, "better": "lower", "unit": "", "examples": None}


def sweep(
    file: SweepFile,
    runner: Runner | None = None,
    *,
    keep: Callable[[SweepResult], None],
    log: str | None = None,
) -> SweepResult:
    """Train all points of a sweep.

    Args:
        file: contents of the sweep's file.
        runner: runner of the jobs; None: on the CPU, one process per processor.
        keep: called with the result so far, at the start and after every run.
        log: destination of measurements, "tensorboard" or "wandb"; requires the runner's folder.

    Raises:
        InputError: a point does not fit the recipe, its text cannot be read, or no run finished.
    """
    runner = runner or Runner()
    check_log(log, runner.folder)
    points = grid_points(file)
    if log and runner.engine.address:
        raise InputError("--log follows runs on this machine: leave out --address")
    sent = {"to": log, "folder": str(Path(runner.folder or "").resolve())} if log else None
    every = [(point, seed) for point in points for seed in range(file.seeds)]
    todo = [(_job(file, *each, runner.device, sent), each) for each in every]
    check_texts((job for job, _ in todo), runner)
    jobs = {job.name: at for job, at in todo}
    found: dict[str, Mapping[str, Any]] = {}
    why = dict.fromkeys(jobs, NOT_YET)

    def so_far() -> SweepResult:
        runs: dict[str, dict[int, Mapping[str, Any]]] = {p.name: {} for p in points}
        missing: dict[str, dict[int, str]] = {p.name: {} for p in points}
        for name, (point, seed) in jobs.items():
            if name in found:
                runs[point.name][seed] = found[name]
            else:
                missing[point.name][seed] = why[name]
        return sweep_result(file, points, runs, missing, runner.device)

    with runner.begun([job for job, _ in todo]) as begun:
        kept = f", kept in {runner.folder}" if runner.folder else ""
        runner.say(f"{_count(len(points), 'point')}, {_count(len(jobs), 'run')}{kept}")
        found.update(begun.done)
        keep(so_far())
        for one in begun.tries:
            if one.values is None:
                why[one.name] = one.failure()
            else:
                found[one.name] = one.values
            keep(so_far())
    if not found:
        raise InputError(f"no run finished; the first one: {next(iter(why.values()))}")
    return so_far()


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _job(
    file: SweepFile, point: Point, seed: int, device: str, sent: Mapping[str, str] | None
) -> Job:
    return Job(
        name=f"{point.name}-seed-{seed}",
        function=train_point,
        arguments={
            "recipe": file.recipe,
            "settings": point.settings,
            "seed": seed,
            "device": device,
        },
        beside={"log": {**sent, "name": f"{point.name}-seed-{seed}"}} if sent else {},
        cost=point.cost,
    )
