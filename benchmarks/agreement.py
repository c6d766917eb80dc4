"""Do verdicts agree with themselves? Each analysis of each model again, under other circumstances.

The circumstances: another seed (of rows, draws and nulls), float64 weights, batches of 8 MiB, two
threads. Agreement is of the status, and of the set of heads that the verdict names. Where the seed
is another, rows are others too: that verdicts differ then is chance that a verdict should have
foreseen by *undecided*, and is counted apart from those that nothing but arithmetic changes.

Run: python benchmarks/agreement.py [--seeds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it

MODELS = (
    *("xor-1head", "xor-2head", "induction", "induction-trained", "induction-decoy"),
    *("sort-causal-trained", "sort-bidirectional-trained", "uand-trained"),
)
ANALYSES = ("xor", "heads", "circuit", "composition", "ov", "collapse", "uand", "sorting")
MEMORY = "8MiB"


def said(model: Any, analysis: str, **options: Any) -> tuple[str, frozenset[str]] | None:
    """The status and the heads named; None where the analysis does not fit the model."""
    try:
        result = it.analyze(model, analysis, **options)
    except it.InputError:
        return None
    return result.status, frozenset(re.findall(r"L\d+H\d+", result.verdict))


def circumstances(seeds: int) -> list[tuple[str, dict[str, Any], dict[str, Any], int]]:
    """Name, how the model is loaded, the analysis' options, threads."""
    return [
        *(("another seed", {}, {"seed": seed}, 1) for seed in range(1, seeds + 1)),
        ("float64", {"dtype": "float64"}, {}, 1),
        (f"batches of {MEMORY}", {}, {"memory": MEMORY}, 1),
        ("two threads", {}, {}, 2),
    ]


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts: dict[str, list[int]] = {}
    differing: list[dict[str, Any]] = []
    torch.set_num_threads(1)
    for name in track(MODELS, "models"):
        for analysis in ANALYSES:
            plain = said(it.load(f"toy:{name}"), analysis)
            if plain is None:
                continue
            for what, loaded, given, threads in circumstances(options.seeds):
                torch.set_num_threads(threads)
                again = said(it.load(f"toy:{name}", **loaded), analysis, **given)
                torch.set_num_threads(1)
                if again is None:  # no such option, or memory that does not hold a row
                    continue
                count = counts.setdefault(what, [0, 0, 0])
                count[0] += 1
                count[1] += plain[0] == again[0]
                count[2] += plain == again
                if plain != again:
                    both = [[status, sorted(heads)] for status, heads in (plain, again)]
                    differing.append({"model": name, "analysis": analysis, what: both})
    heads = ["circumstance", "verdicts", "same status", "same status and heads"]
    rows = [[what, *count] for what, count in counts.items()]
    table = Table(*heads)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console(width=100)
    console.print(table)
    for one in differing:
        console.print(one)
    if options.json:
        kept = {"title": "Agreement", "columns": heads, "rows": rows}
        content = {"tables": [kept], "differing": differing}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
