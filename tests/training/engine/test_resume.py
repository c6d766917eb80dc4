"""A run that is killed and gone on with ends with the bits of one that never was."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interp_toolkit import load
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.registry import Session, TrainingRun
from interp_toolkit.training.engine import run_files as states
from interp_toolkit.training.engine.metrics import Metrics
from interp_toolkit.training.engine.run_files import end_run, locked, saved_checkpoints
from interp_toolkit.training.induction import InductionProblem, InductionTraining, train

WORKER = Path(__file__).with_name("run_and_kill.py")
STRUCK = [
    *(f"step-{number}" for number in range(20)),
    *(f"call-{number}" for number in range(8)),
    *(f"{how}-{number}" for how in ("moment", "middle", "full") for number in range(3)),
]
CONFIG = InductionTraining(
    d_vocab=12, n_ctx=12, shortest=3, longest=6, d_model=8, heads=1, d_head=4,
    rows=4, steps=11, seeds=3, log_every=2, save_every=4,
)  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".model")  # killed beside --out
    }


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The folder of all runs, and how often each was struck."""
    folder = tmp_path_factory.mktemp("struck")
    done = subprocess.run(
        [sys.executable, WORKER, folder, *STRUCK],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, {run: int(times) for run, times in map(str.split, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["step", "call", "moment", "middle", "full"])
def test_a_killed_run_that_is_gone_on_with_ends_bit_for_bit_the_same(struck, how: str) -> None:
    folder, times = struck
    whole = contents(folder / "whole")
    assert len(whole["run/metrics.jsonl"].splitlines()) == 2 * 7
    assert {Path(name).suffix for name in whole} == {".safetensors", ".json", ".jsonl"}
    runs = [run for run in STRUCK if run.startswith(how)]
    if how != "moment":  # a machine may be faster than all moments
        assert sum(times[run] for run in runs) >= len(runs) / 2
    for run in runs:
        assert contents(folder / run) == whole, run


class StoppedError(Exception):
    pass


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, losses: int, **settings) -> None:
    """A run that stops while it takes that loss."""
    real, left = InductionProblem.loss, iter(range(losses))

    def loss(self, batch):
        if next(left, None) is None:
            raise StoppedError
        return real(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(InductionProblem, "loss", loss)
        with pytest.raises(StoppedError):
            train(CONFIG.model_copy(update=settings), Session(folder))


def same(a: TrainingRun, b: TrainingRun) -> bool:
    first, second = a.model.state_dict(), b.model.state_dict()
    equal = all(torch.equal(first[name], second[name]) for name in first)
    return equal and (a.rows, a.training) == (b.rows, b.training)


def test_finished_seeds_are_not_trained_again(tmp_path: Path, monkeypatch) -> None:
    whole = train(CONFIG)
    stopped(tmp_path, monkeypatch, losses=2 * 12 + 6)  # in the third seed
    real, taken = InductionProblem.loss, []
    monkeypatch.setattr(
        InductionProblem, "loss", lambda self, batch: taken.append(1) or real(self, batch)
    )
    assert same(train(CONFIG, Session(tmp_path, resume=True)), whole)
    assert len(taken) == 12 - 4


def test_an_unfinished_run_is_never_overwritten(tmp_path: Path, monkeypatch, texts) -> None:
    stopped(tmp_path, monkeypatch, losses=6)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="--resume", check=texts):
        train(CONFIG, Session(tmp_path))
    with pytest.raises(InputError, match=r"lr = 0\.01, not 0\.02"):
        train(CONFIG.model_copy(update={"lr": 0.02}), Session(tmp_path, resume=True))
    assert contents(tmp_path) == before


def test_a_run_that_has_ended_is_not_resumed_but_replaced(tmp_path: Path, texts) -> None:
    config = CONFIG.model_copy(update={"checkpoints": (0, 11)})
    train(config, Session(tmp_path, resume=True))  # nothing is there: it starts
    end_run(tmp_path)
    assert sorted(contents(tmp_path)) == sorted(
        ["metrics.jsonl", "run.json", *(kept.path.name for kept in saved_checkpoints(tmp_path))]
    )
    with pytest.raises(InputError, match="--resume", check=texts):
        train(config, Session(tmp_path, resume=True))
    train(CONFIG, Session(tmp_path))
    assert saved_checkpoints(tmp_path) == []
    end_run(tmp_path / "nowhere")


def test_what_a_kill_at_the_very_end_left_is_removed(tmp_path: Path, texts) -> None:
    train(CONFIG, Session(tmp_path))
    before = contents(tmp_path)
    end_run(tmp_path)
    ended = contents(tmp_path)
    for name, data in before.items():
        if name.endswith(".state"):
            (tmp_path / name).write_bytes(data)
    assert contents(tmp_path) != ended
    with pytest.raises(InputError, match="--resume", check=texts):
        train(CONFIG, Session(tmp_path, resume=True))
    assert contents(tmp_path) == ended


def test_the_kept_checkpoints_are_those_of_shorter_runs(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"checkpoints": (0, 4, 11), "schedule": "constant"})
    train(config, Session(tmp_path))
    kept = saved_checkpoints(tmp_path)
    assert [(k.seed, k.step) for k in kept] == [(s, n) for s in range(3) for n in (0, 4, 11)]
    for seed, step, path in kept:
        settings = {"seed": seed, "seeds": 1, "steps": max(step, 1), "schedule": "constant"}
        if step:
            shorter = train(CONFIG.model_copy(update=settings)).model.state_dict()
        else:
            shorter = InductionProblem(CONFIG, seed).model.state_dict()
        found = load(path)
        assert all(torch.equal(found.state_dict()[name], shorter[name]) for name in shorter)
        record = record_of(found)
        assert (record.task, record.training["step"]) == ({"name": "induction"}, step)
    with pytest.raises(InputError, match="give --out"):
        train(config)


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "text", "other", "code"])
def test_a_damaged_or_foreign_state_is_one_clear_line(
    tmp_path: Path, monkeypatch, damage: str, texts
) -> None:
    whole = train(CONFIG)
    stopped(tmp_path, monkeypatch, losses=6)
    path = tmp_path / "seed-0.state"
    data = bytearray(path.read_bytes())
    if damage == "bit":
        weights = states.read(path).model["embed.W_E"].numpy().tobytes()
        data[data.index(weights) + 5] ^= 4
    path.write_bytes({"cut": data[:-200], "empty": b"", "text": b"hello"}.get(damage, data))
    if damage == "other":
        torch.save({"format": "another"}, path)
    if damage == "code":
        torch.save(StoppedError(), path)
    with pytest.raises(InputError, match=r"seed-0\.state", check=texts):
        train(CONFIG, Session(tmp_path, resume=True))
    path.unlink()
    assert same(train(CONFIG, Session(tmp_path, resume=True)), whole)


def test_the_state_of_another_run_is_refused(tmp_path: Path, monkeypatch, texts) -> None:
    stopped(tmp_path, monkeypatch, losses=6)
    path = tmp_path / "seed-0.state"
    states.write(replace(states.read(path), seed=1), path)
    with pytest.raises(InputError, check=texts):
        train(CONFIG, Session(tmp_path, resume=True))


@pytest.mark.parametrize("text", ["{", "[]", '{"recipe": "induction"}'])
def test_a_damaged_record_of_the_run_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        train(CONFIG, Session(tmp_path))


def test_another_number_of_processes_is_refused(tmp_path: Path, monkeypatch) -> None:
    stopped(tmp_path, monkeypatch, losses=6)
    path = tmp_path / "seed-0.state"
    found = states.read(path)
    states.write(replace(found, generators=[*found.generators] * 2), path)
    with pytest.raises(InputError, match="started on 2 processes, not 1"):
        train(CONFIG, Session(tmp_path, resume=True))


def test_a_disk_that_fills_up_while_saving_leaves_the_state_before(
    tmp_path: Path, monkeypatch, texts
) -> None:
    whole, real, saved = train(CONFIG), torch.save, []

    def save(data, file):
        real(data, file)
        saved.append(file)
        if len(saved) == 2:
            file.truncate(300)
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", save)
        with pytest.raises(InputError, match=r"seed-0\.state", check=texts):
            train(CONFIG, Session(tmp_path))
    assert states.read(tmp_path / "seed-0.state").step == 4
    assert not list(tmp_path.glob(".*"))
    assert same(train(CONFIG, Session(tmp_path, resume=True)), whole)


def test_what_the_system_says_when_a_state_cannot_be_written_is_said(tmp_path: Path, texts) -> None:
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        with pytest.raises(InputError, match=r"seed-0\.state", check=texts):
            train(CONFIG, Session(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_of_metrics_that_does_not_fit_leaves_no_half_of_itself(
    tmp_path: Path, texts
) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.restart([{"loss": 1.0}])
    before = metrics.path.read_bytes()
    _, hard = limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, hard))
    try:
        with pytest.raises(InputError, match=r"metrics\.jsonl", check=texts):
            metrics.add({"loss": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert metrics.path.read_bytes() == before


def test_a_lost_record_of_the_run_is_written_anew(tmp_path: Path, monkeypatch, texts) -> None:
    stopped(tmp_path, monkeypatch, losses=6)
    record = tmp_path / "run.json"
    before = record.read_bytes()
    record.unlink()
    with pytest.raises(InputError, check=texts):
        train(CONFIG.model_copy(update={"lr": 0.02}), Session(tmp_path, resume=True))
    assert not record.exists()
    train(CONFIG, Session(tmp_path, resume=True))
    assert record.read_bytes() == before
    end_run(tmp_path)
    assert not list(tmp_path.glob("*.state"))


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path, texts) -> None:
    (tmp_path / "seed-0-step-04.safetensors").write_bytes(b"the other's")
    before = contents(tmp_path)
    with (
        locked(tmp_path),
        pytest.raises(InputError, match="--out", check=texts),
    ):
        train(CONFIG, Session(tmp_path))
    assert contents(tmp_path) == before
    train(CONFIG, Session(tmp_path))
    with locked(tmp_path):
        pass


def test_a_record_that_cannot_be_read_is_not_called_damaged(tmp_path: Path, texts) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(InputError, match=r"run\.json", check=texts):
        train(CONFIG, Session(tmp_path))


def test_the_metrics_are_whole_lines_of_plain_json(tmp_path: Path) -> None:
    run = train(CONFIG, Session(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["seed"], line["step"]) for line in lines] == [
        (seed, step) for seed in range(3) for step in (0, 2, 4, 6, 8, 10, 11)
    ]
    best = [line["loss"] for line in lines if line["seed"] == run.training["seeds"][0]["seed"]]
    assert run.training["curve"]["loss"] in [
        [line["loss"] for line in lines if line["seed"] == seed] for seed in range(3)
    ]
    assert best[0] == pytest.approx(2.48, abs=0.1)  # ln 12, an untrained model's
