"""This build against an earlier one: processor time of the same jobs, taken in turn.

Every job runs in a new process, once with the other build's folder first on the path and once with
this one, in rounds. Imports count only where starting is the job. The ratio is the other build's
time divided by this one's, of each round; its median and quartiles are reported. Statuses of both
are kept beside the times, since a faster wrong answer is no gain.

Run, after `git worktree add FOLDER COMMIT`:
    python benchmarks/against_parent.py FOLDER [--rounds 7] [--only JOB ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from interp_toolkit.files import replacing

ROOT = Path(__file__).parents[1]
#: commands, timed as a whole
COMMANDS = {
    "interp list": ["list"],
    "interp show heads": ["show", "heads"],
    "interp analyze toy:xor-2head": ["analyze", "toy:xor-2head", "--probe", "xor", "--quiet"],
}
#: setup and what is timed; `status` may be set to an answer that is kept
JOBS = {
    "five detectors, 12 x 12 x 768": (
        """
import torch
from interp_toolkit.circuits import repeated_prompts, score_heads
from interp_toolkit.toys.hand_set.untrained import random_model
sizes = dict(n_layers=12, n_heads=12, d_model=768, d_head=64, d_mlp=3072, n_ctx=256)
model = random_model(0, **sizes, d_vocab=5000, normalization="LN")
tokens = repeated_prompts(model, rows=8, n_pos=256).tokens
names = ["induction", "previous-token", "duplicate-token", "first-token", "k-hop"]
score_heads(model, tokens[:2, :64], names)
""",
        "status = score_heads(model, tokens, names).detected.sum().item()",
    ),
    "heads, SmolLM2-135M": (
        """
from interp_toolkit.testing.real import smollm2_path
it.analyze("toy:induction", "heads")
model = it.load(smollm2_path())
""",
        """
result = it.analyze(model, "heads")
status = [f"{h.name} {h.detector}" for h in result.heads if h.detected]
status += [f"{sum(h.knockout is not None for h in result.heads)} heads with an effect"]
""",
    ),
    "circuit, SmolLM2-135M, indirect-object": (
        """
from interp_toolkit.testing.real import smollm2_path
it.analyze("toy:induction", "circuit")
model = it.load(smollm2_path())
data = it.task(model, "indirect-object", rows=64)
""",
        'status = it.analyze(model, "circuit", data=data, memory="2GiB").status',
    ),
    "990 boolean targets, 4,000 x 512": (
        """
import sys
sys.path.insert(0, str(benchmarks))
from logistic_targets import make_site
from interp_toolkit.probes import fit_logistic_targets
X, Y = make_site(0)
fit_logistic_targets(X, Y[:, :50])
""",
        "status = int(fit_logistic_targets(X, Y).converged.sum())",
    ),
}
SCRIPT = """
import json, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import interp_toolkit as it
benchmarks = Path({benchmarks!r})
status = None
{setup}
began = time.process_time()
{timed}
print(json.dumps([time.process_time() - began, status, it.__file__]))
"""


def environment(build: Path) -> dict[str, str]:
    """One thread, and this build before all others."""
    return {**os.environ, "PYTHONPATH": str(build), "OMP_NUM_THREADS": "1"}


def command_seconds(build: Path, arguments: list[str]) -> tuple[float, Any]:
    """Processor seconds of a command."""
    before = os.times()
    line = [sys.executable, "-m", "interp_toolkit", *arguments]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env=environment(build), cwd=build)
    after = os.times()
    user, system = (
        getattr(after, name) - getattr(before, name)
        for name in ("children_user", "children_system")
    )
    return user + system, None


def job_seconds(build: Path, setup: str, timed: str) -> tuple[float, Any]:
    """Processor seconds of what is timed, and its answer."""
    script = SCRIPT.format(benchmarks=str(ROOT / "benchmarks"), setup=setup, timed=timed)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(build),
        cwd=build,
    )
    seconds, status, file = json.loads(ran.stdout.splitlines()[-1])
    assert Path(file).is_relative_to(build), f"{file} is not of {build}"
    return seconds, status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parent", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=[*COMMANDS, *JOBS])
    parser.add_argument("--json", type=Path, help="figures; jobs that are not run keep theirs")
    options = parser.parse_args()
    builds = {"parent": options.parent.resolve(), "new": ROOT}
    kept = options.json is not None and options.json.exists()
    figures: dict[str, Any] = json.loads(options.json.read_text()) if kept else {}
    table = Table(title="processor seconds, medians")
    for column in ("job", "parent", "new", "parent / new", "quartiles", "rounds"):
        table.add_column(column)
    for name in options.only or [*COMMANDS, *JOBS]:
        times: dict[str, list[float]] = {build: [] for build in builds}
        statuses: dict[str, Any] = {}
        for _ in range(options.rounds):
            for build, folder in builds.items():
                if name in COMMANDS:
                    seconds, status = command_seconds(folder, COMMANDS[name])
                else:
                    seconds, status = job_seconds(folder, *JOBS[name])
                times[build].append(seconds)
                statuses[build] = status
        ratios = [a / b for a, b in zip(times["parent"], times["new"], strict=True)]
        low, middle, high = (
            statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        )
        medians = {build: statistics.median(values) for build, values in times.items()}
        figures[name] = {
            "seconds": times,
            "medians": medians,
            "ratio": middle,
            "quartiles": [low, high],
            "rounds": options.rounds,
            "statuses": statuses,
        }
        table.add_row(
            name,
            *(f"{medians[build]:.2f}" for build in builds),
            f"{middle:.2f}",
            f"{low:.2f} to {high:.2f}",
            str(options.rounds),
        )
        if options.json is not None:
            with replacing(options.json) as path:
                path.write_text(json.dumps(figures, indent=1) + "\n")
    Console().print(table)


if __name__ == "__main__":
    main()
