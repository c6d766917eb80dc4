"""Pictures of a head's skip-bigrams, as plotly data: scores against chance, graph, heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interp_toolkit.circuits.skip_bigrams.head import Bigram, HeadBigrams
from interp_toolkit.palette import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Figure

MOST_EDGES = 60  # drawn; more make a picture that shows nothing
WIDEST, NARROWEST = 5.0, 1.0
LEAST = 0.5  # of an expected count, that a logarithmic axis shows
ROW = 18  # pixels of a feature's name


def bigram_figures(found: HeadBigrams, name: str) -> list[Figure]:
    """The pictures of one head; of one without bigrams the histogram alone."""
    figures = [_histogram(found, name)]
    if found.bigrams:
        figures += [_graph(found.bigrams, name), _heat(found, name)]
    return figures


def _histogram(found: HeadBigrams, name: str) -> Figure:
    edges = np.array(found.histogram.edges)
    middles = (edges[:-1] + edges[1:]) / 2
    deviates = np.clip([b.z for b in found.bigrams], edges[0], edges[-1])
    marked = np.histogram(deviates, edges)[0]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "x": middles.tolist(),
            "y": [n or None for n in found.histogram.pairs],
            "name": "all pairs, before",
            "marker": {"color": CLASS_COLORS[0]},
            "opacity": 0.6,
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": middles.tolist(),
            "y": [float(n) if n >= LEAST else None for n in found.histogram.null],
            "name": "random features",
            "line": {"color": NEUTRAL, "width": 2},
        },
    ]
    if found.bigrams:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": middles[marked > 0].tolist(),
                "y": marked[marked > 0].tolist(),
                "name": "found, given the others",
                "marker": {"color": CLASS_COLORS[1], "symbol": CLASS_SYMBOLS[1], "size": 8},
            }
        )
    caption = (
        "z of every pair of features against its own row and column; random features on the same "
        "head show what chance gives. The bigrams found are marked where they stand once all "
        f"others are taken out; beyond {edges[-1]:g} they stand at the edge."
    )
    layout = {
        "xaxis": {"title": {"text": "z"}},
        "yaxis": {"title": {"text": "pairs"}, "type": "log"},
        "bargap": 0,
        "legend": {"orientation": "h"},
    }
    return Figure(f"Scores of {name}", caption, data, layout)


def _graph(bigrams: Sequence[Bigram], name: str) -> Figure:
    drawn = sorted(bigrams, key=lambda b: -abs(b.z))[:MOST_EDGES]
    keys, queries = _ordered(drawn)
    rows = max(len(keys), len(queries))
    height = {
        side: {feature: (i + 0.5) * rows / len(names) for i, feature in enumerate(names)}
        for side, names in (("k", keys), ("q", queries))
    }
    widest = max(abs(b.strength) for b in drawn) or 1.0
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, 1],
            "y": [height["k"][b.key_feature], height["q"][b.query_feature]],
            "line": {
                "color": CLASS_COLORS[int(b.z < 0)],
                "width": max(NARROWEST, WIDEST * abs(b.strength) / widest),
            },
            "opacity": 0.7,
            "hoverinfo": "skip",
        }
        for b in drawn
    ]
    for x, side, names in ((0, "k", keys), (1, "q", queries)):
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "x": [x] * len(names),
                "y": [height[side][feature] for feature in names],
                "text": list(names),
                "textposition": "middle left" if side == "k" else "middle right",
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 9, "color": NEUTRAL, "symbol": CLASS_SYMBOLS[x]},
            }
        )
    left_out = len(bigrams) - len(drawn)
    caption = (
        "Keys at the left, queries at the right; a line is a bigram, as wide as its strength."
        + (" The other colour: attends less." if any(b.z < 0 for b in drawn) else "")
        + (f" The {left_out} with the smallest z are left out." if left_out else "")
    )
    layout = {
        "showlegend": False,
        "hovermode": "closest",
        "height": 120 + ROW * rows,
        "xaxis": {"visible": False, "range": [-0.5, 1.5]},
        "yaxis": {"visible": False, "autorange": "reversed"},
    }
    return Figure(f"Skip-bigrams of {name}", caption, data, layout)


def _ordered(bigrams: Sequence[Bigram]) -> tuple[list[str], list[str]]:
    """Features of either side in an order with few crossings: each at the mean of its partners."""
    keys = list(dict.fromkeys(b.key_feature for b in bigrams))
    queries = list(dict.fromkeys(b.query_feature for b in bigrams))
    for _ in range(8):
        keys = _by_partners(keys, queries, [(b.key_feature, b.query_feature) for b in bigrams])
        queries = _by_partners(queries, keys, [(b.query_feature, b.key_feature) for b in bigrams])
    return keys, queries


def _by_partners(
    own: Sequence[str], others: Sequence[str], joined: Sequence[tuple[str, str]]
) -> list[str]:
    at = {feature: i for i, feature in enumerate(others)}
    places: dict[str, list[int]] = {feature: [] for feature in own}
    for feature, other in joined:
        places[feature].append(at[other])
    return sorted(own, key=lambda feature: sum(places[feature]) / len(places[feature]))


def _heat(found: HeadBigrams, name: str) -> Figure:
    heat = found.heat
    size = float(np.abs(heat.scores).max()) or 1.0
    trace = {
        "type": "heatmap",
        "x": list(heat.keys),
        "y": list(heat.queries),
        "z": [[float(f"{value:.4g}") for value in row] for row in heat.scores],
        "zmin": -size,
        "zmax": size,
        "hovertemplate": "key %{x}, query %{y}<br>score %{z}<extra></extra>",
        "colorbar": {"title": {"text": "score"}, "outlinewidth": 0},
    }
    layout = {
        "xaxis": {"title": {"text": "key feature"}, "type": "category", "showgrid": False},
        "yaxis": {
            "title": {"text": "query feature"},
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
        },
    }
    caption = "Scores between the features of the clearest bigrams, unit directions."
    return Figure(f"Scores among the clearest of {name}", caption, [trace], layout)
