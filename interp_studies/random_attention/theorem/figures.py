"""Figures of theorem 5.1: the error of each function against the number of heads."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.random_attention.theorem.functions import FUNCTIONS
from interp_studies.random_attention.theorem.heads import HEADS
from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Figure

PER_ROW = 3


def by_heads_figure(found: Sequence[Mapping[str, Any]], fit: str, measured: str) -> Figure:
    """A panel a function: both kinds of heads, the best linear map dashed; a point a seed.

    Args:
        found: what each seed's job found.
        fit: which of its fits.
        measured: how it is fitted, for the caption.
    """
    panels = plots.beside(len(FUNCTIONS), PER_ROW)
    data: list[plots.Part] = []
    layout: plots.Part = {"annotations": [], "height": 560}
    for function, panel in zip(FUNCTIONS, panels, strict=True):
        listed = panel.number == 0
        across: list[int] = []
        for heads, color, symbol in zip(HEADS, CLASS_COLORS, plots.SYMBOLS, strict=False):
            points = _points(found, heads, fit, function)
            across = list(points)
            medians = [statistics.median(seeds) for seeds in points.values()]
            line = plots.line(across, medians, color, heads) | plots.marked(symbol, 7)
            line |= {
                "error_y": plots.spread(
                    [max(s) - m for s, m in zip(points.values(), medians, strict=True)],
                    [m - min(s) for s, m in zip(points.values(), medians, strict=True)],
                )
            }
            data.append(line | plots.grouped(heads, listed=listed) | panel.trace)
        least = statistics.median(of["linear"]["later"][function] for of in found)
        if least > 1e-6:  # a function that is linear has no such line
            line = plots.dashed([across[0], across[-1]], [least] * 2, "best linear map")
            data.append(line | plots.grouped("linear", listed=panel.number == 1) | panel.trace)
        x = plots.axis("heads" if panel.lowest else "", "log")
        x |= plots.ticks(across, [str(n) for n in across])
        y = plots.axis("error" if panel.leftmost else "", "log")
        layout |= panel.layout(x, y)
        layout["annotations"].append(panel.heading(function))
    caption = (
        f"Held-out error over the function's standard deviation at all positions but the first; "
        f"{measured}. Median and range over {len(found)} seeds."
    )
    return Figure(f"Error by number of heads, {fit}", caption, data, layout)


def _points(
    found: Sequence[Mapping[str, Any]], heads: str, fit: str, function: str
) -> dict[int, list[float]]:
    """The seeds' errors, by number of heads."""
    points: dict[int, list[float]] = {}
    for of in found:
        for one in of["fits"]:
            if (one["heads"], one["fit"], one["positions"]) == (heads, fit, True):
                points.setdefault(one["n_heads"], []).append(one["later"][function])
    return dict(sorted(points.items()))
