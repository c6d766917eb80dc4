"""Where jobs run: processes of this machine, a Dask cluster, any backend that joblib knows.

What is spread, by joblib or by Dask, are watchers, each of which does its jobs in a process of its
own (see `own_process`): threads here, or the workers of a cluster. So a job that is killed is one
attempt that failed, whatever the engine, and nothing else is lost with it.

Attempts come back as they end. A backend that can only return all at once (`multiprocessing`, and
Ray's, which is made from it) is given as many jobs at a time as it has workers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import tempfile
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import joblib

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.studies.jobs.attempt import Attempt, Job, JobTask
from interp_toolkit.studies.jobs.own_process import processes_of, stop_processes

LOCAL, DASK, RAY = "local", "dask", "ray"
_NEEDS = {
    DASK: ("distributed", "pip install 'interp-toolkit[dask]'"),
    RAY: ("ray", "pip install ray"),
}


@dataclass(frozen=True)
class JobEngine:
    """What does the jobs.

    Attributes:
        name: "local": processes of this machine; "dask"; or a joblib backend's name.
        address: of a Dask scheduler, such as `tcp://host:8786`; None: a cluster of this machine
            is started, and ended afterwards.

    Raises:
        InputError: no such engine, or its package is not installed; or an address for one that
            has none.
    """

    name: str = LOCAL
    address: str | None = None

    def __post_init__(self) -> None:
        if self.address is not None and self.name != DASK:
            raise InputError("--address is a Dask scheduler's: give --engine dask")
        _check_known(self.name)


@dataclass(frozen=True)
class Backend:
    """An engine that has been opened.

    Attributes:
        spread: does the tasks, and gives their results as they end.
        stop: ends the processes of a run, wherever they are.
    """

    spread: Callable[[Sequence[JobTask]], Generator[Attempt, None, None]]
    stop: Callable[[str], None] = stop_processes


def attempts(
    jobs: Sequence[Job],
    place: Path,
    engine: JobEngine,
    workers: int | None,
    seconds: float | None = None,
) -> Generator[Attempt, None, None]:
    """Each job tried once, as the tries end.

    Args:
        jobs: to do, the first ones first.
        place: the folder of the study; workers that share it keep their state there, others in
            a folder of their own, which is gone afterwards.
        engine: what does them.
        workers: jobs at once; None: as many as the engine has room for.
        seconds: that a job may take before its process is killed; None: as long as it likes.

    Raises:
        InputError: the engine is not known, not installed or not reached, or it broke down.
    """
    run = uuid.uuid4().hex
    with _marked(place, run), _opened(engine, workers) as backend:
        tasks = [JobTask(run, job.name, pickle.dumps(job), place, seconds) for job in jobs]
        found = _explained(backend.spread(tasks), engine)
        try:
            # not `yield from`, which would end joblib's generator before the processes
            for attempt in found:  # noqa: UP028
                yield attempt
        finally:
            backend.stop(run)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that some results are not wanted any more
                found.close()


def attempt_apart(
    run: str, name: str, job: bytes, place: Path, seconds: float | None = None
) -> Attempt:
    """Watch over a pickled job in a process of its own; in any thread, process or machine."""
    if _mark(place, run).exists():
        return processes_of(run).attempt(name, job, place / name, seconds)
    with tempfile.TemporaryDirectory(prefix="interp-job-") as own:
        return processes_of(run).attempt(name, job, Path(own) / name, seconds)


def _spread_by_joblib(
    backend: str, workers: int | None, tasks: Sequence[JobTask]
) -> Generator[Attempt, None, None]:
    """The tasks' results; joblib's configuration is left again before anything is yielded."""
    if not tasks:
        return
    with joblib.parallel_config(backend=backend, n_jobs=workers or joblib.cpu_count()):
        streams = _streams()
        parallel = joblib.Parallel(
            return_as="generator_unordered" if streams else "list",
            pre_dispatch="n_jobs" if streams else "all",
            batch_size=1,
        )
        wave = len(tasks) if streams else max(1, parallel._effective_n_jobs())
    for start in range(0, len(tasks), wave):
        yield from parallel(joblib.delayed(attempt_apart)(*t) for t in tasks[start : start + wave])


def _streams() -> bool:
    """Whether the backend in force returns results one by one."""
    backend, _ = joblib.parallel.get_active_backend()
    return bool(backend.supports_return_generator)


def _explained(
    found: Generator[Attempt, None, None], engine: JobEngine
) -> Generator[Attempt, None, None]:
    """Attempts do not raise: what does is the engine's trouble."""
    try:
        yield from found
    except InputError:
        raise
    except Exception as error:
        if engine.name == LOCAL:
            raise
        said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise InputError(
            f"--engine {engine.name} broke down ({said}); what was done is kept: --resume goes on"
        ) from error


@contextlib.contextmanager
def _opened(engine: JobEngine, workers: int | None) -> Iterator[Backend]:
    if engine.name == DASK:
        from interp_toolkit.studies.jobs.dask_engine import opened, spread

        with opened(engine.address, workers) as (client, stop):
            at_once = workers or sum(client.ncores().values())
            yield Backend(
                lambda tasks: spread(client, attempt_apart, tasks, at_once),
                stop,
            )
    else:
        backend = "threading" if engine.name == LOCAL else engine.name
        yield Backend(partial(_spread_by_joblib, backend, workers))


def _check_known(name: str) -> None:
    """Raise InputError where joblib has no such backend; Ray is made known to it first."""
    for engine, (package, install) in _NEEDS.items():
        if name == engine and importlib.util.find_spec(package) is None:
            raise InputError(f"--engine {engine} needs {package}: {install}")
    if name == RAY:
        importlib.import_module("ray.util.joblib").register_ray()
    known = {LOCAL, *_NEEDS, *joblib.parallel.BACKENDS}
    if name not in known:
        raise InputError(f"no engine is called {name!r}{suggestion(name, known)}")


@contextlib.contextmanager
def _marked(place: Path, run: str) -> Iterator[None]:
    """A file by which a worker knows that it shares the folder."""
    mark = _mark(place, run)
    for left in place.glob(".run-*"):
        left.unlink(missing_ok=True)
    mark.touch()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(mark)


def _mark(place: Path, run: str) -> Path:
    return place / f".run-{run}"
