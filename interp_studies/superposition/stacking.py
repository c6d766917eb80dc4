"""Errors of stacked circuits against depth, width and rounding: `superposition/stacking`.

A sparse boolean circuit of ANDs and XORs in equal numbers, which keeps the number of active
features about constant, is run layer after layer (`toys.superposition.constructions.stacked`).
There are three arrangements: one dimension per feature, fewer dimensions with random f-vectors, and
fewer dimensions with evenly spread f-vectors.
The error of a layer is the root mean square of its readouts over functions and inputs. It is
measured without rounding ("plain"), and with readouts rounded to 0 or 1 before the next layer
("rounded").
Source: "Computation in superposition", section 1.3, which leaves open how errors grow.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp_studies.jobs.attempt import Outcome
from interp_studies.result import DESCRIBED, StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.data.composites import sample_composites
from interp_toolkit.plots import shade
from interp_toolkit.results import Figure, Table
from interp_toolkit.toys.superposition.constructions.stacked import random_circuit, stacked_circuit

SEEDS = 3
FEATURES, PER_GATE, DEPTH, MOST_ON, INPUTS = 64, 8, 6, 3, 500
AXES = 48  # of the 64 functions of a layer, where they are in superposition
NEURONS = (512, 2_048, 8_192)
#: axes (None: one a feature) and whether f-vectors are spread evenly
ARMS: Mapping[str, tuple[int | None, bool]] = {
    "own axes": (None, False),
    "random f-vectors": (AXES, False),
    "spread f-vectors": (AXES, True),
}
ROUNDING = ("plain", "rounded")


def stacked_job(
    *,
    folder: Path,
    arm: str,
    axes: int | None,
    spread: bool,
    n_features: int,
    n_neurons: int,
    per_gate: int,
    depth: int,
    most_on: int,
    n_inputs: int,
    seed: int,
) -> Outcome:
    """The errors of every layer of one circuit, in one of the three arrangements."""
    plan = random_circuit(n_features, [n_features] * depth, xor_share=0.5, seed=seed)
    dims = [None, *([axes] * (depth - 1))]
    circuit = stacked_circuit(
        plan, n_features, n_neurons, per_gate, dims, spread=spread, seed=1_000 * seed
    )
    on = sample_composites(n_inputs, n_features, most_on, np.random.default_rng(seed))
    values: dict[str, Any] = {"arm": arm, "n_neurons": n_neurons, "seed": seed}
    values["on"] = [float(layer.sum(axis=1).mean()) for layer in circuit.exact(on)]
    for name, rounded in zip(ROUNDING, (False, True), strict=True):
        errors = circuit.errors(on, rounded=rounded)
        values[name] = [layer.written.rms for layer in errors]
        values[f"{name}_worst"] = [layer.written.worst for layer in errors]
    return Outcome(values)


def stacked_grid(plan: Plan, neurons: Sequence[int]) -> Grid:
    """A circuit in every arrangement, at every width."""
    return {
        (arm, n): plan.each_seed(
            f"{arm.replace(' ', '-')}-{n}",
            stacked_job,
            cost=float(n),
            arm=arm,
            axes=axes,
            spread=spread,
            n_features=FEATURES,
            n_neurons=n,
            per_gate=PER_GATE,
            depth=DEPTH,
            most_on=MOST_ON,
            n_inputs=INPUTS,
        )
        for arm, (axes, spread) in ARMS.items()
        for n in neurons
    }


def rms_at(values: Sequence[Values], arm: str, n_neurons: int, how: str, depth: int) -> list[float]:
    """The rms of the layer at this depth, one per seed."""
    kept = [v for v in values if v["arm"] == arm and v["n_neurons"] == n_neurons]
    return [float(v[how][depth - 1]) for v in kept]


def _median(values: Sequence[Values], arm: str, n: int, how: str, depth: int) -> float:
    return statistics.median(rms_at(values, arm, n, how, depth))


def stacking_figure(values: Sequence[Values], how: str) -> Figure:
    """The rms against depth, one line per arrangement and width; medians over seeds."""
    data = []
    for index, arm in enumerate(ARMS):
        widths = sorted({v["n_neurons"] for v in values})
        for number, n in enumerate(widths):
            depths = range(1, len(values[0][how]) + 1)
            y = [_median(values, arm, n, how, depth) for depth in depths]
            trace = plots.line(list(depths), y, shade(number, len(widths)), f"{arm}, {n:,}")
            dash = ("solid", "dash", "dot")[index]
            data.append(trace | {"line": {"color": shade(number, len(widths)), "dash": dash}})
    layout = plots.layout(plots.axis("layer"), plots.axis("rms error", "log"))
    written = (
        "rounded to 0 or 1 before the next layer" if how == "rounded" else "carried as they are"
    )
    caption = (
        f"{FEATURES} functions a layer, half ANDs, half XORs, {PER_GATE} neurons a gate, inputs "
        f"with up to {MOST_ON} on; readoffs {written}. In superposition: {AXES} axes. Medians over "
        "seeds; the number is of neurons."
    )
    return Figure(f"Errors of stacked circuits, {how}", caption, data, layout)


def report(run: StudyRun) -> StudyResult:
    """The errors after all layers, by arrangement, width and rounding."""
    few, many = min(NEURONS), max(NEURONS)
    parts = []
    for arm in ARMS:
        by_width = ", ".join(
            f"{_median(run.values, arm, n, 'plain', DEPTH):.3f} with {n:,} neurons"
            for n in (few, many)
        )
        rounded = _median(run.values, arm, many, "rounded", DEPTH)
        parts.append(f"{arm}: {by_width}, {rounded:.3f} if also rounded")
    rows = [
        [v["arm"], v["n_neurons"], v["seed"], how, depth, rms, v[f"{how}_worst"][depth - 1]]
        for v in run.values
        for how in ROUNDING
        for depth, rms in enumerate(v[how], start=1)
    ]
    columns = ["way", "neurons", "seed", "readoffs", "layer", "rms", "worst"]
    return run.result(
        f"Root mean square errors after {DEPTH} layers: {'; '.join(parts)}. With an axis for "
        "each feature, the errors come from neurons shared by gates; in superposition they come "
        "from the f-vectors, and more neurons do not help. The source gives no figures.",
        settings={"neurons": list(NEURONS), "depth": DEPTH},
        evidence=DESCRIBED,
        quantities=[
            compare(
                f"{arm}, {n:,} neurons, {how}",
                f"rms at depth {depth}",
                rms_at(run.values, arm, n, how, depth),
                unit="",
            )
            for arm in ARMS
            for n in NEURONS
            for how in ROUNDING
            for depth in (1, DEPTH)
        ],
        details=[Table("Every seed", columns, rows)],
        plots=[stacking_figure(run.values, how) for how in ROUNDING],
    )


STACKING = Study(
    "superposition/stacking",
    "errors of stacked circuits against depth, width and rounding",
    "Computation in superposition, section 1.3",
    {"small": f"{SEEDS} circuits of {DEPTH} layers; about a minute"},
    lambda plan: stacked_grid(plan, NEURONS),
    report,
    SEEDS,
)
