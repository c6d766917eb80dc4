"""A circuit graph as plotly data: layers from bottom to top, edges as wide as their effect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import networkx as nx

from interp_toolkit.circuits.edges.wiring import label_of
from interp_toolkit.palette import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure

MOST_EDGES = 150  # drawn; more make a picture that shows nothing
WIDEST, NARROWEST = 7.0, 1.0
DASHES = {"q": "dot", "k": "dash", "v": "solid", "": "solid"}
BENDS = {"q": -0.14, "k": 0.0, "v": 0.14, "": 0.07}  # of an edge's height, so that none hides one

Place = tuple[float, float]


def circuit_figure(graph: nx.DiGraph) -> Figure:
    """The graph that `composition_graph` returned, as a picture."""
    places = _places(graph)
    lines = sorted(_lines(graph), key=lambda line: -abs(line[3]["effect"]))
    widest = max((abs(values["effect"]) for *_, values in lines), default=1.0) or 1.0
    data: list[dict[str, Any]] = []
    middles = []
    for source, target, channel, values in lines[:MOST_EDGES]:
        path = _path(places[source], places[target], channel)
        data.append(_line(path, channel, values["effect"], widest))
        middles.append((path[1], _words(source, target, channel, values, graph.graph["unit"])))
    data += [_middles(middles), _nodes(graph, places)]
    left_out = len(lines) - MOST_EDGES
    caption = (
        "L1H0: head 0 of layer 1; MLP1: its MLP. Edges are as wide as what is lost when each alone "
        "is cut; dotted: read by the query, dashed: by the key, solid: by the value, an MLP or the "
        "logits."
        + (
            " The other colour: cutting it helps."
            if any(v["effect"] < 0 for *_, v in lines)
            else ""
        )
        + (f" The {left_out} edges with the smallest effects are left out." if left_out > 0 else "")
    )
    layout = {
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {"visible": False},
        "yaxis": {
            "title": {"text": "layer"},
            "zeroline": False,
            "showgrid": False,
            "tickvals": list(range(graph.graph["cfg"]["n_layers"])),
            "ticktext": [str(layer) for layer in range(graph.graph["cfg"]["n_layers"])],
        },
    }
    return Figure("Circuit", caption, data, layout)


def _places(graph: nx.DiGraph) -> dict[str, Place]:
    """Heads of a layer side by side, its MLP half a step above."""
    n_layers, n_heads = graph.graph["cfg"]["n_layers"], graph.graph["cfg"]["n_heads"]
    places: dict[str, Place] = {}
    for name, node in graph.nodes.items():
        if node["kind"] == "head":
            places[name] = (node["head"] - (n_heads - 1) / 2, float(node["layer"]))
        elif node["kind"] == "mlp":
            places[name] = (0.0, node["layer"] + 0.5)
        else:
            places[name] = (0.0, -1.0 if node["kind"] == "input" else float(n_layers))
    return places


def _lines(graph: nx.DiGraph) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Source, target, channel and values of every line: a head's edges have one a channel."""
    lines = []
    for (source, target), attributes in graph.edges.items():
        for channel in attributes.get("channels", "") or [""]:
            end = f"_{channel}" if channel else ""
            names = ("effect", "p_value", "composition", "composition_p")
            values = {n: attributes[n + end] for n in names if n + end in attributes}
            lines.append((source, target, channel, values))
    return lines


def _path(start: Place, end: Place, channel: str) -> list[Place]:
    """Start, a point to the side of the middle, end."""
    bend = BENDS[channel] * (end[1] - start[1])
    return [start, ((start[0] + end[0]) / 2 + bend, (start[1] + end[1]) / 2), end]


def _line(path: Sequence[Place], channel: str, effect: float, widest: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for x, _ in path],
        "y": [y for _, y in path],
        "line": {
            "shape": "spline",
            "dash": DASHES[channel],
            "color": CLASS_COLORS[int(effect < 0)],
            "width": max(NARROWEST, WIDEST * abs(effect) / widest),
        },
        "opacity": 0.75,
        "hoverinfo": "skip",
    }


def _words(source: str, target: str, channel: str, values: dict[str, Any], unit: str) -> str:
    lines = [label_of(f"{source} → {target}") + (f" ({channel})" if channel else "")]
    p = f", p = {values['p_value']:.2g}" if "p_value" in values else ""
    lines.append(f"effect {values['effect']:.3g} {unit}{p}")
    if "composition" in values:
        lines.append(f"composition {values['composition']:.3g}, p = {values['composition_p']:.2g}")
    return "<br>".join(lines)


def _middles(middles: Sequence[tuple[Place, str]]) -> dict[str, Any]:
    """Small marks in the middle of each edge, to hover over."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [place[0] for place, _ in middles],
        "y": [place[1] for place, _ in middles],
        "text": [words for _, words in middles],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 7, "color": NEUTRAL},
    }


def _nodes(graph: nx.DiGraph, places: dict[str, Place]) -> dict[str, Any]:
    symbols = defaultdict(lambda: "square", head="circle", mlp="diamond")
    effects = [
        f"effect {node['effect']:.3g} {graph.graph['unit']}" if "effect" in node else ""
        for node in graph.nodes.values()
    ]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [places[name][0] for name in graph],
        "y": [places[name][1] for name in graph],
        "text": [label_of(name) for name in graph],
        "customdata": effects,
        "textposition": [f"{'bottom' if name == 'input' else 'top'} right" for name in graph],
        "hovertemplate": "%{text}<br>%{customdata}<extra></extra>",
        "marker": {
            "size": 14,
            "color": NEUTRAL,
            "symbol": [symbols[node["kind"]] for node in graph.nodes.values()],
        },
    }
