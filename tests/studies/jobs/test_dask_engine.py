"""A Dask cluster of two workers: the same values as here, whatever happens to a worker."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.studies.jobs import dask_engine, own_process
from interp_toolkit.studies.jobs.engines import JobEngine
from interp_toolkit.studies.jobs.runner import Runner

pytestmark = pytest.mark.slow
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

CANCELLED = "Dask cancelled the job, or lost its scheduler"
GIVEN_UP = "Dask gave it up: the workers that had it died, perhaps for want of memory"


@pytest.fixture(scope="module")
def light():
    sys.path.insert(0, str(Path(__file__).parent))
    import light_jobs

    yield light_jobs
    sys.path.remove(str(Path(__file__).parent))
    del sys.modules["light_jobs"]


@pytest.fixture(scope="module")
def address(light) -> Iterator[str]:
    """Of a cluster that gives a task up when one worker has died under it."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster.scheduler_address


def values(jobs, folder: Path, engine: JobEngine):
    with Runner(folder, workers=2, engine=engine).begun(jobs) as begun:
        return {one.name: (one.values, one.error and one.failure()) for one in begun.tries}


def test_the_same_values_as_local_processes(light, address: str, tmp_path: Path) -> None:
    jobs = [*light.jobs_of(light.squares, 2), *light.jobs_of(light.refuses, 2)]
    jobs += light.jobs_of(light.kills_itself, 2, deadly=1)
    here = values(jobs, tmp_path / "here", JobEngine())
    there = values(jobs, tmp_path / "there", JobEngine("dask", address))
    assert here == there
    assert [there[name][0] is None for name in ("squares-1", "refuses-1", "kills_itself-1")] == [
        False,
        True,
        True,
    ]


def test_a_task_that_dask_gives_up_is_one_job_lost(light, address: str, tmp_path: Path) -> None:
    jobs = light.jobs_of(light.always_killed, 3, deadly=1)
    found = values(jobs, tmp_path, JobEngine("dask", address))
    assert found.pop("always_killed-1") == (
        None,
        GIVEN_UP,
    )
    assert [seed for seed, _ in found.values()] == [{"seed": 0}, {"seed": 2}]


def test_a_scheduler_that_is_not_there(
    light, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "PATIENCE", 0.3)
    engine = JobEngine("dask", "tcp://127.0.0.1:9")
    with pytest.raises(InputError, match=r"no Dask cluster with workers answers at tcp://127"):
        Runner(tmp_path, engine=engine).run(light.jobs_of(light.squares, 1))


@pytest.mark.parametrize("broken", ["cluster", "workers"])
def test_a_cluster_of_this_machine_that_does_not_start(
    light, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fails(*given: object, **named: object) -> None:
        raise TimeoutError("no worker started")

    if broken == "cluster":
        monkeypatch.setattr(distributed, "LocalCluster", fails)
    else:
        monkeypatch.setattr(distributed.Client, "wait_for_workers", fails)
    with pytest.raises(InputError) as refused:
        Runner(tmp_path, workers=1, engine=JobEngine("dask")).run(light.jobs_of(light.squares, 1))
    assert str(refused.value) == (
        "no Dask cluster starts on this machine (no worker started): give fewer --workers, or "
        "leave out --engine dask"
    )


def test_a_cluster_beside_another_one(light, tmp_path: Path) -> None:
    """The port of Dask's page, 8787, is taken where a cluster runs already."""
    with socket.socket() as taken:
        with contextlib.suppress(OSError):
            taken.bind(("0.0.0.0", 8787))
            taken.listen()
        runner = Runner(tmp_path, workers=1, engine=JobEngine("dask"))
        assert len(runner.run(light.jobs_of(light.squares, 1))) == 1
    assert not any(run._idle or run._busy for run in own_process._OF_RUNS.values())


@pytest.fixture
def logged():
    """What Dask's client logs, which it hands to no logger above its own."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("distributed.client")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_a_cluster_that_goes_away_loses_the_jobs_it_had_and_they_are_resumed(
    light, tmp_path: Path, logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "PATIENCE", 3)  # as long a client looks for its scheduler
    note, said = tmp_path / "note", []
    jobs = light.jobs_of(light.hangs, 3, note=str(note))

    def cluster():
        return distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )

    with cluster() as there:
        engine = JobEngine("dask", there.scheduler_address)
        runner = Runner(tmp_path / "run", workers=2, engine=engine, say=said.append)
        with runner.begun(jobs) as begun:
            tries = iter(begun.tries)
            found = [next(tries), next(tries)]  # seed 1 hangs; the others end
            there.close()
            found += tries
    assert {one.name: one.error is None for one in found} == {
        "hangs-0": True,
        "hangs-1": False,
        "hangs-2": True,
    }
    assert found[-1].failure() in {CANCELLED, GIVEN_UP}  # by the scheduler, before it is gone
    assert said[-1].startswith("3 of 3 jobs ended, 1 of them without a result, after")
    assert not logged
    note.touch()
    with cluster() as back:
        engine = JobEngine("dask", back.scheduler_address)
        again = Runner(tmp_path / "run", workers=2, resume=True, engine=engine)
        assert [values["seed"] for values in again.run(jobs).values()] == [0, 1, 2]


class LostBehindALook(distributed.client.FutureState):
    """What a job has come to; once this thread has looked, the scheduler is lost."""

    __slots__ = ()

    @property
    def status(self) -> str:
        found = super().status
        if threading.current_thread() is threading.main_thread():
            self.cancel(reason="scheduler-connection-lost")
        return found

    @status.setter
    def status(self, status: str) -> None:
        distributed.client.FutureState.status.__set__(self, status)


@pytest.mark.parametrize("made", ["squares", "always_killed"])
def test_a_scheduler_lost_between_two_looks_is_at_most_a_job_lost(
    light, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    ended = distributed.as_completed.__next__

    def to_be_lost(these: distributed.as_completed) -> distributed.Future:
        future = ended(these)
        future._state.__class__ = LostBehindALook
        return future

    monkeypatch.setattr(distributed.as_completed, "__next__", to_be_lost)
    deadly = {"deadly": 1} if made == "always_killed" else {}
    jobs = light.jobs_of(getattr(light, made), 2, **deadly)
    found = values(jobs, tmp_path, JobEngine("dask", address))
    assert len(found) == 2
    assert all(error in {None, CANCELLED, GIVEN_UP} for _, error in found.values())
