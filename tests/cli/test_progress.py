"""What is said on a pipe: every kind of step, not every step, and how long the rest will take."""

from __future__ import annotations

import pytest

from interp_toolkit.cli import outputs as module
from interp_toolkit.cli.outputs import progress, training_progress
from interp_toolkit.registry import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    """The time that these tests set."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.strip() for line in capsys.readouterr().err.splitlines()]


def test_like_steps_are_said_every_fifteen_seconds_and_at_the_end(clock, capsys) -> None:
    with progress(quiet=False) as say:
        for number in range(1, 41):
            say(f"site {number} of 40: blocks.{number}.hook_resid_post")
            clock[0] += 2.0
    lines = said(capsys)
    assert lines == [
        "site 1 of 40: blocks.1.hook_resid_post",
        "site 9 of 40: blocks.9.hook_resid_post, about 62 s left",
        "site 17 of 40: blocks.17.hook_resid_post, about 46 s left",
        "site 25 of 40: blocks.25.hook_resid_post, about 30 s left",
        "site 33 of 40: blocks.33.hook_resid_post, about 14 s left",
        "site 40 of 40: blocks.40.hook_resid_post",
    ]


def test_other_steps_are_said_at_once_and_counted_anew(clock, capsys) -> None:
    with progress(quiet=False) as say:
        for text in (
            "loading",
            "copy 1 of 3",
            "copy 2 of 3",
            "copy 1 of 3",
            "1,024 of 2,048 lists",
        ):
            say(text)
            clock[0] += 1.0
        clock[0] += 20
        say("1,536 of 2,048 lists")
    assert said(capsys) == [
        "loading",
        "copy 1 of 3",
        "1,024 of 2,048 lists",
        "1,536 of 2,048 lists, about 21 s left",
    ]


def test_quick_steps_of_one_kind_are_said_once_whatever_their_totals(clock, capsys) -> None:
    with progress(quiet=False) as say:
        for total in (3, 2, 1, 1):
            for number in (0, total):
                say(f"knocking out (induction), {number} of {total} passes")
                clock[0] += 0.1
        say("knocking out (previous-token), 0 of 2 passes")
        clock[0] += 5
        say("knocking out (previous-token), 2 of 2 passes")
        say("knocking out (previous-token), 2 of 2 passes")
    assert said(capsys) == [
        "knocking out (induction), 0 of 3 passes",
        "knocking out (previous-token), 0 of 2 passes",
        "knocking out (previous-token), 2 of 2 passes",
    ]


def test_two_kinds_of_steps_that_take_turns_keep_their_clocks(clock, capsys) -> None:
    with progress(quiet=False) as say:
        for layer in range(1, 4):
            say(f"layer {layer} of 3: blocks.{layer}")
            clock[0] += 5
            say(f"random layer {layer} of 9")
            clock[0] += 5
    assert said(capsys)[-2:] == [
        "layer 3 of 3: blocks.3",
        "random layer 3 of 9, about 60 s left",
    ]


def test_what_is_said_of_the_time_already_stays(clock, capsys) -> None:
    with progress(quiet=False) as say:
        say("ablating edges: 1 of 9 passes")
        clock[0] += 30
        say("ablating edges: 2 of 9 passes, 7 s left")
    assert said(capsys)[1] == "ablating edges: 2 of 9 passes, 7 s left"


def test_training_says_what_is_left_of_a_seed(clock, capsys) -> None:
    with training_progress(quiet=False) as (report, _):
        for step in range(0, 101, 10):
            report(Progress(3, 1, 1, step, 100, 0.5))
            clock[0] += 6.0
    assert said(capsys) == [
        "seed 3: step 0 of 100, loss 0.5000",
        "seed 3: step 30 of 100, about 42 s left, loss 0.5000",
        "seed 3: step 60 of 100, about 24 s left, loss 0.5000",
        "seed 3: step 90 of 100, about 6 s left, loss 0.5000",
        "seed 3: step 100 of 100, loss 0.5000",
    ]


def test_quiet_says_nothing(capsys) -> None:
    with progress(quiet=True) as say, training_progress(quiet=True) as (report, tell):
        say("site 1 of 2")
        tell("texts")
        report(Progress(0, 1, 1, 1, 2, 0.1))
    assert said(capsys) == []
