"""Figures of a sweep: what is measured against each setting of the grid, a line a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit.palette import shade
from interp_toolkit.results import Figure
from interp_toolkit.studies.sweep_file import VARIANT

WIDE = 8  # a setting whose largest value is so many times its smallest has a logarithmic axis
MOST = {"higher": "highest", "lower": "lowest"}
SYMBOLS = ("circle", "diamond", "square", "cross", "x", "triangle-up")

Means = Sequence[tuple[Mapping[str, Any], float]]


def sweep_figures(name: str, unit: str, better: str, points: Means) -> list[Figure]:
    """One for each setting that has two values or more.

    Args:
        name: what is measured.
        unit: a "share" is drawn in percent.
        better: "higher" or "lower".
        points: a point's settings and its mean.
    """
    keys = list(points[0][0]) if points else []
    varied = [key for key in keys if len({str(at[key]) for at, _ in points}) > 1]
    shown = [key for key in varied if key != VARIANT] or varied
    return [_figure(key, name, unit, better, points) for key in shown]


def _figure(key: str, name: str, unit: str, better: str, points: Means) -> Figure:
    scale, label = (100.0, f"{name} (%)") if unit == "share" else (1.0, name)
    variants = sorted({str(at[VARIANT]) for at, _ in points if VARIANT in at})
    lines = [""] if key == VARIANT or not variants else variants
    data: list[dict[str, Any]] = []
    for place, line in enumerate(lines):
        mine = [(at[key], scale * y) for at, y in points if not line or str(at[VARIANT]) == line]
        data += _traces(line or name, mine, better, shade(place, len(lines)), place)
    numeric = [at[key] for at, _ in points if _is_number(at[key])]
    axis = "linear" if len(numeric) == len(points) else "category"
    if axis == "linear" and min(numeric) > 0 and max(numeric) >= WIDE * min(numeric):
        axis = "log"
    layout = {
        "xaxis": {"title": {"text": key}, "type": axis},
        "yaxis": {"title": {"text": label}},
    }
    caption = (
        "Each point is the mean over seeds at one point of the grid; lines join the "
        f"{MOST[better]} at each {key}, whatever the other settings. The best of "
        "many is likely too good."
    )
    return Figure(f"{name[0].upper()}{name[1:]} against {key}", caption, data, layout)


def _traces(
    line: str, points: Sequence[tuple[Any, float]], better: str, color: str, place: int
) -> list[dict[str, Any]]:
    """All points, and a line through the best at each place."""
    plain = [(x if _is_number(x) else str(x), y) for x, y in points]
    best: dict[Any, float] = {}
    pick = max if better == "higher" else min
    for x, y in plain:
        best[x] = pick(best.get(x, y), y)
    ordered = sorted(best.items()) if all(_is_number(x) for x in best) else list(best.items())
    symbol = SYMBOLS[place % len(SYMBOLS)]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": line,
            "legendgroup": line,
            "showlegend": False,
            "x": [x for x, _ in plain],
            "y": [y for _, y in plain],
            "marker": {"color": color, "symbol": symbol, "size": 7, "opacity": 0.5},
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": line,
            "legendgroup": line,
            "x": [x for x, _ in ordered],
            "y": [y for _, y in ordered],
            "line": {"color": color, "width": 2},
            "marker": {"color": color, "symbol": symbol, "size": 8},
        },
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
