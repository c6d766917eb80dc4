"""Jobs of milliseconds that import little; other processes import them by this name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Job, Outcome
from interp_toolkit.errors import InputError
from interp_toolkit.files import replacing


class OddError(Exception):
    """Cannot be sent to another process: it is not made from its message alone."""

    def __init__(self, number: int, word: str):
        super().__init__(f"{number} {word}")


def squares(*, folder: Path, seed: int) -> Outcome:
    print("not an answer")
    return Outcome({"seed": seed, "square": seed**2, "nan": float("nan")})


def whose(*, folder: Path, seed: int) -> Outcome:
    return Outcome({"process": os.getpid(), "folder": str(folder)})


def kills_itself(*, folder: Path, seed: int, deadly: int) -> Outcome:
    """One seed's process is killed at every attempt."""
    if seed == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome({"seed": seed})


def hangs(*, folder: Path, seed: int, note: str) -> Outcome:
    """Seed 1 ends only where a file says that it may."""
    while seed == 1 and not Path(note).exists():
        time.sleep(0.05)
    return Outcome({"seed": seed})


def refuses(*, folder: Path, seed: int) -> Outcome:
    if seed == 1:
        raise InputError("seed 1 is unlucky")
    return Outcome({"seed": seed})


def breaks(*, folder: Path, seed: int) -> Outcome:
    raise ZeroDivisionError(f"seed {seed}")


def raises_oddly(*, folder: Path, seed: int) -> Outcome:
    raise OddError(seed, "is odd")


def leaves(*, folder: Path, seed: int) -> Outcome:
    os._exit(seed)


def says_that_it_runs(*, folder: Path, seed: int) -> Outcome:
    """For ever."""
    folder.with_suffix(".pid").write_text(str(os.getpid()))
    time.sleep(600)
    return Outcome({})


def made_up_point(
    *, folder: Path, recipe: str, settings: dict[str, Any], seed: int, device: str
) -> Outcome:
    """A point of a sweep that trains nothing.

    The environment says what happens to seed 1 at which rates: KILL_AT, its process is killed;
    KILL_ONCE_AT, killed at the first attempt; WAIT_AT, it writes its process's id and, at the first
    attempt, waits to be killed. FAIL_AT and HANG_AT are rates of all seeds.
    """
    at = {"lr": 0.5, **settings}
    note = folder.parent / f"{folder.name}.pid"
    again = note.exists()
    if seed == 1 and str(at["lr"]) == os.environ.get("KILL_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 1 and str(at["lr"]) == os.environ.get("KILL_ONCE_AT") and not again:
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 1 and str(at["lr"]) == os.environ.get("WAIT_AT") and not again:
        with replacing(note) as partial:
            partial.write_text(str(os.getpid()))
        time.sleep(600)
    if str(at["lr"]) == os.environ.get("FAIL_AT"):
        raise InputError("the loss is not finite")
    while str(at["lr"]) == os.environ.get("HANG_AT"):
        time.sleep(1)
    value = 1 - at["lr"] - (at.get("variant") == "mixit") / 4 + seed / 1000
    measured = {"name": "accuracy", "value": value, "better": "higher", "unit": "share"}
    measured |= {"guess": None, "examples": 1000}
    return Outcome({"seed": seed, "measured": measured, "loss": 0.0, "seconds": 1.0})


def jobs_of(function: Any, seeds: int, **arguments: Any) -> list[Job]:
    return [
        Job(f"{function.__name__}-{seed}", function, {"seed": seed, **arguments})
        for seed in range(seeds)
    ]
