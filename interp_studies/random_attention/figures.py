"""Figures of the tables: the paper's values and ours as bars, or as lines along a size."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from interp_studies.random_attention.cells import Entry
from interp_toolkit import plots
from interp_toolkit.plots import (
    CLASS_COLORS,
    NEUTRAL,
    shade,
    translucent,
)
from interp_toolkit.results import Figure

SYMBOLS = ("circle", "diamond", "square", "cross", "x")
LABELS = {"share": "accuracy (%)", "nats": "log perplexity (nats a token)"}

Entries = Sequence[Entry]


def bars(entries: Entries, title: str = "Theirs beside ours") -> Figure:
    """Our values as bars with the range over seeds, the paper's as marks."""
    names = [[e.cell.group for e in entries], [e.cell.member for e in entries]]
    scales = [_scale(entry) for entry in entries]
    medians = [k * e.median for k, e in zip(scales, entries, strict=True)]
    ours = plots.bars(names, medians, translucent(CLASS_COLORS[0], 0.6), "ours")
    ours |= {"error_y": _spread(entries)} | plots.hover("%{x}: %{y:.2f}", box="ours")
    known = [i for i, entry in enumerate(entries) if entry.cell.theirs is not None]
    theirs = plots.markers(
        [[axis[i] for i in known] for axis in names],
        [scales[i] * (entries[i].cell.theirs or 0.0) for i in known],
        CLASS_COLORS[1],
        "theirs",
        symbol="diamond",
        size=10,
    )
    theirs |= plots.hover("%{x}: %{y:.2f}", box="theirs")
    layout = plots.layout({"showgrid": False}, _values(entries))
    caption = "Bars: the median over seeds here, with the range over seeds; marks: the source's."
    return Figure(title, caption, [ours, theirs] if known else [ours], layout)


def lines(
    entries: Entries,
    size: Callable[[Entry], float],
    line: Callable[[Entry], str],
    *,
    title: str,
    axis: str,
    caption: str,
    logarithmic: bool = False,
    beside: Sequence[tuple[str, Sequence[float], Sequence[float]]] = (),
) -> Figure:
    """Our values along a size, the paper's dashed, further lines in gray.

    Args:
        entries: entries of the table.
        size: position of an entry on the axis.
        line: name of an entry's line.
        title: title of the figure.
        axis: title of the axis of sizes.
        caption: caption of the figure.
        logarithmic: whether the axis of sizes is logarithmic.
        beside: name, sizes and values of further lines.
    """
    names = list(dict.fromkeys(map(line, entries)))
    data: list[plots.Part] = []
    for number, name in enumerate(names):
        members = sorted((e for e in entries if line(e) == name), key=size)
        color, symbol = shade(number, len(names)), SYMBOLS[number % len(SYMBOLS)]
        medians = [_scale(e) * e.median for e in members]
        ours = plots.line([size(e) for e in members], medians, color, name)
        data.append(ours | plots.marked(symbol, 8, color) | {"error_y": _spread(members)})
        known = [e for e in members if e.cell.theirs is not None]
        if known:
            x, y = [size(e) for e in known], [_scale(e) * (e.cell.theirs or 0.0) for e in known]
            theirs = plots.line(x, y, color, f"{name}, theirs", width=1.5, dash="dash")
            data.append(theirs | plots.marked(f"{symbol}-open", 8, color))
    data += [
        plots.line(x, [100 * share for share in y], NEUTRAL, name, width=1.5, dash="dot")
        for name, x, y in beside
    ]
    sizes = sorted({size(entry) for entry in entries})
    across = plots.axis(axis, "log" if logarithmic else "linear")
    across |= plots.ticks(sizes, [f"{value:g}" for value in sizes])
    layout = plots.layout(across, _values(entries))
    return Figure(title, caption, data, layout)


def ranged(
    x: Sequence[int], seeds: Sequence[Sequence[float]], color: str, name: str, symbol: str
) -> plots.Part:
    """A line of medians over seeds with their range."""
    medians = [statistics.median(values) for values in seeds]
    above = [max(values) - m for values, m in zip(seeds, medians, strict=True)]
    below = [m - min(values) for values, m in zip(seeds, medians, strict=True)]
    line = plots.line(x, medians, color, name) | plots.marked(symbol, 7)
    return line | {"error_y": plots.spread(above, below)}


def _scale(entry: Entry) -> float:
    return 100.0 if entry.cell.unit == "share" else 1.0


def _spread(entries: Entries) -> plots.Part:
    """Error bars from the lowest to the highest seed."""
    return plots.spread(
        [_scale(e) * (max(e.values) - e.median) for e in entries],
        [_scale(e) * (e.median - min(e.values)) for e in entries],
    )


def _values(entries: Entries) -> plots.Part:
    """The axis of the measured values."""
    return plots.axis(LABELS[entries[0].cell.unit]) | plots.FROM_ZERO
