"""Figures of what a sorting verdict rests on: the marks against their thresholds, and training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.sorting.criteria import MIN_GREATER, Criterion
from interp_toolkit.circuits.sorting.evolution import EvolutionStep
from interp_toolkit.circuits.sorting.figures import FAINTEST, MOST_MAPS, PER_ROW
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Figure

LOW, HIGH = -1.0, 2.0  # of the marks' scale; what lies beyond is drawn at the end

#: drawn against the step: the metric, its name, and of which algorithm it is a mark
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


def mark_scale(marks: Sequence[Criterion]) -> Figure:
    """Every mark between its thresholds, and what re-initialised models have."""
    names = [_name(mark) for mark in marks]
    data: list[plots.Part] = []
    for side, algorithm in enumerate(dict.fromkeys(mark.algorithm for mark in marks)):
        mine = [i for i, mark in enumerate(marks) if mark.algorithm == algorithm]
        known = [i for i in mine if marks[i].value is not None]
        measured = plots.markers(
            [_placed(marks[i], marks[i].value) for i in known],
            [names[i] for i in known],
            CLASS_COLORS[side],
            f"algorithm {1 if algorithm == MIN_GREATER else 2}",
            symbol=CLASS_SYMBOLS[side],
            size=12,
        )
        words = plots.hover(
            "%{y}<br>%{customdata[0]}; weak %{customdata[2]}, strong %{customdata[3]}<br>"
            "re-initialised %{customdata[1]}",
            [[_short(v) for v in _raw(marks[i])] for i in known],
        )
        data.append(measured | words)
    nulls = [i for i, mark in enumerate(marks) if mark.null is not None]
    if nulls:
        strokes = plots.strokes(
            [_placed(marks[i], marks[i].null) for i in nulls],
            [names[i] for i in nulls],
            "line-ns",
            "re-initialised, the nearest",
            size=14,
        )
        data.append(strokes | plots.NO_HOVER)
    scale = plots.axis("threshold") | plots.NO_ZERO_LINE | plots.ticks([0, 1], ["weak", "strong"])
    order = {"categoryorder": "array", "categoryarray": names[::-1]}
    layout = plots.layout(
        scale | {"range": [LOW - 0.1, HIGH + 0.1], "tickmode": "array"},
        plots.axis("", "category") | plots.BARE | order,
    )
    layout |= {"height": 120 + 34 * len(marks)}
    caption = (
        "Each mark of the two algorithms on a scale of its own, from its weak to its strong "
        "threshold: right of strong, the mark is there; left of weak, it is not. Strokes are the "
        "re-initialised models that come nearest."
    )
    return Figure("Marks of the two algorithms", caption, data, layout)


def evolution(steps: Sequence[EvolutionStep]) -> Figure:
    """The marks along training, a curve for each and each seed."""
    seeds = sorted({step.seed for step in steps})
    first = min((step.step for step in steps if step.step > 0), default=1)
    data: list[plots.Part] = []
    for number, (metric, name, side) in enumerate(CURVES):
        color, dash = NEUTRAL if side is None else CLASS_COLORS[side], DASHES[number % len(DASHES)]
        for seed in seeds:
            mine = [s for s in steps if s.seed == seed and s.metrics.get(metric) is not None]
            if not mine:
                continue
            x = [s.step or first / 2 for s in mine]
            y = plots.rounded([s.metrics[metric] for s in mine])
            curve = plots.line(x, y, color, name, dash=dash) | plots.marked(size=4)
            words = plots.hover(
                f"{name}<br>step %{{customdata[0]}}, seed %{{customdata[1]}}: %{{y}}",
                [[s.step, s.seed] for s in mine],
            )
            data.append(curve | words | plots.grouped(metric, listed=seed == seeds[0]))
    layout = plots.layout(
        plots.axis("step", "log") | plots.NO_ZERO_LINE,
        plots.axis("share, or R²") | plots.NO_ZERO_LINE,
    )
    layout |= {"height": 460, "margin": {"t": 96}}
    caption = (
        "The numbers behind the verdict at checkpoints along training"
        + (f", of {len(seeds)} seeds" if len(seeds) > 1 else "")
        + ". Blue: marks of algorithm 1; orange: of algorithm 2"
        + (f". Step 0 is drawn at {first / 2:g}." if any(s.step == 0 for s in steps) else ".")
    )
    return Figure("Evolution along training", caption, data, layout)


def qk_along_training(steps: Sequence[EvolutionStep]) -> Figure:
    """Average QK maps of the first seed at some checkpoints, each row's best key at 0."""
    seed = min(step.seed for step in steps)
    mine = [step for step in steps if step.seed == seed and step.qk]
    count = min(MOST_MAPS, len(mine))
    chosen = [mine[i] for i in sorted({round(i) for i in np.linspace(0, len(mine) - 1, count)})]
    places = plots.beside(len(chosen), PER_ROW)
    titles = [p.heading(f"step {s.step}") for p, s in zip(places, chosen, strict=True)]
    layout: plots.Part = {"annotations": titles, "height": 90 + 270 * -(-len(chosen) // PER_ROW)}
    data: list[plots.Part] = []
    for place, step in zip(places, chosen, strict=True):
        scores = np.array(step.qk)
        z = plots.rounded(scores - scores.max(1, keepdims=True))
        cells = plots.heatmap(None, None, z, "score", low=FAINTEST, high=0)
        cells |= plots.hover("query %{y}, key %{x}<br>%{z} nats below the best")
        data.append(cells | {"showscale": place.number == 0} | place.trace)
        down = plots.axis("previous value" if place.leftmost else "") | plots.DOWNWARD
        across = plots.axis("key value" if place.lowest else "")
        layout |= place.layout(across | plots.BARE, down | plots.BARE)
    caption = (
        "From the weights of head 0, averaged over output items, each row less its largest. An "
        "upper triangle is algorithm 1's filter; one colour is algorithm 2's equal attention."
    )
    return Figure("QK along training", caption, data, layout)


def _name(mark: Criterion) -> str:
    """What a mark says, with its algorithm, as two algorithms can have one of the same metric."""
    return f"{mark.says} ({1 if mark.algorithm == MIN_GREATER else 2})"


def _placed(mark: Criterion, value: float | None) -> float | None:
    """Where a value lies between the thresholds: 0 at weak, 1 at strong."""
    if value is None:
        return None
    share = (value - mark.weak) / (mark.strong - mark.weak)
    return round(min(max(share, LOW), HIGH), 4)


def _raw(mark: Criterion) -> tuple[float | None, ...]:
    return mark.value, mark.null, mark.weak, mark.strong


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
