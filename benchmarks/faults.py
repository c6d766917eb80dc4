"""Ctrl-C, kill -9, and a Dask cluster that goes away: what is lost, and how soon it ends.

Each command is run whole once. Then, over and over, it is begun anew and struck at a moment drawn
uniformly from its whole time (imports included), and gone on with by `--resume`, or begun again,
where it knows no `--resume`. Ctrl-C goes to all its processes, as a terminal sends it; kill -9 to
the first alone, whose children have to notice. Counted are: seconds until the last of its processes
is gone, those not gone after `LEFT_AFTER` s, Ctrl-C that ends otherwise than 130 or shows a
traceback, files half written, and ends that differ in a byte from the whole run's (times left out).

The cluster: a scheduler and two workers on this machine, killed while a sweep has jobs there,
started again at the same address, and the sweep resumed.

Run: python benchmarks/faults.py [--strikes 10] [--only COMMAND ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors import SafetensorError
from safetensors.numpy import load_file

INTERP = [sys.executable, "-m", "interp_toolkit"]
LEFT_AFTER = 2.0  # seconds within which all its processes should be gone
PATIENCE = 120.0
GRID = """
recipe: retrieval
settings: {steps: 600, layers: 1, d_model: 16, rows: 32, examples: 256, test_examples: 50,
           most_pairs: 2, symbols: 8}
grid:
  variant: [standard, mixit]
seeds: 2
"""
TIMED = ("seconds", "made", "wall_s", "started", "ended")
XOR = ["train", "xor", "--variant", "1-head", "--seeds", "2", "--steps", "200"]


def trained(folder: Path) -> tuple[list[str], Path]:
    """A recipe of two seeds; the checkpoint."""
    return [*XOR, "--out", str(folder / "m.safetensors")], folder / "m.safetensors"


def swept(folder: Path) -> tuple[list[str], Path]:
    """Four runs on two processes; the table."""
    (folder / "grid.yaml").write_text(GRID)
    line = ["sweep", str(folder / "grid.yaml"), "--workers", "2", "--out", str(folder / "s")]
    return line, folder / "s" / "sweep.json"


def analysed(folder: Path) -> tuple[list[str], Path]:
    """All heads of a trained toy; the JSON."""
    line = ["analyze", "toy:induction-trained", "--probe", "heads", "--probe", "circuit"]
    return [*line, "--json", str(folder / "r.json")], folder / "r.json"


#: the command in a folder and what it leaves, and whether it knows --resume
COMMANDS: dict[str, tuple[Callable[[Path], tuple[list[str], Path]], bool]] = {
    "train": (trained, True),
    "sweep": (swept, True),
    "analyze": (analysed, False),
}


def begin(arguments: list[str]) -> subprocess.Popen[str]:
    """`interp`, in a session of its own, which heeds Ctrl-C wherever this was started from."""
    return subprocess.Popen(
        [*INTERP, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def alive(group: int) -> bool:
    """Whether any process of a group runs (and has not merely not been waited for)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group, *_ = stat.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state != "Z":
                return True
    return False


def gone_after(group: int) -> float | None:
    """Seconds until no process of the group is left; None beyond patience."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if not alive(group):
            return time.monotonic() - began
        time.sleep(0.02)
    return None


def untimed(value: Any) -> Any:
    """Without what a clock said."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if k not in TIMED}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def content(product: Path) -> Any:
    """What must be the same: bytes, or what a JSON file says but for its times."""
    if product.suffix == ".json":
        return untimed(json.loads(product.read_text(encoding="utf-8")))
    return product.read_bytes()


def whole(product: Path) -> bool:
    """Whether a file can be read; one that is not there is not half written."""
    if not product.exists():
        return True
    try:
        if product.suffix == ".json":
            json.loads(product.read_text(encoding="utf-8"))
        else:
            load_file(product)
    except (ValueError, SafetensorError):
        return False
    return True


def strike(name: str, sent: signal.Signals, after: float, resumable: bool, expected: Any) -> Any:
    """One run that is struck, and its end."""
    with tempfile.TemporaryDirectory() as kept:
        arguments, product = COMMANDS[name][0](Path(kept))
        running = begin(arguments)
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            if sent == signal.SIGINT:  # a terminal sends it to all
                os.killpg(running.pid, sent)
            else:
                os.kill(running.pid, sent)
        seconds = gone_after(running.pid)
        left = seconds is None or seconds > LEFT_AFTER
        if seconds is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        said = running.communicate()[1]
        lines = said.splitlines()
        told = sent == signal.SIGKILL or running.returncode == 0
        # before and after `interp` itself Python ends by the signal, which shells call 130 too
        told |= running.returncode in (130, -signal.SIGINT) and "Traceback" not in said
        found = {
            "command": name,
            "signal": sent.name,
            "after": after,
            "seconds": seconds,
            "left": left,
            "told": told,
            "whole": whole(product),
            "said": lines[-3:] if not told else [],
        }
        if running.returncode != 0:
            again = begin([*arguments, *(["--resume"] if resumable else [])])
            said = again.communicate()[1]
            if again.returncode:
                found["again"] = {"exit": again.returncode, "said": said.splitlines()[-3:]}
        found["same"] = product.exists() and content(product) == expected
        return found


def struck(names: list[str], strikes: int, seed: int) -> list[dict[str, Any]]:
    """Every command, by Ctrl-C and by kill -9."""
    draw, found = random.Random(seed), []
    for name in names:
        make, resumable = COMMANDS[name]
        with tempfile.TemporaryDirectory() as kept:
            arguments, product = make(Path(kept))
            began = time.monotonic()
            said = begin(arguments).communicate()[1]
            lasted = time.monotonic() - began
            if not product.exists():
                raise SystemExit(f"{name} does not run: {said}")
            expected = content(product)
        for sent in (signal.SIGINT, signal.SIGKILL):
            for _ in track(range(strikes), f"{name}, {sent.name}, of {lasted:.0f} s"):
                found.append(strike(name, sent, draw.random() * lasted, resumable, expected))
    return found


@contextlib.contextmanager
def cluster(port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler and two workers, once they are there."""
    from distributed import Client

    where = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "distributed.cli"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    on = ["--host", "127.0.0.1", "--port", str(port), "--dashboard-address", "127.0.0.1:0"]
    worker = [f"{dask[-1]}.dask_worker", where, "--nthreads", "1", "--no-dashboard"]
    lines = [[*dask[:2], f"{dask[-1]}.dask_scheduler", *on], *2 * [[*dask[:2], *worker]]]
    processes = [
        subprocess.Popen(line, start_new_session=True, **quiet)  # type: ignore[call-overload]
        for line in lines
    ]
    try:
        with Client(where, timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        yield processes
    finally:
        for one in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def runs_of(product: Path) -> int:
    """How many runs a sweep's file has, once there is one."""
    if not product.exists():
        return 0
    [result] = json.loads(product.read_text(encoding="utf-8"))["results"]
    return sum(len(point["values"]) for point in result["points"])


def without_cluster() -> dict[str, Any]:
    """A sweep whose cluster goes away in its middle and comes back."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as kept:
        here, there = Path(kept) / "here", Path(kept) / "there"
        here.mkdir()
        there.mkdir()
        arguments, product = swept(here)
        begin(arguments).communicate()
        expected = content(product)
        arguments, product = swept(there)
        arguments[2:4] = []  # as many workers as the cluster has
        arguments += ["--engine", "dask", "--address", f"tcp://127.0.0.1:{port}"]
        with cluster(port):
            running = begin(arguments)
            while not (done := runs_of(product)) and running.poll() is None:
                time.sleep(0.02)
        began = time.monotonic()
        try:
            said = running.communicate(timeout=PATIENCE)[1].splitlines()
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said = [*running.communicate()[1].splitlines(), "(went on until it was killed)"]
        seconds = time.monotonic() - began
        with cluster(port):
            again = begin([*arguments, "--resume"])
            resumed = again.communicate()[1].splitlines()
        return {
            "runs done before": done,
            "seconds until it ends": seconds,
            "exit": running.returncode,
            "said": said[-3:],
            "exit of --resume": again.returncode,
            "resume said": resumed[-3:],
            "same": content(product) == expected,
        }


def summed(found: list[dict[str, Any]]) -> list[list[Any]]:
    """A row a command and signal."""
    rows = []
    for name, sent in dict.fromkeys((one["command"], one["signal"]) for one in found):
        these = [one for one in found if (one["command"], one["signal"]) == (name, sent)]
        seconds = [one["seconds"] for one in these if one["seconds"] is not None]
        counts = [sum(not one[key] for one in these) for key in ("told", "whole", "same")]
        left = sum(one["left"] for one in these)
        of = f"{name}, {'Ctrl-C' if sent == 'SIGINT' else 'kill -9'}"
        rows.append([of, len(these), statistics.median(seconds), max(seconds), left, *counts])
    return rows


def main() -> None:
    """Strike, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=[*COMMANDS, "cluster"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    asked = options.only or [*COMMANDS, "cluster"]
    found = struck([name for name in asked if name != "cluster"], options.strikes, options.seed)
    columns = ["of", "runs", "s until gone, median", "s until gone, most", "not gone after 2 s"]
    columns += ["traceback or another exit", "half written", "another end"]
    table = Table(*columns)
    rows = summed(found)
    for row in rows:
        table.add_row(*(f"{x:.2f}" if isinstance(x, float) else str(x) for x in row))
    Console(width=140).print(table)
    for one in found:
        if not (one["told"] and one["whole"] and one["same"]) or one["left"]:
            print(json.dumps(one))
    kept: dict[str, Any] = {"struck": found, "tables": []}
    kept["tables"] = [{"title": "Struck", "columns": columns, "rows": rows}]
    if "cluster" in asked:
        kept["cluster"] = without_cluster()
        print(json.dumps(kept["cluster"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
