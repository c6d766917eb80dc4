"""A few damaged inputs of each reader; `make fuzz` tries a hundred thousand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run import Fault, faults, in_processes
from targets import Input, Target, targets

CASES, SEED = 60, 1


@pytest.mark.slow
@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_a_damaged_input_is_read_or_refused_in_one_line(target: Target, tmp_path: Path) -> None:
    assert list(faults(target, SEED, range(CASES), tmp_path / "at")) == []


def test_what_goes_wrong_is_found(tmp_path: Path) -> None:
    """The suite itself: a reader that does each wrong thing."""
    from interp_toolkit.errors import InputError

    def read(path: Path) -> None:
        match int(path.read_text()) % 4:
            case 0:
                raise KeyError("x")
            case 1:
                raise InputError("one\x1b[31mline")
            case 2:
                raise InputError("this is clear")

    number = iter(range(100))

    def written(folder: Path, rng: object = None) -> Path:
        path = folder / "f"
        path.write_text("3" if rng is None else str(next(number)))
        return path

    target = Target("made up", Input(written, written), read)
    found = list(faults(target, 0, range(8), tmp_path / "at"))
    assert [fault.case for fault in found] == [0, 1, 4, 5]
    assert found[0].said.startswith("KeyError: 'x' at test_fuzz.py:")
    assert found[1].said.startswith("control characters")


def test_a_reader_that_ends_its_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    import run

    def killed(command: list[str], **given: object) -> subprocess.CompletedProcess[str]:
        *_, first, _, out = command
        Path(out).with_suffix(".at").write_text(first)
        Path(out).write_text("")
        return subprocess.CompletedProcess(command, -11 if first == "0" else 0, "", "")

    monkeypatch.setattr(run.subprocess, "run", killed)
    assert list(in_processes("any", 0, range(3))) == [
        Fault("any", 0, "ends the process: signal 11")
    ]
