"""Figures of the sorting analysis, as plotly data: what the weights hold and what the heads do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.sorting.measures.ov_shapes import shared_part
from interp_toolkit.circuits.sorting.measures.reading import ListReading
from interp_toolkit.circuits.sorting.measures.weight_tables import WeightTables
from interp_toolkit.circuits.sorting.panels import axis, numbers, panel
from interp_toolkit.palette import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, head_name

MOST_MAPS, PER_ROW = 6, 3  # of QK, one an output item
FAINTEST = -10.0  # nats below the row's best key: e^-10 of its attention
MOST_CURVES = 15  # of OV; more values than that are drawn in steps
SCALE = {"outlinewidth": 0}


def qk_by_item(tables: WeightTables, head: int = 0) -> Figure:
    """Scores of values against keys for some output items, each row's best key at 0."""
    n_items = tables.qk.shape[1]
    items = _some(n_items, MOST_MAPS)
    n_rows = -(-len(items) // PER_ROW)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": [], "height": 90 + 270 * n_rows}
    for number, item in enumerate(items):
        scores, queries = tables.qk[head, item], list(tables.query_names)
        if item == 0 and tables.first_query is not None:
            scores, queries = scores[:1], [tables.first_query]
        place = panel(number, min(len(items), PER_ROW), n_rows, f"item {item}")
        layout["annotations"].append(place.title)
        title = "key token" if number + PER_ROW >= len(items) else ""
        layout[f"xaxis{place.suffix}"] = axis(title, place.x, f"y{place.suffix}", kind="category")
        title = "query token" if number % PER_ROW == 0 else ""
        layout[f"yaxis{place.suffix}"] = {
            **axis(title, place.y, f"x{place.suffix}", kind="category"),
            "autorange": "reversed",
        }
        data.append(
            {
                "type": "heatmap",
                "x": list(tables.source_names),
                "y": queries,
                "z": numbers(scores - scores.amax(-1, keepdim=True)),
                "zmin": FAINTEST,
                "zmax": 0,
                "hovertemplate": "query %{y}, key %{x}<br>%{z} nats below the best<extra></extra>",
                "hoverongaps": False,
                "showscale": number == 0,
                "colorbar": {"title": {"text": "score"}, **SCALE},
                **place.axes,
            }
        )
    caption = (
        "From the weights: attention scores by output item, each row less its largest. Filtering "
        "for values above the previous one is a bright upper triangle, brightest next to the "
        "diagonal; equal attention to all values is one colour."
    )
    return Figure(f"QK by position of {head_name(0, head)}", caption, data, layout)


def ov_map(tables: WeightTables, head: int = 0) -> Figure:
    """What each source writes to the values' logits, as a map."""
    ov = tables.ov[head]
    n = ov.shape[1]
    centred = ov - ov.mean(1, keepdim=True)
    size = float(centred[:n].abs().max()) or 1.0
    trace = {
        "type": "heatmap",
        "x": list(tables.query_names),
        "y": list(tables.source_names),
        "z": numbers(centred),
        "zmin": -size,
        "zmax": size,
        "hovertemplate": "source %{y}, logit of %{x}<br>%{z}<extra></extra>",
        "colorbar": {"title": {"text": "logit"}, **SCALE},
    }
    layout = {
        "xaxis": axis("logit of", kind="category"),
        "yaxis": {**axis("source token", kind="category"), "autorange": "reversed"},
        "height": 460,
    }
    caption = (
        "From the weights: what each source adds to the logits if it alone is attended to, each "
        "row less its mean. A head that copies is brightest on the diagonal."
    )
    return Figure(f"OV of {head_name(0, head)}", caption, [trace], layout)


def ov_curves(tables: WeightTables, head: int = 0) -> Figure:
    """The same as curves over the output value: values at the left, separators at the right."""
    n = tables.ov.shape[2]
    ov = tables.ov[head] - shared_part(tables.ov[head, :n])
    places = [panel(i, 2, 1, title) for i, title in enumerate(("values", "separators"))]
    layout: dict[str, Any] = {"annotations": [p.title for p in places], "height": 420}
    data: list[dict[str, Any]] = []
    for number, place in enumerate(places):
        layout[f"xaxis{place.suffix}"] = axis("logit of", place.x, f"y{place.suffix}")
        title = "" if number else "logit, less the row's mean"
        layout[f"yaxis{place.suffix}"] = axis(title, place.y, f"x{place.suffix}")
    rows = [*_some(n, MOST_CURVES), *range(n, len(ov))]
    for row in rows:
        inner = row < n
        place = places[0 if inner else 1]
        color = blend(row / (n - 1)) if inner else NEUTRAL
        dash = "solid" if inner else ("solid", "dash", "dot", "dashdot")[(row - n) % 4]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [int(name) for name in tables.query_names],
                "y": numbers(ov[row] - ov[row].mean()),
                "name": tables.source_names[row],
                "line": {"color": color, "width": 2, "dash": dash},
                **place.axes,
            }
        )
    caption = (
        "The same by output value, less a vector that all sources write alike, which changes "
        "nothing that the model computes. Algorithm 2 sums min(0, i − x) over the list: each "
        "value's curve then has a kink at the value, all with one change of slope, and a "
        "separator's is a line."
    )
    return Figure(f"OV curves of {head_name(0, head)}", caption, data, layout)


def pattern(example: ListReading, head: int = 0, row: int = 0) -> Figure:
    """Attention where each item of one list is read, the list's own keys sorted."""
    layout, length = example.layout, int(example.lists.lengths[row])
    start = len(layout.before)
    tokens = example.rows.tokens[row].tolist()
    order = sorted(range(start, start + length), key=lambda p: tokens[p])
    order += [p for p in range(len(tokens)) if not start <= p < start + length]
    names = [layout.token_name(tokens[p]) for p in order]
    answers = [layout.values[v] for v in example.rows.answer[row, :length].tolist()]
    trace = {
        "type": "heatmap",
        "x": list(range(len(order))),
        "y": list(range(length)),
        "z": numbers(example.pattern[row, head, :length][:, order]),
        "zmin": 0,
        "customdata": [
            [[name, p, answer] for name, p in zip(names, order, strict=True)] for answer in answers
        ],
        "hovertemplate": "item %{y} (%{customdata[2]}), key %{customdata[0]} at position "
        "%{customdata[1]}<br>attention %{z}<extra></extra>",
        "colorbar": {"title": {"text": "attention"}, **SCALE},
    }
    ticks = {"tickmode": "array", "tickvals": list(range(len(order))), "ticktext": names}
    given = " ".join(map(str, tokens[start : start + length]))
    caption = (
        f"What each output item attends to on the list {given}, whose items are sorted here; to "
        "their right what else is in the row. An item that a causal head cannot see is 0."
    )
    return Figure(
        f"Pattern of {head_name(0, head)}",
        caption,
        [trace],
        {
            "xaxis": {**axis("key token"), **ticks},
            "yaxis": {**axis("output item"), "autorange": "reversed", "dtick": 1},
            "height": 420,
        },
    )


def separator_lines(
    measured: Float[np.ndarray, "head item"] | None,
    from_weights: Float[Tensor, "head separator item"],
    names: Sequence[str],
) -> Figure:
    """Attention to separators over that to the values, by output item."""
    items = list(range(from_weights.shape[2]))
    data: list[dict[str, Any]] = []
    for head in range(len(from_weights)):
        label = f"{head_name(0, head)}: " if len(from_weights) > 1 else ""
        if measured is not None:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "x": items,
                    "y": numbers(measured[head]),
                    "name": f"{label}{names[0]}, from attention",
                    "line": {"color": blend(head / max(len(from_weights) - 1, 1)), "width": 2},
                }
            )
        for number, name in enumerate(names):
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": items,
                    "y": numbers(from_weights[head, number]),
                    "name": f"{label}{name}, from weights",
                    "line": {
                        "color": NEUTRAL,
                        "dash": ("dash", "dot", "dashdot", "longdash")[number % 4],
                        "width": 1.5,
                    },
                }
            )
    layout = {
        "xaxis": {**axis("output item k"), **_whole(len(items))},
        "yaxis": {**axis("attention relative to values"), "rangemode": "tozero"},
    }
    caption = (
        "Attention to a separator relative to the values but the largest. Algorithm 2 needs one "
        "or more that rise with the output item in a straight line (item 0 may differ); "
        "models without it can draw one too, so it is no evidence alone. From weights: the mean "
        "over all previous tokens alike, be they likely there or not."
    )
    return Figure("Attention to separators", caption, data, layout)


def logit_line(ratio: Float[np.ndarray, " item"], r2: Float[np.ndarray, " item"]) -> Figure:
    """γ/β of the logits against the output item, with the theory's line, and how well they fit."""
    items = list(range(len(ratio)))
    above, below = (0.42, 1.0), (0.0, 0.28)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": items,
            "y": [k + 0.5 for k in items],
            "name": "k + 0.5",
            "line": {"color": NEUTRAL, "dash": "dash", "width": 2},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": items,
            "y": numbers(ratio),
            "name": "γ/β",
            "marker": {"color": CLASS_COLORS[1], "symbol": "diamond", "size": 10},
        },
        {
            "type": "bar",
            "x": items,
            "y": numbers(r2),
            "name": "R² of the fit",
            "marker": {"color": CLASS_COLORS[0]},
            "xaxis": "x2",
            "yaxis": "y2",
        },
    ]
    layout = {
        "xaxis": {**axis("", (0.0, 1.0), "y"), **_whole(len(items))},
        "yaxis": axis("γ/β", above, "x"),
        "xaxis2": {**axis("output item k", (0.0, 1.0), "y2"), **_whole(len(items))},
        "yaxis2": {**axis("R²", below, "x2"), "range": [0, 1.02]},
        "height": 460,
    }
    caption = (
        "The logits of item k, fitted by β f(x) + γ x with f(x) = Σ min(0, aᵢ − x). Algorithm 2 "
        "has γ/β on the dashed line; this counts only as far as the fit explains the logits (bars)."
    )
    return Figure("Logits as a sum of piecewise-linear functions", caption, data, layout)


def blend(share: float) -> str:
    """A colour between those of the two classes: 0 the first, 1 the second."""
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in CLASS_COLORS]
    mixed = [round(a + share * (b - a)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _whole(n: int) -> dict[str, Any]:
    """Ticks of an axis of items: whole numbers."""
    return {"dtick": 1 if n <= 20 else max(n // 10, 5)}


def _some(n: int, most: int) -> list[int]:
    """The numbers below n, or so many of them, the first and last among them, evenly."""
    if n <= most:
        return list(range(n))
    return sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})
