"""The command's streams and its end: readers that leave, full disks, interrupts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERP = (sys.executable, "-m", "interp_toolkit")
FULL = Path("/dev/full")
NOWHERE = Path("/sys")  # where nobody can make a file
#: `interp` that heeds SIGINT also where the shell has it ignored
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from interp_toolkit.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "detectors"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--quiet", "--json", "-", "--html"],
    ],
    ids=["list", "json"],
)
def test_a_reader_that_leaves_ends_it_quietly_and_the_files_are_written(
    arguments: list[str], tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    if arguments[-1] == "--html":
        arguments = [*arguments, str(page)]
    started = subprocess.Popen(
        [*INTERP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    err = started.stderr.read()
    started.stderr.close()
    assert started.wait(timeout=120) == 0, err
    assert "Traceback" not in err
    assert page.exists() == (str(page) in arguments)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_clear_line(texts) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [*INTERP, "list", "detectors"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    texts(done.stderr)


@pytest.mark.skipif(not NOWHERE.is_dir(), reason="this system has no /sys")
@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "toy:xor-2head", "--probe", "xor", "--quiet", "--json", NOWHERE / "r.json"],
        ["analyze", "toy:xor-2head", "--probe", "xor", "--quiet", "--html", NOWHERE / "r.html"],
        ["train", "xor", "--variant", "1-head", "--steps", "5", "--out", NOWHERE / "m.pt"],
        ["reproduce", "xor", "--out", NOWHERE / "x"],
    ],
    ids=["json", "html", "checkpoint", "folder"],
)
def test_a_folder_that_cannot_be_written_is_one_clear_line(call, arguments: list[str]) -> None:
    """Not even by root, which may write where it has no permission."""
    code, _, err = call(*arguments)
    assert code == 2
    assert re.fullmatch(r"interp: .*(cannot be written|cannot write|cannot be made).*\n", err)


def test_an_interrupt_leaves_130_and_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    endless = ["train", "xor", "--steps", "100000000", "--set", "target=0", "--out", str(path)]
    started = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *endless],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    assert "step 0" in started.stderr.readline()  # it is at work
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=120)
    assert started.returncode == 130
    assert (out, err.splitlines()[-1]) == ("", "interp: interrupted")
    left = sorted(file.name for file in (tmp_path / "m.pt.training").iterdir())
    assert left == ["metrics.jsonl", "run.json"]
    assert not path.exists()


#: Ctrl-C while `interp` imports what it needs, and while Python takes itself down
WHILE_STARTING = """
class Interrupt:
    def find_spec(name, *rest):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
"""
WHILE_ENDING = """
threading._register_atexit(lambda: signal.raise_signal(signal.SIGINT))
"""


@pytest.mark.parametrize("when", [WHILE_STARTING, WHILE_ENDING], ids=["start", "end"])
@pytest.mark.parametrize("heeded", ["default_int_handler", "SIG_IGN"])
def test_an_interrupt_before_or_after_the_work_shows_no_traceback(when: str, heeded: str) -> None:
    lines = [
        "import signal, sys, threading",
        f"signal.signal(signal.SIGINT, signal.{heeded})",
        when,
        "from interp_toolkit.__main__ import interp",
        "interp()",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), "--version"], capture_output=True, text=True
    )
    assert done.stderr == ""
    ignored = heeded == "SIG_IGN"
    assert done.returncode == (0 if ignored else -signal.SIGINT)
    assert bool(done.stdout) == (ignored or when == WHILE_ENDING)


def test_progress_is_on_standard_error_and_json_alone_on_standard_output(call) -> None:
    code, out, err = call("analyze", "toy:xor-1head", "--json", "-")
    assert code == 0
    assert len(json.loads(out)["results"]) == 3
    assert "loading toy:xor-1head" in err
