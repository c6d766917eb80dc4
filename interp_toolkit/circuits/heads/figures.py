"""Figures of the head analysis: the map of all heads, and attention patterns of detected heads."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit import plots
from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.circuits.heads.result import HeadVerdict
from interp_toolkit.circuits.metrics.causal_words import in_words
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.formatting import p_cell
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Figure

PER_ROW = 3  # maps per row
MAP_SHARE = 0.62  # fraction of a row's height that the map takes; the rest has names and ticks
MAP_HEIGHT, CELL_HEIGHT = 130, 22  # pixels of a map's frame, and of a layer
MOST_PATTERNS, PATTERNS_PER_ROW, PATTERN_HEIGHT = 4, 2, 420
DIGITS = 3  # digits of attention in a figure
MOST_CELLS = 256  # cells per side of a pattern; for longer prompts a cell is a block of tokens


def head_map(heads: Sequence[HeadVerdict]) -> Figure:
    """Plot the excess attention of every head as one map per detector."""
    detectors = list(dict.fromkeys(head.detector for head in heads))
    n_layers = 1 + max(head.layer for head in heads)
    panels = plots.beside(len(detectors), PER_ROW, MAP_SHARE)
    n_rows = -(-len(detectors) // PER_ROW)
    data: list[plots.Part] = []
    layout: plots.Part = {
        "annotations": [p.heading(name) for p, name in zip(panels, detectors, strict=True)],
        "height": n_rows * (MAP_HEIGHT + CELL_HEIGHT * max(n_layers, 3)),
        "margin": {"t": 60},
    }
    for panel, detector in zip(panels, detectors, strict=True):
        own = [head for head in heads if head.detector == detector]
        data += [trace | panel.trace for trace in _map(own, show_scale=panel.number == 0)]
        n_heads = len({head.head for head in own})
        layout |= panel.layout(
            plots.axis("head" if panel.lowest else "") | plots.whole(n_heads) | plots.BARE,
            plots.axis("layer" if panel.leftmost else "") | plots.whole(n_layers) | plots.BARE,
        )
    caption = (
        "Attention of every head to every detector's keys, above uniform attention (0: none, 1: "
        "all). Diamonds: detected heads; crosses: heads with the pattern that are not detected, "
        "since its knockout has too small an effect or was not tested. Hover for score, null, p "
        "and effect."
    )
    return Figure("Head map", caption, data, layout)


def _map(heads: Sequence[HeadVerdict], *, show_scale: bool) -> list[plots.Part]:
    layers = sorted({head.layer for head in heads})
    columns = sorted({head.head for head in heads})
    by_head = {(head.layer, head.head): head for head in heads}
    grid = [[by_head[layer, column] for column in columns] for layer in layers]
    excess = [[head.excess for head in row] for row in grid]
    texts = {"text": [[_hover(head) for head in row] for row in grid]}
    cells = plots.heatmap(columns, layers, excess, "excess", low=0, high=1) | plots.TILES
    traces = [cells | texts | plots.hover("%{text}") | {"showscale": show_scale}]
    marked = [head for head in heads if head.detected or head.attends]
    if marked:
        marks = plots.markers(
            [head.head for head in marked],
            [head.layer for head in marked],
            CLASS_COLORS[1],
            symbol=["diamond" if head.detected else "x" for head in marked],
            size=10,
        )
        marks["marker"]["line"] = {"width": 1, "color": "#ffffff"}
        traces.append(marks | plots.NO_HOVER | plots.NO_LEGEND)
    return traces


def _hover(head: HeadVerdict) -> str:
    def number(value: float | str | None) -> str:
        if isinstance(value, str):
            return value
        return "–" if value is None else f"{value:.3g}"

    lines = [
        f"<b>head {head.name}, {head.detector}</b>{' (detected)' if head.detected else ''}",
        f"score {number(head.score)}, null {number(head.null_mean)}, "
        f"uniform {number(head.uniform)}",
        f"p {number(p_cell(head.p_value))}, adjusted {number(p_cell(head.p_adjusted))}, "
        f"q {number(p_cell(head.q_value))}",
    ]
    if head.knockout is not None:
        effect = head.knockout.effect
        lines.append(
            f"knocked out: {number(effect.mean)} of the metric "
            f"({number(effect.low)} to {number(effect.high)}), {in_words(head.causal)}"
        )
    if head.ablation is not None:
        ablation = head.ablation
        lines.append(
            f"ablated: {number(ablation.mean)} ({number(ablation.low)} to {number(ablation.high)})"
        )
    return "<br>".join(lines)


def patterns(
    model: Any, prompts: Prompts, heads: Sequence[HeadVerdict], words: Callable[[int], str]
) -> list[Figure]:
    """Plot attention of detected heads on one prompt, those with the largest excess per kind."""
    chosen = _clearest([head for head in heads if head.detected])
    if not chosen:
        return []
    repeats = bool((prompts.periods > 0).all())
    row = int(prompts.periods.argmin()) if repeats else 0
    attention = _read(model, prompts.tokens[row : row + 1], {head.layer for head in chosen})
    tokens = [html.escape(words(token)) for token in prompts.tokens[row].tolist()]
    step = -(-len(tokens) // MOST_CELLS)
    labels = [f"{position}: {tokens[position]}" for position in range(0, len(tokens), step)]
    which_prompt = "a prompt of tokens that repeat" if repeats else "the first prompt"
    caption = (
        f"Attention of the heads with the largest excess on {which_prompt}; hover for query, key "
        "and attention."
    )
    if step > 1:
        caption += (
            f" Each cell is the largest attention in a block of {step} × {step} tokens, labeled "
            "by its first token."
        )
        attention = {n: _largest_of_blocks(pattern, step) for n, pattern in attention.items()}
    return [_together(chosen, attention, labels, caption)]


def _largest_of_blocks(
    pattern: Float[Tensor, "head query key"], step: int
) -> Float[Tensor, "head query_block key_block"]:
    most, least = (
        sign * torch.nn.functional.max_pool2d(sign * pattern[None], step, ceil_mode=True)[0]
        for sign in (1, -1)
    )
    return torch.where(most >= -least, most, least)  # signed patterns: the largest magnitude


def _clearest(detected: Sequence[HeadVerdict]) -> list[HeadVerdict]:
    """Heads ranked by excess within each detector: all first ranks, then second ranks, ..."""
    ranked = sorted(detected, key=lambda head: -(head.excess or 0.0))
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
    attention: dict[int, Tensor] = {}
    points = pattern_points(model)

    def keeper(layer: int) -> Callable[..., None]:
        def keep(pattern: Tensor, hook: Any) -> None:
            attention[layer] = pattern[0].detach().float().cpu()
            if len(attention) == len(layers):
                raise StopForwardError

        return keep

    run(model, tokens, [(points[layer], keeper(layer)) for layer in sorted(layers)])
    return attention


def _together(
    heads: Sequence[HeadVerdict],
    attention: Mapping[int, Float[Tensor, "head query key"]],
    labels: Sequence[str],
    caption: str,
) -> Figure:
    """Figure of several patterns side by side, with positions labeled by number and token."""
    panels = plots.beside(len(heads), PATTERNS_PER_ROW)
    n_rows = -(-len(heads) // PATTERNS_PER_ROW)
    layout: plots.Part = {
        "annotations": [
            panel.heading(f"{head.name}, {head.detector}")
            for panel, head in zip(panels, heads, strict=True)
        ],
        "height": 60 + n_rows * PATTERN_HEIGHT,
        "margin": {"t": 60},
    }
    data = []
    for panel, head in zip(panels, heads, strict=True):
        values = torch.round(attention[head.layer][head.head], decimals=DIGITS).double().tolist()
        trace = plots.heatmap(
            list(labels),
            list(labels),
            [[round(value, DIGITS) for value in row] for row in values],
            "attention",
            low=0,
            high=1,
        )
        trace |= plots.hover(f"{head.name}: from %{{y}} to %{{x}}<br>attention %{{z}}")
        data.append(trace | panel.trace | {"showscale": panel.number == 0})
        layout |= panel.layout(
            plots.axis("key" if panel.lowest else "", "category") | plots.NO_GRID,
            plots.axis("query" if panel.leftmost else "", "category")
            | plots.NO_GRID
            | plots.DOWNWARD
            | {"showticklabels": panel.leftmost},
        )
    names = ", ".join(head.name for head in heads)
    title = f"Attention of {names}, token by token"
    return Figure(title, caption, data, layout, shows=[head.name for head in heads])
