"""Run the independent jobs of a study on an engine, and store each result as soon as its job ends.

A job is a function of the package with plain arguments, such as "train this recipe from this seed".
Every job runs on one thread, so that its values depend neither on the process nor on the number of
parallel jobs. Values are written to the study's folder before they are used, and read from there.
An interrupted study continues after its finished jobs and ends with bitwise equal values.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from interp_studies.jobs.attempt import (
    Attempt,
    Job,
    Outcome,
    attempt,
)
from interp_studies.jobs.engines import (
    DASK,
    LOCAL,
    JobEngine,
    attempts,
)
from interp_studies.jobs.job_files import JobFiles
from interp_studies.recipe_settings import Given, check_variants, of_variant
from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.training.engine.run_files import LOCK, locked

__all__ = ["Attempt", "JobEngine", "Job", "Outcome", "Runner"]

ABOUT = "study.txt"
_ABOUT_TEXT = """\
The jobs of a study of interp-toolkit. NAME.json is what a job found, NAME.safetensors its model,
NAME/ what it kept while it ran. The same command with --resume goes on from here.
"""


@dataclass(frozen=True)
class Begun:
    """Jobs in progress.

    Attributes:
        done: values of jobs that were done before, by name.
        tries: attempts at the other jobs, as they end.
        files: the files of the jobs.
    """

    done: Mapping[str, Mapping[str, Any]]
    tries: Generator[Attempt, None, None]
    files: JobFiles


class Runner:
    """Runs the jobs of a study.

    Args:
        folder: folder of the jobs, which is created if necessary; None: a temporary folder.
        workers: number of jobs at once; None: one per processor, one on a GPU, or as many as a
            running Dask cluster has workers.
        device: device of the jobs, which their study passes to them.
        resume: use the results of an interrupted or smaller run in the folder.
        say: called with a description of finished jobs.
        engine: engine of the jobs.
        given: the user's settings by recipe, for all variants or (`VARIANT.KEY`) for one, which
            replace the study's settings.
        first_seed: first seed of the study; the others follow.

    Raises:
        InputError: the folder cannot be created, is not a study's, or is not empty and `resume` is
            not set.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        workers: int | None = None,
        device: str = "cpu",
        resume: bool = False,
        say: Callable[[str], None] = lambda line: None,
        engine: JobEngine | None = None,
        given: Given | None = None,
        first_seed: int = 0,
    ):
        if workers is not None and workers < 1:
            raise InputError(f"workers must be at least 1, got {workers}")
        self.device = device
        self.engine = engine or JobEngine()
        self.workers = workers
        if workers is None and not (self.engine.name == DASK and self.engine.address):
            self.workers = joblib.cpu_count() if device == "cpu" else 1
        self.folder, self.say = folder, say
        self.first_seed = first_seed
        self.given: Given = given or {}
        self._trained: dict[str, set[str]] = {}
        if folder is not None:
            _check_folder(folder, resume)

    def seeds(self, count: int) -> range:
        """`count` consecutive seeds from the first."""
        return range(self.first_seed, self.first_seed + count)

    def settings_for(self, recipe: str, variant: str | None = None) -> Mapping[str, Any]:
        """The user's settings of a recipe's variant that the study trains."""
        trained = self._trained.setdefault(recipe, set())
        if variant is not None:
            trained.add(variant)
        return of_variant(self.given.get(recipe, {}), variant)

    def run(self, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """The values of every job, by name, in the order of the jobs.

        Raises:
            InputError: from a job; or a finished job in the folder is a different one; or settings
                are given for a recipe that the study does not train.
        """
        alone = self.engine.name == LOCAL and min(self.workers or 1, len(jobs)) <= 1
        with self.begun(jobs, in_workers=not alone) as begun:
            for found in begun.tries:
                found.check()
            return {job.name: begun.files.read(job.name) for job in jobs}

    @contextlib.contextmanager
    def begun(self, jobs: Sequence[Job], *, in_workers: bool = True) -> Iterator[Begun]:
        """The values of finished jobs, and attempts at the other jobs as they end.

        A job that raises, or whose process is killed twice, is an attempt without values, and the
        others continue; jobs therefore run in worker processes.

        Raises:
            InputError: a finished job in the folder is a different one, another process uses the
                folder, or the engine fails.
        """
        self._check_given()
        with self._place() as place:
            files = JobFiles(place)
            done = {job.name for job in jobs if files.has(job.name, job.identity())}
            todo = [job for job in jobs if job.name not in done]
            if done:
                self.say(f"{len(done)} of {len(jobs)} jobs were done before")
            with contextlib.closing(
                self._tries(todo, files, place, in_workers, len(done))
            ) as tries:
                yield Begun({name: files.read(name) for name in done}, tries, files)

    def _tries(
        self, jobs: Sequence[Job], files: JobFiles, place: Path, in_workers: bool, before: int
    ) -> Generator[Attempt, None, None]:
        """The attempts, the costliest job first, each written to its file before it is given."""
        by_name = {job.name: job for job in sorted(jobs, key=lambda job: -job.cost)}
        found = (attempt(job, place / job.name) for job in by_name.values())
        if in_workers:
            found = attempts(list(by_name.values()), place, self.engine, self.workers)
        began, lost = time.monotonic(), 0
        with contextlib.closing(found):
            for number, one in enumerate(found, start=before + 1):
                if one.error is None:
                    files.write(one.name, by_name[one.name].identity(), one)
                else:
                    lost += 1
                    self.say(f"{one.name} failed: {one.failure()}")
                minutes, seconds = divmod(round(time.monotonic() - began), 60)
                spent = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
                how = f"ended, {lost} of them without a result," if lost else "done"
                self.say(f"{number} of {before + len(jobs)} jobs {how} after {spent}: {one.name}")
                yield one

    def _check_given(self) -> None:
        for recipe in self.given.keys() - self._trained:
            trained = " and ".join(sorted(self._trained))
            raise InputError(
                f"the study trains {trained}, not {recipe}"
                if trained
                else f"the study takes no settings of recipes, such as of {recipe}"
            )
        for recipe, settings in self.given.items():
            check_variants(recipe, settings, self._trained[recipe])

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        if self.folder is not None:
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"--out {self.folder} cannot be made: {reason_of(error)}"
                ) from error
            with locked(self.folder):
                (self.folder / ABOUT).write_text(_ABOUT_TEXT, encoding="utf-8")
                yield self.folder
            return
        with tempfile.TemporaryDirectory(
            prefix="interp-reproduce-", ignore_cleanup_errors=True
        ) as place:
            yield Path(place)


def _check_folder(folder: Path, resume: bool) -> None:
    """Raise InputError where a study cannot be kept; the folder is made when its jobs begin."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {folder} is a file: give a folder")
        if not folder.parent.is_dir():
            raise InputError(f"--out {folder}: there is no folder {folder.parent}")
        held = {path.name for path in folder.iterdir()} - {LOCK} if folder.exists() else set()
    except OSError as error:
        raise InputError(f"--out {folder} cannot be used: {reason_of(error)}") from error
    if held and ABOUT not in held:
        raise InputError(f"--out {folder} holds files but not a study: give a new or empty folder")
    if held - {ABOUT} and not resume:
        raise InputError(
            f"--out {folder} is not empty: give --resume to continue the study there, or another "
            "folder"
        )
    if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        raise InputError(f"--out {folder}: no permission to write there")
