"""Jobs of milliseconds that import little; other processes import them by this name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from interp_toolkit.errors import InputError
from interp_toolkit.studies.jobs.attempt import Job, Outcome


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
    """One seed's process is killed, once the others have begun."""
    folder.mkdir(exist_ok=True)
    if seed == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return Outcome({"seed": seed})


def hangs(*, folder: Path, seed: int, note: str) -> Outcome:
    """One seed never ends, but where a file says that it may."""
    while seed == 1 and not Path(note).exists():
        time.sleep(0.05)
    return Outcome({"seed": seed, "process": os.getpid()})


def once_killed(*, folder: Path, seed: int, note: str) -> Outcome:
    """The first time, the process that watches over this one is killed."""
    if not Path(note).exists():
        Path(note).touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return Outcome({"seed": seed})


def always_killed(*, folder: Path, seed: int, deadly: int) -> Outcome:
    """One seed kills every process that watches over it."""
    if seed == deadly:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
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
    """A point of a sweep that trains nothing; KILL_AT names the rate whose seed 1 is killed."""
    at = {"lr": 0.5, **settings}
    if str(at["lr"]) == os.environ.get("KILL_AT") and seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
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
