"""Computation in superposition, measured: every construction's errors, expected beside found.

The source gives constructions and orders of growth, no figures. The ranges held against are of
the same constructions measured before, in float64 over five seeds. Beside them stands what none of
them says by itself: which constructions do better than a readout that is affine in the features,
whose worst error is 1/4 with no layer at all.
Source: "Computation in superposition", sections 1.1 to 1.5 and 3.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interp_studies.jobs.runner import Runner
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare_range,
    missed,
    overall,
    study_provenance,
    tally,
)
from interp_studies.superposition.figures import (
    Row,
    class_means_figure,
    density_figure,
    width_figure,
    worst_and_rms_figure,
)
from interp_studies.superposition.settings import (
    DENSITIES,
    SETTINGS,
    WIDTHS,
    Setting,
    density_job,
    width_job,
)
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Table

NAME = "superposition"
SOURCE = "Computation in superposition, sections 1 and 3"
SEEDS = 5
WHOSE = "earlier"  # the ranges held against are this project's

Values = Mapping[str, Any]
Measured = Sequence[tuple[Setting, Sequence[Values]]]


def reproduce_superposition(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """Build and measure every setting; `seeds` overrides how often."""
    n_seeds = seeds or SEEDS
    jobs = {s: [s.job(seed) for seed in runner.seeds(n_seeds if s.seeded else 1)] for s in SETTINGS}
    by_density = [density_job(p, seed) for p in DENSITIES for seed in runner.seeds(n_seeds)]
    by_width = [width_job(d, seed) for d in WIDTHS for seed in runner.seeds(n_seeds)]
    found = runner.run([*(j for mine in jobs.values() for j in mine), *by_density, *by_width])
    measured = [(s, [found[job.name] for job in mine]) for s, mine in jobs.items()]
    quantities = [q for setting, values in measured for q in _quantities(setting, values)]
    rows = comparison(measured)
    densities = [found[job.name] for job in by_density]
    sentence = tally(quantities, WHOSE)
    return StudyResult(
        probe=NAME,
        verdict=f"Held against this project's own earlier ranges (the source gives no figures), "
        f"{sentence} {_beside_affine(rows)}",
        evidence=SuperpositionEvidence(
            status=overall(quantities),
            reason=missed(quantities),
            beats_affine={row.name: row.beats_affine for row in rows},
        ),
        provenance=study_provenance(
            NAME,
            SOURCE,
            {"preset": preset, "seeds": n_seeds, "dtype": "float64"},
            runner.first_seed,
        ),
        quantities=quantities,
        jobs=found,
        details=[_by_seed(measured), _table(rows)],
        whose=WHOSE,
        plots=[
            worst_and_rms_figure(rows),
            density_figure(densities),
            width_figure([found[job.name] for job in by_width]),
            class_means_figure(densities),
        ],
    )


def _quantities(setting: Setting, seeds: Sequence[Values]) -> list[Quantity]:
    return [
        compare_range(
            setting.name,
            e.name,
            [float(values[e.key]) for values in seeds],
            (e.low, e.high),
            tolerance=e.tolerance,
            remark=setting.remark,
        )
        for e in setting.expected
    ]


@dataclass(frozen=True)
class SuperpositionEvidence(Evidence):
    """What the verdict on the constructions rests on.

    Attributes:
        beats_affine: whether each beats an affine readout in the worst case.
    """

    beats_affine: Mapping[str, bool | None]


def comparison(measured: Measured) -> list[Row]:
    """Medians of each setting that reads ANDs through a layer."""
    rows = []
    for setting, seeds in measured:
        if "rms" not in seeds[0]:
            continue
        worst, offset, rms = (_median(seeds, k) for k in ("worst", "worst_after_offset", "rms"))
        assert worst is not None
        assert rms is not None
        affine = affine_error(setting.fan_in)
        rows.append(Row(setting.name, setting.exact, worst, offset, rms, affine))
    return rows


def _median(seeds: Sequence[Values], key: str) -> float | None:
    return statistics.median(v[key] for v in seeds) if key in seeds[0] else None


def affine_error(fan_in: int) -> float:
    """The least worst error of an affine readout of the AND of so many features.

    On c of k features on it is at best c/k - (k-1)/(2k), wrong by (k-1)/(2k) at c = 0, k-1 and k.
    """
    return (fan_in - 1) / (2 * fan_in)


def _beside_affine(rows: Sequence[Row]) -> str:
    """Which constructions do better in the worst case than no layer at all."""
    better = [row.name for row in rows if row.beats_affine]
    worse = [row.name for row in rows if row.beats_affine is False]
    unknown = [row.name for row in rows if row.beats_affine is None]
    text = (
        f"In the worst case {len(better)} of {len(rows)} constructions do better than an affine "
        "readout without any layer, each gate's best gain and bias included"
    )
    if worse:
        text += f"; not {' nor '.join(worse)}"
    if unknown:
        text += f"; only sampled, so not known: {', '.join(unknown)}"
    low, high = min(row.rms for row in rows), max(row.rms for row in rows)
    return f"{text}. Their rms errors are {low:.3f} to {high:.3f}."


def _table(rows: Sequence[Row]) -> Table:
    outcomes = {True: "better", False: "not better", None: "not known"}
    shown = [
        [
            row.name,
            "all" if row.exact else "sampled",
            row.worst,
            row.worst_after_offset,
            row.rms,
            row.affine,
            outcomes[row.beats_affine],
        ]
        for row in rows
    ]
    columns = ["construction", "inputs", "worst", "after offset", "rms", "affine", "beside affine"]
    caption = (
        "Medians over seeds. Worst: over gates and inputs with at most 2 on (3 for fan-in 3). "
        "After offset: with each gate's best gain and bias, which the affine readout's least "
        "worst error, (k-1)/(2k) for fan-in k, includes. Where inputs are sampled, the worst is "
        "a lower bound. rms: over inputs with all of the gate on, all but one, and others, each "
        "kind alike."
    )
    return Table("Worst error and rms beside an affine readout", columns, shown, caption)


def _by_seed(measured: Measured) -> Table:
    rows = [
        [setting.name, seed, e.name, values[e.key]]
        for setting, seeds in measured
        for seed, values in enumerate(seeds)
        for e in setting.expected
    ]
    return Table("Every seed", ["setting", "seed", "quantity", "value"], rows)


SUPERPOSITION = Artefact(
    name=NAME,
    summary="computation in superposition: the errors of every construction, expected and found",
    source=SOURCE,
    presets={"small": f"{SEEDS} seeds in float64; minutes"},
    run=reproduce_superposition,
)
