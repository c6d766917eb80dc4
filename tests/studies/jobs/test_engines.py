"""Engines: the same values on each, and a killed process loses at most its own job."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor

from interp_studies.jobs import engines
from interp_studies.jobs.attempt import ProcessKilledError, attempt_in_worker
from interp_studies.jobs.engines import JobEngine
from interp_studies.jobs.runner import Runner
from interp_toolkit.errors import InputError


@pytest.fixture(scope="module")
def light():
    """The module of the jobs, which worker processes import too."""
    sys.path.insert(0, str(Path(__file__).parent))
    import light_jobs

    yield light_jobs
    sys.path.remove(str(Path(__file__).parent))
    del sys.modules["light_jobs"]


@contextlib.contextmanager
def cluster():
    """Two Dask workers that are not ours, in a scheduler that tries a lost job twice."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def address(light) -> Iterator[str]:
    with cluster() as found:
        yield found.scheduler_address


@pytest.fixture(params=["local", pytest.param("dask", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> JobEngine:
    if request.param == "local":
        return JobEngine()
    return JobEngine("dask", request.getfixturevalue("address"))


def tried(jobs, folder: Path, **options):
    with Runner(folder, workers=2, **options).begun(jobs) as begun:
        return {one.name: one for one in begun.tries}


def gone(pid: int) -> bool:
    """Whether a process that is not ours to wait for has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_any_end_of_a_job_is_an_attempt(
    light, tmp_path: Path, engine: JobEngine, capfd, texts
) -> None:
    functions = (light.squares, light.refuses, light.raises_oddly, light.leaves)
    jobs = [light.jobs_of(function, 2)[1] for function in functions]
    found = tried(jobs, tmp_path, engine=engine)
    assert found.keys() == {job.name for job in jobs}
    assert found["squares-1"].values == {"seed": 1, "square": 1, "nan": None}
    assert found["refuses-1"].failure() == "seed 1 is unlucky"
    assert found["raises_oddly-1"].failure() == "RuntimeError: OddError: 1 is odd"
    assert "raise OddError" in found["raises_oddly-1"].trace
    assert isinstance(found["leaves-1"].error, ProcessKilledError)
    texts(found["leaves-1"].failure())
    assert [path.name for path in tmp_path.glob("*.json")] == ["squares-1.json"]
    with pytest.raises(InputError, match=r"^refuses-1: seed 1 is unlucky$"):
        found["refuses-1"].check()
    assert "not an answer" not in capfd.readouterr().out


def test_a_job_that_always_kills_its_process_is_the_only_one_lost(
    light, tmp_path: Path, engine: JobEngine
) -> None:
    found = tried(light.jobs_of(light.kills_itself, 6, deadly=1), tmp_path, engine=engine)
    assert isinstance(found.pop("kills_itself-1").error, ProcessKilledError)
    assert sorted(one.values["seed"] for one in found.values()) == [0, 2, 3, 4, 5]


def test_a_process_that_ends_without_a_word_is_a_killed_one(light, tmp_path, monkeypatch) -> None:
    class Silent(ProcessPoolExecutor):
        """Its process has ended, and its answer never comes."""

        _processes: ClassVar[dict] = {}

        def __init__(self):
            pass

        def submit(self, *task):
            return Future()

    first, start = [Silent().submit], engines._local_workers

    @contextlib.contextmanager
    def workers(count):
        with start(count) as (new, number):
            yield lambda: first.pop() if first else new(), number

    monkeypatch.setattr(engines, "_local_workers", workers)
    monkeypatch.setattr(engines, "LOOK_AFTER", 0.1)
    found = tried(light.jobs_of(light.squares, 2), tmp_path)
    assert sorted(one.values["square"] for one in found.values()) == [0, 1]


def test_a_worker_without_the_folder_has_one_of_its_own(light, tmp_path: Path) -> None:
    job = light.jobs_of(light.whose, 1)[0]
    sent = (job.name, pickle.dumps(job))
    shared, own = (
        attempt_in_worker(*sent, study).values["folder"] for study in (tmp_path, tmp_path / "no")
    )
    assert shared == str(tmp_path / "whose-0")
    assert Path(own).name == "whose-0"
    assert not Path(own).parent.exists()


def test_a_job_that_a_worker_cannot_load_is_an_attempt(tmp_path: Path, texts) -> None:
    found = attempt_in_worker("odd", b"cno_such_module\nf\n.", tmp_path)
    texts(found.failure())


@pytest.mark.slow
def test_a_study_that_is_left_leaves_no_process(light, tmp_path: Path) -> None:
    jobs = [*light.jobs_of(light.refuses, 2)[1:], *light.jobs_of(light.says_that_it_runs, 1)]
    with Runner(tmp_path, workers=2).begun(jobs) as begun:
        assert next(begun.tries).failure() == "seed 1 is unlucky"
        while not list(tmp_path.glob("*.pid")):
            time.sleep(0.05)
    [pid] = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    while not gone(pid):  # it goes within moments, or this never ends
        time.sleep(0.05)


def test_engines_that_are_not_there(monkeypatch: pytest.MonkeyPatch, texts) -> None:
    with pytest.raises(InputError, match="'dusk'", check=texts):
        JobEngine("dusk")
    with pytest.raises(InputError, match="give --engine dask"):
        JobEngine("local", "tcp://localhost:1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="--engine", check=texts):
        JobEngine("dask")


def test_one_study_in_a_folder_and_no_other_folder(light, tmp_path: Path, texts) -> None:
    runner = Runner(tmp_path, workers=1)
    other = Runner(tmp_path, workers=1, resume=True)
    with runner.begun([]), pytest.raises(InputError, check=texts):
        other.run([])
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "photo.jpg").touch()
    for resume in (False, True):
        with pytest.raises(InputError, check=texts):
            Runner(foreign, resume=resume)


@pytest.mark.slow
def test_a_scheduler_that_is_not_there(
    light, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    monkeypatch.setattr(engines, "PATIENCE", 0.3)
    engine = JobEngine("dask", "tcp://127.0.0.1:9")
    with pytest.raises(InputError, match="tcp://127", check=texts):
        Runner(tmp_path, engine=engine).run(light.jobs_of(light.squares, 1))


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["LocalCluster", "Client"])
def test_a_cluster_of_this_machine_that_does_not_start(
    light, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, texts
) -> None:
    def fails(*given: object, **named: object) -> None:
        raise TimeoutError("no worker started")

    monkeypatch.setattr(pytest.importorskip("distributed"), broken, fails)
    with pytest.raises(InputError) as refused:
        Runner(tmp_path, workers=1, engine=JobEngine("dask")).run(light.jobs_of(light.squares, 1))
    texts(str(refused.value))


@pytest.mark.slow
def test_a_cluster_beside_another_one(light, tmp_path: Path) -> None:
    """The port of Dask's page, 8787, is taken where a cluster runs already."""
    pytest.importorskip("distributed")
    with socket.socket() as taken:
        with contextlib.suppress(OSError):
            taken.bind(("0.0.0.0", 8787))
            taken.listen()
        runner = Runner(tmp_path, workers=1, engine=JobEngine("dask"))
        assert len(runner.run(light.jobs_of(light.squares, 1))) == 1


@pytest.mark.slow
def test_a_cluster_that_goes_away_loses_the_jobs_it_had_and_they_are_resumed(
    light, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    monkeypatch.setattr(engines, "PATIENCE", 3)  # as long a client looks for its scheduler
    note, said = tmp_path / "note", []
    jobs = light.jobs_of(light.hangs, 3, note=str(note))
    with cluster() as there:
        engine = JobEngine("dask", there.scheduler_address)
        runner = Runner(tmp_path / "run", workers=2, engine=engine, say=said.append)
        with runner.begun(jobs) as begun:
            tries = iter(begun.tries)
            found = [next(tries), next(tries)]  # seed 1 hangs; the others end
            there.close()
            found += tries
    ended = {one.name: one.error is None for one in found}
    assert ended == {"hangs-0": True, "hangs-1": False, "hangs-2": True}
    assert isinstance(found[-1].error, ProcessKilledError)
    texts(said[-1])
    note.touch()
    with cluster() as back:
        engine = JobEngine("dask", back.scheduler_address)
        again = Runner(tmp_path / "run", workers=2, resume=True, engine=engine)
        assert [values["seed"] for values in again.run(jobs).values()] == [0, 1, 2]
