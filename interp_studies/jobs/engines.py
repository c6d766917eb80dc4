"""Engines: jobs in worker processes of this machine (loky) or of a Dask cluster.

1. A worker runs one job at a time, and attempts are returned as they end.
2. A job whose worker dies is submitted again, to a new worker. A job that has lost DEATHS workers
is a failed attempt; other jobs continue.
3. All workers of this machine end with the run, however the run ends.

On this machine every worker is a loky executor with one process, so that a dying process affects no
other job. On Dask the scheduler does step 2, with its setting `allowed-failures`. Jobs on a remote
cluster run to their end even if the study is interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import pickle
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from interp_studies.jobs.attempt import (
    Attempt,
    Job,
    ProcessKilledError,
    attempt_in_worker,
)
from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError, first_line, suggestion

LOCAL, DASK = "local", "dask"
DEATHS = 2  # of workers under one job, after which the job has failed
LOOK_AFTER = 5  # seconds without an answer, after which processes are looked at
PATIENCE = 10  # seconds for a Dask scheduler to answer and for its first worker to be there
Submit = Callable[..., "Future[Attempt]"]  # of a function and its arguments, to one worker
_ONE_THREAD = {f"{of}_NUM_THREADS": "1" for of in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
_KILLED = (
    "a process was killed, perhaps for want of memory, and a second one too: give fewer "
    "--workers, and --resume if there is an --out folder"
)


@dataclass(frozen=True)
class JobEngine:
    """The engine that runs jobs.

    Attributes:
        name: "local", for processes on this machine, or "dask".
        address: address of a Dask scheduler, such as `tcp://host:8786`; None: a local cluster is
            started and stopped afterwards.

    Raises:
        InputError: the engine is unknown, Dask is not installed, or an address is given without
            Dask.
    """

    name: str = LOCAL
    address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in (LOCAL, DASK):
            close = suggestion(self.name, {LOCAL, DASK})
            raise InputError(f"no engine is called {self.name!r}{close}")
        if self.name == DASK and importlib.util.find_spec("distributed") is None:
            raise InputError("--engine dask needs distributed: pip install 'interp-toolkit[dask]'")
        if self.address is not None and self.name != DASK:
            raise InputError("--address is a Dask scheduler's: give --engine dask")


def attempts(
    jobs: Sequence[Job], study: Path, engine: JobEngine, workers: int | None
) -> Generator[Attempt, None, None]:
    """Attempts at all jobs, in the order in which they end.

    Args:
        jobs: the jobs, in starting order.
        study: folder of the study. Workers that can see it store a job's files there, others in a
            temporary folder.
        engine: the engine.
        workers: number of jobs at once; None: one per processor or per worker of the cluster.

    Raises:
        InputError: the Dask cluster cannot be reached.
    """
    if not jobs:
        return
    workers = workers and min(workers, len(jobs))
    opened = _local_workers(workers) if engine.name == LOCAL else _dask(engine.address, workers)
    study = study.resolve()  # a worker may be in another directory
    with opened as (new_worker, count):
        idle = [new_worker() for _ in range(min(count, len(jobs)))]
        waiting, deaths = deque(jobs), Counter[str]()
        running: dict[Future[Attempt], tuple[Job, Submit]] = {}
        missed: set[Future[Attempt]] = set()  # without a process at the last look
        while waiting or running:
            while waiting and idle:
                job, submit = waiting.popleft(), idle.pop()
                try:
                    with _interrupts_held_back():
                        task = (job.name, pickle.dumps(job), study)
                        running[submit(attempt_in_worker, *task)] = job, submit
                except BrokenProcessPool:  # the worker was killed while it was idle
                    waiting.appendleft(job)
                    idle.append(new_worker())
            done, _ = wait(running, LOOK_AFTER, return_when=FIRST_COMPLETED)
            silent = (
                set() if done else {f for f, (_, submit) in running.items() if _is_gone(submit)}
            )
            lost, missed = silent & missed, silent
            for future in done | lost:
                job, submit = running.pop(future)
                try:
                    if not future.done():
                        raise BrokenProcessPool
                    found = future.result()
                except BrokenProcessPool:
                    submit = new_worker()
                    deaths[job.name] += 1
                    if deaths[job.name] < DEATHS:
                        waiting.appendleft(job)
                        idle.append(submit)
                        continue
                    found = Attempt(job.name, error=ProcessKilledError(_KILLED))
                except Exception as error:
                    found = Attempt(job.name, error=_given_up(error))
                idle.append(submit)
                yield found


def _is_gone(submit: Submit) -> bool:
    """Whether no process is behind this `submit`; loky once never said so of one.

    A worker that grew is without one for a moment, until loky has started the next.
    """
    worker = getattr(submit, "__self__", None)
    return isinstance(worker, ProcessPoolExecutor) and not any(
        process.is_alive() for process in list(worker._processes.values())
    )


@contextlib.contextmanager
def _local_workers(count: int | None) -> Iterator[tuple[Callable[[], Submit], int]]:
    """Starts a worker of this machine and gives its `submit`; and how many to start."""
    with contextlib.ExitStack() as stack:

        def start() -> Submit:
            worker = ProcessPoolExecutor(
                1, initializer=_prepare_worker, initargs=(os.getpid(),), env=_ONE_THREAD
            )
            stack.callback(worker.shutdown, kill_workers=True)
            submit: Submit = worker.submit
            return submit

        yield start, count or joblib.cpu_count()


def _prepare_worker(parent: int) -> None:
    """Redirect a worker's prints, and end the worker if its parent is killed."""
    os.dup2(2, 1)

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C for processes started in this context; their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would let SIGINT through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _dask(address: str | None, count: int | None) -> Iterator[tuple[Callable[[], Submit], int]]:
    """Gives a `submit` to a cluster, there or started here; and how many jobs at once."""
    import dask
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        log = logging.getLogger("distributed.client")  # every lost job is reported by its attempt
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        try:
            cluster = address
            if address is None:
                failures = {"distributed.scheduler.allowed-failures": DEATHS - 1}
                stack.enter_context(dask.config.set(failures))
                cluster = stack.enter_context(
                    LocalCluster(
                        n_workers=count or joblib.cpu_count(),
                        threads_per_worker=1,
                        processes=True,
                        memory_limit=None,
                        dashboard_address="127.0.0.1:0",  # a fixed port may be another cluster's
                        silence_logs=logging.CRITICAL,
                    )
                )
            client = stack.enter_context(Client(cluster, timeout=PATIENCE, set_as_default=False))
            client.wait_for_workers(1, timeout=PATIENCE)
            imported = client.run(
                lambda: __import__("interp_toolkit").__version__, on_error="return"
            )
        except (OSError, RuntimeError, asyncio.TimeoutError, ValueError) as error:
            message = (
                f"no Dask cluster with workers answers at {address}: start one with 'dask "
                "scheduler' and 'dask worker', or leave out --address"
                if address
                else f"no Dask cluster starts on this machine ({first_line(error)}): give fewer "
                "--workers, or leave out --engine dask"
            )
            raise InputError(message) from error
        if others := {str(version) for version in imported.values()} - {__version__}:
            raise InputError(
                f"Dask workers need interp_toolkit {__version__}, not: {', '.join(sorted(others))}"
            )

        def submit(function: Callable[..., Attempt], *arguments: Any) -> Future[Attempt]:
            """A future that misses no outcome, as `Client.get_executor`'s may without scheduler."""
            outcome: Future[Attempt] = Future()

            def finish(task: Any) -> None:
                try:
                    outcome.set_result(task.result())
                except Exception as error:
                    outcome.set_exception(error)

            try:
                client.submit(function, *arguments, pure=False).add_done_callback(finish)
            except Exception as error:
                outcome.set_exception(error)
            return outcome

        yield lambda: submit, count or len(client.nthreads())


def _given_up(error: Exception) -> ProcessKilledError:
    """Why Dask has no outcome of a job."""
    if isinstance(error, CancelledError):
        return ProcessKilledError("Dask canceled the job, or lost its scheduler")
    if type(error).__name__ == "KilledWorker":
        return ProcessKilledError(_KILLED)
    return ProcessKilledError(f"Dask gave it up: {first_line(error)}")
