"""Figures of the head analysis: the map of all heads, and the patterns of those detected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.circuits.heads.result import HeadVerdict
from interp_toolkit.circuits.heads.verdict import is_refuted
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.palette import CLASS_COLORS
from interp_toolkit.results import Figure

PER_ROW = 3  # maps beside each other
GAP = 0.09  # between maps, of the figure's width
MAP_SHARE = 0.62  # of a row's height; names and ticks stand in the rest
MAP_HEIGHT, CELL_HEIGHT = 130, 22  # pixels: of a map's frame, of a layer
MOST_PATTERNS = 4
DIGITS = 3  # of attention, in a figure


def head_map(heads: Sequence[HeadVerdict]) -> Figure:
    """Layers by heads, a map for each detector; hover tells score, null, p and effect."""
    detectors = list(dict.fromkeys(head.detector for head in heads))
    n_layers = 1 + max(head.layer for head in heads)
    n_rows = -(-len(detectors) // PER_ROW)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "annotations": [],
        "height": n_rows * (MAP_HEIGHT + CELL_HEIGHT * max(n_layers, 3)),
        "margin": {"t": 60},
    }
    for number, detector in enumerate(detectors):
        mine = [head for head in heads if head.detector == detector]
        axes = _domain(number, min(len(detectors), PER_ROW), n_rows)
        suffix = "" if number == 0 else str(number + 1)
        data += _map(mine, suffix, show_scale=number == 0)
        layout[f"xaxis{suffix}"] = {
            "domain": axes[0],
            "anchor": f"y{suffix}",
            "title": {"text": "head" if number + PER_ROW >= len(detectors) else ""},
            "dtick": 1 if len({head.head for head in mine}) <= 16 else 4,
            "showgrid": False,
            "zeroline": False,
        }
        layout[f"yaxis{suffix}"] = {
            "domain": axes[1],
            "anchor": f"x{suffix}",
            "title": {"text": "layer" if number % PER_ROW == 0 else ""},
            "dtick": 1 if n_layers <= 16 else 4,
            "showgrid": False,
            "zeroline": False,
        }
        layout["annotations"].append(
            {
                "text": f"<b>{detector}</b>",
                "x": axes[0][0],
                "y": axes[1][1],
                "xref": "paper",
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
    caption = (
        "Every head under every detector: the share of attention beyond uniform (0: none, 1: all). "
        "Diamonds mark heads that are detected, crosses those that ablation then refutes; hover "
        "for score, null, p and ablation effect."
    )
    return Figure("Head map", caption, data, layout)


def _domain(
    number: int, columns: int, rows: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where a map lies: its part of the figure's width, and of its height."""
    width = (1 - GAP * (columns - 1)) / columns
    left = (number % PER_ROW) * (width + GAP)
    height = 1 / rows
    top = 1 - (number // PER_ROW) * height
    bottom = top - height * (MAP_SHARE if rows > 1 else 1)
    right = min(left + width, 1.0)  # plotly takes no end beyond 1, be it by rounding
    return (left, right), (max(bottom, 0.0), top)


def _map(heads: Sequence[HeadVerdict], suffix: str, *, show_scale: bool) -> list[dict[str, Any]]:
    layers = sorted({head.layer for head in heads})
    columns = sorted({head.head for head in heads})
    by_place = {(head.layer, head.head): head for head in heads}
    grid = [[by_place[layer, column] for column in columns] for layer in layers]
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    traces: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "x": columns,
            "y": layers,
            "z": [[head.excess for head in row] for row in grid],
            "text": [[_hover(head) for head in row] for row in grid],
            "hovertemplate": "%{text}<extra></extra>",
            "hoverongaps": False,
            "zmin": 0,
            "zmax": 1,
            "xgap": 1,
            "ygap": 1,
            "showscale": show_scale,
            "colorbar": {"title": {"text": "excess"}, "outlinewidth": 0},
            **axes,
        }
    ]
    found = [head for head in heads if head.detected]
    if found:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [head.head for head in found],
                "y": [head.layer for head in found],
                "marker": {
                    "symbol": ["x" if is_refuted(head) else "diamond" for head in found],
                    "size": 10,
                    "color": CLASS_COLORS[1],
                    "line": {"width": 1, "color": "#ffffff"},
                },
                "hoverinfo": "skip",
                "showlegend": False,
                **axes,
            }
        )
    return traces


def _hover(head: HeadVerdict) -> str:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.3g}"

    lines = [
        f"<b>head {head.name}, {head.detector}</b>{' (detected)' if head.detected else ''}",
        f"score {number(head.score)}, null {number(head.null_mean)}, "
        f"uniform {number(head.uniform)}",
        f"p {number(head.p_value)}, adjusted {number(head.p_adjusted)}, q {number(head.q_value)}",
    ]
    found = head.ablation
    if found is not None:
        lines.append(
            f"ablation {number(found.effect)} nats "
            f"({number(found.low)} to {number(found.high)}), {found.verdict}"
        )
    return "<br>".join(lines)


def patterns(
    model: Any, prompts: Prompts, heads: Sequence[HeadVerdict], words: Callable[[int], str]
) -> list[Figure]:
    """The attention of detected heads on one row that repeats, the clearest of each kind first."""
    chosen = _clearest([head for head in heads if head.detected])
    if not chosen:
        return []
    row = int(prompts.periods.argmin()) if (prompts.periods > 0).all() else 0
    seen = _read(model, prompts.tokens[row : row + 1], {head.layer for head in chosen})
    tokens = [words(token) for token in prompts.tokens[row].tolist()]
    return [_pattern(head, seen[head.layer][head.head], tokens) for head in chosen]


def _clearest(found: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """The best of every detector, then the second best, ..., each head once."""
    ranked = sorted(found, key=lambda head: -(head.excess or 0.0))
    order = {
        id(head): [h.detector for h in ranked[:i]].count(head.detector)
        for i, head in enumerate(ranked)
    }
    chosen: dict[tuple[int, int], HeadVerdict] = {}
    for head in sorted(ranked, key=lambda head: order[id(head)]):
        chosen.setdefault((head.layer, head.head), head)
    return list(chosen.values())[:MOST_PATTERNS]


def _read(
    model: Any, tokens: Tensor, layers: set[int]
) -> Mapping[int, Float[Tensor, "head query key"]]:
    seen: dict[int, Tensor] = {}
    points = pattern_points(model)

    def keeper(layer: int) -> Callable[..., None]:
        def keep(pattern: Tensor, hook: Any) -> None:
            seen[layer] = pattern[0].detach().float().cpu()
            if len(seen) == len(layers):
                raise StopForwardError

        return keep

    run(model, tokens, [(points[layer], keeper(layer)) for layer in sorted(layers)])
    return seen


def _pattern(
    head: HeadVerdict, pattern: Float[Tensor, "query key"], tokens: Sequence[str]
) -> Figure:
    values = torch.round(pattern, decimals=DIGITS).double().tolist()
    trace = {
        "type": "heatmap",
        "z": [[round(value, DIGITS) for value in row] for row in values],
        "zmin": 0,
        "zmax": 1,
        "customdata": [[tokens[k] for k in range(len(tokens))] for _ in tokens],
        "hovertemplate": "query %{y}, key %{x} (token %{customdata})<br>attention %{z}"
        "<extra></extra>",
        "colorbar": {"title": {"text": "attention"}, "outlinewidth": 0},
    }
    layout = {
        "xaxis": {"title": {"text": "key position"}, "constrain": "domain", "showgrid": False},
        "yaxis": {
            "title": {"text": "query position"},
            "autorange": "reversed",
            "scaleanchor": "x",
            "showgrid": False,
        },
        "height": 480,
    }
    caption = f"What head {head.name} attends to on a row of random tokens that repeats."
    return Figure(f"Pattern of {head.name} ({head.detector})", caption, [trace], layout)
