"""How time and memory of `heads` and `circuit` grow with the prompts' length and the layers.

Models with random weights, 4 heads of 16, 64 wide, with MLPs; 8 prompts of random tokens whose
answers are the model's own, so that it performs the task and effects are measured. One series has 4
layers and prompts of 64 to 2,048 tokens, the other prompts of 128 tokens and 4 to 30 layers. Each
analysis runs in a process of its own: its processor time, that of a bare pass of the prompts, and
the peak of memory above the loaded model. An exponent is the slope of a straight line through the
logarithms of the last LAST points, where constant parts count least. A pass itself grows between
linearly (MLPs) and quadratically (attention) with the length.

Run: python benchmarks/growth.py [--only heads circuit] [--lengths N ...] [--layers N ...]
     [--effort quick|standard] [--limit SECONDS] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from interp_toolkit.files import replacing

LENGTHS = (64, 128, 256, 512, 1024, 2048)
LAYERS = (4, 8, 16, 30)
LAYERS_AT, LENGTH_AT = 4, 128
ROWS, D_VOCAB = 8, 500
LAST = 3


def held(what: str) -> int:
    """Bytes: `VmRSS`, what this process holds; `VmHWM`, what it held at most."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) * 1024


def one(analysis: str, length: int, layers: int, effort: str) -> dict[str, Any]:
    """The analysis, here."""
    import torch

    import interp_toolkit as it
    from interp_toolkit.toys.hand_set.untrained import random_model

    def setting(n_layers: int, n_pos: int) -> tuple[Any, dict[str, Any]]:
        sizes = {"n_heads": 4, "d_model": 64, "d_head": 16, "d_mlp": 256, "n_ctx": n_pos}
        model = random_model(0, n_layers=n_layers, **sizes, d_vocab=D_VOCAB, normalization="LN")
        for name, parameter in model.named_parameters():
            if name.endswith(("W_V", "W_O", "W_U")):  # loud enough that answers depend on prompts
                parameter.data *= 3.0
        rng = np.random.default_rng(0)
        tokens = torch.from_numpy(rng.integers(1, D_VOCAB, (ROWS, n_pos)))
        with torch.no_grad():
            logits = model(tokens)[:, -1]
        answers, wrong = logits.argmax(-1).numpy(), logits.argmin(-1).numpy()
        return model, {"tokens": tokens.numpy(), "answers": answers, "wrong": wrong}

    it.analyze(*setting(2, 16)[:1], analysis, data=setting(2, 16)[1], effort=effort)
    model, data = setting(layers, length)
    tokens = torch.from_numpy(data["tokens"])
    began = time.process_time()
    with torch.no_grad():
        model(tokens)
    bare = time.process_time() - began
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    began = time.process_time()
    status = it.analyze(model, analysis, data=data, effort=effort).status
    return {
        "seconds": time.process_time() - began,
        "bare_seconds": bare,
        "memory": held("VmHWM") - before,
        "status": status,
    }


def measured(analysis: str, length: int, layers: int, effort: str, limit: float) -> dict[str, Any]:
    """The analysis in a process of its own; what went wrong as `error`."""
    request = json.dumps([analysis, length, layers, effort])
    try:
        ran = subprocess.run(
            [sys.executable, __file__, "--one", request],
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:g} s"}
    if ran.returncode:
        return {"error": ran.stderr.strip().splitlines()[-1][:200]}
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of the logarithms of the last LAST points."""
    x, y = np.log(sizes[-LAST:]), np.log(np.maximum(values[-LAST:], 1e-9))
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["heads", "circuit"])
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS)
    parser.add_argument("--effort", default="standard")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(*json.loads(options.one))))
        return
    series = {
        "tokens": [(n, n, LAYERS_AT) for n in options.lengths],
        "layers": [(n, LENGTH_AT, n) for n in options.layers],
    }
    figures: dict[str, Any] = {"effort": options.effort}
    console = Console()
    for analysis in options.only:
        for what, points in series.items():
            table = Table(title=f"{analysis}, by number of {what}")
            for column in (what, "s", "bare passes", "MiB", "status"):
                table.add_column(column)
            rows = {}
            for size, length, layers in points:
                found = measured(analysis, length, layers, options.effort, options.limit)
                rows[size] = found
                if "error" in found:
                    table.add_row(str(size), found["error"])
                    continue
                passes = found["seconds"] / found["bare_seconds"]
                memory = found["memory"] / 2**20
                table.add_row(
                    str(size),
                    f"{found['seconds']:.2f}",
                    f"{passes:.0f}",
                    f"{memory:.0f}",
                    found["status"],
                )
            done = {size: row for size, row in rows.items() if "error" not in row}
            exponents = {
                name: exponent(list(done), [row[name] for row in done.values()])
                for name in ("seconds", "bare_seconds", "memory")
                if len(done) >= LAST
            }
            console.print(table)
            console.print("exponents: " + ", ".join(f"{k} {v:.2f}" for k, v in exponents.items()))
            figures.setdefault(analysis, {})[what] = {"rows": rows, "exponents": exponents}
    if options.json is not None:
        with replacing(options.json) as path:
            Path(path).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
