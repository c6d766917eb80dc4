"""Figures of shaping: a measure by depth for every kind of mixing, and gradients by block."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit import plots
from interp_toolkit.plots import shade
from interp_toolkit.results import Figure

Seeds = Sequence[Mapping[str, Any]]
AXES = {
    "gradient": "log10 of the gradient, first over last",
    "likeness": "mean squared cosine",
}


def layers_figure(
    found: Seeds, measure: str, n_heads: tuple[int, int], kinds: Sequence[str]
) -> Figure:
    """A measure against the layers, median and range over seeds; a panel a mask and a number."""
    asked = [(causal, number) for causal in (True, False) for number in n_heads]
    panels = plots.beside(len(asked), 2)
    data: list[plots.Part] = []
    layout: plots.Part = {"annotations": [], "height": 620}
    depths = found[0]["depths"]
    for (causal, number), panel in zip(asked, panels, strict=True):
        for place, mixing in enumerate(kinds):
            seeds = [
                one[measure]
                for of in found
                for one in of["layers"]
                if (one["mixing"], one["causal"], one["n_heads"]) == (mixing, causal, number)
            ]
            color, listed = shade(place, len(kinds)), panel.number == 0
            data.append(_line(depths, list(zip(*seeds, strict=True)), color, place, mixing, listed))
            data[-1] |= panel.trace
        x = plots.axis("layers" if panel.lowest else "", "log")
        x |= plots.ticks(depths, map(str, depths))
        layout |= panel.layout(x, plots.axis(AXES[measure] if panel.leftmost else ""))
        heads = "one head" if number == 1 else f"{number} heads"
        layout["annotations"].append(
            panel.heading(f"{'causal' if causal else 'unmasked'}, {heads}")
        )
    caption = (
        "Attention layers alone, at initialisation: the median over seeds with their range. "
        "Log10 of the gradient: of its norm at the first layer over that at the last."
        if measure == "gradient"
        else "Attention layers alone, at initialisation: the mean squared cosine between tokens, "
        "the median over seeds with their range; 1: all tokens lie on one line."
    )
    return Figure(f"Layers of random mixing: {measure}", caption, data, layout)


def models_figure(found: Seeds, depth: int, start: str, kinds: Sequence[str]) -> Figure:
    """The norm of the gradient in every block's W_V, over the last block's; the median."""
    data = []
    for place, mixing in enumerate(kinds):
        seeds = [
            [g / one["gradients"][-1] for g in one["gradients"]]
            for of in found
            for one in of["models"]
            if (one["mixing"], one["start"], one["depth"]) == (mixing, start, depth)
        ]
        by_block = [statistics.median(values) for values in zip(*seeds, strict=True)]
        line = plots.line(range(depth), by_block, shade(place, len(kinds)), mixing)
        data.append(line)
    layout = plots.layout(plots.axis("block"), plots.axis("gradient over the last block's", "log"))
    caption = (
        f"Whole models of {depth} blocks, untrained, weights {start}: the norm of the loss's "
        "gradient in W_V by block, the median over seeds."
    )
    return Figure("Gradients by block", caption, data, layout)


def _line(
    x: Sequence[int],
    seeds: Sequence[Sequence[float]],
    color: str,
    place: int,
    name: str,
    listed: bool,
) -> plots.Part:
    medians = [statistics.median(values) for values in seeds]
    above = [max(values) - m for values, m in zip(seeds, medians, strict=True)]
    below = [m - min(values) for values, m in zip(seeds, medians, strict=True)]
    line = plots.line(x, medians, color, name) | plots.marked(plots.symbol(place), 7)
    return line | {"error_y": plots.spread(above, below)} | plots.grouped(name, listed=listed)
