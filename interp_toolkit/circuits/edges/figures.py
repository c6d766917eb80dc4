"""Figures of a circuit: layers from bottom to top, edges as wide as their effect.

In a deep model, layers without a node are left out, and MLPs are drawn to the right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import networkx as nx

from interp_toolkit import plots
from interp_toolkit.circuits.edges.circuit import Circuit
from interp_toolkit.circuits.edges.screened import Screening
from interp_toolkit.formatting import equals_p
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure

MOST_EDGES = 80  # drawn; more make a picture that shows nothing
DEEP = 8  # layers beyond which those without a node are left out
BESIDE = 0.2  # room for the names of outer nodes, as a fraction of the width
LINE_HEIGHT = 36  # pixels, of a deep model's layer
WIDEST, NARROWEST = 7.0, 1.0
DASHES = {"q": "dot", "k": "dash", "v": "solid", "": "solid"}
BENDS = {"q": -0.14, "k": 0.0, "v": 0.14, "": 0.07}  # of an edge's height, so that none hides one

Point = tuple[float, float]


def circuit_figure(graph: nx.DiGraph) -> Figure:
    """A figure of the graph that `composition_graph` returned."""
    lines = sorted(_lines(graph), key=lambda line: -abs(_weight(line[3])))
    lines_shown = lines[:MOST_EDGES]
    ends = {"input", "logits"} | {
        end for source, target, *_ in lines_shown for end in (source, target)
    }
    shown = graph.subgraph([name for name in graph if name in ends])
    levels = _levels(shown)
    coordinates = _layout(shown, levels)
    widest = max((abs(_weight(values)) for *_, values in lines), default=1.0) or 1.0
    data = []
    middles = []
    for source, target, channel, values in lines_shown:
        path = _path(coordinates[source], coordinates[target], channel)
        data.append(_line(path, channel, _weight(values), widest))
        middles.append((path[1], _words(source, target, channel, values, graph.graph["unit"])))
    data += [_middles(middles), _nodes(shown, coordinates)]
    left_out = len(lines) - MOST_EDGES
    caption = (
        "L1H0: head 0 of layer 1"
        + ("; MLP1: its MLP" if any(n["kind"] == "mlp" for n in shown.nodes.values()) else "")
        + ". Width: the effect of ablating only this edge; "
        "dotted: read by the query, dashed: by the key, solid: by the value, an MLP or the "
        "logits."
        + (
            " Orange: ablating the edge raises the metric."
            if any(_weight(v) < 0 for *_, v in lines_shown)
            else ""
        )
        + (
            f" The {left_out:,} edges with the smallest effects are left out."
            if left_out > 0
            else ""
        )
    )
    up = plots.axis("layer") | plots.BARE | plots.ticks(levels.values(), map(str, levels))
    across = [x for x, _ in [*coordinates.values(), *(point for point, _ in middles)]]
    beside = max(0.5, BESIDE * (max(across) - min(across)))
    span = {"visible": False, "range": [min(across) - beside, max(across) + beside]}
    layout = plots.layout(span, up) | plots.NO_LEGEND | {"hovermode": "closest"}
    if graph.graph["cfg"]["n_layers"] > DEEP:
        layout |= {"height": LINE_HEIGHT * (len(levels) + 4)}
    return Figure("Circuit", caption, data, layout)


def head_map(circuit: Circuit) -> Figure:
    """The effect of each head that was ablated alone, by layer and head."""
    wiring = circuit.wiring
    cells: list[list[float | None]] = [[None] * wiring.n_heads for _ in range(wiring.n_layers)]
    for node, effect in circuit.node_effects.items():
        if node.layer is not None and node.head is not None:
            cells[node.layer][node.head] = round(effect.mean, 4)
    reach = max((abs(c) for row in cells for c in row if c is not None), default=1.0) or 1.0
    unit = circuit.metric.unit
    data = plots.heatmap(None, None, cells, unit, low=-reach, high=reach) | plots.TILES
    caption = (
        f"Loss of {circuit.metric.name} when a head's whole output is ablated; empty: not "
        "ablated, since its estimate is not among the largest."
    )
    layout = plots.layout(plots.axis("head"), plots.axis("layer")) | plots.NO_LEGEND
    return Figure("Heads, ablated one at a time", caption, [data], layout)


def size_figure(screening: Screening) -> Figure:
    """A figure of faithfulness by circuit size, on the prompts that edges are chosen on."""
    by = {"nodes": screening.node_sizes, "edges between them": screening.edge_sizes}
    data = [
        plots.line(list(sizes), list(sizes.values()), CLASS_COLORS[i], name) | plots.marked()
        for i, (name, sizes) in enumerate(by.items())
    ]
    caption = (
        "Only the largest estimates, with all other edges ablated, on the prompts used for "
        "selection: nodes with all edges between them, then edges between the selected nodes."
    )
    layout = plots.layout(plots.axis("how many", "log"), plots.axis("share kept"))
    return Figure("Faithfulness by circuit size", caption, data, layout)


def _levels(graph: nx.DiGraph) -> dict[int, float]:
    """The height of each layer in the figure; of a deep model, only layers with a node."""
    n_layers = graph.graph["cfg"]["n_layers"]
    if n_layers <= DEEP:
        return {layer: float(layer) for layer in range(n_layers)}
    present = {node["layer"] for node in graph.nodes.values() if "layer" in node}
    return {layer: float(i) for i, layer in enumerate(sorted(present))}


def _layout(graph: nx.DiGraph, levels: dict[int, float]) -> dict[str, Point]:
    """Coordinates of nodes: heads of a layer in a row, its MLP above (deep models: right)."""
    n_heads = graph.graph["cfg"]["n_heads"]
    aside = (n_heads + 1) / 2 + 1 if graph.graph["cfg"]["n_layers"] > DEEP else 0.0
    coordinates: dict[str, Point] = {}
    for name, node in graph.nodes.items():
        if node["kind"] == "head":
            coordinates[name] = (node["head"] - (n_heads - 1) / 2, levels[node["layer"]])
        elif node["kind"] == "mlp":
            coordinates[name] = (aside, levels[node["layer"]] + (0.25 if aside else 0.5))
        else:
            coordinates[name] = (0.0, -1.0 if node["kind"] == "input" else float(len(levels)))
    return coordinates


def _lines(graph: nx.DiGraph) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Source, target, channel and values of every line; a head's edges have one per channel."""
    lines = []
    for (source, target), attributes in graph.edges.items():
        for channel in attributes.get("channels", "") or [""]:
            end = f"_{channel}" if channel else ""
            names = ("effect", "estimate", "p_value", "composition", "composition_p")
            values = {n: attributes[n + end] for n in names if n + end in attributes}
            lines.append((source, target, channel, values))
    return lines


def _weight(values: dict[str, Any]) -> float:
    """The effect, or its estimate where it was not measured."""
    return float(values.get("effect", values.get("estimate", 0.0)))


def _path(start: Point, end: Point, channel: str) -> list[Point]:
    """The points of a line: start, a point beside the middle, end."""
    bend = BENDS[channel] * (end[1] - start[1])
    return [start, ((start[0] + end[0]) / 2 + bend, (start[1] + end[1]) / 2), end]


def _line(path: Sequence[Point], channel: str, effect: float, widest: float) -> plots.Part:
    width = max(NARROWEST, WIDEST * abs(effect) / widest)
    line = plots.line(
        [x for x, _ in path],
        [y for _, y in path],
        CLASS_COLORS[int(effect < 0)],
        width=width,
        dash=DASHES[channel],
    )
    line["line"]["shape"] = "spline"
    return line | plots.NO_HOVER | {"opacity": 0.75}


def _words(source: str, target: str, channel: str, values: dict[str, Any], unit: str) -> str:
    lines = [f"{source} → {target}" + (f" ({channel})" if channel else "")]
    p = f", {equals_p(values['p_value'])}" if "p_value" in values else ""
    kind = "effect" if "effect" in values else "estimate"
    lines.append(f"{kind} {_weight(values):.3g} {unit}{p}")
    if "composition" in values:
        p = equals_p(values["composition_p"])
        lines.append(f"composition {values['composition']:.3g}, {p}")
    return "<br>".join(lines)


def _middles(middles: Sequence[tuple[Point, str]]) -> plots.Part:
    """Invisible markers in the middle of each edge, for hover texts."""
    marks = plots.markers(
        [point[0] for point, _ in middles], [point[1] for point, _ in middles], NEUTRAL, size=7
    )
    return marks | plots.hover("%{text}") | {"text": [words for _, words in middles]}


def _nodes(graph: nx.DiGraph, coordinates: dict[str, Point]) -> plots.Part:
    symbols = defaultdict(lambda: "square", head="circle", mlp="diamond")
    effects = [
        f"effect {node['effect']:.3g} {graph.graph['unit']}" if "effect" in node else ""
        for node in graph.nodes.values()
    ]
    marks = plots.markers(
        [coordinates[name][0] for name in graph],
        [coordinates[name][1] for name in graph],
        NEUTRAL,
        symbol=[symbols[node["kind"]] for node in graph.nodes.values()],
        size=14,
    )
    sides = [  # away from the edges, which lie between the nodes
        f"{'bottom' if name == 'input' else 'top'} {'left' if x < 0 else 'right'}"
        for name, (x, _) in ((name, coordinates[name]) for name in graph)
    ]
    return (
        marks | plots.labels(list(graph), sides) | plots.hover("%{text}<br>%{customdata}", effects)
    )
