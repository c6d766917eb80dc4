"""What is sent to TensorBoard and to Weights & Biases is what stands in the metrics."""

from __future__ import annotations

import json
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from interp_toolkit.training.engine import metrics

TRAIN = (
    "train", "xor", "--steps", "6", "--seeds", "2", "--set", "log_every=2", "--out", "model.pt",
    "--quiet",
)  # fmt: skip


def measured(folder: Path) -> dict[tuple[int, str], list[tuple[int, float]]]:
    """By seed and name: step and value, from the metrics."""
    found = defaultdict(list)
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        seed, step = line.pop("seed"), line.pop("step")
        for name, value in line.items():
            found[seed, name].append((step, value))
    return dict(found)


def in_events(folder: Path) -> dict[tuple[int, str], list[tuple[int, float]]]:
    """The same, from TensorBoard's files, by its own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for place in folder.iterdir():
        events = EventAccumulator(str(place))
        events.Reload()
        seed = int(place.name.removeprefix("seed-"))
        for name in events.Tags()["scalars"]:
            found[seed, name] = [(event.step, event.value) for event in events.Scalars(name)]
    return found


class Recorder:
    """What stands in for a run of Weights & Biases, and what it was told."""

    def __init__(self, **given: Any):
        self.given, self.id = given, "abc123"
        self.rows: list[dict[str, Any]] = []
        self.metrics: list[tuple[str, str]] = []
        self.ended: int | None = None

    def define_metric(self, name: str, step_metric: str) -> None:
        self.metrics.append((name, step_metric))

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def finish(self, exit_code: int = 0) -> None:
        self.ended = exit_code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """The runs that are begun, recorded and sent nowhere."""
    import wandb

    begun: list[Recorder] = []

    def init(**given: Any) -> Recorder:
        begun.append(Recorder(**given))
        return begun[-1]

    monkeypatch.setattr(wandb, "init", init)
    return begun


def in_run(run: Recorder) -> dict[tuple[int, str], list[tuple[int, float]]]:
    """By seed and name: step and value, from the rows of a run."""
    found = defaultdict(list)
    for row in run.rows:
        [seed] = {key.split("/")[0] for key in row}
        step = row[f"{seed}/step"]
        for key, value in row.items():
            if not key.endswith("/step"):
                found[int(seed.removeprefix("seed-")), key.split("/")[1]].append((step, value))
    return dict(found)


@pytest.mark.slow
def test_tensorboards_files_hold_the_metrics(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second anew, in place of the first
        assert call(*TRAIN, "--log", "tensorboard")[0] == 0
    expected = measured(tmp_path / "model.pt.training")
    found = in_events(tmp_path / "model.pt.training" / "tensorboard" / "xor")
    assert found.keys() == expected.keys()
    assert {seed for seed, _ in found} == {0, 1}
    for key, values in expected.items():
        assert [step for step, _ in found[key]] == [step for step, _ in values]
        assert [value for _, value in found[key]] == pytest.approx([v for _, v in values], rel=1e-6)


@pytest.mark.slow
def test_weights_and_biases_gets_the_metrics(
    call, runs: list[Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    assert call(*TRAIN, "--log", "wandb")[0] == 0
    [run] = runs
    assert in_run(run) == measured(tmp_path / "model.pt.training")
    assert run.metrics == [(f"seed-{n}/*", f"seed-{n}/step") for n in (0, 1)]
    assert (run.given["project"], run.given["name"]) == ("interp-toolkit", "xor")
    assert (run.given["id"], run.ended) == (None, 0)


@pytest.mark.slow
def test_a_run_that_goes_on_is_the_same_run(
    call, runs: list[Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = Recorder.log

    def interrupted(self: Recorder, row: dict[str, Any]) -> None:
        told(self, row)
        if len(self.rows) == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "log", interrupted)
        assert call(*TRAIN, "--set", "save_every=2", "--log", "wandb")[0] == 130
    assert runs[0].ended == 1
    again = call(*TRAIN, "--set", "save_every=2", "--log", "wandb", "--resume")
    assert again[0] == 0, again
    assert [run.given["id"] for run in runs] == [None, "abc123"]
    first, second = (in_run(run) for run in runs)
    for key, values in measured(tmp_path / "model.pt.training").items():
        assert sorted({*first.get(key, []), *second.get(key, [])}) == values


@pytest.mark.slow
def test_nothing_of_the_machine_is_sent(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert call(*TRAIN, "--log", "wandb")[0] == 0
    [kept] = (tmp_path / "model.pt.training").rglob("run-*.wandb")
    files = [kept, *(path for path in (kept.parent / "files").rglob("*") if path.is_file())]
    sent = b"".join(path.read_bytes() for path in files)
    assert b"seed-1/step" in sent
    for word in (platform.release(), sys.executable, "model.pt"):
        assert word.encode() not in sent, word


def test_nothing_is_sent_by_default(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(to: str) -> None:
        raise AssertionError(to)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metrics, "_package", asked)
    assert call(*TRAIN)[0] == 0
    kept = {path.name for path in (tmp_path / "model.pt.training").iterdir()}
    assert kept.isdisjoint({"tensorboard", "wandb"})


@pytest.mark.parametrize(
    "given",
    [
        ("--log", "tensorbord", "--out", "m.pt"),
        ("--log", "wandb"),
    ],
)
def test_what_cannot_be_followed_is_one_line(call, given, texts) -> None:
    code, _, error = call("train", "xor", *given)
    assert code == 2
    texts(error)
    assert error.count("\n") == 1


def test_a_missing_package_is_named_with_its_extra(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(to: str) -> None:
        raise ImportError(to)

    monkeypatch.setattr(metrics, "_package", missing)
    code, _, error = call(
        "train", "xor", "--log", "tensorboard", "--out", str(tmp_path / "model.pt")
    )
    assert code == 2
    assert 'pip install "interp-toolkit[tensorboard]"' in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_sweep_sends_each_run_and_goes_on_without(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(
        "recipe: xor\nsettings: {steps: 3}\ngrid: {lr: [0.01, 0.001]}\nseeds: 2\n"
    )
    given = ("sweep", "sweep.yaml", "--workers", "1", "--quiet", "--out", "out")
    assert call(*given, "--log", "tensorboard")[0] == 0
    found = sorted(path.relative_to("out/tensorboard") for path in Path("out").rglob("seed-*/ev*"))
    assert len({path.parts[0] for path in found}) == len(found) == 4  # by point and seed
    assert call(*given, "--resume")[0] == 0  # what was followed needs no following
