"""Reading 100,000 rows of csv: the toolkit, pandas and the tokenizer, in turns in one process.

The file has a prompt, an answer, two labels and a number that is not read. *Reading* is
`read_data`, *tokenizer* the time inside the tokenizer during it, *pandas* `pandas.read_csv` of the
same file, and *pandas' lists* the same with columns as lists of texts, as the reader needs them.
With `--before FOLDER`, the reader of another checkout runs in turns with this one.

Run: python benchmarks/reading.py [--rows 100000] [--turns 9] [--before FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "en", "ilo", "orin", "ust", "eel")]


class Timed:
    """A tokenizer of words, and the seconds spent in it."""

    def __init__(self) -> None:
        self.ids = {word: number for number, word in enumerate(WORDS)}
        self.seconds = 0.0

    def __call__(self, text: str) -> list[int]:
        """The ids of a text."""
        start = time.perf_counter()
        ids = [self.ids[word] for word in text.split()]
        self.seconds += time.perf_counter() - start
        return ids


def write(path: Path, rows: int) -> None:
    """A table of prompts with answers and labels."""
    rng = np.random.default_rng(0)
    words = rng.choice(WORDS, (rows, 9))
    table = {
        "prompt": [" ".join(row[:8]) for row in words],
        "answer": [f" {row[8]}" for row in words],
        "even": rng.integers(0, 2, rows),
        "odd": rng.integers(0, 2, rows).astype(bool),
        "score": rng.random(rows).round(3),
    }
    pd.DataFrame(table).to_csv(path, index=False)


def reading(path: Path) -> dict[str, float]:
    """Seconds of one reading, and of them in the tokenizer."""
    from interp_toolkit.data import read_data

    tokenizer, start = Timed(), time.perf_counter()
    data = read_data(path, tokenizer, feature_names=["even", "odd"])
    seconds = time.perf_counter() - start
    assert data.answers is not None
    return {"reading": seconds, "tokenizer": tokenizer.seconds}


def measured(path: Path, turns: int, before: str | None) -> list[dict[str, float]]:
    """Every turn: pandas, this reader, and the other one in a process of its own."""
    rows = []
    for _ in range(turns + 1):
        start = time.perf_counter()
        pd.read_csv(path)
        row = {"pandas": time.perf_counter() - start}
        start = time.perf_counter()
        pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("list")
        row |= {"pandas' lists": time.perf_counter() - start, **reading(path)}
        if before is not None:
            command = [sys.executable, __file__, "--one", str(path)]
            out = subprocess.run(
                command, env={"PYTHONPATH": before}, capture_output=True, text=True
            )
            other = json.loads(out.stdout.splitlines()[-1])
            row |= {f"{name} before": seconds for name, seconds in other.items()}
        rows.append(row)
    return rows[1:]  # the first imports


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--before")
    parser.add_argument("--one", type=Path, help="read this file twice and print the second time")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one is not None:
        reading(args.one)
        print(json.dumps(reading(args.one)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write(path, args.rows)
        rows = measured(path, args.turns, args.before)
    for row in rows:
        row["reading without the tokenizer"] = row["reading"] - row["tokenizer"]
    result: dict[str, Any] = {"rows": args.rows, "turns": args.turns, "seconds [quartiles]": {}}
    for name in rows[0]:
        quartiles = statistics.quantiles([row[name] for row in rows], n=4)
        result["seconds [quartiles]"][name] = [round(seconds, 3) for seconds in quartiles]
    for name in ("pandas", "pandas' lists"):
        ratios = [row["reading without the tokenizer"] / row[name] for row in rows]
        result[f"without the tokenizer, of {name}"] = round(statistics.median(ratios), 1)
    print(json.dumps(result, indent=1))
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
