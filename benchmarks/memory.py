"""Does `--memory` hold? The peak of every analysis above the loaded model, beside the bound.

Each analysis runs in a process of its own: the model is loaded, the process's peak is set back
(Linux's `clear_refs`), the analysis runs with `memory` as the bound, and the peak above what was
held before it is told. The weights that a null shuffles are kept in memory beside it, once as large
as the model: their size stands beside the peak. What is freed goes back to the system at once
(glibc's MALLOC_MMAP_THRESHOLD_): by itself malloc keeps some of it, which no analysis can help.

The models: 12 layers of 12 heads, 768 wide, 3,072 neurons, 5,000 tokens, with random weights; and
SmolLM2-135M where it is installed (make real), of which skip-bigrams look at one layer. Rows: what
an analysis makes for itself; 128 rows of 64 random tokens and four features where it needs some;
for roles and circuits 64 rows, repeated, with answers.

Run: python benchmarks/memory.py [--bound 256MiB ...] [--model wide|smollm2] [--only NAME ...]
     [--limit SECONDS] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.testing.real import smollm2_path
from interp_toolkit.toys.hand_set.untrained import random_model

ANALYSES = (
    *("boolean", "uand", "heads", "roles", "circuit", "composition"),
    *("qk", "ov", "skip-bigrams", "collapse"),
)
FEATURED = {"boolean", "uand"}
TASKED = {"roles", "circuit"}
LAYER = {("smollm2", "skip-bigrams"): 0}  # of which nothing is kept for the next
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
COLUMNS = ["of", "above the model, MiB", "weights, MiB", "s", "says"]
ROWS, LENGTH, FEATURES = 128, 64, 4


def model_of(name: str) -> Any:
    """The model by its name here."""
    if name == "smollm2":
        return it.load(str(smollm2_path()))
    sizes = {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_mlp": 3072}
    return random_model(0, **sizes, d_vocab=5000, n_ctx=128, normalization="LN", biases=True)


def held(what: str) -> int:
    """Bytes: `VmRSS`, what this process holds; `VmHWM`, what it held at most."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) * 1024


def one(analysis: str, name: str, bound: str) -> dict[str, Any]:
    """The analysis, here."""
    import numpy as np
    import torch

    model = model_of(name)
    options: dict[str, Any] = {"memory": bound}
    if (name, analysis) in LAYER:
        options["layer"] = LAYER[name, analysis]
    rng = np.random.default_rng(0)
    if analysis in FEATURED:
        tokens = rng.integers(1, 5000, (ROWS, LENGTH))
        bits = {f"f{k}": rng.random(ROWS) < 0.5 for k in range(FEATURES)}
        options["data"] = {"tokens": tokens, "features": bits}
        if analysis == "boolean":
            options["data"]["features"] = {k: bits[k] for k in ("f0", "f1")}
            options["table"] = "0110"
    if analysis in TASKED and name == "smollm2":
        options["data"] = it.task(model, "indirect-object", rows=64)
    elif analysis in TASKED:
        tokens = np.tile(rng.integers(1, 5000, (64, LENGTH // 2)), 2)
        wrong = rng.integers(1, 5000, 64)
        options["data"] = {"tokens": tokens, "answers": tokens[:, LENGTH // 2], "wrong": wrong}
    # what is imported, and what PyTorch keeps after a first pass, is not the analysis'
    small = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 32}
    tiny = random_model(0, **small, d_vocab=model.cfg.d_vocab, n_ctx=model.cfg.n_ctx)
    with contextlib.suppress(it.InputError):
        it.analyze(tiny, analysis, **options)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    model(torch.zeros((1, 8), dtype=torch.long))
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    began = time.monotonic()
    try:
        said = it.analyze(model, analysis, **options).status
    except it.InputError as error:
        said = f"refused: {error}"
    return {
        "says": said,
        "above": held("VmHWM") - before,
        "weights": weights,
        "seconds": time.monotonic() - began,
    }


def apart(analysis: str, name: str, bound: str, limit: float) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", analysis, name, bound]
    row: dict[str, Any] = {"analysis": analysis, "model": name, "bound": parse_memory(bound)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env=os.environ | GIVEN_BACK
        )
    except subprocess.TimeoutExpired:
        return row | {"says": f"longer than {limit:g} s", "above": None}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        return row | {"says": f"broke: {last}", "above": None}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row | found


def main() -> None:
    """Run and print."""
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(*sys.argv[2:5])))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bound", nargs="*", default=["256MiB", "1GiB"])
    parser.add_argument("--model", nargs="*", choices=("wide", "smollm2"), default=["wide"])
    parser.add_argument("--only", nargs="*", choices=ANALYSES, default=list(ANALYSES))
    parser.add_argument("--limit", type=float, default=1800, help="seconds of one analysis")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if "smollm2" in options.model and smollm2_path() is None:
        sys.exit("SmolLM2 is not installed: make real")
    asked = [(a, m, b) for m in options.model for a in options.only for b in options.bound]
    rows: list[list[Any]] = []
    for each in track(asked, "analyses"):
        rows.append(_cells(apart(*each, options.limit)))
        if options.json:
            kept = {"title": "Memory", "columns": COLUMNS, "rows": rows}
            options.json.write_text(json.dumps({"tables": [kept]}, indent=1) + "\n")
    table = Table()
    for head in COLUMNS:
        table.add_column(head, overflow="fold")
    for line in rows:
        table.add_row(
            *("-" if c is None else c if isinstance(c, str) else f"{c:,.0f}" for c in line)
        )
    Console(width=140).print(table)


def _cells(row: dict[str, Any]) -> list[Any]:
    layer = LAYER.get((row["model"], row["analysis"]))
    what = row["analysis"] if layer is None else f"{row['analysis']} of layer {layer}"
    return [
        f"{row['model']}, {what}, {row['bound'] / 2**20:.0f} MiB",
        None if row["above"] is None else row["above"] / 2**20,
        row["weights"] / 2**20 if "weights" in row else None,
        row.get("seconds"),
        row["says"],
    ]


if __name__ == "__main__":
    main()
