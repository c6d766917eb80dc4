"""Jobs: the same bits however many run at once, kept one by one, gone on with after a kill."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import interp_toolkit as it
from interp_studies.jobs.attempt import Attempt, Job
from interp_studies.jobs.job_files import JobFiles
from interp_studies.jobs.runner import Runner
from interp_toolkit.errors import InputError


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch):
    """The toy study's module, which worker processes import too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import toy_study

    yield toy_study
    del sys.modules["toy_study"]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch):
    """The module of jobs that import little, which worker processes import too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import light_jobs

    yield light_jobs
    del sys.modules["light_jobs"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every kept value and model."""
    return {
        p.name: p.read_bytes()
        for p in sorted(folder.iterdir())
        if p.suffix != ".txt" and p.is_file()
    }


def test_values_come_back_in_the_order_of_the_jobs_as_json(toy, tmp_path: Path) -> None:
    jobs = toy.jobs_of(toy.draws, 3, n=4)
    jobs = [Job(j.name, j.function, j.arguments, cost=float(i)) for i, j in enumerate(jobs)]
    found = Runner(tmp_path, workers=1).run(jobs)
    assert list(found) == ["draws-0", "draws-1", "draws-2"]
    for seed, values in enumerate(found.values()):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        assert values == {"seed": seed, "sum": float((x @ x).sum()), "third": 1 / 3, "nan": None}
    assert (tmp_path / "runs.txt").read_text().split() == ["2", "1", "0"]  # the costliest first


def test_resume_does_only_what_is_missing(toy, tmp_path: Path, texts) -> None:
    said: list[str] = []
    Runner(tmp_path, workers=1).run(toy.jobs_of(toy.draws, 2, n=4))
    before = contents(tmp_path)
    found = Runner(tmp_path, workers=1, resume=True, say=said.append).run(
        toy.jobs_of(toy.draws, 3, n=4)
    )
    assert (tmp_path / "runs.txt").read_text().split() == ["0", "1", "2"]
    assert contents(tmp_path).items() >= before.items()
    assert len(found) == 3
    texts(said[0])
    assert said[1].startswith("3 of 3 jobs done after")
    assert said[1].endswith("draws-2")


def test_an_unfinished_study_is_not_overwritten(toy, tmp_path: Path, texts) -> None:
    Runner(tmp_path, workers=1).run(toy.jobs_of(toy.draws, 1, n=4))
    with pytest.raises(InputError, match="--resume", check=texts):
        Runner(tmp_path, workers=1)
    runner = Runner(tmp_path, workers=1, resume=True)
    with pytest.raises(InputError, match=r"/\w+", check=texts):
        runner.run(toy.jobs_of(toy.draws, 1, n=5))
    other = Job("draws-0", toy.refuses, {"seed": 0, "n": 4})
    with pytest.raises(InputError, match="another study"):
        runner.run([other])
    (tmp_path / "draws-0.json").write_text("{")
    with pytest.raises(InputError, check=texts):
        runner.run(toy.jobs_of(toy.draws, 1, n=4))


def test_only_settings_that_differ_are_named(toy, tmp_path: Path, texts) -> None:
    def files(**arguments: object) -> None:
        job = Job("draws", toy.draws, arguments)
        kept = JobFiles(tmp_path)
        if not kept.has(job.name, job.identity()):
            kept.write(job.name, job.identity(), Attempt(job.name, {}))

    files(seed=0, settings={"steps": 20, "lr": None, "width": 8, "text": "a"})
    with pytest.raises(InputError, match=r"lr=none, not 0\.1, .*steps=20") as refused:
        files(seed=0, settings={"steps": 30, "lr": 0.1, "text": "a", "rows": 4})
    texts(str(refused.value))


@pytest.mark.slow
def test_two_workers_leave_the_same_bits_as_one(toy, tmp_path: Path) -> None:
    jobs = toy.jobs_of(toy.xor_model, 2, steps=30, device="cpu")
    found = {}
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        found[workers] = Runner(folder, workers=workers).run(jobs)
    assert found[1] == found[2]
    assert found[1]["xor_model-0"]["threads"] == 1
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert {"xor_model-0.json", "xor_model-1.safetensors"} <= contents(tmp_path / "1").keys()
    model = it.load(tmp_path / "2" / "xor_model-1.safetensors")
    assert model.cfg.n_heads == 2


def test_what_a_job_raises_is_raised(light, tmp_path: Path) -> None:
    refusing = light.jobs_of(light.refuses, 2)
    for workers in (1, 2):
        folder = tmp_path / f"refuses-{workers}"
        with pytest.raises(InputError, match=r"^refuses-1: seed 1 is unlucky$"):
            Runner(folder, workers=workers).run(refusing)
        with pytest.raises(ZeroDivisionError, match="seed 0"):
            Runner(tmp_path / f"breaks-{workers}", workers=workers).run(
                light.jobs_of(light.breaks, 2 if workers == 1 else 1)
            )
        assert (folder / "refuses-0.json").exists() or workers == 2


@pytest.mark.slow
def test_a_killed_worker_is_one_clear_error(light, tmp_path: Path, texts) -> None:
    jobs = light.jobs_of(light.kills_itself, 2, deadly=1)
    with pytest.raises(InputError, match=r"^kills_itself-1", check=texts):
        Runner(tmp_path, workers=2).run(jobs)


def test_threads_are_given_back(toy, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        Runner(None, workers=1).run(toy.jobs_of(toy.xor_model, 1, steps=1, device="cpu"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_places_that_cannot_be_used(toy, tmp_path: Path, texts) -> None:
    with pytest.raises(InputError, check=texts):
        Runner(tmp_path / "no" / "folder")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, check=texts):
        Runner(tmp_path / "file")
    with pytest.raises(InputError, check=texts):
        Runner(None, workers=0)


def test_a_lock_left_behind_is_no_content_of_a_folder(toy, tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert Runner(tmp_path, workers=1).run(toy.jobs_of(toy.draws, 1, n=4))


def test_seeds_start_where_they_are_told_to(tmp_path: Path) -> None:
    assert list(Runner(tmp_path, workers=1).seeds(2)) == [0, 1]
    assert list(Runner(tmp_path, workers=1, first_seed=7).seeds(3)) == [7, 8, 9]
