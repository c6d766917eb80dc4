"""How cost grows: seconds of each analysis as one size of a random model or its rows is doubled.

From a base (BASE) one size at a time is doubled. The exponent is the slope of log seconds on log
size over the three largest, once per repetition; the table has its median and range. What does not
grow with a size (imports are over before) keeps an exponent below what it would be at last: a
number below 1 says that something else still costs more, not that growth is slower than linear.

Run: python benchmarks/cost.py [--only ANALYSIS ...] [--repeats 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it
from interp_toolkit.toys.hand_set.untrained import random_model

BASE = {
    "layers": 2,
    "heads": 4,
    "width": 64,
    "vocabulary": 256,
    "tokens": 32,
    "rows": 256,
    "features": 4,
}
STEPS = 4
#: which sizes an analysis depends on, and its options
ANALYSES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "boolean": (("layers", "width", "tokens", "rows"), {"table": "0110"}),
    "uand": (("layers", "width", "tokens", "rows", "features"), {"reinitialisations": 5}),
    "heads": (("layers", "heads", "width", "tokens", "vocabulary"), {}),
    "circuit": (("layers", "heads", "tokens"), {}),
    "composition": (("layers", "heads", "width"), {}),
    "qk": (("layers", "heads", "width", "vocabulary"), {}),
    "ov": (("layers", "heads", "width", "vocabulary"), {}),
    "skip-bigrams": (("layers", "heads", "width", "vocabulary"), {"features": "embeddings"}),
    "collapse": (("layers", "width", "tokens", "rows"), {}),
}
FEATURED, OF_ROWS = {"boolean", "uand"}, {"collapse"}


def model_of(sizes: dict[str, int]) -> Any:
    """A random transformer of these sizes; heads are 16 wide."""
    return random_model(
        0,
        n_layers=sizes["layers"],
        n_heads=sizes["heads"],
        d_model=sizes["width"],
        d_head=16,
        d_mlp=4 * sizes["width"],
        d_vocab=sizes["vocabulary"],
        n_ctx=sizes["tokens"],
        normalization="LN",
        biases=True,
    )


def options_of(analysis: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Its options, with the rows that it reads."""
    options = dict(ANALYSES[analysis][1])
    rng = np.random.default_rng(0)
    shape = sizes["rows"], sizes["tokens"]
    tokens = rng.integers(1, sizes["vocabulary"], shape)
    if analysis in FEATURED:
        n = 2 if analysis == "boolean" else sizes["features"]
        bits = {f"f{k}": rng.random(sizes["rows"]) < 0.5 for k in range(n)}
        options["data"] = {"tokens": tokens, "features": bits}
    elif analysis in OF_ROWS:
        options["data"] = tokens
    return options


def seconds(analysis: str, sizes: dict[str, int], repeats: int) -> list[float]:
    """Of each repetition."""
    model, options = model_of(sizes), options_of(analysis, sizes)
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        it.analyze(model, analysis, **options)
        found.append(time.perf_counter() - began)
    return found


def exponents(sizes: list[int], measured: list[list[float]]) -> list[float]:
    """The slope over the three largest sizes, of each repetition."""
    x = np.log(sizes[-3:])
    return [
        float(np.polyfit(x, np.log([times[k] for times in measured[-3:]]), 1)[0])
        for k in range(len(measured[0]))
    ]


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(ANALYSES), default=list(ANALYSES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    asked = [(name, size) for name in options.only for size in ANALYSES[name][0]]
    kept, series = [], {}
    for name in options.only:  # imports and first calls are not what is measured
        it.analyze(model_of(BASE), name, **options_of(name, BASE))
    for name, size in track(asked, "series"):
        sizes = [BASE[size] * 2**step for step in range(STEPS)]
        measured = [seconds(name, BASE | {size: n}, options.repeats) for n in sizes]
        slopes = exponents(sizes, measured)
        medians = [float(np.median(times)) for times in measured]
        series[f"{name}, {size}"] = {"sizes": sizes, "seconds": medians}
        kept.append(
            [
                f"{name}, {size}",
                sizes[0],
                sizes[-1],
                medians[0],
                medians[-1],
                float(np.median(slopes)),
                min(slopes),
                max(slopes),
            ]
        )
    heads = ["of", "from", "to", "s at the least", "s at the most", "exponent", "low", "high"]
    table = Table(*heads)
    for row in kept:
        table.add_row(*(x if isinstance(x, str) else f"{x:,.3g}" for x in row))
    Console(width=120).print(table)
    if options.json:
        content = {
            "base": BASE,
            "threads": torch.get_num_threads(),
            "repeats": options.repeats,
            "series": series,
            "tables": [{"title": "Growth", "columns": heads, "rows": kept}],
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
