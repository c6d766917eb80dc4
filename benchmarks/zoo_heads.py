"""Heads and circuits of models that strangers trained, against what was measured independently.

Takes a folder of models, one in each of its folders: `model.pt`; `answers.npz` with rows of the
model's own (`tokens`, `answers`, `answer_positions`); `truth.json` with `heads` (head, kind) whose
attention to a relation the task needs, measured with plain torch, and `experiment`: what is lost of
the accuracy when each head is replaced by its mean.

For each model, on its own rows and on the toolkit's default prompts:
- true heads found, what is named that is no true head, what is said of true heads that are not
  found (not tested, undecided, or denied);
- of the circuit: heads that cost at least MATTERS of the accuracy, found or not, and heads in it
  that cost less than IDLE of it.

The models fall into two halves, by the order of their names, so that rules looked at on one half
can be told on the other.

Run: python benchmarks/zoo_heads.py FOLDER [--rows own|default] [--only NAME ...] [--no-circuits]
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import interp_toolkit as it

MATTERS, IDLE = 0.03, 0.005  # of the accuracy


@dataclass
class Counts:
    """Sums over models."""

    true: int = 0
    found: int = 0
    open: int = 0
    denied: int = 0
    named: int = 0
    right: int = 0
    causal: int = 0
    matter: int = 0
    in_circuit: int = 0
    circuit_heads: int = 0
    idle: int = 0
    refused: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


@dataclass
class Line:
    """One model."""

    name: str
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    said: str = ""


def heads_of(line: Line, folder: Path, rows: str, truth: dict[str, Any]) -> None:
    """Run the heads analysis and count."""
    true = {(h["head"], h["kind"]) for h in truth["heads"]}
    line.counts.true += len(true)
    try:
        data = folder / "answers.npz" if rows == "own" else None
        result = it.analyze(folder / "model.pt", "heads", data=data)
    except it.InputError as error:
        line.said, line.counts.refused = str(error), line.counts.refused + 1
        return
    entries = {(h.name, h.detector): h for h in result.heads}
    named = {at for at, h in entries.items() if h.detected}
    line.counts.named += len(named)
    line.counts.right += len(named & true)
    line.counts.found += len(named & true)
    line.counts.causal += sum(entries[at].causal in ("major", "contributes") for at in named)
    line.false = [f"{head} {kind}" for head, kind in sorted(named - true)]
    for at in sorted(true - named):
        entry = entries.get(at)
        word = entry.status if entry is not None and result.performs_task else "not_tested"
        denied = word == "not_detected"
        line.counts.open += not denied
        line.counts.denied += denied
        line.missed.append(f"{at[0]} {at[1]} ({word})")
    line.said = result.status


def circuit_of(line: Line, folder: Path, rows: str, truth: dict[str, Any]) -> None:
    """Run the circuit analysis and count its heads."""
    lost = truth["experiment"]["accuracy_lost_by_mean_ablation"]
    heads = {name: cost for name, cost in lost.items() if name.startswith("L")}
    matter = {name for name, cost in heads.items() if cost >= MATTERS}
    line.counts.matter += len(matter)
    try:
        data = folder / "answers.npz" if rows == "own" else None
        result = it.analyze(folder / "model.pt", "circuit", data=data)
    except it.InputError as error:
        line.said += f"; circuit: {error}"
        line.counts.refused += 1
        return
    found = {name for row in result.edges for name in re.findall(r"L\d+H\d+", row.edge)}
    line.counts.in_circuit += len(found & matter)
    line.counts.circuit_heads += len(found)
    line.counts.idle += sum(abs(heads[name]) < IDLE for name in found if name in heads)
    line.missed += [f"circuit {name}" for name in sorted(matter - found)]
    line.said += f"; circuit {result.status}"


def table_of(lines: Sequence[Line], title: str) -> Table:
    """A row a model, then sums: of both halves, and of all."""
    table = Table(title=title)
    for column in ("model", "heads", "named, right", "circuit", "idle", "s", "not found", "false"):
        table.add_column(column, overflow="fold")
    halves = [sum((n.counts for n in lines[k::2]), Counts()) for k in (0, 1)]
    sums = [("first half", halves[0]), ("second half", halves[1]), ("all", halves[0] + halves[1])]
    rows = [(n.name, n.counts, f"{n.seconds:.0f}", n.missed, n.false) for n in lines]
    rows += [(name, counts, "", [], []) for name, counts in sums]
    for name, c, seconds, missed, false in rows:
        table.add_row(
            name,
            f"{c.found} of {c.true}",
            f"{c.right} of {c.named}",
            f"{c.in_circuit} of {c.matter}",
            f"{c.idle} of {c.circuit_heads}",
            seconds,
            ", ".join(missed),
            ", ".join(false),
        )
    return table


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", choices=("own", "default"), action="append")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-circuits", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=140)
    folders = sorted(p.parent for p in options.folder.glob("*/truth.json"))
    folders = [p for p in folders if not options.only or p.name in options.only]
    for rows in options.rows or ("own", "default"):
        lines = []
        for folder in track(folders, f"{rows} rows"):
            truth = json.loads((folder / "truth.json").read_text())
            line, start = Line(folder.name), time.perf_counter()
            heads_of(line, folder, rows, truth)
            if not options.no_circuits:
                circuit_of(line, folder, rows, truth)
            line.seconds = time.perf_counter() - start
            lines.append(line)
        console.print(table_of(lines, f"{rows} rows"))
        total = sum((line.counts for line in lines), Counts())
        console.print(
            f"{rows} rows: true heads found {total.found} of {total.true} (of the others "
            f"{total.open} undecided or not tested, {total.denied} denied); named {total.named}, "
            f"right {total.right}, {total.causal} with a causal effect; circuit: "
            f"{total.in_circuit} of {total.matter} heads that matter, {total.idle} of "
            f"{total.circuit_heads} idle; refused {total.refused}"
        )


if __name__ == "__main__":
    main()
