"""Run the independent jobs of a study over processes, each kept as soon as it is done.

A job is a function of the package with plain arguments, such as "train this recipe from this seed".
Every job runs on one thread, in this process or in another, so that how many run at once changes
nothing in what they compute. What a job found is written to the study's folder before it is
used, and read back from there: a study that was killed goes on after the jobs it had finished,
and ends with the same bits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import torch
from threadpoolctl import threadpool_limits

from interp_toolkit.errors import InputError
from interp_toolkit.studies.job_files import JobFiles

WATCH_EVERY = 0.5  # seconds between two looks at whether the parent process lives


@dataclass(frozen=True)
class Outcome:
    """What a job found.

    Attributes:
        values: JSON data.
        model: a `Transformer` to keep beside them, if any.
        task, training: the records of its checkpoint.
    """

    values: Mapping[str, Any]
    model: Any = None
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """A part of a study that needs no other.

    Attributes:
        name: unique in the study; also the name of its files.
        function: of a module, so that another process finds it; takes `folder`, a place for files
            of its own that is there again after a kill, and the arguments.
        arguments: JSON data; they settle, with the function, what comes out.
        cost: how long it takes, roughly, beside the others: the longest are started first.
    """

    name: str
    function: Callable[..., Outcome]
    arguments: Mapping[str, Any]
    cost: float = 1.0

    def identity(self) -> dict[str, Any]:
        """What is computed, as JSON data."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return {"function": function, "arguments": dict(self.arguments)}


def _unsaid(said: str) -> None:
    """Say nothing."""


class Runner:
    """Where and how the jobs of a study run.

    Args:
        folder: where jobs are kept; made if it is not there. None: nowhere, in the end.
        workers: processes at once; None: as many as there are processors, one on a GPU.
        device: what the jobs compute on; they are given it as an argument by their study.
        resume: take over what an earlier, killed or smaller run left in the folder.
        say: is told which jobs are done.

    Raises:
        InputError: the folder cannot be made, or holds something and `resume` is not given.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        workers: int | None = None,
        device: str = "cpu",
        resume: bool = False,
        say: Callable[[str], None] = _unsaid,
    ):
        if workers is not None and workers < 1:
            raise InputError(f"there must be one worker or more, not {workers}")
        self.device = device
        self.workers = workers or (joblib.cpu_count() if device == "cpu" else 1)
        self._folder, self._resume, self._say = folder, resume, say
        if folder is not None:
            _check_folder(folder, resume)

    def run(self, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """The values of every job, by its name, in the order of the jobs.

        Raises:
            InputError: what a job raised; or a finished job in the folder was another one.
        """
        with self._place() as place:
            files = JobFiles(place)
            done = [job.name for job in jobs if files.has(job.name, job.identity())]
            todo = sorted((job for job in jobs if job.name not in done), key=lambda job: -job.cost)
            if done:
                self._say(f"{len(done)} of {len(jobs)} jobs were done before")
            began = time.monotonic()
            with contextlib.closing(_performed(todo, place, self.workers)) as performed:
                for number, name in enumerate(performed, start=len(done) + 1):
                    spent = _duration(time.monotonic() - began)
                    self._say(f"{number} of {len(jobs)} jobs done after {spent}: {name}")
            return {job.name: files.read(job.name) for job in jobs}

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        if self._folder is not None:
            yield self._folder
            return
        place = Path(tempfile.mkdtemp(prefix="interp-reproduce-"))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _performed(jobs: Sequence[Job], place: Path, workers: int) -> Generator[str, None, None]:
    """The jobs' names as they get done."""
    workers = min(workers, len(jobs))
    if workers <= 1:
        for job in jobs:
            yield _perform(job, place)
        return
    try:
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
            parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs")
            here = os.getpid()
            names = parallel(joblib.delayed(_perform_for)(here, job, place) for job in jobs)
        yield from names
    except BrokenProcessPool as error:
        raise InputError(
            "a process was killed, perhaps for want of memory: give fewer --workers, and --resume "
            "if there is an --out folder"
        ) from error


def _perform_for(parent: int, job: Job, place: Path) -> str:
    """Do a job in another process, as long as the one that wants it lives.

    Otherwise a study that was killed and resumed would have two writers of the same files.
    """
    done = threading.Event()
    threading.Thread(target=_leave_with, args=(parent, done), daemon=True).start()
    try:
        return _perform(job, place)
    finally:
        done.set()


def _leave_with(parent: int, done: threading.Event) -> None:
    while not done.wait(WATCH_EVERY):
        if os.getppid() != parent:
            os._exit(1)


def _perform(job: Job, place: Path) -> str:
    """Do a job and keep what it found; in any process."""
    files = JobFiles(place)
    try:
        with _one_thread():
            outcome = job.function(folder=files.work(job.name), **job.arguments)
    except InputError as error:
        raise InputError(f"{job.name}: {error}") from error
    files.write(job.name, job.identity(), outcome)
    return job.name


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch and the linear algebra of numpy on one thread each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def _check_folder(folder: Path, resume: bool) -> None:
    try:
        folder.mkdir(exist_ok=True)
        if not resume and any(folder.iterdir()):
            raise InputError(
                f"--out {folder} is not empty: give --resume to go on with the study there, or "
                "another folder"
            )
    except OSError as error:
        raise InputError(f"--out {folder} cannot be used: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"--out {folder}: no permission to write there")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
