"""Figures of the sorting study: accuracy by seed, loss curves, metrics along training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, translucent
from interp_toolkit.results import Figure

Values = Mapping[str, Any]
SPREAD = 0.28  # the seeds of an experiment stand beside each other over so much of its place


def accuracy_by_seed(
    experiments: Sequence[tuple[str, Mapping[str, float], Sequence[Values]]],
) -> Figure:
    """Whole lists right, a point a seed, the document's figure as a dash.

    Args:
        experiments: name, the document's shares by test, every seed's values.
    """
    data: list[plots.Part] = []
    for side, test in enumerate(("random", "hard")):
        points = [
            (place + _aside(number, len(seeds)), 100 * values["tests"][test]["lists_right"], values)
            for place, (_, _, seeds) in enumerate(experiments)
            for number, values in enumerate(seeds)
            if test in values["tests"]
        ]
        marks = plots.markers(
            [x for x, _, _ in points],
            [y for _, y, _ in points],
            CLASS_COLORS[side],
            f"{test} lists",
            symbol=CLASS_SYMBOLS[side],
            size=9,
        )
        marks["text"] = [f"seed {values['seed']}" for _, _, values in points]
        data.append(marks | plots.hover("%{text}: %{y:.2f} %", box="%{fullData.name}"))
        data.append(_theirs(experiments, test, side))
    n = len(experiments)
    names = plots.ticks(range(n), [name for name, _, _ in experiments])
    layout = plots.layout(
        names | plots.BARE | {"range": [-0.5, n - 0.5]}, plots.axis("whole lists right (%)")
    )
    caption = (
        "Each point is a seed, tested on 4,000 lists of a kind; the line is the document's one "
        "model. Where points of one experiment fall into two groups, its outcome is a matter of "
        "the seed."
    )
    return Figure("Accuracy by seed", caption, data, layout)


def _theirs(
    experiments: Sequence[tuple[str, Mapping[str, float], Sequence[Values]]], test: str, side: int
) -> plots.Part:
    """A short line at the document's figure of each experiment."""
    x: list[float | None] = []
    y: list[float | None] = []
    for place, (_, theirs, _) in enumerate(experiments):
        if test in theirs:
            x += [place - 0.4, place + 0.4, None]
            y += [100 * theirs[test], 100 * theirs[test], None]
    color = translucent(CLASS_COLORS[side], 0.6)
    line = plots.line(x, y, color, f"document, {test}", dash="dash")
    return line | plots.hover("%{y:.2f} %", box="%{fullData.name}")


def _aside(number: int, n: int) -> float:
    return 0.0 if n == 1 else SPREAD * (2 * number / (n - 1) - 1)


def loss_curves(name: str, theirs: float | None, seeds: Sequence[Values]) -> Figure:
    """The loss along training, a line a seed, on a logarithmic scale."""
    data = [
        plots.line(
            values["curve"]["step"],
            values["curve"]["loss"],
            CLASS_COLORS[0 if _sorts_all(values) else 1],
            f"seed {values['seed']}",
            width=1.5,
        )
        for values in seeds
    ]
    if theirs is not None:
        last = max(values["curve"]["step"][-1] for values in seeds)
        data.append(plots.dashed([0, last], [theirs, theirs], "document's final loss"))
    layout = plots.layout(plots.axis("step"), plots.axis("loss (nats an item)", "log"))
    caption = (
        "The loss of each seed on the batch of that step: blue where the trained model sorts "
        "every test list, orange where not."
    )
    return Figure(f"Loss along training: {name}", caption, data, layout)


def _sorts_all(values: Values) -> bool:
    return all(test["lists_right"] == 1.0 for test in values["tests"].values())
