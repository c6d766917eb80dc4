"""Figures of the XOR study: attention by input, the gap against the score, random layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure
from interp_toolkit.stats import clopper_pearson

SCORES = np.linspace(-3.0, 5.0, 161)


def attention_figure(hand: Mapping[str, Any]) -> Figure:
    """The two heads' attention from '=', a bar an input and head, in three parts."""
    names = [f"{given}, head {h}" for given in hand["inputs"] for h in (0, 1)]
    patterns = [pattern for heads in hand["attention"] for pattern in heads]
    parts = zip(
        ("first bit", "second bit", "'='"), (*CLASS_COLORS[:2], NEUTRAL), range(3), strict=True
    )
    data = [plots.bars(names, [p[i] for p in patterns], color, name) for name, color, i in parts]
    caption = (
        "Where '=' attends in the two-head layer. Head 0 looks for 0, head 1 for 1; a head that "
        "finds nothing attends evenly."
    )
    layout = plots.layout({}, plots.axis("attention weight")) | {"barmode": "stack"}
    return Figure("Attention of the two heads", caption, data, layout)


def scores_figure() -> Figure:
    """The two scores along (1, 1), and their gap, by how strongly the heads look."""
    a = np.exp(SCORES)
    equal, mixed = 2 * a / (2 * a + 1), 2 * a / (a + 2)
    data = [
        plots.line(SCORES, equal, CLASS_COLORS[0], "equal bits"),
        plots.line(SCORES, mixed, CLASS_COLORS[1], "different bits"),
        plots.line(SCORES, mixed - equal, NEUTRAL, "gap", dash="dash"),
    ]
    caption = (
        "In closed form. At a score of 0 attention is uniform and there is no gap; below, heads "
        f"avoid their token, and the gap is negative; at 1 it is {_gap(1.0):.4f}."
    )
    layout = plots.layout(plots.axis("score of the token looked for"), plots.axis("score"))
    return Figure("Two values, and the gap between them", caption, data, layout)


def _gap(score: float) -> float:
    a = math.exp(score)
    return 2 * a / (a + 2) - 2 * a / (2 * a + 1)


def random_figure(shares: Mapping[str, tuple[int, int]]) -> Figure:
    """The share of random layers of each kind that separate XOR, with exact intervals."""
    names = list(shares)
    values = [100 * k / n for k, n in shares.values()]
    ends = [clopper_pearson(k, n) for k, n in shares.values()]
    above = [100 * high - v for (_, high), v in zip(ends, values, strict=True)]
    below = [v - 100 * low for (low, _), v in zip(ends, values, strict=True)]
    data = [
        plots.markers(names, values, CLASS_COLORS[0], "random layers", size=10)
        | {"error_y": plots.spread(above, below)}
    ]
    caption = (
        "One attention head whose query does not see the bits never separates XOR, with a norm "
        "before it or without. Drop a condition of the theorem and random layers do."
    )
    layout = plots.layout({"automargin": True}, plots.axis("separate XOR (%)"))
    return Figure("Which condition is needed", caption, data, layout)
