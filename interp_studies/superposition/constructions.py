"""The paper's further constructions, each with its error: `superposition/constructions`.

`construction_jobs` describes the rows. The paper gives orders of growth and no numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.result import DESCRIBED, StudyResult, compare
from interp_studies.study import Study, StudyRun
from interp_studies.superposition.construction_jobs import LOADS, NOISES, TERMS, grid
from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, Table

SEEDS = 3

Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # by name, one per seed


def _median(rows: Rows, name: str, of: str) -> float:
    return statistics.median(float(one[of]) for one in rows[name])


def verdict(rows: Rows, capacity: Mapping[str, Any]) -> str:
    """How many rows are below their bound, and how the others grow."""
    own, fitted = (
        [_median(rows, f"noise {x:g} on the weights, {kind}", "rms") for x in NOISES]
        for kind in ("own readoffs, 2 on", "fitted readoffs, held out, 3 on")
    )
    sums = ", ".join(
        f"{_median(rows, f'sum of {k} ANDs of disjoint pairs, 4 on', 'worst'):.2f} for {k}"
        for k in TERMS
    )
    fires = ", ".join(
        f"{_median(rows, f'misfires, m p / d0 = {x:g}', 'rms'):.2f} at {x:g}" for x in LOADS
    )
    exact = [
        name for name, seeds in rows.items() if seeds[0]["exact"] and seeds[0]["offset"] is not None
    ]
    _, d, m = capacity["capacity"][-1]
    below = sum(_median(rows, name, "offset") < rows[name][0]["affine"] for name in exact)
    return (
        f"Of {len(exact)} rows measured on all inputs, {below} have, after each gate's best gain "
        "and bias, a smaller error than any affine function of its bits (1/4 for an AND of two, "
        "1/3 of three, 1/2 for XORs). Interference at a neuron (rms) by the number of features "
        f"per neuron and axis: {fires}; the source's limit, m of order d0 sqrt(d), is 1. Noise "
        f"of {NOISES[-1]:g} on the weights raises the rms error of the construction's own "
        f"readouts from {own[0]:.3f} to {own[-1]:.3f}; that of refitted readouts on held-out "
        f"inputs goes from {fitted[0]:.3f} to {fitted[-1]:.3f}. Sums of ANDs (worst): {sums}; "
        "the source needs errors below 1/k per term. Squares hold m ~ "
        f"exp({capacity['slope']:.3f} sqrt(d)) random f-vectors, with cosines within "
        f"{capacity['cosine']:g}, {m:,.0f} with {d:,} neurons. The source gives no figures."
    )


def report(run: StudyRun) -> StudyResult:
    """The errors of every row, and the number of f-vectors that quadratic neurons hold."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for values in run.values:
        for one in values["rows"]:
            rows.setdefault(one["name"], []).append(one)
    capacity = next(v for v in run.values if "capacity" in v)
    errors = [
        [
            *(name, "all" if of[0]["exact"] else "sampled", _median(rows, name, "worst")),
            *(
                (None, None)
                if of[0]["offset"] is None
                else (_median(rows, name, "offset"), of[0]["affine"])
            ),
            _median(rows, name, "rms"),
        ]
        for name, of in rows.items()
    ]
    names = list(rows)
    figure = Figure(
        "Errors of the further constructions",
        "The dashed line: the worst error, 1/4, of an affine readout of an AND of two.",
        [
            plots.markers(
                [_median(rows, name, of) for name in names], names, color, of, symbol=symbol, size=8
            )
            for of, color, symbol in (
                ("worst", CLASS_COLORS[1], "diamond"),
                ("rms", NEUTRAL, "square"),
            )
        ],
        plots.layout(plots.axis("error", "log"), {"automargin": True, "dtick": 1} | plots.DOWNWARD)
        | {"shapes": [plots.at_x(AFFINE)], "height": 26 * len(names) + 120},
    )
    return run.result(
        verdict(rows, capacity),
        settings={"dtype": "float64"},
        evidence=DESCRIBED,
        quantities=[
            compare(name, of, [float(one[of]) for one in seeds], unit="")
            for name, seeds in rows.items()
            for of in ("worst", "rms")
        ],
        details=[
            Table(
                "Every seed",
                ["construction", "draw", "worst", "after offset", "rms"],
                [
                    [name, draw, one["worst"], one["offset"], one["rms"]]
                    for name, seeds in rows.items()
                    for draw, one in enumerate(seeds)
                ],
            ),
            Table(
                "Constructions",
                ["construction", "inputs", "worst", "after offset", "affine", "rms"],
                errors,
                "Medians over seeds. Affine: what after offset is at least of an affine function "
                "of the gate's bits. Misfires: interference on neurons by a feature they do not "
                "read. Products: the source's quadratic (2), cubic (3) and chained quadratic (4) "
                "activations. Combination: relative distance. All triples of a fan-in 3 layer: "
                "rms over triples of their worst errors.",
            ),
            Table(
                "Features under squares",
                ["r", "neurons d", "features m"],
                [[r, d, float(f"{m:.4g}")] for r, d, m in capacity["capacity"]],
                "How many random f-vectors of r dimensions have all cosines within "
                f"{capacity['cosine']:g}, in expectation; a line through log m against sqrt(d) "
                f"has slope {capacity['slope']:.3f}.",
            ),
        ],
        plots=[figure],
    )


CONSTRUCTIONS = Study(
    "superposition/constructions",
    "the paper's further constructions and remarks, each with its error",
    "Computation in superposition, sections 1.2 to 1.5 and 2",
    {"small": f"{SEEDS} draws in float64; about a minute"},
    grid,
    report,
    SEEDS,
)
