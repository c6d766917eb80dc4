"""Figures of the tables: theirs beside ours as bars, or along a size as lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interp_toolkit.palette import CLASS_COLORS, NEUTRAL, shade, translucent
from interp_toolkit.results import Figure
from interp_toolkit.studies.random_attention.entries import Entry

SYMBOLS = ("circle", "diamond", "square", "cross", "x")
LABELS = {"share": "accuracy (%)", "nats": "log perplexity (nats a token)"}

Entries = Sequence[Entry]


def bars(entries: Entries, title: str = "Theirs beside ours") -> Figure:
    """Ours as bars with the range over seeds, the source's as marks."""
    names = [[e.cell.group for e in entries], [e.cell.member for e in entries]]
    scales = [_scale(entry) for entry in entries]
    ours: dict[str, Any] = {
        "type": "bar",
        "name": "ours",
        "x": names,
        "y": [k * e.median for k, e in zip(scales, entries, strict=True)],
        "error_y": _spread(entries),
        "marker": {"color": translucent(CLASS_COLORS[0], 0.6)},
        "hovertemplate": "%{x}: %{y:.2f}<extra>ours</extra>",
    }
    known = [i for i, entry in enumerate(entries) if entry.cell.theirs is not None]
    theirs: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "theirs",
        "x": [[axis[i] for i in known] for axis in names],
        "y": [scales[i] * (entries[i].cell.theirs or 0.0) for i in known],
        "marker": {"color": CLASS_COLORS[1], "symbol": "diamond", "size": 10},
        "hovertemplate": "%{x}: %{y:.2f}<extra>theirs</extra>",
    }
    layout = {
        "xaxis": {"showgrid": False},
        "yaxis": {"title": {"text": LABELS[entries[0].cell.unit]}, "rangemode": "tozero"},
    }
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
    """Ours against a size, a line each; theirs dashed; further lines in grey.

    Args:
        entries: of the table.
        size: where on the axis an entry lies.
        line: which line it is of.
        title: of the figure.
        axis: what sizes are of.
        caption: of the figure.
        logarithmic: whether sizes stand on a logarithmic axis.
        beside: name, sizes and shares of further lines.
    """
    names = list(dict.fromkeys(map(line, entries)))
    data: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        mine = sorted((e for e in entries if line(e) == name), key=size)
        look = {"color": shade(place, len(names))}
        mark = {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8, **look}
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [size(e) for e in mine],
                "y": [_scale(e) * e.median for e in mine],
                "error_y": _spread(mine),
                "line": {"width": 2, **look},
                "marker": mark,
            }
        )
        known = [e for e in mine if e.cell.theirs is not None]
        if known:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{name}, theirs",
                    "x": [size(e) for e in known],
                    "y": [_scale(e) * (e.cell.theirs or 0.0) for e in known],
                    "line": {"width": 1.5, "dash": "dash", **look},
                    "marker": {**mark, "symbol": f"{mark['symbol']}-open"},
                }
            )
    data += [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": list(x),
            "y": [100 * share for share in y],
            "line": {"color": NEUTRAL, "dash": "dot", "width": 1.5},
        }
        for name, x, y in beside
    ]
    sizes = sorted({size(entry) for entry in entries})
    layout = {
        "xaxis": {
            "title": {"text": axis},
            "type": "log" if logarithmic else "linear",
            "tickvals": sizes,
            "ticktext": [f"{value:g}" for value in sizes],
        },
        "yaxis": {"title": {"text": LABELS[entries[0].cell.unit]}, "rangemode": "tozero"},
    }
    return Figure(title, caption, data, layout)


def _scale(entry: Entry) -> float:
    return 100.0 if entry.cell.unit == "share" else 1.0


def _spread(entries: Entries) -> dict[str, Any]:
    """From the median to the highest and to the lowest seed."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_scale(e) * (max(e.values) - e.median) for e in entries],
        "arrayminus": [_scale(e) * (e.median - min(e.values)) for e in entries],
    }
