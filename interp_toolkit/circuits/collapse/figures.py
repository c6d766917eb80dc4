"""Figures of collapse: how alike hidden states are, and the dimensions they take up, by depth."""

from __future__ import annotations

from collections.abc import Sequence

from interp_toolkit import plots
from interp_toolkit.circuits.collapse.layers import LayerSimilarity
from interp_toolkit.palette import CLASS_COLORS, NEUTRAL, translucent
from interp_toolkit.results import Figure


def cosine_figure(layers: Sequence[LayerSimilarity], spread: float) -> Figure:
    """The mean cosine by depth, with its interval, beside the copies'."""
    names = [layer.place for layer in layers]
    known = [layer for layer in layers if layer.low is not None]
    around = [layer.place for layer in known]
    low, high = [layer.low for layer in known], [layer.high for layer in known]
    shared = plots.band(around, low, high, translucent(CLASS_COLORS[0], 0.25))
    cosines = [layer.cosine for layer in layers]
    data = [
        shared | {"name": "95 % interval"},
        _line("the model", names, cosines, CLASS_COLORS[0], "solid"),
    ]
    copies = max((len(layer.reinitialised_cosine) for layer in layers), default=0)
    for copy in range(copies):
        values = [layer.reinitialised_cosine[copy] for layer in layers]
        line = _line("weights shuffled", names, values, CLASS_COLORS[1], "dash")
        data.append(line | plots.grouped("shuffled", listed=copy == 0))
    for end in (-spread, spread):
        line = _line("independent: one cosine", names, [end] * len(names), NEUTRAL, "dot")
        line |= {"mode": "lines"} | plots.NO_HOVER
        data.append(line | plots.grouped("independent", listed=end > 0))
    layout = plots.layout(
        plots.axis("place", "category"), plots.axis("mean cosine of different tokens")
    )
    caption = (
        "Mean cosine between the hidden states of different tokens of a row; 1: all are one "
        "direction. Dotted: one standard deviation of a single cosine of independent directions; "
        "a mean over many pairs would stay far closer to 0."
    )
    return Figure("How alike hidden states are", caption, data, layout)


def dimension_figure(layers: Sequence[LayerSimilarity]) -> Figure:
    """The participation ratios by depth."""
    names = [layer.place for layer in layers]
    lines = [
        ("all they are", "dimensions", 0, "solid"),
        ("without what they share", "centred_dimensions", 1, "solid"),
        ("all, weights shuffled", "reinitialised_dimensions", 0, "dash"),
        ("without, weights shuffled", "reinitialised_centred_dimensions", 1, "dash"),
    ]
    data = [
        _line(name, names, [getattr(layer, field) for layer in layers], CLASS_COLORS[side], dash)
        for name, field, side, dash in lines
        if any(getattr(layer, field) is not None for layer in layers)
    ]
    layout = plots.layout(plots.axis("place", "category"), plots.axis("dimensions in use", "log"))
    caption = (
        "How many equal dimensions would have the same participation ratio as the directions of "
        "the hidden states (all they are) and as their differences from the mean direction "
        "(without what they share)."
    )
    return Figure("Dimensions in use", caption, data, layout)


def _line(
    name: str, x: Sequence[str], y: Sequence[float | None], color: str, dash: str
) -> plots.Part:
    return plots.line(x, y, color, name, dash=dash) | plots.marked(size=6)
