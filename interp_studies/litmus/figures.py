"""Figures of the litmus test: the gap beside the margin, and the learning curve of every seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.seed_interval import Interval
from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure
from interp_toolkit.stats import COVERAGE
from interp_toolkit.training.engine.metrics import FinalScore


def gap_figure(gap: Interval, margin: float, measured: FinalScore) -> Figure:
    """The gap with its interval, beside zero and the margin."""
    scale, unit = (100, "points") if measured.unit == "share" else (1, "nats")
    estimate = plots.markers([scale * gap.value], [0], CLASS_COLORS[0], "gap", size=11)
    estimate |= plots.hover(f"%{{x:.4g}} {unit}")
    if math.isfinite(gap.low) and math.isfinite(gap.high):
        above, below = scale * (gap.high - gap.value), scale * (gap.value - gap.low)
        estimate["error_x"] = plots.spread([above], [below]) | {"color": CLASS_COLORS[0]}
    lines = [(0.0, "no gap", "solid"), (scale * margin, "margin", "dash")]
    data = [
        plots.line([at, at], [-1, 1], NEUTRAL, name, width=1.5, dash=dash)
        | plots.hover(f"{name}: {at:g} {unit}")
        for at, name, dash in lines
    ]
    data.append(estimate)
    layout = plots.layout(
        plots.axis(f"standard ahead of MixiT ({unit})"), {"range": [-1, 1], "visible": False}
    )
    caption = (
        f"The gap over seeds and its {100 * COVERAGE:g} % interval. Beyond the margin altogether: "
        "the task needs in-context reasoning; short of it: it does not; across it: undecided. Each "
        "on the further conditions that the evidence lists."
    )
    return Figure("The gap between standard and MixiT", caption, data, layout)


def curves(seeds: Sequence[Mapping[str, Any]], measured: FinalScore) -> Figure:
    """Learning curves, one line per seed, beside the figure of guessing."""
    scale, unit = (100, "%") if measured.unit == "share" else (1, "nats")
    colors = dict(zip(dict.fromkeys(s["variant"] for s in seeds), CLASS_COLORS, strict=False))
    drawn = [seed for seed in seeds if seed["curve"]]
    named = {seed["variant"]: i for i, seed in reversed(list(enumerate(drawn)))}
    data = []
    for i, seed in enumerate(drawn):
        name, losses = seed["variant"], [scale * value for value in seed["curve"]]
        curve = plots.line(seed["steps"], losses, colors[name], name, width=1.5)
        words = f"seed {seed['seed']}, step %{{x}}: %{{y:.4g}} {unit}"
        curve |= plots.hover(words, box="%{fullData.name}")
        data.append(curve | plots.grouped(name, listed=named[name] == i))
    if measured.guess is not None:
        last = max(seed["steps"][-1] for seed in drawn)
        guess = plots.dashed([0, last], [scale * measured.guess] * 2, "guessing")
        data.append(guess | plots.hover(f"%{{y:.4g}} {unit}", box="guessing"))
    layout = plots.layout(
        plots.axis("step"), plots.axis(f"{measured.name.replace('_', ' ')} ({unit})")
    )
    caption = (
        "Each line is a seed, tested along the way on some of the test examples. Whether MixiT is "
        "still improving is read from the last quarter of the steps; a learning rate that falls to "
        "zero flattens any curve."
    )
    return Figure("Along training", caption, data, layout)
