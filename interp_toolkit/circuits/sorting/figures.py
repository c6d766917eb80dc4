"""Figures of the sorting analysis: weights, attention, criteria against thresholds, training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp_toolkit import plots
from interp_toolkit.circuits.sorting.activations import ListReading
from interp_toolkit.circuits.sorting.criteria import MIN_GREATER, Criterion
from interp_toolkit.circuits.sorting.measures import EvolutionStep
from interp_toolkit.circuits.sorting.weights import WeightTables, shared_part
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL, shade
from interp_toolkit.results import Figure, head_name

MOST_MAPS, PER_ROW = 6, 3  # QK maps per figure and per row of panels
FAINTEST = -10.0  # lower end of the color scale: e^-10 of the best key's attention
MOST_CURVES = 15  # OV curves per figure; with more values, a subset is drawn


def qk_by_item(tables: WeightTables, head: int = 0) -> Figure:
    """Plot QK scores of values against keys for some output items, relative to the best key."""
    n_items = tables.qk.shape[1]
    items: list[int | None] = [*_some(n_items, MOST_MAPS - 1), None]
    panels = plots.beside(len(items), PER_ROW)
    data: list[plots.Part] = []
    layout: plots.Part = {
        "annotations": [
            p.heading("average" if i is None else f"item {i}")
            for p, i in zip(panels, items, strict=True)
        ],
        "height": 90 + 270 * -(-len(items) // PER_ROW),
    }
    for panel, item in zip(panels, items, strict=True):
        scores = tables.average_qk(head) if item is None else tables.qk[head, item]
        queries = list(tables.query_names)
        if item == 0 and tables.first_query is not None:
            scores, queries = scores[:1], [tables.first_query]
        down = plots.axis("query token" if panel.leftmost else "", "category") | plots.DOWNWARD
        layout |= panel.layout(
            plots.axis("key token" if panel.lowest else "", "category") | plots.BARE,
            down | plots.BARE,
        )
        z = plots.rounded(scores - scores.amax(-1, keepdim=True))
        cells = plots.heatmap(tables.source_names, queries, z, "score", low=FAINTEST, high=0)
        cells |= plots.hover("query %{y}, key %{x}<br>%{z} nats below the best")
        cells |= plots.SILENT_HOLES | {"showscale": panel.number == 0}
        data.append(cells | panel.trace)
    caption = (
        "Attention scores from the weights by output item, minus the largest of each row; last "
        "panel: average over items. Filtering for values above the previous one shows as a bright "
        "upper triangle, brightest next to the diagonal; equal attention to all values shows as "
        "a uniform color."
    )
    return Figure(f"QK by position of {head_name(0, head)}", caption, data, layout)


def ov_map(tables: WeightTables, head: int = 0) -> Figure:
    """Plot the effect of each source on the values' logits as a heatmap."""
    ov = tables.ov[head]
    n = ov.shape[1]
    centered = ov - ov.mean(1, keepdim=True)
    size = float(centered[:n].abs().max()) or 1.0
    trace = plots.heatmap(
        tables.query_names,
        tables.source_names,
        plots.rounded(centered),
        "logit",
        low=-size,
        high=size,
    )
    trace |= plots.hover("source %{y}, logit of %{x}<br>%{z}")
    layout = plots.layout(
        plots.axis("logit of", "category") | plots.BARE,
        plots.axis("source token", "category") | plots.BARE | plots.DOWNWARD,
    )
    layout |= {"height": 460}
    caption = (
        "Effect of each source on the logits if it alone is attended to, from the weights, minus "
        "the mean of each row. A head that copies is brightest on the diagonal."
    )
    return Figure(f"OV of {head_name(0, head)}", caption, [trace], layout)


def ov_curves(tables: WeightTables, head: int = 0) -> Figure:
    """Plot OV outputs as curves over the output value: values left, separators right."""
    n = tables.ov.shape[2]
    ov = tables.ov[head] - shared_part(tables.ov[head, :n])
    panels = plots.beside(2, 2)
    titles = [p.heading(t) for p, t in zip(panels, ("values", "separators"), strict=True)]
    layout: plots.Part = {"annotations": titles, "height": 420}
    for panel in panels:
        up = plots.axis("logit, minus the row's mean" if panel.leftmost else "")
        layout |= panel.layout(plots.axis("logit of") | plots.NO_ZERO_LINE, up | plots.NO_ZERO_LINE)
    values = [int(name) for name in tables.query_names]
    data: list[plots.Part] = []
    for row in [*_some(n, MOST_CURVES), *range(n, len(ov))]:
        inner = row < n
        curve = plots.line(
            values,
            plots.rounded(ov[row] - ov[row].mean()),
            shade(row, n) if inner else NEUTRAL,
            tables.source_names[row],
            dash="solid" if inner else ("solid", "dash", "dot", "dashdot")[(row - n) % 4],
        )
        data.append(curve | panels[0 if inner else 1].trace)
    caption = (
        "Effect of each source by output value, minus a vector common to all sources, which "
        "changes nothing that the model computes. Algorithm 2 sums min(0, i − x) over the list: "
        "each value's curve then has a kink at the value, with the same change of slope, and a "
        "separator's curve is a line."
    )
    return Figure(f"OV curves of {head_name(0, head)}", caption, data, layout)


def pattern(example: ListReading, head: int = 0, row: int = 0) -> Figure:
    """Plot attention at the position of each output item of one list, keys sorted by value."""
    layout, length = example.layout, int(example.lists.lengths[row])
    start = len(layout.before)
    tokens = example.rows.tokens[row].tolist()
    order = sorted(range(start, start + length), key=lambda p: tokens[p])
    order += [p for p in range(len(tokens)) if not start <= p < start + length]
    names = [layout.token_name(tokens[p]) for p in order]
    answers = [layout.values[v] for v in example.rows.answer[row, :length].tolist()]
    trace = plots.heatmap(
        range(len(order)),
        range(length),
        plots.rounded(example.pattern[row, head, :length][:, order]),
        "attention",
        low=0,
    )
    trace |= plots.hover(
        "item %{y} (%{customdata[2]}), key %{customdata[0]} at position %{customdata[1]}<br>"
        "attention %{z}",
        [[[name, p, answer] for name, p in zip(names, order, strict=True)] for answer in answers],
    )
    key_ticks = plots.ticks(range(len(order)), names) | {"tickmode": "array"}
    axes = plots.layout(
        plots.axis("key token") | plots.NO_ZERO_LINE | key_ticks,
        plots.axis("output item") | plots.NO_ZERO_LINE | plots.DOWNWARD | {"dtick": 1},
    )
    text = " ".join(map(str, tokens[start : start + length]))
    caption = (
        f"Attention from each output item on the list {text}, whose items are sorted here; "
        "further right: all other tokens of the prompt. Keys hidden by the causal mask are 0."
    )
    title = f"Pattern of {head_name(0, head)}"
    return Figure(title, caption, [trace], axes | {"height": 420})


def separator_lines(
    measured: Float[np.ndarray, "head item"] | None,
    from_weights: Float[Tensor, "head separator item"],
    names: Sequence[str],
) -> Figure:
    """Plot attention to separators over attention to values, by output item."""
    items = list(range(from_weights.shape[2]))
    data: list[plots.Part] = []
    for head in range(len(from_weights)):
        label = f"{head_name(0, head)}: " if len(from_weights) > 1 else ""
        if measured is not None:
            y, name = plots.rounded(measured[head]), f"{label}{names[0]}, from attention"
            data.append(plots.line(items, y, shade(head, len(from_weights)), name) | plots.marked())
        for number, name in enumerate(names):
            curve = plots.line(
                items,
                plots.rounded(from_weights[head, number]),
                NEUTRAL,
                f"{label}{name}, from weights",
                width=1.5,
                dash=("dash", "dot", "dashdot", "longdash")[number % 4],
            )
            data.append(curve)
    layout = plots.layout(
        plots.axis("output item k") | plots.NO_ZERO_LINE | _whole(len(items)),
        plots.axis("attention relative to values") | plots.NO_ZERO_LINE | plots.FROM_ZERO,
    )
    caption = (
        "Attention to a separator relative to all values except the largest. Algorithm 2 needs at "
        "least one ratio that rises linearly with the output item (item 0 may differ). Models "
        "without it can show this too, so it is no evidence alone. From weights: unweighted mean "
        "over all possible previous tokens."
    )
    return Figure("Attention to separators", caption, data, layout)


def logit_line(ratio: Float[np.ndarray, " item"], r2: Float[np.ndarray, " item"]) -> Figure:
    """Plot γ/β of the logits and R² of the fit against the output item."""
    items = list(range(len(ratio)))
    above = plots.Panel(0, (0.0, 1.0), (0.42, 1.0))
    below = plots.Panel(1, (0.0, 1.0), (0.0, 0.28))
    ratios = plots.rounded(ratio)
    data = [
        plots.dashed(items, [k + 0.5 for k in items], "k + 0.5"),
        plots.markers(items, ratios, CLASS_COLORS[1], "γ/β", symbol="diamond", size=10),
        plots.bars(items, plots.rounded(r2), CLASS_COLORS[0], "R² of the fit") | below.trace,
    ]
    by_item = plots.NO_ZERO_LINE | _whole(len(items))
    layout = above.layout(plots.axis("") | by_item, plots.axis("γ/β") | plots.NO_ZERO_LINE)
    layout |= below.layout(
        plots.axis("output item k") | by_item,
        plots.axis("R²") | plots.NO_ZERO_LINE | {"range": [0, 1.02]},
    )
    layout |= {"height": 460}
    caption = (
        "The logits of item k, fitted by β f(x) + γ x with f(x) = Σ min(0, aᵢ − x). Algorithm 2 "
        "has γ/β on the dashed line; this counts only as far as the fit explains the logits (bars)."
    )
    return Figure("Logits as a sum of piecewise-linear functions", caption, data, layout)


def _whole(n: int) -> plots.Part:
    """Integer ticks of an axis of items."""
    return {"dtick": 1 if n <= 20 else max(n // 10, 5)}


def _some(n: int, most: int) -> list[int]:
    """At most `most` evenly spaced integers from 0 to n - 1, both ends included."""
    if n <= most:
        return list(range(n))
    return sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


LOW, HIGH = -1.0, 2.0  # ends of the criteria's scale; values beyond are drawn at the end

#: curves against the training step: metric, label, index of the algorithm it supports
CURVES = (
    ("items_right", "items right", None),
    ("above_lift", "attention above the previous", 0),
    ("smallest_lift", "smallest first", 0),
    ("follows_token", "output follows a swapped token", 0),
    ("follows_position", "a swapped token leaves the output", 1),
    ("copy_score", "copy score", 0),
    ("logit_fit_r2", "logits as β f + γ x, R²", 1),
    ("kink_r2", "kink at the value, R²", 1),
)
DASHES = ("solid", "dash", "dot", "dashdot")


def criteria_scale(criteria: Sequence[Criterion]) -> Figure:
    """Plot all criteria on scales between their thresholds, with weight-shuffled models."""
    names = [_name(criterion) for criterion in criteria]
    data: list[plots.Part] = []
    for side, algorithm in enumerate(dict.fromkeys(criterion.algorithm for criterion in criteria)):
        own = [i for i, criterion in enumerate(criteria) if criterion.algorithm == algorithm]
        with_value = [i for i in own if criteria[i].value is not None]
        measured = plots.markers(
            [_placed(criteria[i], criteria[i].value) for i in with_value],
            [names[i] for i in with_value],
            CLASS_COLORS[side],
            f"algorithm {1 if algorithm == MIN_GREATER else 2}",
            symbol=CLASS_SYMBOLS[side],
            size=12,
        )
        words = plots.hover(
            "%{y}<br>%{customdata[0]}; weak %{customdata[2]}, strong %{customdata[3]}<br>"
            "weight-shuffled %{customdata[1]}",
            [
                ["–" if v is None else f"{v:.3g}" for v in (c.value, c.null, c.weak, c.strong)]
                for c in (criteria[i] for i in with_value)
            ],
        )
        data.append(measured | words)
    nulls = [i for i, criterion in enumerate(criteria) if criterion.null is not None]
    if nulls:
        strokes = plots.strokes(
            [_placed(criteria[i], criteria[i].null) for i in nulls],
            [names[i] for i in nulls],
            "line-ns",
            "weight-shuffled, the nearest",
            size=14,
        )
        data.append(strokes | plots.NO_HOVER)
    scale = plots.axis("threshold") | plots.NO_ZERO_LINE | plots.ticks([0, 1], ["weak", "strong"])
    order = {"categoryorder": "array", "categoryarray": names[::-1]}
    layout = plots.layout(
        scale | {"range": [LOW - 0.1, HIGH + 0.1], "tickmode": "array"},
        plots.axis("", "category") | plots.BARE | order,
    )
    layout |= {"height": 120 + 34 * len(criteria)}
    caption = (
        "Each criterion of the two algorithms on its own scale from its weak to its strong "
        "threshold: right of strong, it is met; left of weak, it is not. Strokes: the nearest "
        "weight-shuffled models."
    )
    return Figure("Criteria of the two algorithms", caption, data, layout)


def evolution(steps: Sequence[EvolutionStep]) -> Figure:
    """Plot the criteria along training, one curve per criterion and seed."""
    seeds = sorted({step.seed for step in steps})
    first = min((step.step for step in steps if step.step > 0), default=1)
    data: list[plots.Part] = []
    for number, (metric, name, side) in enumerate(CURVES):
        color, dash = NEUTRAL if side is None else CLASS_COLORS[side], DASHES[number % len(DASHES)]
        for seed in seeds:
            own = [s for s in steps if s.seed == seed and s.metrics.get(metric) is not None]
            if not own:
                continue
            x = [s.step or first / 2 for s in own]
            y = plots.rounded([s.metrics[metric] for s in own])
            curve = plots.line(x, y, color, name, dash=dash) | plots.marked(size=4)
            words = plots.hover(
                f"{name}<br>step %{{customdata[0]}}, seed %{{customdata[1]}}: %{{y}}",
                [[s.step, s.seed] for s in own],
            )
            data.append(curve | words | plots.grouped(metric, listed=seed == seeds[0]))
    layout = plots.layout(
        plots.axis("step", "log") | plots.NO_ZERO_LINE,
        plots.axis("fraction, or R²") | plots.NO_ZERO_LINE,
    )
    layout |= {"height": 460, "margin": {"t": 96}}
    caption = (
        "Metrics behind the status at checkpoints along training"
        + (f", of {len(seeds)} seeds" if len(seeds) > 1 else "")
        + ". Blue: criteria of algorithm 1; orange: of algorithm 2"
        + (f". Step 0 is drawn at {first / 2:g}." if any(s.step == 0 for s in steps) else ".")
    )
    return Figure("Evolution along training", caption, data, layout)


def qk_along_training(steps: Sequence[EvolutionStep]) -> Figure:
    """Plot average QK maps of the first seed at some checkpoints, relative to the best key."""
    seed = min(step.seed for step in steps)
    own = [step for step in steps if step.seed == seed and step.qk]
    count = min(MOST_MAPS, len(own))
    chosen = [own[i] for i in sorted({round(i) for i in np.linspace(0, len(own) - 1, count)})]
    panels = plots.beside(len(chosen), PER_ROW)
    titles = [p.heading(f"step {s.step}") for p, s in zip(panels, chosen, strict=True)]
    layout: plots.Part = {"annotations": titles, "height": 90 + 270 * -(-len(chosen) // PER_ROW)}
    data: list[plots.Part] = []
    for panel, step in zip(panels, chosen, strict=True):
        scores = np.array(step.qk)
        z = plots.rounded(scores - scores.max(1, keepdims=True))
        cells = plots.heatmap(None, None, z, "score", low=FAINTEST, high=0)
        cells |= plots.hover("query %{y}, key %{x}<br>%{z} nats below the best")
        data.append(cells | {"showscale": panel.number == 0} | panel.trace)
        down = plots.axis("previous value" if panel.leftmost else "") | plots.DOWNWARD
        across = plots.axis("key value" if panel.lowest else "")
        layout |= panel.layout(across | plots.BARE, down | plots.BARE)
    caption = (
        "Attention scores from the weights of head 0, averaged over output items, minus the "
        "largest of each row. An upper triangle is algorithm 1's filter; a uniform color is "
        "algorithm 2's equal attention."
    )
    return Figure("QK along training", caption, data, layout)


def _name(criterion: Criterion) -> str:
    """Label of the criterion with its algorithm's number, which makes labels unique."""
    return f"{criterion.says} ({1 if criterion.algorithm == MIN_GREATER else 2})"


def _placed(criterion: Criterion, value: float | None) -> float | None:
    """Position of a value on the criterion's scale: 0 at weak, 1 at strong."""
    if value is None:
        return None
    share = (value - criterion.weak) / (criterion.strong - criterion.weak)
    return round(min(max(share, LOW), HIGH), 4)
