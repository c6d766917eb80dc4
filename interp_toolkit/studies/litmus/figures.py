"""Figures of the litmus test: the gap beside the margin, and the course of every seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit.palette import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure
from interp_toolkit.stats import COVERAGE
from interp_toolkit.studies.seed_interval import Interval
from interp_toolkit.training.engine.final_score import FinalScore


def gap_figure(gap: Interval, margin: float, measured: FinalScore) -> Figure:
    """The gap with its interval, no gap, and the margin."""
    scale, unit = (100, "points") if measured.unit == "share" else (1, "nats")
    estimate: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "gap",
        "x": [scale * gap.value],
        "y": [0],
        "marker": {"color": CLASS_COLORS[0], "size": 11},
        "hovertemplate": f"%{{x:.4g}} {unit}<extra></extra>",
    }
    if math.isfinite(gap.low) and math.isfinite(gap.high):
        estimate["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [scale * (gap.high - gap.value)],
            "arrayminus": [scale * (gap.value - gap.low)],
            "color": CLASS_COLORS[0],
        }
    lines = [(0.0, "no gap", "solid"), (scale * margin, "margin", "dash")]
    data = [
        *(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": [at, at],
                "y": [-1, 1],
                "line": {"color": NEUTRAL, "dash": dash, "width": 1.5},
                "hovertemplate": f"{name}: {at:g} {unit}<extra></extra>",
            }
            for at, name, dash in lines
        ),
        estimate,
    ]
    layout = {
        "xaxis": {"title": {"text": f"standard ahead of MixiT ({unit})"}},
        "yaxis": {"range": [-1, 1], "visible": False},
    }
    caption = (
        f"The gap over seeds and its {100 * COVERAGE:g} % interval. Beyond the margin altogether: "
        "the task needs in-context reasoning; short of it: it does not; across it: undecided. Each "
        "on the further conditions that the evidence lists."
    )
    return Figure("The gap between standard and MixiT", caption, data, layout)


def curves(seeds: Sequence[Mapping[str, Any]], measured: FinalScore) -> Figure:
    """The figure along training, a line a seed, with what guessing reaches."""
    scale, unit = (100, "%") if measured.unit == "share" else (1, "nats")
    colors = dict(zip(dict.fromkeys(s["variant"] for s in seeds), CLASS_COLORS, strict=False))
    drawn = [seed for seed in seeds if seed["curve"]]
    named = {seed["variant"]: i for i, seed in reversed(list(enumerate(drawn)))}
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": seed["variant"],
            "legendgroup": seed["variant"],
            "showlegend": named[seed["variant"]] == i,
            "x": list(seed["steps"]),
            "y": [scale * value for value in seed["curve"]],
            "line": {"color": colors[seed["variant"]], "width": 1.5},
            "hovertemplate": f"seed {seed['seed']}, step %{{x}}: %{{y:.4g}} {unit}"
            "<extra>%{fullData.name}</extra>",
        }
        for i, seed in enumerate(drawn)
    ]
    if measured.guess is not None:
        last = max(seed["steps"][-1] for seed in drawn)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "guessing",
                "x": [0, last],
                "y": [scale * measured.guess] * 2,
                "line": {"color": NEUTRAL, "dash": "dash", "width": 2},
                "hovertemplate": f"%{{y:.4g}} {unit}<extra>guessing</extra>",
            }
        )
    layout = {
        "xaxis": {"title": {"text": "step"}},
        "yaxis": {"title": {"text": f"{measured.name.replace('_', ' ')} ({unit})"}},
    }
    caption = (
        "Each line is a seed, tested along the way on some of the test examples. Whether MixiT is "
        "still improving is read from the last quarter of the steps; a learning rate that falls to "
        "zero flattens any curve."
    )
    return Figure("Along training", caption, data, layout)
