"""Train, get killed, go on, over and over: `run_and_kill.py FOLDER HOW-NUMBER ...`.

One warm process runs FOLDER/whole; every other run is a fork of it. HOW is what strikes:
    step     SIGKILL in the middle of a random step;
    call     SIGKILL before or after a random call that changes a file;
    moment   SIGKILL whenever the parent gets to it;
    middle   the system's own kill signal, in the middle of writing past a random size;
    full     no room for files past a random size: the run must end with an InputError;
Each run is killed and gone on with until it ends, in FOLDER/HOW-NUMBER; NUMBER seeds the striking.
Prints how often each was struck.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.registry import Session
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.induction import InductionProblem, InductionTraining, train

CONFIG = InductionTraining(
    d_vocab=12, n_ctx=12, shortest=3, longest=6, d_model=8, heads=1, d_head=4,
    rows=4, steps=11, seeds=2, lr=0.05, log_every=2, save_every=3, checkpoints=(0, 4, 11),
)  # fmt: skip
STRIKES = 4  # on one run, at most
LAST_STEP, LAST_CALL, LARGEST_FILE = 26, 250, 16_000  # more than a run has


def whole_run(folder: Path) -> None:
    """What `interp train --out --resume` does."""
    kept = folder / "run"
    run = train(CONFIG, Session(kept, resume=True))
    save(run.model, folder / "model.safetensors", task=run.task, training=run.training)
    end_run(kept)


def die(*ignored: Any, **also_ignored: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def strike(owner: Any, name: str, calls: itertools.count[int], fatal: int) -> None:
    """Let a function kill the process at the fatal call, before or after its work."""
    real: Callable[..., Any] = getattr(owner, name)

    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        now = next(calls)
        if now == fatal:
            die()
        done = real(*arguments, **keywords)
        if now + 1 == fatal and now % 2:
            die()
        return done

    setattr(owner, name, wrapped)


def arm(how: str, draw: random.Random) -> None:
    """Lay the trap in this process."""
    calls = itertools.count()
    if how == "step":
        strike(InductionProblem, "loss", calls, draw.randrange(LAST_STEP))
    if how == "call":
        fatal = draw.randrange(LAST_CALL)
        for name in ("fsync", "replace", "unlink", "open"):
            strike(os, name, calls, fatal)
        strike(torch, "save", calls, fatal)
        strike(Path, "touch", calls, fatal)
        strike(Path, "chmod", calls, fatal)
    if how in ("middle", "full"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if how == "middle" else signal.SIG_IGN)
        size = draw.randrange(LARGEST_FILE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def child(folder: Path, how: str, draw: random.Random) -> None:
    """Run in this process, and leave it."""
    arm(how, draw)
    try:
        whole_run(folder)
    except InputError as error:
        if "holds a finished run" not in str(error):  # it was killed when all was done
            os._exit(3 if "cannot be written" in str(error) else 4)
    os._exit(0)


def until_it_ends(folder: Path, how: str, number: int) -> int:
    """How often it was struck before it ended."""
    draw = random.Random(number)
    folder.mkdir()
    expected = {"middle": signal.SIGXFSZ, "full": 3 << 8}.get(how, signal.SIGKILL)
    for struck in itertools.count():
        if struck == STRIKES:
            how = "never"  # it may not get far before the next one
        running = os.fork()
        if running == 0:
            child(folder, how, draw)
        if how == "moment":
            time.sleep(draw.random() / 4)
            os.kill(running, signal.SIGKILL)
        status = os.waitpid(running, 0)[1] & ~0x80  # without the mark of a core dump
        draw.random()
        if status == 0:
            return struck
        assert status == expected, (how, number, status)
    raise AssertionError


if __name__ == "__main__":
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole = Path(sys.argv[1]) / "whole"
    whole.mkdir()
    whole_run(whole)
    for run in sys.argv[2:]:
        chosen, _, number = run.partition("-")
        print(run, until_it_ends(Path(sys.argv[1]) / run, chosen, int(number)), flush=True)
