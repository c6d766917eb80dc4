"""What `doctor` costs on a language model, in bare forward passes, as told and as timed.

A bare pass is the model on the doctor's probe (16 rows of 8 tokens), the median of 5 in the same
process. Told: the doctor's own count. Counted: the tokens that went into the model itself, its
copies left out, by a hook of PyTorch's in front of its forward pass. Timed: processor time of the
whole, copies and comparisons too, by that of a bare pass. Run with OMP_NUM_THREADS=1.
Run: python benchmarks/doctor_price.py [MODEL] [--json FILE]
MODEL: what `load` takes; default: SmolLM2-135M where it is installed (make real).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from pathlib import Path

import interp_toolkit as it
from interp_toolkit.diagnosis.bench import probe_rows
from interp_toolkit.models.running.forward import run
from interp_toolkit.report.html import write_text
from interp_toolkit.testing.real import smollm2_path

GOAL = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default=smollm2_path())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.model is None:
        sys.exit("no model: give one, or install SmolLM2 (make real)")
    name = str(options.model)
    model = it.load(name)
    tokens = probe_rows(model)
    times = []
    for _ in range(5):
        start = time.process_time()
        run(model, tokens)
        times.append(time.process_time() - start)
    bare = statistics.median(times)
    went_in: list[int] = []
    counter = model.register_forward_pre_hook(lambda module, args: went_in.append(args[0].numel()))
    start, clock = time.process_time(), time.perf_counter()
    result = it.doctor(model)
    spent, wall = time.process_time() - start, time.perf_counter() - clock
    counter.remove()
    told = result.evidence.bare_passes
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {
        "model": Path(name).name,
        "told": told,
        "timed": spent / bare,
        "bare pass, s": bare,
        "seconds": wall,
        "peak memory of the process, GiB": memory,
        "verdict": result.verdict,
    }
    if options.json is not None:
        write_text(options.json, json.dumps(found, indent=1) + "\n")
    print(result.verdict)
    print(f"told {told:g} bare passes in {result.evidence.calls} calls; the goal is {GOAL}")
    print(f"counted at the model itself: {sum(went_in) / tokens.numel():.2f}, without backward")
    print(f"timed {spent / bare:.1f} bare passes of {bare:.3g} s; {wall:.1f} s in all")
    print(f"peak memory of the process {memory:.2f} GiB")
    for check in result.checks:
        if check.answer in ("failed", "undecided", "differs"):
            print(
                f"  {check.answer}: {check.name}: {check.summary} {check.difference} "
                f"{check.tolerance}"
            )


if __name__ == "__main__":
    main()
