"""`interp train` as a user meets it: interrupted, gone on with, and what it says meanwhile."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open

from interp_toolkit.cli import outputs as progress_module
from interp_toolkit.cli.main import main
from interp_toolkit.cli.outputs import training_progress
from interp_toolkit.registry import Progress

SMALL = ["train", "induction", "--steps", "8", "--seeds", "2", "--set", "rows=4"]
SMALL += ["--set", "checkpoints=0,8", "--set", "save_every=3", "--device", "cpu"]


@pytest.fixture
def call(capfd, monkeypatch):
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["interp", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        return int(leaving.value.code or 0), *capfd.readouterr()

    return run


def interrupt_at(monkeypatch: pytest.MonkeyPatch, loss: int) -> None:
    from interp_toolkit.training.induction import InductionProblem

    real, left = InductionProblem.loss, iter(range(loss))

    def taken(self, batch):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(self, batch)

    monkeypatch.setattr(InductionProblem, "loss", taken)


def test_an_interrupted_run_is_gone_on_with_and_ends_the_same(
    call, monkeypatch, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole.safetensors", tmp_path / "m.safetensors"
    assert call(*SMALL, "--out", whole)[0] == 0
    with monkeypatch.context() as patched:
        interrupt_at(patched, 9 + 5)
        code, _, err = call(*SMALL, "--out", out)
    assert code == 130
    assert "with --resume continues" in err
    assert not out.exists()
    code, _, err = call(*SMALL, "--out", out)
    assert (code, "unfinished run: give --resume" in err) == (2, True)
    code, _, err = call(*SMALL, "--out", out, "--resume", "--set", "lr=0.5")
    assert (code, "lr = 0.01, not 0.5" in err) == (2, True)
    code, shown, err = call(*SMALL, "--out", out, "--resume")
    assert (code, "of 2 seeds solve it" in shown) == (0, True)
    assert "seed 0: step 0" not in err  # it was finished
    assert out.read_bytes() == whole.read_bytes()
    folders = (tmp_path / f"{path.name}.training" for path in (whole, out))
    kept, resumed = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert kept == resumed
    assert sorted(kept) == ["metrics.jsonl", "run.json"] + [
        f"seed-{seed}-step-{step}.safetensors" for seed in (0, 1) for step in (0, 8)
    ]
    code, _, err = call(*SMALL, "--out", out, "--resume")
    assert (code, "leave out --resume" in err) == (2, True)
    assert call(*SMALL, "--out", out)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--resume"],
        ["--set", "checkpoints=0,9"],
        ["--set", "schedule=steps"],
        ["--set", "final_lr=1"],
        ["--set", "betas=0.9,x"],
        ["--set", "checkpoints=1.5"],
        ["--set", "heads=none"],
        ["--set", "device=cpu", "--device", "cpu"],
    ],
)
def test_what_cannot_be_done_is_one_line(call, arguments: list[str], texts) -> None:
    code, _, err = call("train", "induction", "--steps", "8", *arguments)
    assert code == 2
    texts(err)
    assert len(err.splitlines()) == 1


def test_a_rank_left_in_the_environment_does_not_lose_the_model(
    call, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")
    out = tmp_path / "m.pt"
    code, _, err = call(*SMALL, "--out", out)
    assert (code, out.exists(), f"saved: {out}" in err) == (0, True, True)


def test_checkpoints_without_a_place_are_refused(call) -> None:
    code, _, err = call(*SMALL)
    assert (code, "give --out" in err) == (2, True)


def test_quiet_says_the_verdict_and_where_the_model_is(call, tmp_path: Path) -> None:
    code, out, err = call(*SMALL, "--quiet", "--out", tmp_path / "m.pt")
    assert code == 0
    assert len(out.splitlines()) == 1
    assert err == f"saved: {tmp_path / 'm.pt'}\n"


def test_away_from_a_terminal_lines_come_seldom(monkeypatch, capsys) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    with training_progress(quiet=False) as (report, say):
        for seed in (3, 4):
            for step in range(11):
                report(Progress(seed, seed - 2, 2, step, 10, 1 / 3))
                now[0] += 2.0
        say("testing")
    lines = capsys.readouterr().err.splitlines()
    steps = [int(line.split()[3]) for line in lines[:-1]]
    assert steps == [0, 8, 10] * 2
    assert lines[0] == "  seed 3: step 0 of 10, loss 0.3333"
    assert lines[-1] == "  testing"


def test_on_a_terminal_there_is_a_bar_of_which_nothing_is_left(monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with training_progress(quiet=False) as (report, say):
        report(Progress(3, 1, 2, 0, 50, 0.75))
        report(Progress(3, 1, 2, 40, 50, 0.25))
        say("testing [all] sets")
    shown = terminal.getvalue()
    assert "seed 3 (1 of 2)" in shown
    assert "40/50" in shown
    assert "loss 0.2500" in shown
    assert "steps/s" in shown
    assert "testing [all] sets" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the bar's line is cleared


def test_a_clock_that_jumps_changes_nothing(call, monkeypatch, tmp_path: Path) -> None:
    """Of the same run, interrupted too, with a wall clock that goes back and forth by days."""
    jumps = iter(range(10**9))

    def jumping() -> float:
        return 1e9 + (-1) ** next(jumps) * 1e6

    whole, out = tmp_path / "whole.safetensors", tmp_path / "m.safetensors"
    assert call(*SMALL, "--out", whole)[0] == 0
    monkeypatch.setattr(time, "time", jumping)
    with monkeypatch.context() as patched:
        interrupt_at(patched, 9 + 5)
        assert call(*SMALL, "--out", out)[0] == 130
    code, _, err = call(*SMALL, "--out", out, "--resume")
    assert code == 0
    assert not re.search(r"-\d+ ?(s|min|h)\b|\d{5,} s", err)  # no time left, or gone, of days
    assert weights_of(out) == weights_of(whole)


def weights_of(path: Path) -> dict[str, bytes]:
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
