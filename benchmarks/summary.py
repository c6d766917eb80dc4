"""One table of what the benchmarks say of speed: task, peer, ours, theirs, ratio, memory.

Reads the files that `make bench` keeps (docs/results/benchmarks) and measures nothing. Ratios are
theirs over ours, medians of repetitions in one run, with their range where repetitions are kept;
memory is what ours holds beside the model.

Run: python benchmarks/summary.py [--json FILE]
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

KEPT = Path(__file__).parents[1] / "docs" / "results" / "benchmarks"
COLUMNS = ["task", "peer", "ours", "theirs", "ratio", "low", "high", "memory, MiB"]

Row = list[Any]


def read(name: str) -> dict[str, Any]:
    """What a benchmark kept."""
    content: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    return content


def row(
    task: str,
    peer: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    unit: str,
    memory: float | None = None,
) -> Row:
    """Of repetitions that were measured by turns; unit "... a second" where more is better."""
    faster = unit.endswith("a second")
    ratios = [a / b if faster else b / a for a, b in zip(ours, theirs, strict=True)]
    said = [f"{median(times):,.3g} {unit}" for times in (ours, theirs)]
    return [task, peer, *said, median(ratios), min(ratios), max(ratios), memory]


def rows() -> list[Row]:
    """Every task that has a peer."""
    fits, start, detectors = (read(n) for n in ("logistic_targets", "startup", "head_detectors"))
    lists, readoffs, rates = (
        read(n) for n in ("sorting_batches", "uand_readoffs", "variant_throughput")
    )
    found = [
        row(
            "990 boolean targets, 4,000 x 512",
            "scikit-learn, one by one (scaled)",
            fits["ours_seconds"],
            fits["loop_seconds_scaled"],
            "s",
        ),
        row(
            "interp --help",
            "import transformer_lens",
            start["times_s"]["interp --help"],
            start["times_s"]["import transformer_lens"],
            "s",
        ),
        row(
            "every head detector, 12 x 12 x 768",
            "three detect_head calls",
            detectors["times_s"]["ours"],
            detectors["times_s"]["detect_head"],
            "s",
            detectors["memory above a bare pass, MiB"]["ours"],
        ),
    ]
    for name, one in read("sorting_steps").items():
        said = [f"{one[who]:,.3g} ms" for who in ("ours_ms", "plain_ms")]
        peer, ranges = "HookedTransformer loop", [one[f"ratio{k}"] for k in ("", "_low", "_high")]
        found.append([f"training step, {name}", peer, *said, *ranges, None])
    for name, case in lists["cases"].items():
        speeds = case["lists_per_second"]
        unit = "lists a second"
        found.append(
            row(f"drawing lists, {name}", "plain Python", speeds["ours"], speeds["python"], unit)
        )
    ratios = readoffs["ratios"]
    found.append(
        [
            f"readoffs of {readoffs['pairs']:,} pairs",
            "LinearRegression in blocks (scaled)",
            f"{readoffs['seconds']:,.3g} s",
            f"{readoffs['peer_seconds']:,.3g} s",
            *(median(ratios), min(ratios), max(ratios), 1024 * readoffs["memory_gib"]),
        ]
    )
    for name, one in read("attribution")["against hooks"].items():
        ratio = 1 / one["ours / with hooks, CPU"]
        nothing = [None, None]
        found.append(
            [f"edge attribution, {name}", "the same with hooks", *nothing, ratio, *nothing, None]
        )
    speed = {name: one["steps_per_second"] for name, one in rates["rates"].items()}
    for name in ("mixit", "frozen-qk"):
        said = [f"{speed[who]:,.3g} steps a second" for who in (name, "standard")]
        ratio = 1 + rates["rates"][name]["over_standard"] / 100
        found.append([f"training step, {name}", "standard, ours", *said, ratio, None, None, None])
    return found


def main() -> None:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = rows()
    table = Table("task", "peer", "ours", "theirs", "ratio", "memory, MiB")
    for task, peer, ours, theirs, ratio, low, high, memory in found:
        extent = "" if low is None else f" ({low:.3g} to {high:.3g})"
        held = "–" if memory is None else f"{memory:,.0f}"
        table.add_row(task, peer, ours or "–", theirs or "–", f"{ratio:.3g}{extent}", held)
    Console(width=150).print(table)
    if options.json:
        kept = {"title": "Against peers", "columns": COLUMNS, "rows": found}
        made = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        options.json.write_text(json.dumps({"made": made, "tables": [kept]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
