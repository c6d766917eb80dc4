"""Quadratic and ReLU neurons for universal AND, at equal numbers: `open/quadratic-or-relu`.

There are r dimensions, d = r (r + 1) / 2 neurons, and m features: one dimension each if m = r, else
random unit f-vectors. The inputs are all sets of up to three features. The AND of every pair is
read from four layers of d neurons by fitted linear readouts, which are fitted on four fifths of the
inputs (at most MOST_INPUTS) and measured on the rest:

    squares         of the dimensions and of their pairwise sums: every quadratic function is
                    linearly readable
    random squares  of random linear forms
    relu            relu(w x + b), with normal w and b
    construction    the paper's ReLU layer (0/1 connections, f-vectors summed, bias -1)

The error is the root mean square over inputs with both, one and no feature of the pair on, with
equal weight for the three cases. "Computation in superposition", section 1.5, asks whether
quadratic neurons are more expressive.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp_studies.claims import Claim, JudgedClaim, clauses, judge
from interp_studies.jobs.attempt import Outcome
from interp_studies.result import FRESH, StudyResult
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.data.composites import all_composites
from interp_toolkit.plots import shade
from interp_toolkit.probes import UANDReadout
from interp_toolkit.results import Figure, Table
from interp_toolkit.toys.superposition.layers.layer import own_axes, random_unit_features

SEEDS = 8
DIMS = (12, 16)
LOADS = (1.0, 1.5, 2.0, 3.0)  # features for each axis
MOST_ON, HELD_OUT, MOST_INPUTS = 3, 5, 12_000
CONNECTED = 1.5  # of the construction's density, times 1 / sqrt(d)
LAYERS = ("squares", "random squares", "relu", "construction")


def compared_job(
    *,
    folder: Path,
    dim: int,
    load: float,
    most_on: int,
    most_inputs: int,
    held_out: int,
    connected: float,
    seed: int,
) -> Outcome:
    """Errors of all four layers on the same features and inputs."""
    n_features, rng = round(load * dim), np.random.default_rng([seed, dim, round(10 * load)])
    features = np.asarray(
        own_axes(dim)
        if n_features == dim
        else random_unit_features(n_features, dim, torch.Generator().manual_seed(seed))
    )
    on = rng.permutation(all_composites(n_features, most_on))[:most_inputs]
    fitted = len(on) - len(on) // held_out
    values: dict[str, Any] = {"dim": dim, "load": load, "seed": seed, "n_features": n_features}
    made = layers(on.astype(np.float64) @ features, features, connected, rng)
    for name, activations in made.items():
        readout = UANDReadout(n_jobs=1).fit(activations[:fitted], on[:fitted])
        errors = readout.errors(activations[fitted:], on[fitted:])
        squares = [rms**2 for rms in errors.rms_by_class.values()]
        worst = errors.worst_after_offset[errors.observed]
        values[name] = {
            "rms": math.sqrt(sum(squares) / len(squares)),
            "read": float((worst < AFFINE).mean()),
        }
    return Outcome(values)


def layers(
    x: Float[np.ndarray, "input dim"],
    features: Float[np.ndarray, "feature dim"],
    connected: float,
    rng: np.random.Generator,
) -> dict[str, Float[np.ndarray, "input neuron"]]:
    """The activations of each kind of layer, with dim (dim + 1) / 2 neurons each.

    `connected` sets the construction's density, in units of 1 / sqrt(neurons).
    """
    dim = x.shape[1]
    width = dim * (dim + 1) // 2
    first, second = np.triu_indices(dim, 1)
    weights, bias = rng.standard_normal((dim, width)), rng.standard_normal(width)
    drawn = rng.random((len(features), width)) < connected / math.sqrt(width)
    return {
        "squares": np.concatenate([x**2, (x[:, first] + x[:, second]) ** 2], axis=1),
        "random squares": (x @ weights) ** 2,
        "relu": np.maximum(x @ weights + bias, 0),
        "construction": np.maximum(x @ (features.T @ drawn) - 1, 0),
    }


def grid(plan: Plan) -> Grid:
    """All widths and loads."""
    return {
        (dim, load): plan.each_seed(
            f"r-{dim}-load-{load:g}",
            compared_job,
            cost=(dim * load) ** 3,
            dim=dim,
            load=load,
            most_on=MOST_ON,
            most_inputs=MOST_INPUTS,
            held_out=HELD_OUT,
            connected=CONNECTED,
        )
        for dim in DIMS
        for load in LOADS
    }


def measures(values: Sequence[Values]) -> dict[str, list[float]]:
    """By seed: geometric means over r of the ratios of errors, and the difference in pairs read."""
    by_seed: dict[str, list[float]] = {}
    for seed in sorted({v["seed"] for v in values}):
        for load in LOADS:
            of = [v for v in values if v["seed"] == seed and v["load"] == load]
            for name, one, other in (
                ("squares", "squares", "relu"),
                ("random", "random squares", "squares"),
            ):
                ratio = statistics.geometric_mean(v[one]["rms"] / v[other]["rms"] for v in of)
                by_seed.setdefault(f"{name} {load:g}", []).append(ratio)
            gap = statistics.fmean(v["squares"]["read"] - v["relu"]["read"] for v in of)
            by_seed.setdefault(f"gap {load:g}", []).append(gap)
    return by_seed


CLAIMS = [  # made on seeds 0 to 7
    Claim(
        "squares 1",
        "with one feature per axis, squares have less than 0.6 times a ReLU layer's error",
        below=0.6,
        overturned_by="a ReLU layer as good, of weights chosen otherwise",
        clauses=(
            "If every feature has its own axis, squares have a smaller error than equally many "
            "random ReLU neurons, by a factor of",
            "If every feature has its own axis, squares have at least 0.6 times the error of "
            "equally many random ReLU neurons:",
            "If every feature has its own axis, the ratio of the squares' error to that of "
            "equally many random ReLU neurons",
        ),
        factor=True,
    ),
    Claim(
        "squares 1.5",
        "with 1.5 features per axis, squares have 0.8 to 0.98 times a ReLU layer's error",
        above=0.8,
        below=0.98,
        overturned_by="a ratio below 0.8 or above 0.98 at larger r",
        clauses=(
            "with 1.5 features per axis it is slightly smaller, by a factor of",
            "with 1.5 features per axis the factor is not 0.8 to 0.98:",
            "with 1.5 features per axis the factor",
        ),
        factor=True,
    ),
    Claim(
        "squares 3",
        "with 3 features per axis, squares have 0.98 to 1.15 times a ReLU layer's error",
        above=0.98,
        below=1.15,
        overturned_by="a ratio below at larger r",
        clauses=(
            "with 3 features per axis it is about equal, a factor of",
            "with 3 features per axis the factor is not 0.98 to 1.15:",
            "with 3 features per axis the factor",
        ),
        factor=True,
    ),
    Claim(
        "random 1.5",
        "in superposition (1.5 features per axis) squares of random linear forms are as good as "
        "squares of sums of axes (0.95 to 1.1 times the error)",
        above=0.95,
        below=1.1,
        overturned_by="random squares that need more neurons",
        clauses=(
            "Squares of random linear forms are about as good as squares of axes and sums; "
            "ratio of errors:",
            "Squares of random linear forms are not as good as squares of axes and sums, or are "
            "better; ratio of errors:",
            "Whether squares of random linear forms are as good as squares of axes and sums",
        ),
        factor=True,
    ),
    Claim(
        "gap 1",
        "with one feature per axis, the fraction of pairs with an error below 1/4 is larger for "
        "squares than for a ReLU layer by more than 0.2",
        above=0.2,
        overturned_by="a ReLU layer that reads as many",
        clauses=(
            "and they read more of the pairs with an error below 1/4, by a fraction of",
            "and they read at most 0.2 more of the pairs with an error below 1/4:",
            "the additional fraction of pairs that they read with an error below 1/4",
        ),
    ),
]


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """One clause per claim, by its judgment."""
    none, some, many, random, gap = clauses(CLAIMS, findings)
    return f"{none}; {gap}; {some}; {many}. {random}."


def report(run: StudyRun) -> StudyResult:
    """The claims, and the median errors by width, load and layer."""
    findings = judge(CLAIMS, measures(run.values), "draws")

    def median(dim: int, load: float, layer: str, of: str = "rms") -> float:
        return float(statistics.median(v[layer][of] for v in run.by_point[dim, load]))

    rows = [
        [dim, dim * (dim + 1) // 2, round(load * dim), layer]
        + [median(dim, load, layer, of) for of in ("rms", "read")]
        for dim in DIMS
        for load in LOADS
        for layer in LAYERS
    ]
    columns = ["r", "neurons", "features", "layer", "rms", "pairs below 1/4"]
    lines = [
        plots.line(
            *(LOADS, [median(dim, load, layer) for load in LOADS]),
            *(shade(number, len(LAYERS)), f"{layer}, r = {dim}"),
            dash=dash,
        )
        | plots.marked()
        for number, layer in enumerate(LAYERS)
        for dim, dash in zip(DIMS, ("solid", "dash"), strict=False)
    ]
    figure = Figure(
        "Squares and ReLUs at equal neurons",
        "r (r + 1) / 2 neurons each, fitted readoffs, held-out inputs; medians over draws.",
        lines,
        plots.layout(plots.axis("features for each axis"), plots.axis("rms error", "log")),
    )
    return run.result(
        verdict(findings),
        settings={"dims": list(DIMS), "loads": list(LOADS)},
        claims=findings,
        details=[Table("Errors at equal neurons", columns, rows, "Medians over draws.")],
        notes=[
            f"r = {' and '.join(map(str, DIMS))} axes, r (r + 1) / 2 neurons, up to {MOST_ON} "
            "features on. The source's advantage is of how many features there may be as r grows, "
            "at a fixed error; these sizes are far from that limit."
        ],
        plots=[figure],
    )


QUADRATIC_OR_RELU = Study(
    "open/quadratic-or-relu",
    "quadratic and ReLU neurons for universal AND, at equal numbers of neurons",
    "Computation in superposition, section 1.5 (left open)",
    {"small": f"{SEEDS} draws at {len(DIMS)} widths; about 2 minutes"},
    grid,
    report,
    SEEDS,
    question="Do quadratic neurons compute more ANDs than the same number of ReLU neurons?",
    first_seed=FRESH,
)
