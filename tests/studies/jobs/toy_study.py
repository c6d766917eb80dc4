"""A study of two quantities that takes milliseconds; other processes import it by this name."""

from __future__ import annotations

import json
import os
import signal
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.result import (
    StudyResult,
    compare,
    overall,
    study_provenance,
    tally,
)
from interp_studies.train_seed import train_seed, variant_of
from interp_toolkit.errors import InputError
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Figure, Table
from interp_toolkit.training.engine.run_files import end_run


def xor_model(
    *, folder: Path, seed: int, steps: int, device: str, deadly: int | None = None
) -> Outcome:
    """Train XOR from a seed; `deadly` is the seed at which a process kills itself, once."""
    settings = {**variant_of("xor", "2-head"), "steps": steps, "target": 0.0}
    config, run = train_seed("xor", settings, seed, device, folder)
    note = folder.parent / "killed"
    if seed == deadly and not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    end_run(folder)
    values = {
        "seed": seed,
        "loss": run.training["loss"],
        "threads": torch.get_num_threads(),
        "steps": config.steps,
    }
    return Outcome(values, run.model, run.task, run.training)


def draws(*, folder: Path, seed: int, n: int) -> Outcome:
    """Numbers that depend on the seed and on the order of additions."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n, generator=generator)
    with (folder.parent / "runs.txt").open("a") as log:
        log.write(f"{seed}\n")
    return Outcome({"seed": seed, "sum": float((x @ x).sum()), "third": 1 / 3, "nan": float("nan")})


def refuses(*, folder: Path, seed: int) -> Outcome:
    raise InputError(f"seed {seed} is unlucky")


def jobs_of(function: Any, seeds: int, **arguments: Any) -> list[Job]:
    return [
        Job(f"{function.__name__}-{seed}", function, {"seed": seed, **arguments})
        for seed in range(seeds)
    ]


@dataclass(frozen=True)
class Median(Evidence):
    median: float


def run(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    steps = {"small": 40, "paper": 80, "long": 1_000_000}[preset]
    deadly = json.loads(os.environ.get("DEADLY_SEED", "null"))
    arguments = {"steps": steps, "device": runner.device, "deadly": deadly}
    found = runner.run(jobs_of(xor_model, seeds or 2, **arguments))
    losses = [values["loss"] for values in found.values()]
    quantities = [
        compare("xor", "loss", losses, 10.0, better="lower", unit="nats"),
        compare("xor", "loss again", losses, 0.0, better="lower", unit="nats", remark="never"),
        compare("xor", "seeds", [float(len(losses))], unit=""),
    ]
    rows = [[values["seed"], values["loss"]] for values in found.values()]
    figure = Figure("Losses", "By seed.", [{"type": "scatter", "y": losses}])
    return StudyResult(
        probe="toy-study",
        verdict=tally(quantities),
        evidence=Median(overall(quantities), statistics.median(losses)),
        provenance=study_provenance("toy-study", "nowhere", {"preset": preset}, 0),
        quantities=quantities,
        jobs=found,
        details=[Table("Every seed", ["seed", "loss"], rows)],
        plots=[figure],
    )


TOY = Artefact(
    name="toy-study",
    summary="two seeds of XOR",
    source="nowhere",
    presets={"small": "40 steps", "paper": "80 steps", "long": "a million"},
    run=run,
)


def unlucky(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """An artefact that cannot be made here."""
    runner.run(jobs_of(refuses, 1))
    raise AssertionError("the job refuses")


UNLUCKY = Artefact("unlucky", "cannot be made", "nowhere", {"small": "never"}, unlucky)
