"""Pictures of a head's skip-bigrams, as plotly data: scores against chance, graph, heat map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.skip_bigrams.head import Bigram, HeadBigrams
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Figure

MOST_EDGES = 60  # drawn; more make a picture that shows nothing
WIDEST, NARROWEST = 5.0, 1.0
LEAST = 0.5  # of an expected count, that a logarithmic axis shows
ROW = 18  # pixels of a feature's name


def bigram_figures(head: HeadBigrams) -> list[Figure]:
    """The pictures of one head; of one without bigrams the histogram alone."""
    name, figures = head.name, [_histogram(head, head.name)]
    if head.bigrams:
        figures += [_graph(head.bigrams, name), _heat(head, name)]
    return figures


def _histogram(head: HeadBigrams, name: str) -> Figure:
    edges = np.array(head.histogram.edges)
    middles = (edges[:-1] + edges[1:]) / 2
    deviates = np.clip([b.z for b in head.bigrams], edges[0], edges[-1])
    marked = np.histogram(deviates, edges)[0]
    pairs = [n or None for n in head.histogram.pairs]
    chance = [float(n) if n >= LEAST else None for n in head.histogram.null]
    data = [
        plots.bars(middles, pairs, CLASS_COLORS[0], "all pairs, before") | {"opacity": 0.6},
        plots.line(middles, chance, NEUTRAL, "random features"),
    ]
    if head.bigrams:
        marks = plots.markers(
            middles[marked > 0],
            marked[marked > 0],
            CLASS_COLORS[1],
            "found, given the others",
            symbol=CLASS_SYMBOLS[1],
            size=8,
        )
        data.append(marks)
    caption = (
        "z of every pair of features against its own row and column; random features on the same "
        "head show what chance gives. The bigrams found are marked where they stand once all "
        f"others are taken out; beyond {edges[-1]:g} they stand at the edge."
    )
    layout = plots.layout(plots.axis("z"), plots.axis("pairs", "log"))
    layout |= {"bargap": 0, "legend": {"orientation": "h"}}
    return Figure(f"Scores of {name}", caption, data, layout)


def _graph(bigrams: Sequence[Bigram], name: str) -> Figure:
    shown = sorted(bigrams, key=lambda b: -abs(b.z))[:MOST_EDGES]
    keys, queries = _ordered(shown)
    rows = max(len(keys), len(queries))
    height = {
        side: {feature: (i + 0.5) * rows / len(names) for i, feature in enumerate(names)}
        for side, names in (("k", keys), ("q", queries))
    }
    widest = max(abs(b.strength) for b in shown) or 1.0
    data = [
        plots.line(
            [0, 1],
            [height["k"][b.key_feature], height["q"][b.query_feature]],
            CLASS_COLORS[int(b.z < 0)],
            width=max(NARROWEST, WIDEST * abs(b.strength) / widest),
        )
        | plots.NO_HOVER
        | {"opacity": 0.7}
        for b in shown
    ]
    for x, side, names in ((0, "k", keys), (1, "q", queries)):
        heights = [height[side][feature] for feature in names]
        marks = plots.markers([x] * len(names), heights, NEUTRAL, symbol=CLASS_SYMBOLS[x], size=9)
        words = plots.labels(names, "middle left" if side == "k" else "middle right")
        data.append(marks | words | plots.hover("%{text}"))
    left_out = len(bigrams) - len(shown)
    caption = (
        "Keys at the left, queries at the right; a line is a bigram, as wide as its strength."
        + (" The other colour: attends less." if any(b.z < 0 for b in shown) else "")
        + (f" The {left_out} with the smallest z are left out." if left_out else "")
    )
    layout = plots.layout(
        {"visible": False, "range": [-0.5, 1.5]}, {"visible": False} | plots.DOWNWARD
    )
    layout |= plots.NO_LEGEND | {"hovermode": "closest", "height": 120 + ROW * rows}
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
    rows_of: dict[str, list[int]] = {feature: [] for feature in own}
    for feature, other in joined:
        rows_of[feature].append(at[other])
    return sorted(own, key=lambda feature: sum(rows_of[feature]) / len(rows_of[feature]))


def _heat(head: HeadBigrams, name: str) -> Figure:
    heat = head.heat
    size = float(np.abs(heat.scores).max()) or 1.0
    trace = plots.heatmap(
        heat.keys, heat.queries, plots.rounded(heat.scores), "score", low=-size, high=size
    )
    trace |= plots.hover("key %{x}, query %{y}<br>score %{z}")
    layout = plots.layout(
        plots.axis("key feature", "category") | plots.NO_GRID,
        plots.axis("query feature", "category") | plots.NO_GRID | plots.DOWNWARD,
    )
    caption = "Scores between the features of the clearest bigrams, unit directions."
    return Figure(f"Scores among the clearest of {name}", caption, [trace], layout)
