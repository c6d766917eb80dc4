"""Figures of a sweep: the compared figure against each setting, one line per variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interp_studies.sweep.file import VARIANT
from interp_toolkit import plots
from interp_toolkit.plots import shade
from interp_toolkit.results import Figure
from interp_toolkit.stats import COVERAGE

WIDE = 8  # a setting whose largest value is so many times its smallest has a logarithmic axis
MOST = {"higher": "highest", "lower": "lowest"}


class Mean(NamedTuple):
    """The mean over seeds at a point of the grid.

    The interval is None if the point has one seed.
    """

    at: Mapping[str, Any]
    value: float
    interval: tuple[float, float] | None


class _Placed(NamedTuple):
    """A mean in the figure's units, with its position on the axis."""

    x: Any
    y: float
    interval: tuple[float, float]


def sweep_figures(name: str, unit: str, better: str, points: Sequence[Mean]) -> list[Figure]:
    """One figure for each setting that has two or more values.

    Args:
        name: name of the measured figure.
        unit: unit of the measured figure; a "share" is plotted in percent.
        better: "higher" or "lower".
        points: means at the points of the grid.
    """
    keys = list(points[0].at) if points else []
    varied = [key for key in keys if len({str(point.at[key]) for point in points}) > 1]
    shown = [key for key in varied if key != VARIANT] or varied
    return [_figure(key, name, unit, better, points) for key in shown]


def _figure(key: str, name: str, unit: str, better: str, points: Sequence[Mean]) -> Figure:
    scale, label = (100.0, f"{name} (%)") if unit == "share" else (1.0, name)
    variants = sorted({str(point.at[VARIANT]) for point in points if VARIANT in point.at})
    lines = [""] if key == VARIANT or not variants else variants
    data: list[plots.Part] = []
    for place, line in enumerate(lines):
        mine = [
            _placed(point, key, scale)
            for point in points
            if not line or str(point.at[VARIANT]) == line
        ]
        data += _traces(line or name, mine, better, shade(place, len(lines)), place)
    numeric = [point.at[key] for point in points if _is_number(point.at[key])]
    axis = "linear" if len(numeric) == len(points) else "category"
    if axis == "linear" and min(numeric) > 0 and max(numeric) >= WIDE * min(numeric):
        axis = "log"
    layout = plots.layout(plots.axis(key, axis), plots.axis(label))
    caption = (
        f"{_of_seeds(points)}; lines join the {MOST[better]} at each {key}, whatever the other "
        "settings. The best of many is likely too good."
    )
    return Figure(f"{name[0].upper()}{name[1:]} against {key}", caption, data, layout)


def _placed(point: Mean, key: str, scale: float) -> _Placed:
    x, y = point.at[key], scale * point.value
    low, high = point.interval or (point.value, point.value)
    return _Placed(x if _is_number(x) else str(x), y, (scale * low, scale * high))


def _of_seeds(points: Sequence[Mean]) -> str:
    """The caption: the number of seeds per point, and what the error bars are."""
    if not any(point.interval for point in points):
        return "Each point is one point of the grid, with one seed"
    without = "" if all(point.interval for point in points) else "; one without a bar is one seed"
    return (
        "Each point is the mean over seeds at one point of the grid, its bar the "
        f"{100 * COVERAGE:g} % interval{without}"
    )


def _traces(
    line: str, points: Sequence[_Placed], better: str, color: str, place: int
) -> list[plots.Part]:
    """Markers at all points, and a line through the best point at each position on the axis."""
    best: dict[Any, float] = {}
    pick = max if better == "higher" else min
    for x, y, _ in points:
        best[x] = pick(best.get(x, y), y)
    ordered = sorted(best.items()) if all(_is_number(x) for x in best) else list(best.items())
    symbol = plots.symbol(place)
    xs, ys = [point.x for point in points], [point.y for point in points]
    every = plots.markers(xs, ys, color, line, symbol=symbol, size=7) | _bars(points)
    every["marker"]["opacity"] = 0.5
    through = plots.line([x for x, _ in ordered], [y for _, y in ordered], color, line)
    return [
        every | plots.grouped(line, listed=False),
        through | plots.marked(symbol, 8, color) | {"legendgroup": line},
    ]


def _bars(points: Sequence[_Placed]) -> plots.Part:
    above = [high - y for _, y, (_, high) in points]
    below = [y - low for _, y, (low, _) in points]
    return {"error_y": plots.spread(above, below)} if any(above + below) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
