"""A Dask cluster: one that is there, or one of this machine for the while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import islice
from typing import Any

import joblib

from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError, first_line
from interp_toolkit.studies.jobs.attempt import Attempt, JobTask, ProcessKilledError
from interp_toolkit.studies.jobs.own_process import stop_processes

PATIENCE = 10  # seconds for a scheduler to answer, and for a first worker to be there


@contextlib.contextmanager
def opened(address: str | None, workers: int | None) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """A client of the cluster, and what ends the processes of a run on all workers.

    Args:
        address: of the scheduler; None: a cluster of this machine, ended afterwards.
        workers: processes of such a cluster; None: as many as there are processors.

    Raises:
        InputError: the scheduler is not reached, has no workers, or they lack this package; or a
            cluster of this machine does not start.
    """
    from distributed import Client

    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_log("distributed.client"))  # each job says that it was lost
        try:
            where = stack.enter_context(_own_cluster(workers)) if address is None else address
            client = stack.enter_context(Client(where, timeout=PATIENCE, set_as_default=False))
            client.wait_for_workers(1, timeout=PATIENCE)
        except (OSError, RuntimeError, asyncio.TimeoutError, ValueError) as error:
            raise _not_there(address, error) from error
        _check_versions(client)

        def stop(run: str) -> None:
            stop_processes(run)  # joblib does the jobs of a cluster of one worker here
            with contextlib.suppress(Exception):  # a cluster that is gone has none
                client.run(stop_processes, run)

        yield client, stop


@contextlib.contextmanager
def _without_log(name: str) -> Iterator[None]:
    """Nothing of a logger but what is critical, whoever else does the same meanwhile."""
    logger = logging.getLogger(name)

    def critical(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.CRITICAL

    logger.addFilter(critical)
    try:
        yield
    finally:
        logger.removeFilter(critical)


def _not_there(address: str | None, error: Exception) -> InputError:
    if address is None:
        said = first_line(error)
        return InputError(
            f"no Dask cluster starts on this machine ({said}): give fewer --workers, or leave out "
            "--engine dask"
        )
    return InputError(
        f"no Dask cluster with workers answers at {address}: start one with 'dask scheduler' and "
        "'dask worker', or leave out --address"
    )


def _own_cluster(workers: int | None) -> Any:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers or joblib.cpu_count(),
        threads_per_worker=1,
        processes=True,
        memory_limit=None,  # what a job needs is not the worker's own
        dashboard_address="127.0.0.1:0",  # a fixed port is another cluster's
        silence_logs=logging.CRITICAL,
    )


def _check_versions(client: Any) -> None:
    """Raise InputError where a worker has another version of this package, or none."""
    try:
        versions = client.run(_version)
    except Exception as error:
        raise InputError(
            f"the workers cannot import interp_toolkit ({error}): install {__version__} there"
        ) from error
    for worker, version in versions.items():
        if version != __version__:
            raise InputError(
                f"the worker {worker} has interp_toolkit {version}, not {__version__}: install "
                "the same there"
            )


def _version() -> str:
    return __version__


def spread(
    client: Any, function: Callable[..., Attempt], tasks: Sequence[JobTask], at_once: int
) -> Generator[Attempt, None, None]:
    """The tasks' results as they end; one that Dask gives up is an attempt that failed.

    Args:
        client: of the cluster.
        function: called on a worker with a task's fields.
        tasks: the first ones first.
        at_once: how many the cluster has at once.
    """
    from distributed import as_completed

    todo, running = iter(tasks), as_completed(loop=client.loop)
    names: dict[str, str] = {}

    def submit(count: int) -> None:
        for task in islice(todo, count):
            future = client.submit(function, *task, pure=False)
            names[future.key] = task.name
            running.add(future)

    submit(at_once)
    for future in running:
        submit(1)
        try:  # in one look: what a job has come to changes when the scheduler is lost meanwhile
            attempt = future.result()
        except Exception as error:
            attempt = Attempt(names[future.key], error=_given_up(error))
        yield attempt


def _given_up(error: Exception) -> ProcessKilledError:
    from distributed.scheduler import KilledWorker

    if isinstance(error, CancelledError):
        return ProcessKilledError("Dask cancelled the job, or lost its scheduler")
    if isinstance(error, KilledWorker):
        return ProcessKilledError(
            "Dask gave it up: the workers that had it died, perhaps for want of memory"
        )
    return ProcessKilledError(f"Dask gave it up: {(str(error).splitlines() or [''])[0]}")
