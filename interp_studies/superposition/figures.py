"""Figures of the superposition study: ε against width and density, worst errors beside rms."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from interp_studies.superposition.jobs import CLASS_ON
from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Figure
from interp_toolkit.toys.superposition.layers.density import class_means

Values = Mapping[str, Any]


class Row(NamedTuple):
    """A construction's median errors, beside an affine readout's.

    Attributes:
        name: of the setting.
        exact: whether the worst errors are over all gates and inputs, or over a sample of them.
        worst, rms: of its readoffs.
        worst_after_offset: after each gate's best gain and bias; None where it was not measured.
        affine: the least worst error of an affine readout of such a gate.
    """

    name: str
    exact: bool
    worst: float
    worst_after_offset: float | None
    rms: float
    affine: float

    @property
    def beats_affine(self) -> bool | None:
        """Whether the worst error is below; None where only a sample's is known to be."""
        offset = self.worst_after_offset
        below = (self.worst if offset is None else offset) < self.affine
        return None if below and not self.exact else below


def worst_and_rms_figure(rows: Sequence[Row]) -> Figure:
    """Each construction's worst error and rms, with an affine readout's worst as a line."""
    names = [row.name for row in rows]
    columns = (
        ("worst", [row.worst for row in rows], CLASS_COLORS[1], "diamond"),
        ("after offset", [row.worst_after_offset for row in rows], CLASS_COLORS[0], "circle"),
        ("rms", [row.rms for row in rows], NEUTRAL, "square"),
    )
    data = [
        plots.markers(values, names, color, name, symbol=symbol, size=10)
        for name, values, color, symbol in columns
    ]
    layout = plots.layout(
        plots.axis("error") | plots.FROM_ZERO, {"automargin": True} | plots.DOWNWARD
    )
    layout |= {"shapes": [plots.at_x(AFFINE)]}
    caption = (
        "The dashed line is the worst error of an affine readout of the AND of two features, 1/4 "
        "(of three: 1/3), which needs no layer: to its left is what only a layer gives. Rms errors "
        "lie far to the left of worst ones."
    )
    return Figure("Worst error and rms of each construction", caption, data, layout)


def density_figure(points: Sequence[Values]) -> Figure:
    """ε against density, with what a count of random sets predicts."""
    caption = (
        "64 features, 1,024 neurons, at most 2 on. Points are seeds; the line is the worst error "
        "that one set of a pair and a third feature is expected to reach. Left of the least, "
        "pairs share too few neurons; right of it, everything shares too many."
    )
    return _epsilon_figure("ε against density", caption, points, "density", "density p")


def width_figure(points: Sequence[Values]) -> Figure:
    """ε against width at the best density, with the same prediction."""
    caption = (
        "64 features, at most 2 on, at the density that makes the predicted worst error least. "
        "The worst error falls slowly with width: it is below an affine readout's, by itself, "
        "only where the orange points are below the dashed line."
    )
    return _epsilon_figure("ε against width", caption, points, "n_neurons", "neurons d", log=True)


def _epsilon_figure(
    title: str, caption: str, points: Sequence[Values], x: str, label: str, log: bool = False
) -> Figure:
    data = []
    for side, key, name in ((1, "worst", "worst"), (0, "worst_after_offset", "worst after offset")):
        marks = plots.markers(
            [values[x] for values in points],
            [values[key] for values in points],
            CLASS_COLORS[side],
            name,
            symbol=CLASS_SYMBOLS[side],
            size=8,
        )
        data.append(marks | {"text": [f"seed {values['seed']}" for values in points]})
    places, predicted = _medians(points, x, lambda values: values["predicted"])
    data.append(plots.line(places, predicted, NEUTRAL, "predicted worst"))
    layout = plots.layout(
        plots.axis(label, "log" if log else "linear"), plots.axis("error") | plots.FROM_ZERO
    )
    layout |= {"shapes": [plots.at_y(AFFINE)]}
    return Figure(title, caption, data, layout)


def class_means_figure(points: Sequence[Values]) -> Figure:
    """The mean error by class of input against density, with the closed forms."""
    data: list[plots.Part] = []
    names = ("both on", "one on", "none on")
    for place, name in enumerate(names):
        x, y = _medians(points, "density", partial(_mean_of, place))
        color = (*CLASS_COLORS[::-1], NEUTRAL)[place]
        data.append(plots.markers(x, y, color, name, size=9))
        theory = [tuple(vars(class_means(p, CLASS_ON)).values())[place] for p in x]
        data.append(plots.line(x, theory, color, f"{name}, theory") | {"line": {"color": color}})
    x, y = _medians(points, "density", lambda values: values["mean_t"])
    crosses = {"mode": "markers", "marker": {"symbol": "x"}}
    data.append(plots.line(x, y, NEUTRAL, "mean t") | crosses)
    layout = plots.layout(plots.axis("density p"), plots.axis("mean error") | plots.FROM_ZERO)
    caption = (
        "64 features, 1,024 neurons, exactly 3 on; medians over seeds. Lines are (l-2) p, (l-1) p "
        "and l p - 1 + (1-p)^l with l = 3; the mean t, over all pairs and third features, is p."
    )
    return Figure("Mean error by class of input", caption, data, layout)


def _mean_of(place: int, values: Values) -> float:
    return float(values["means"][place])


def _medians(
    points: Sequence[Values], x: str, value: Callable[[Values], float]
) -> tuple[list[float], list[float]]:
    """The places on an axis, and the median of a value over seeds at each."""
    places = sorted({float(values[x]) for values in points})
    medians = [statistics.median(value(v) for v in points if v[x] == place) for place in places]
    return places, medians
