"""The plots of the hardening page, from the files of the benchmarks (cost, power).

Run: python docs/plots.py [FOLDER]    writes growth.svg and power.svg, into docs by itself
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
KEPT = DOCS / "results" / "benchmarks"
WIDTH = 4  # panels in a line


def read(name: str) -> dict[str, Any]:
    """What a benchmark kept."""
    content: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    return content


def panels(names: list[str], title: str) -> tuple[Figure, dict[str, Axes]]:
    """A figure with a panel for each."""
    lines = -(-len(names) // WIDTH)
    figure = Figure(figsize=(3 * WIDTH, 2.6 * lines), layout="constrained")
    figure.suptitle(title)
    places = figure.subplots(lines, WIDTH, squeeze=False).flat
    for spare in list(places)[len(names) :]:
        spare.remove()
    return figure, dict(zip(names, figure.axes, strict=True))


def growth() -> Figure:
    """Seconds as one size after the other is doubled."""
    series: dict[str, dict[str, Mapping[str, list[float]]]] = {}
    for name, measured in read("cost")["series"].items():
        analysis, size = name.split(", ")
        series.setdefault(analysis, {})[size] = measured
    figure, axes = panels(list(series), "Seconds, as one size is doubled (one thread)")
    for analysis, sizes in series.items():
        ax = axes[analysis]
        for size, measured in sizes.items():
            times = [n / measured["sizes"][0] for n in measured["sizes"]]
            ax.plot(times, measured["seconds"], "o-", markersize=3, label=size)
        ax.set(xscale="log", yscale="log", title=analysis, xlabel="times the base")
        ax.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"], minor=False)
        ax.minorticks_off()
        ax.legend(fontsize="x-small")
    return figure


def power() -> Figure:
    """Share seen, by strength."""
    [table] = read("power")["tables"]
    curves: dict[str, list[Any]] = {}
    for name, strength, _, *rest in table["rows"]:
        curves.setdefault(name, []).append((strength, *rest))
    figure, axes = panels(
        list(curves), "Share of runs that see what is planted, and 95 % intervals"
    )
    for name, points in curves.items():
        ax = axes[name]
        strengths, seen, low, high, others = zip(*points, strict=True)
        ax.fill_between(strengths, low, high, alpha=0.2)
        ax.plot(strengths, seen, "o-", markersize=3, label="seen")
        if others[0] is not None:
            ax.plot(strengths, others, "x--", markersize=4, label="something else")
            ax.legend(fontsize="x-small")
        ax.set(ylim=(-0.03, 1.03), title=name, xlabel="strength")
    return figure


def main() -> None:
    """Write them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    matplotlib.rcParams.update({"svg.hashsalt": "plots", "svg.fonttype": "none", "font.size": 9})
    for name, draw in (("growth", growth), ("power", power)):
        draw().savefig(folder / f"{name}.svg", metadata={"Date": None})
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
