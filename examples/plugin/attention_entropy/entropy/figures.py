"""The figure: every head's spread beside the sharpest heads of the copies."""

from __future__ import annotations

from collections.abc import Sequence

from attention_entropy.entropy.result import HeadSpread
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure


# --8<-- [start:figure]
def spread_figure(heads: Sequence[HeadSpread], sharpest: Sequence[float], sharp: float) -> Figure:
    """Bars by head; a line at what is sharp and one at the sharpest copy."""
    names = [head.head for head in heads]
    bars = {
        "type": "bar",
        "name": "the model",
        "x": names,
        "y": [head.spread for head in heads],
        "marker": {"color": CLASS_COLORS[0]},
    }
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": names,
            "y": [value] * len(names),
            "line": {"color": color, "dash": "dash"},
        }
        for name, value, color in (
            ("sharpest head of any copy", min(sharpest), CLASS_COLORS[1]),
            ("counts as sharp", sharp, NEUTRAL),
        )
    ]
    layout = {"yaxis": {"title": {"text": "share of uniform entropy"}, "range": [0, 1]}}
    caption = "A head below both lines attends sharply, and more so than weights in random order."
    return Figure("Attention entropy by head", caption, [bars, *lines], layout)


# --8<-- [end:figure]
