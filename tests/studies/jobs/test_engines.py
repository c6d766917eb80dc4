"""Engines: the same values whatever does the jobs, and a killed process loses only its own."""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.studies.jobs.attempt import ProcessKilledError
from interp_toolkit.studies.jobs.engines import JobEngine, attempt_apart
from interp_toolkit.studies.jobs.own_process import OwnProcesses, stop_processes
from interp_toolkit.studies.jobs.runner import Runner


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch):
    """The module of the jobs, which other processes import too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import light_jobs

    yield light_jobs
    del sys.modules["light_jobs"]


def tried(jobs, folder: Path, **options):
    with Runner(folder, workers=2, **options).begun(jobs) as begun:
        return {one.name: one for one in begun.tries}


def attempt(processes: OwnProcesses, job, place: Path):
    return processes.attempt(job.name, pickle.dumps(job), place / job.name)


def gone(pid: int) -> bool:
    """Whether a process that is not ours to wait for has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "loky", "multiprocessing"])
def test_a_killed_process_loses_only_its_own_job(light, tmp_path: Path, name: str) -> None:
    jobs = light.jobs_of(light.kills_itself, 3, deadly=1)
    found = tried(jobs, tmp_path, engine=JobEngine(name))
    assert found["kills_itself-0"].values == {"seed": 0}
    assert found["kills_itself-2"].values == {"seed": 2}
    lost = found["kills_itself-1"]
    assert isinstance(lost.error, ProcessKilledError)
    assert lost.failure().startswith("a process was killed (SIGKILL), perhaps for want of memory")
    assert {p.name for p in tmp_path.glob("*.json")} == {
        "kills_itself-0.json",
        "kills_itself-2.json",
    }
    assert not list(tmp_path.glob(".run-*"))


@pytest.mark.parametrize("name", ["local", "loky"])
def test_a_job_that_hangs_is_ended_and_the_others_go_on(light, tmp_path: Path, name: str) -> None:
    note, place = tmp_path / "note", tmp_path / "study"
    jobs = light.jobs_of(light.hangs, 3, note=str(note))
    found = tried(jobs, place, engine=JobEngine(name), seconds=8.0)
    assert [found[f"hangs-{seed}"].values["seed"] for seed in (0, 2)] == [0, 2]
    assert isinstance(found["hangs-1"].error, ProcessKilledError)
    assert found["hangs-1"].failure() == "took longer than 8 s"
    note.touch()
    again = tried(jobs, place, engine=JobEngine(name), seconds=60.0, resume=True)
    assert again["hangs-1"].values["seed"] == 1
    assert set(again) == {"hangs-1"}


def test_a_time_limit_holds_for_one_worker_too(light, tmp_path: Path) -> None:
    jobs = light.jobs_of(light.hangs, 2, note=str(tmp_path / "note"))[1:]
    with pytest.raises(InputError, match=r"^hangs-1: took longer than 2 s$"):
        Runner(tmp_path / "study", workers=1, seconds=2.0).run(jobs)


def test_a_limit_that_is_kept_ends_nothing(light, tmp_path: Path) -> None:
    processes = OwnProcesses()
    jobs = light.jobs_of(light.hangs, 1, note="")
    first, second = (
        processes.attempt("job", pickle.dumps(jobs[0]), tmp_path / "job", 20.0) for _ in range(2)
    )
    assert first.values["process"] == second.values["process"]
    processes.stop()


def test_whatever_a_job_does_is_an_attempt(light, tmp_path: Path) -> None:
    processes = OwnProcesses()
    functions = (light.squares, light.refuses, light.raises_oddly, light.leaves)
    jobs = [light.jobs_of(function, 2)[1] for function in functions]
    found = [attempt(processes, job, tmp_path) for job in jobs]
    processes.stop()
    assert [one.name for one in found] == [job.name for job in jobs]
    assert found[0].values == {"seed": 1, "square": 1, "nan": None}
    assert found[1].failure() == "seed 1 is unlucky"
    assert found[2].failure() == "RuntimeError: OddError: 1 is odd"
    assert "raise OddError" in found[2].trace
    assert found[3].failure().startswith("a process left with code 1")
    with pytest.raises(InputError, match=r"^refuses-1: seed 1 is unlucky$"):
        found[1].check()
    assert attempt(processes, jobs[0], tmp_path).failure() == "stopped"


def test_a_process_is_used_again_until_it_has_been_idle(light, tmp_path: Path) -> None:
    job = light.jobs_of(light.whose, 1)[0]
    processes = OwnProcesses(idle=1.0)
    first, second = (attempt(processes, job, tmp_path).values["process"] for _ in range(2))
    assert first == second != os.getpid()
    [process] = processes._idle
    assert process._process.wait() == 0
    assert attempt(processes, job, tmp_path).values["process"] != first
    processes.stop()


def test_a_worker_without_the_folder_has_one_of_its_own(light, tmp_path: Path) -> None:
    job = light.jobs_of(light.whose, 1)[0]
    (tmp_path / ".run-a").touch()
    sent = (job.name, pickle.dumps(job), tmp_path)
    shared, own = (attempt_apart(run, *sent).values["folder"] for run in ("a", "b"))
    for run in ("a", "b"):
        stop_processes(run)
    assert shared == str(tmp_path / "whose-0")
    assert Path(own).name == "whose-0"
    assert not Path(own).parent.exists()


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


def test_engines_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no engine is called 'lokey'; did you mean loky"):
        JobEngine("lokey")
    with pytest.raises(InputError, match="give --engine dask"):
        JobEngine("local", "tcp://localhost:1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--engine dask needs distributed: pip install"):
        JobEngine("dask")
    with pytest.raises(InputError, match="--engine ray needs ray: pip install ray"):
        JobEngine("ray")


def test_one_study_in_a_folder_and_no_other_folder(light, tmp_path: Path) -> None:
    runner = Runner(tmp_path, workers=1)
    other = Runner(tmp_path, workers=1, resume=True)
    with runner.begun([]), pytest.raises(InputError, match="another process is training in"):
        other.run([])
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "photo.jpg").touch()
    for resume in (False, True):
        with pytest.raises(InputError, match="holds other files and no study: give a new or empty"):
            Runner(foreign, resume=resume)
