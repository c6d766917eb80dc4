"""What is sent to TensorBoard and to Weights & Biases is what stands in the metrics."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interp_toolkit.training.engine import tracking

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


def records(text: bytes) -> Iterator[bytes]:
    """The records of a file of Weights & Biases: LevelDB's log format behind a header."""
    place, part = 7, b""
    while place + 7 <= len(text):
        if 32_768 - place % 32_768 < 7:
            place += 32_768 - place % 32_768
            continue
        length, kind = int.from_bytes(text[place + 4 : place + 6], "little"), text[place + 6]
        part += text[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last of several
            yield part
            part = b""


def in_run(folder: Path) -> dict[tuple[int, str], list[tuple[int, float]]]:
    """The same, from the one offline run in a folder."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = defaultdict(list)
    [path] = folder.rglob("run-*.wandb")
    for data in records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        row = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        by_seed: dict[int, dict[str, Any]] = defaultdict(dict)
        for key, value in row.items():
            if key.startswith("seed-"):
                seed, name = key.removeprefix("seed-").split("/", 1)
                by_seed[int(seed)][name] = value
        for number, values in by_seed.items():
            step = values.pop("step")
            for name, value in values.items():
                found[number, name].append((step, value))
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
def test_weights_and_biases_gets_the_metrics_offline(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert call(*TRAIN, "--log", "wandb")[0] == 0
    expected = measured(tmp_path / "model.pt.training")
    found = in_run(tmp_path / "model.pt.training")
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert [step for step, _ in found[key]] == [step for step, _ in values]
        assert [value for _, value in found[key]] == pytest.approx([v for _, v in values], rel=1e-9)


def test_nothing_is_sent_by_default(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    assert call(*TRAIN)[0] == 0
    assert "tensorboard" not in set(sys.modules) - before
    assert not (tmp_path / "model.pt.training" / "tensorboard").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--log", "tensorbord", "--out", "m.pt"), "did you mean tensorboard"),
        (("--log", "wandb"), "--log follows a run that is kept: give --out"),
    ],
)
def test_what_cannot_be_followed_is_one_line(call, given, said: str) -> None:
    code, _, error = call("train", "xor", *given)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_a_missing_package_is_named_with_its_extra(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(to: str) -> None:
        raise ImportError(to)

    monkeypatch.setattr(tracking, "_package", missing)
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
    assert len(found) == 4
    assert len({path.parts[0] for path in found}) == 2  # the points
    assert call(*given, "--resume")[0] == 0  # what was followed needs no following
