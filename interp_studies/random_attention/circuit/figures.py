"""Figures of the frozen-qk circuit: scores by head before and after training, patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, head_name

Values = Mapping[str, Any]


def score_figure(seed: Values, detector: str) -> Figure:
    """Every head's score under a detector, before and after training."""
    colors = {"before": NEUTRAL, "after": CLASS_COLORS[0]}
    data = []
    for when, color in colors.items():
        mine = [s for s in seed[when] if s["detector"] == detector]
        names = [head_name(s["layer"], s["head"]) for s in mine]
        drawn = plots.bars(names, [s["score"] for s in mine], color, f"{when} training")
        data.append(drawn | plots.hover("%{x}: %{y:.3f}", box="%{fullData.name}"))
    found = [head_name(*at) for at in seed["parts"][detector]]
    layout = plots.layout(
        plots.axis("head") | plots.NO_GRID, plots.axis("share of attention") | {"range": [0, 1]}
    )
    layout |= {"barmode": "group"}
    caption = (
        f"Seed {seed['seed']}: the share of attention that goes where {detector} looks. Detected "
        f"after training: {', '.join(found) or 'none'}."
    )
    return Figure(f"Attention by head: {detector}", caption, data, layout)


def pattern_figure(shown: Values, tokens: Sequence[int]) -> Figure:
    """A head's attention on one row of the task, whose last token is the asked key."""
    places = [f"{place}: {token}" for place, token in enumerate(tokens)]
    trace = plots.heatmap(places, places, shown["pattern"], "attention", low=0, high=1)
    trace |= plots.hover("query %{y}, key %{x}<br>attention %{z}")
    layout = plots.layout(
        plots.axis("key (place: token)", "category") | plots.NO_GRID,
        plots.axis("query (place: token)", "category") | plots.NO_GRID | plots.DOWNWARD,
    )
    layout |= {"height": 480}
    asked = tokens[-1]
    value = tokens[tokens.index(asked) + 1]
    caption = (
        f"Keys and values in turn, then the asked key {asked}, whose value is {value}. "
        f"{shown['when'].capitalize()} training."
    )
    return Figure(f"Pattern of {shown['head']}, {shown['when']} training", caption, [trace], layout)
