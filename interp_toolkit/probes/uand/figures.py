"""Figures of the universal-AND analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.probes.uand.errors import PairErrors
from interp_toolkit.probes.uand.result import SiteSummary
from interp_toolkit.probes.uand.site import SiteErrors
from interp_toolkit.results import Figure

MOST_SHOWN = 96  # features of the heat map
N_BINS = 60


def errors_by_control(site: SiteErrors) -> Figure:
    """The pairs' errors at the layer and in its controls."""
    shown = [
        ("the layer", site.here, CLASS_COLORS[1], "solid"),
        ("its input", site.before, CLASS_COLORS[0], "solid"),
        ("a random layer", site.random, CLASS_COLORS[1], "dot"),
        ("shuffled labels", site.shuffled, NEUTRAL, "dot"),
    ]
    data = [_histogram(name, errors, color, dash) for name, errors, color, dash in shown if errors]
    error = plots.axis("worst error after the best gain and bias") | {"range": [0, 0.52]}
    layout = plots.layout(error, plots.axis("share of the pairs") | plots.FROM_ZERO)
    layout |= {"shapes": [plots.at_x(AFFINE)]}
    caption = (
        "Each pair's worst error on held-out rows, at the layer and where it should be worse. "
        "Right of the dashed line, at 1/4, an affine function of the two features does as well."
    )
    return Figure("Errors of all pairs", caption, data, layout)


def pair_map(site: SiteErrors, names: Sequence[str]) -> Figure:
    """The pairs as a square: after offset at the layer below the diagonal, at its input above."""
    m = len(names)
    square = np.full((m, m), np.nan)
    first, second = site.here.pairs.T
    square[second, first] = site.here.worst_after_offset
    if site.before is not None:
        square[first, second] = site.before.worst_after_offset
    shown = list(range(min(m, MOST_SHOWN)))
    labels = [names[k] for k in shown]
    values = square[np.ix_(shown, shown)]
    trace = plots.heatmap(
        labels,
        labels,
        [[None if np.isnan(v) else round(float(v), 4) for v in row] for row in values],
        "ε",
        low=0,
        high=0.5,
    )
    trace |= plots.hover("%{y} ∧ %{x}<br>worst error %{z:.3f}") | plots.SILENT_HOLES
    trace |= {"colorscale": "Viridis"}
    axis = {"type": "category", "nticks": 12} | plots.NO_GRID
    layout = plots.layout(axis, axis | plots.DOWNWARD | {"scaleanchor": "x"}) | {"height": 560}
    above = "above it at the layer's input" if site.before is not None else "above it nothing"
    only = f" The first {MOST_SHOWN} of {m} features." if m > MOST_SHOWN else ""
    caption = (
        f"Worst error on held-out rows after the best gain and bias: below the diagonal at the "
        f"layer, {above}. Empty: never on together.{only}"
    )
    return Figure("Pairs of features", caption, [trace], layout)


def random_layers(sites: Sequence[SiteSummary]) -> Figure:
    """Each layer's mean error among those of random layers."""
    data = []
    for kind, color, symbol, values in (
        ("random layers", NEUTRAL, "line-ns-open", [s.random_mean_worst for s in sites]),
        ("the layer", CLASS_COLORS[1], "diamond", [[s.mean_worst] for s in sites]),
    ):
        x = [v for group in values for v in group]
        y = [s.hook for s, group in zip(sites, values, strict=True) for _ in group]
        marks = plots.markers(x, y, color, kind, symbol=symbol, size=13)
        marks["marker"]["line"] = {"width": 2}
        data.append(marks | plots.hover("%{y}<br>%{x:.4f}"))
    layout = plots.layout(
        plots.axis("mean over pairs of the worst error after offset"),
        {"type": "category", "automargin": True} | plots.DOWNWARD,
    )
    layout |= {"height": 180 + 40 * len(sites)}
    caption = (
        "Smaller is better. Random layers have the layer's own weights in random order; only a "
        "layer left of nearly all of them has learned something that they lack."
    )
    return Figure("Against random layers", caption, data, layout)


def _histogram(name: str, errors: PairErrors, color: str, dash: str) -> plots.Part:
    values = errors.worst_after_offset
    values = values[~np.isnan(values)]
    edges = np.linspace(0, 0.5, N_BINS + 1)
    shares: Float[np.ndarray, " bin"] = np.histogram(values, edges)[0] / max(len(values), 1)
    middles = [round(float(x), 4) for x in (edges[:-1] + edges[1:]) / 2]
    curve = plots.line(middles, [round(float(y), 5) for y in shares], color, name, dash=dash)
    curve["line"] = {"color": color, "dash": dash, "shape": "hvh"}
    return curve | plots.hover(f"{name}<br>%{{x:.3f}}: %{{y:.1%}}")
