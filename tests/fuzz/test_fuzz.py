"""Some damaged inputs of each reader; `make fuzz` tries a hundred thousand."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run
from inputs import Input
from kinds import cases_of
from run import Fault, faults, in_processes
from targets import Target, targets

from interp_toolkit.errors import InputError

CASES, SEED = 30, 1
#: reader, seed and case of faults that are mended, where a case shows them more simply than a test
KNOWN = [
    ("tokenizer", 20261125, 215),  # its Rust library panics
    ("own .pt", 20261126, 664),  # a size beyond what PyTorch counts with
    ("own .safetensors, metadata", 20261126, 314),  # likewise
    ("sweep, bytes", 20261126, 1864),  # a number beyond any float
]


@pytest.fixture
def long_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs is found, and no busy machine is; `make fuzz` keeps the shorter time."""
    monkeypatch.setattr(run, "SECONDS", 120)


@pytest.mark.slow
@pytest.mark.usefixtures("long_clock")
@pytest.mark.parametrize("target", list(targets()), ids=lambda target: target.name)
def test_a_damaged_input_is_read_or_refused_in_one_line(target: Target, tmp_path: Path) -> None:
    assert list(faults(target, SEED, range(CASES), tmp_path / "at")) == []


@pytest.mark.slow
@pytest.mark.usefixtures("long_clock")
@pytest.mark.parametrize(
    "target",
    [target for target in targets() if target.name != "settings"],  # whose file is our own
    ids=lambda target: target.name,
)
def test_a_pipe_or_a_file_with_holes_is_read_or_refused_in_one_line(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interp_toolkit.files.machine_memory", lambda: 2**33)  # of any machine
    given, n = cases_of(target.given)
    assert n >= 3
    other = dataclasses.replace(target, given=given)
    assert list(faults(other, SEED, range(n), tmp_path / "at")) == []


@pytest.mark.usefixtures("long_clock")
@pytest.mark.parametrize(("name", "seed", "case"), KNOWN)
def test_what_once_was_a_fault_is_none(name: str, seed: int, case: int, tmp_path: Path) -> None:
    [target] = [target for target in targets() if target.name == name]
    assert list(faults(target, seed, range(case, case + 1), tmp_path / "at")) == []


def test_what_goes_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite itself: a reader that does each wrong thing."""

    def read(path: Path) -> None:
        match int(path.read_text()):
            case 0:
                raise KeyError("x")
            case 1:
                time.sleep(2)
            case 2:
                bytearray(300 * 2**20)
            case 3:
                raise InputError("this is clear")
            case 4:
                raise InputError("")

    number = iter(range(100))

    def written(folder: Path, rng: object = None) -> Path:
        path = folder / "f"
        path.write_text("9" if rng is None else str(next(number)))
        return path

    monkeypatch.setattr(run, "SECONDS", 1)
    monkeypatch.setattr(run, "MIB", 200)
    target = Target("made up", Input(written, written), read)
    found = list(faults(target, 0, range(6), tmp_path / "at"))
    assert [fault.case for fault in found] == [0, 1, 2, 4]
    key, late, large, empty = (fault.said for fault in found)
    assert key.startswith("KeyError: 'x' at test_fuzz.py:")
    assert late == "takes longer than 1 s"
    assert large.startswith("takes 3")
    assert empty.startswith("not one line")


def test_a_reader_that_ends_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(command: list[str], **given: object) -> subprocess.CompletedProcess[str]:
        *_, first, _, out = command
        Path(out).with_suffix(".at").write_text(first)
        Path(out).write_text("")
        return subprocess.CompletedProcess(command, -11 if first == "0" else 0, "", "")

    monkeypatch.setattr(run.subprocess, "run", killed)
    assert list(in_processes("any", 0, range(3))) == [
        Fault("any", 0, "ends the process: signal 11")
    ]
