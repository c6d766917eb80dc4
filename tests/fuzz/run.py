"""Damaged inputs for readers: each must be read, or refused in one clear line, in time.

    python tests/fuzz/run.py --cases 100000      what `make fuzz` runs
    python tests/fuzz/run.py --target sweep --seed 7 --case 123      one case again

A case is a fault if its reader raises anything but `InputError`, if that says more than one line or
could move a terminal's cursor, if it takes longer than SECONDS, or at some moment more memory than
MIB beyond what the process had (on Linux). A sound input is read first, which must succeed. A
reader that ends its process is a fault too: cases run in processes of their own, a few hundred in
each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SECONDS, MIB = 10, 1_024
BATCH = 250  # cases of one process
LONGEST = 300  # characters of an error


class Fault(NamedTuple):
    """A case that went wrong, and how."""

    target: str
    case: int
    said: str


class TooLongError(BaseException):
    """A case took too long; no reader takes this for an error of its file."""


def generator(target: str, seed: int, case: int) -> random.Random:
    """Of one case; the same on every machine."""
    return random.Random(f"{target}/{seed}/{case}")


def faults(target: Any, seed: int, cases: range, place: Path) -> Iterator[Fault]:
    """The cases of a target that go wrong; `place` says which one is being tried."""
    from interp_toolkit.errors import InputError

    signal.signal(signal.SIGALRM, _ring)
    with tempfile.TemporaryDirectory() as folder:
        target.read(target.given.sound(Path(folder)))  # imports what it needs, outside any time
    for case in cases:
        place.write_text(str(case))
        with tempfile.TemporaryDirectory() as folder:
            path = target.given.damaged(Path(folder), generator(target.name, seed, case))
            before = _peak(anew=True)
            signal.alarm(SECONDS)
            said: str | None = None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    target.read(path)
            except InputError as error:
                said = _unclear(str(error))
            except TooLongError:
                said = f"takes longer than {SECONDS} s"
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{type(error).__name__}: {error}"[:200]
                said = f"{text} at {Path(where.filename).name}:{where.lineno}"
            finally:
                signal.alarm(0)
            if (taken := _peak() - before) > MIB:
                said = f"takes {taken:.0f} MiB"
            if said is not None:
                yield Fault(target.name, case, said)


def _ring(*_: object) -> None:
    raise TooLongError


def _peak(*, anew: bool = False) -> float:
    """MiB that the process has held at most, since it was asked `anew`; 0 where none can tell."""
    try:
        if anew:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def _unclear(line: str) -> str | None:
    """What is wrong with an error's words, if anything."""
    if "\n" in line or not line.strip():
        return f"not one line: {line[:200]!r}"
    if any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in line):
        return f"control characters: {line[:200]!r}"
    return f"{len(line):,} characters: {line[:80]!r}" if len(line) > LONGEST else None


def _one_process(name: str, seed: int, first: int, last: int, out: Path) -> None:
    """Try these cases and write what went wrong, a line each."""
    from targets import by_name

    with out.open("w") as file:
        for fault in faults(by_name()[name], seed, range(first, last), out.with_suffix(".at")):
            file.write(json.dumps(fault) + "\n")
            file.flush()


def in_processes(name: str, seed: int, cases: range) -> Iterator[Fault]:
    """The faults of a target; one that ends its process is a fault, and the rest goes on."""
    at = cases.start
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "faults"
        while at < cases.stop:
            last = min(cases.stop, at + BATCH)
            command = [sys.executable, __file__, "--one", name, str(seed), str(at), str(last)]
            done = subprocess.run([*command, str(out)], capture_output=True, text=True)
            if out.exists():
                yield from (Fault(*json.loads(line)) for line in out.read_text().splitlines())
                out.unlink()
            if done.returncode == 0:
                at = last
                continue
            reached = out.with_suffix(".at")
            case = max(at, int(reached.read_text())) if reached.exists() else at
            said = done.stderr.strip().splitlines()[-1:] or [f"signal {-done.returncode}"]
            yield Fault(name, case, f"ends the process: {said[0][:200]}")
            at = case + 1


def main() -> int:
    """Try every reader, or one; 1 if anything went wrong."""
    sys.path.insert(0, str(Path(__file__).parent))
    if sys.argv[1:2] == ["--one"]:
        name, seed, first, last, out = sys.argv[2:]
        _one_process(name, int(seed), int(first), int(last), Path(out))
        return 0
    from targets import by_name

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock's")
    parser.add_argument("--target", action="append", choices=sorted(by_name()))
    parser.add_argument("--case", type=int, help="only this one, of one target")
    parser.add_argument("--json", type=Path, help="keep what was tried and found, as JSON")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = given.target or list(by_name())
    each = -(-given.cases // len(names))
    cases = range(each) if given.case is None else range(given.case, given.case + 1)
    total = 0
    tried: dict[str, dict[str, Any]] = {}
    for name in names:
        began = time.monotonic()
        found = list(in_processes(name, given.seed, cases))
        total += len(found)
        spent = time.monotonic() - began
        print(f"{name}: {len(cases)} cases, {len(found)} faults, {spent:.0f} s", flush=True)
        tried[name] = {"cases": len(cases), "faults": [f._asdict() for f in found], "s": spent}
        kinds: dict[str, list[Fault]] = {}
        for fault in found:
            kinds.setdefault(fault.said.split(" at ")[-1] or fault.said, []).append(fault)
        for alike in sorted(kinds.values(), key=len, reverse=True):
            print(f"  {len(alike)} ×, such as case {alike[0].case}: {alike[0].said}")
    print(f"{len(cases) * len(names):,} cases, {total:,} faults; --seed {given.seed}")
    if given.json is not None:
        sums = {"cases": len(cases) * len(names), "faults": total, "readers": len(names)}
        limits = {"seconds": SECONDS, "mib": MIB}
        kept = sums | {"seed": given.seed, "limits": limits, "by reader": tried}
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
