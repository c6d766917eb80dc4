"""Computation in superposition: every construction's errors, expected and measured.

The paper gives constructions and orders of growth, and no numbers. The expected ranges are earlier
measurements of these constructions, in float64 over five seeds. The study also reports which
constructions are better than an affine readout of the features, whose worst error is 1/4 without
any layer.
Source: "Computation in superposition", sections 1.1 to 1.5 and 3.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from interp_studies.result import StudyResult, compare_range, missed, overall, tally
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_studies.superposition.jobs import CLASS_ON, density_point, width_point
from interp_studies.superposition.settings import (
    DENSITIES,
    FIGURE_FEATURES,
    FIGURE_NEURONS,
    SETTINGS,
    WIDTHS,
    Setting,
)
from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Table
from interp_toolkit.toys.superposition.layers.layer import class_means

SEEDS = 5
WHOSE = "earlier"  # the ranges held against are this project's

Measured = Sequence[tuple[Setting, Sequence[Values]]]


def grid(plan: Plan) -> Grid:
    """All settings, and the points of the figures against density and width."""
    m = FIGURE_FEATURES
    return {
        **{
            setting.slug: plan.each_seed(
                setting.slug,
                setting.function,
                cost=setting.cost,
                seeds=plan.seeds if setting.seeded else plan.seeds[:1],
                **setting.arguments,
            )
            for setting in SETTINGS
        },
        **{
            ("density", p): plan.each_seed(
                f"density-{p:g}", density_point, n_features=m, n_neurons=FIGURE_NEURONS, density=p
            )
            for p in DENSITIES
        },
        **{
            ("width", d): plan.each_seed(f"width-{d}", width_point, n_features=m, n_neurons=d)
            for d in WIDTHS
        },
    }


class Row(NamedTuple):
    """A construction's median errors, with those of an affine readout.

    Attributes:
        name: name of the setting.
        exact: whether the worst errors are over all gates and inputs, or over a sample.
        worst, rms: errors of the readouts.
        worst_after_offset: worst error after each gate's best gain and bias; None if not measured.
        affine: smallest worst error of an affine readout of such a gate.
    """

    name: str
    exact: bool
    worst: float
    worst_after_offset: float | None
    rms: float
    affine: float

    @property
    def beats_affine(self) -> bool | None:
        """Whether the worst error is below that of an affine readout; None for a sample."""
        offset = self.worst_after_offset
        below = (self.worst if offset is None else offset) < self.affine
        return None if below and not self.exact else below


def comparison(measured: Measured) -> list[Row]:
    """Medians of each setting that reads ANDs through a layer."""
    rows = []
    for setting, seeds in measured:
        if "rms" not in seeds[0]:
            continue
        worst, offset, rms = (
            statistics.median(v[key] for v in seeds) if key in seeds[0] else None
            for key in ("worst", "worst_after_offset", "rms")
        )
        assert worst is not None
        assert rms is not None
        affine = affine_error(setting.fan_in)
        rows.append(Row(setting.name, setting.exact, worst, offset, rms, affine))
    return rows


def affine_error(fan_in: int) -> float:
    """The smallest worst error of an affine readout of the AND of k = `fan_in` features.

    With c of k features on, the best readout is c/k - (k-1)/(2k), with an error of (k-1)/(2k) at c
    = 0, k-1 and k.
    """
    return (fan_in - 1) / (2 * fan_in)


def beside_affine(rows: Sequence[Row]) -> str:
    """The constructions that are better than no layer in the worst case."""
    better = [row.name for row in rows if row.beats_affine]
    worse = [row.name for row in rows if row.beats_affine is False]
    unknown = [row.name for row in rows if row.beats_affine is None]
    text = (
        f"In the worst case, {len(better)} of {len(rows)} constructions beat an affine readout "
        "of the input after each gate's best gain and bias"
    )
    if worse:
        text += f"; these do not: {' and '.join(worse)}"
    if unknown:
        text += f"; unknown, since only sampled: {', '.join(unknown)}"
    low, high = min(row.rms for row in rows), max(row.rms for row in rows)
    return f"{text}. Their rms errors are {low:.3f} to {high:.3f}."


def worst_and_rms_figure(rows: Sequence[Row]) -> Figure:
    """Each construction's worst error and rms, with the affine readout's worst error as a line."""
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
    """ε against density, with the prediction from a count of random sets."""
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
    xs, predicted = _medians(points, x, lambda values: values["predicted"])
    data.append(plots.line(xs, predicted, NEUTRAL, "predicted worst"))
    layout = plots.layout(
        plots.axis(label, "log" if log else "linear"), plots.axis("error") | plots.FROM_ZERO
    )
    layout |= {"shapes": [plots.at_y(AFFINE)]}
    return Figure(title, caption, data, layout)


def class_means_figure(points: Sequence[Values]) -> Figure:
    """The mean error by class of input against density, with the closed forms."""
    data: list[plots.Part] = []
    colors = (*CLASS_COLORS[::-1], NEUTRAL)
    for number, name in enumerate(("both on", "one on", "none on")):
        x, y = _medians(points, "density", partial(_mean_of, number))
        color = colors[number]
        data.append(plots.markers(x, y, color, name, size=9))
        theory = [tuple(vars(class_means(p, CLASS_ON)).values())[number] for p in x]
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


def _mean_of(number: int, values: Values) -> float:
    return float(values["means"][number])


def _medians(
    points: Sequence[Values], x: str, value: Callable[[Values], float]
) -> tuple[list[float], list[float]]:
    """The values of x, and the median over seeds at each."""
    xs = sorted({float(values[x]) for values in points})
    medians = [statistics.median(value(v) for v in points if v[x] == at) for at in xs]
    return xs, medians


BESIDE_AFFINE = {True: "better", False: "not better", None: "not known"}
CELLS: Mapping[str, Callable[[Row], Any]] = {  # of a row, by heading
    "construction": lambda row: row.name,
    "inputs": lambda row: "all" if row.exact else "sampled",
    "worst": lambda row: row.worst,
    "after offset": lambda row: row.worst_after_offset,
    "rms": lambda row: row.rms,
    "affine": lambda row: row.affine,
    "beside affine": lambda row: BESIDE_AFFINE[row.beats_affine],
}


@dataclass(frozen=True)
class SuperpositionEvidence(Evidence):
    """The evidence of the verdict on the constructions.

    Attributes:
        beats_affine: whether each construction beats an affine readout in the worst case.
    """

    beats_affine: Mapping[str, bool | None]


def report(run: StudyRun) -> StudyResult:
    """Every setting's errors, with the expected values and those of an affine readout."""
    measured = [(setting, run.by_point[setting.slug]) for setting in SETTINGS]
    quantities = [
        compare_range(
            setting.name,
            e.name,
            [float(values[e.key]) for values in seeds],
            (e.low, e.high),
            tolerance=e.tolerance,
            remark=setting.remark,
        )
        for setting, seeds in measured
        for e in setting.expected
    ]
    rows = comparison(measured)
    densities = [v for p in DENSITIES for v in run.by_point["density", p]]
    widths = [v for d in WIDTHS for v in run.by_point["width", d]]
    return run.result(
        "Compared with this project's own earlier ranges (the source gives no numbers), "
        f"{tally(quantities, WHOSE)} {beside_affine(rows)}",
        settings={"dtype": "float64"},
        quantities=quantities,
        evidence=SuperpositionEvidence(
            overall(quantities),
            {row.name: row.beats_affine for row in rows},
            reason=missed(quantities),
        ),
        whose=WHOSE,
        details=[
            Table(
                "Every seed",
                ["setting", "seed", "quantity", "value"],
                [
                    [setting.name, seed, e.name, values[e.key]]
                    for setting, seeds in measured
                    for seed, values in enumerate(seeds)
                    for e in setting.expected
                ],
            ),
            Table(
                "Worst error and rms beside an affine readout",
                list(CELLS),
                [[cell(row) for cell in CELLS.values()] for row in rows],
                "Medians over seeds. Worst: over gates and inputs with at most 2 on (3 for fan-in "
                "3). After offset: with each gate's best gain and bias, which the affine "
                "readout's least worst error, (k-1)/(2k) for fan-in k, includes. Where inputs are "
                "sampled, the worst is a lower bound. rms: over inputs with all of the gate on, "
                "all but one, and others, each kind alike.",
            ),
        ],
        plots=[
            worst_and_rms_figure(rows),
            density_figure(densities),
            width_figure(widths),
            class_means_figure(densities),
        ],
    )


SUPERPOSITION = Study(
    "superposition",
    "computation in superposition: expected and measured errors of every construction",
    "Computation in superposition, sections 1 and 3",
    {"small": f"{SEEDS} seeds in float64; minutes"},
    grid,
    report,
    SEEDS,
)
