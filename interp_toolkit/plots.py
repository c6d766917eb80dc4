"""Parts of figures as plain plotly data: colors, traces, axes, layouts, panels, rounded numbers.

The colors are the same in every analysis and readable on light and dark paper. Two classes differ
in color and in marker shape. Their colors are near Okabe & Ito's blue and vermillion, which remain
distinguishable in every common form of color blindness, with a contrast of at least 3.5 to 1
against both pages of the HTML report. Figures use them as literal values; the report's theme
changes only the paper, font, grid and axes.

Traces, axes and layouts are dictionaries; `|` combines the results of these functions:

    line(steps, losses, CLASS_COLORS[0], "loss") | hover("step %{x}: %{y:.3g}")
    layout(axis("step"), axis("loss (nats)", "log") | FROM_ZERO) | {"height": 460}

Values are sequences, arrays or tensors. An optional argument that is None is left to plotly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: of the false class and of the true class
CLASS_COLORS = ("#1f7fc0", "#d95f0e")
CLASS_SYMBOLS = ("circle", "diamond")  # known to plotly's 2-D and 3-D traces alike
#: of everything that is neither class: separating lines, reference marks, null distributions
NEUTRAL = "#7d8590"


def translucent(color: str, alpha: float = 0.16) -> str:
    """A `#rrggbb` color as CSS `rgba(...)`: for filled hulls and bands behind the points."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha:g})"


def shade(index: int, n: int) -> str:
    """The color of item `index` of n ordered items, between the two class colors."""
    share = index / max(1, n - 1)
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in CLASS_COLORS]
    mixed = [round(a + share * (b - a)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


Part = dict[str, Any]  # of a figure, with plotly's keys
Values = Any  # numbers or names: an iterable, an array or a tensor

# Traces.
NO_HOVER: Part = {"hoverinfo": "skip"}
NO_LEGEND: Part = {"showlegend": False}
SILENT_HOLES: Part = {"hoverongaps": False}  # no hover text on cells without a number
TILES: Part = {"xgap": 1, "ygap": 1, **SILENT_HOLES}  # gaps between the cells of a heat map
# Axes.
FROM_ZERO: Part = {"rangemode": "tozero"}
DOWNWARD: Part = {"autorange": "reversed"}
NO_GRID: Part = {"showgrid": False}
NO_ZERO_LINE: Part = {"zeroline": False}
BARE: Part = NO_GRID | NO_ZERO_LINE

SYMBOLS = ("circle", "diamond", "square", "cross", "x", "triangle-up")
GAP = 0.09  # between panels, as a fraction of the figure's width
SHARE = 0.72  # of a row's height for panels; the rest is for headings and ticks


def line(
    x: Values,
    y: Values,
    color: str,
    name: str | None = None,
    *,
    width: float = 2,
    dash: str | None = None,
) -> Part:
    """A line through the points (x, y)."""
    look = _set_only(color=color, width=width, dash=dash)
    return _scatter("lines", x, y, name) | {"line": look}


def dashed(x: Values, y: Values, name: str) -> Part:
    """A gray dashed line: a reference value beside the measured ones."""
    return line(x, y, NEUTRAL, name, dash="dash")


def marked(symbol: str | None = None, size: float | None = None, color: str | None = None) -> Part:
    """Markers on a line's points, in the line's color by default."""
    look = _set_only(symbol=symbol, size=size, color=color)
    return {"mode": "lines+markers"} | ({"marker": look} if look else {})


def markers(
    x: Values,
    y: Values,
    color: str,
    name: str | None = None,
    *,
    symbol: str | Sequence[str] | None = None,
    size: float,
) -> Part:
    """A marker at each point (x, y); one symbol for all, or one for each."""
    look = _set_only(color=color, symbol=symbol, size=size)
    return _scatter("markers", x, y, name) | {"marker": look}


def strokes(x: Values, y: Values, symbol: str, name: str, *, size: float) -> Part:
    """Gray markers without a fill, which plotly colors by their line."""
    look = {"symbol": symbol, "size": size, "line": {"width": 3, "color": NEUTRAL}}
    return _scatter("markers", x, y, name) | {"marker": look}


def labels(texts: Iterable[str], position: str | Sequence[str]) -> Part:
    """Texts beside markers; positions such as "top center", one for all or one for each."""
    return {"mode": "markers+text", "text": list(texts), "textposition": position}


def symbol(index: int) -> str:
    """The marker of the `index`-th line of a figure."""
    return SYMBOLS[index % len(SYMBOLS)]


def bars(x: Values, y: Values, color: str, name: str | None = None) -> Part:
    """A bar of height y at each x."""
    made = {"type": "bar", "x": _plain(x), "y": _plain(y), "marker": {"color": color}}
    return made | _set_only(name=name)


def spread(above: Iterable[float], below: Iterable[float]) -> Part:
    """Error bars for `error_x` or `error_y`: their length above and below each point."""
    return {"type": "data", "symmetric": False, "array": list(above), "arrayminus": list(below)}


def area(x: Values, y: Values, color: str) -> Part:
    """A filled polygon with the corners (x, y), without outline, legend and hover."""
    look = {"fill": "toself", "fillcolor": color, "line": {"width": 0}}
    return _scatter("lines", x, y, None) | look | NO_HOVER | NO_LEGEND


def band(x: Sequence[Any], low: Sequence[Any], high: Sequence[Any], color: str) -> Part:
    """The area between two lines over x."""
    return area([*x, *x[::-1]], [*high, *low[::-1]], color)


def with_band(
    x: Sequence[Any], y: Values, low: Sequence[Any], high: Sequence[Any], color: str, name: str
) -> list[Part]:
    """A line with its points marked, and the band of its 95 % CI."""
    ends = band(x, low, high, translucent(color, 0.25)) | {"name": "95 % CI"}
    return [ends, line(x, y, color, name) | marked(size=6)]


def heatmap(
    x: Values | None,
    y: Values | None,
    z: Sequence[Sequence[float | None]],
    title: str,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Part:
    """A heat map of z, shape [len(y), len(x)], colored from `low` to `high`.

    `title` is the color scale's. Without x or y, cells are numbered from 0.
    """
    sides = {side: _plain(names) for side, names in (("x", x), ("y", y)) if names is not None}
    scale = {"title": {"text": title}, "outlinewidth": 0}
    return {"type": "heatmap", "z": z, "colorbar": scale} | sides | _set_only(zmin=low, zmax=high)


def signed_heatmap(x: Values | None, y: Values | None, z: Sequence[Any], title: str) -> Part:
    """A heat map of signed numbers: the second class color below 0, the first above."""
    values = [abs(value) for row in z for value in row if value is not None]
    most = max(values, default=0.0) or 1.0
    colors = [[0, CLASS_COLORS[1]], [0.5, "#f7f7f7"], [1, CLASS_COLORS[0]]]
    return heatmap(x, y, z, title, low=-most, high=most) | TILES | {"colorscale": colors}


def hover(text: str, data: Sequence[Any] | None = None, *, box: str = "") -> Part:
    """The hover text of a trace's points, with their `customdata`, and plotly's secondary box."""
    return {"hovertemplate": f"{text}<extra>{box}</extra>"} | _set_only(customdata=data)


def grouped(group: str, *, listed: bool) -> Part:
    """A trace that the legend toggles with its group; `listed` for the one shown in the legend."""
    return {"legendgroup": group, "showlegend": listed}


def axis(title: str, kind: str | None = None) -> Part:
    """An axis; `kind` is "log", "category" or "linear", and plotly guesses without it."""
    return {"title": {"text": title}} | _set_only(type=kind)


def whole(n: int) -> Part:
    """Integer ticks for an axis of n items: all, or every fourth if there are many."""
    return {"dtick": 1 if n <= 16 else 4}


def ticks(values: Iterable[float], names: Iterable[str]) -> Part:
    """Axis ticks with these names at these values."""
    return {"tickvals": list(values), "ticktext": list(names)}


def layout(x: Part, y: Part) -> Part:
    """The layout of a single-panel figure, from its axes."""
    return {"xaxis": x, "yaxis": y}


def at_x(value: float) -> Part:
    """A gray dashed vertical line across the figure, for its layout's `shapes`."""
    return _across({"x0": value, "x1": value, "yref": "paper", "y0": 0, "y1": 1})


def at_y(value: float) -> Part:
    """A gray dashed horizontal line across the figure, for its layout's `shapes`."""
    return _across({"y0": value, "y1": value, "xref": "paper", "x0": 0, "x1": 1})


@dataclass(frozen=True)
class Panel:
    """The position of one of several panels in its figure.

    Attributes:
        number: index among the panels, from 0.
        x, y: start and end as fractions of the figure's width and height.
        lowest: whether no panel is below it.
        leftmost: whether none is to its left.
    """

    number: int
    x: tuple[float, float]
    y: tuple[float, float]
    lowest: bool = True
    leftmost: bool = True

    @property
    def trace(self) -> Part:
        """The axis names of a trace in this panel."""
        return {"xaxis": f"x{self._suffix}", "yaxis": f"y{self._suffix}"}

    def layout(self, x: Part, y: Part) -> Part:
        """The panel's part of the figure's layout, from its axes."""
        return {
            f"xaxis{self._suffix}": x | {"domain": self.x, "anchor": self.trace["yaxis"]},
            f"yaxis{self._suffix}": y | {"domain": self.y, "anchor": self.trace["xaxis"]},
        }

    def heading(self, text: str) -> Part:
        """A bold heading above the panel, for the layout's `annotations`."""
        paper = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        return {
            "text": f"<b>{text}</b>",
            "x": self.x[0],
            "y": self.y[1],
            "showarrow": False,
        } | paper

    @property
    def _suffix(self) -> str:
        return "" if self.number == 0 else str(self.number + 1)


def beside(n: int, per_row: int, share: float = SHARE) -> list[Panel]:
    """The positions of n panels, in rows of at most `per_row`."""
    columns, rows = min(n, per_row), -(-n // per_row)
    width, height = (1 - GAP * (columns - 1)) / columns, 1 / rows
    panels = []
    for number in range(n):
        left = (number % per_row) * (width + GAP)
        top = 1 - (number // per_row) * height
        bottom = top - height * (share if rows > 1 else 1)
        across = (left, min(left + width, 1.0))  # plotly rejects ends above 1, even by rounding
        lowest, leftmost = number + per_row >= n, number % per_row == 0
        panels.append(Panel(number, across, (max(bottom, 0.0), top), lowest, leftmost))
    return panels


def rounded(values: Values, digits: int = 4) -> list[Any]:
    """Nested lists of numbers with `digits` significant digits; None for non-finite ones."""
    return [
        rounded(value, digits) if isinstance(value, list | tuple) else _number(value, digits)
        for value in _plain(values)
    ]


def _number(value: float | None, digits: int) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def _scatter(mode: str, x: Values, y: Values, name: str | None) -> Part:
    return {"type": "scatter", "mode": mode, "x": _plain(x), "y": _plain(y)} | _set_only(name=name)


def _across(ends: Part) -> Part:
    return {"type": "line", "line": {"color": NEUTRAL, "dash": "dash", "width": 1.5}} | ends


def _plain(values: Values) -> list[Any]:
    """A list of plain Python numbers and strings."""
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _set_only(**parts: Any) -> Part:
    """The parts that are not None."""
    return {name: part for name, part in parts.items() if part is not None}
