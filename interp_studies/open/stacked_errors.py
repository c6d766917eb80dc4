"""How do errors grow when U-AND is stacked? Depth, neurons, rounding: `open/stacked-errors`.

Circuits of ANDs and XORs are run as in `superposition/stacking`, with more widths and seeds.
Exponents are fitted for each seed by least squares on logarithms:

    neurons   rms ~ d^-a, the mean exponent over the layers (in superposition from the second layer
              on, since the circuit's input has one dimension per feature)
    depth     rms ~ L^b over layers 2 to 6, the mean over widths; b measures the growth in this
    range,
              whatever the law
    law       rms residual of that power law minus that of rms ~ g^L, both of ln rms, the mean over
              widths; positive if a constant factor per layer fits better

"Computation in superposition", section 1.3, leaves this question to future work.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

from interp_studies.claims import Claim, JudgedClaim, clauses, judge
from interp_studies.power_law import exponent, exponential_residual, power_residual
from interp_studies.result import FRESH, StudyResult
from interp_studies.study import Study, StudyRun, Values
from interp_studies.superposition.stacking import (
    ARMS,
    AXES,
    DEPTH,
    FEATURES,
    MOST_ON,
    PER_GATE,
    ROUNDING,
    rms_at,
    stacked_grid,
    stacking_figure,
)
from interp_toolkit.results import Table

SEEDS = 12
NEURONS = (512, 1_024, 2_048, 4_096, 8_192)
OWN, RANDOM, SPREAD = ARMS

Measures = Mapping[tuple[str, str, str], Sequence[float]]  # by way, rounding and what is measured


def measures(values: Sequence[Values]) -> Measures:
    """By seed: the exponents of neurons and of depth, and the better law of depth."""
    widths = sorted({v["n_neurons"] for v in values})
    depth = len(values[0]["plain"])
    deep = range(2, depth + 1)
    by_seed: dict[tuple[str, str, str], list[float]] = {}
    for arm, how in itertools.product(ARMS, ROUNDING):
        first = 1 if arm == OWN else 2
        for seed in sorted({v["seed"] for v in values}):
            of = [v for v in values if v["seed"] == seed]
            rms = {n: [rms_at(of, arm, n, how, k)[0] for k in range(1, depth + 1)] for n in widths}
            for kind, each in {
                "neurons": [
                    exponent(widths, [rms[n][layer - 1] for n in widths])
                    for layer in range(first, depth + 1)
                ],
                "depth": [exponent(deep, r[1:]) for r in rms.values()],
                "law": [
                    power_residual(deep, r[1:]) - exponential_residual(deep, r[1:])
                    for r in rms.values()
                ],
            }.items():
                by_seed.setdefault((arm, how, kind), []).append(statistics.fmean(each))
    return by_seed


SAVED = "saved by rounding"
CLAIMS = [  # made on seeds 0 to 11
    Claim(
        (OWN, "plain", "neurons"),
        "with an axis for each feature the error is about inversely proportional to the square "
        "root of the number of neurons (exponent -0.65 to -0.4)",
        above=-0.65,
        below=-0.4,
        overturned_by="an exponent near -1 or 0 at more neurons",
        clauses=(
            "With an axis for each feature, the error falls about with the square root of the "
            "number of neurons, exponent",
            "With an axis for each feature, the error does not fall with the square root of the "
            "number of neurons, exponent",
            "The exponent of the error in the number of neurons, with an axis for each feature,",
        ),
    ),
    Claim(
        (RANDOM, "plain", "neurons"),
        "with random f-vectors the error does not depend on the number of neurons (exponent -0.1 "
        "to 0.1)",
        above=-0.1,
        below=0.1,
        overturned_by="an error that falls with neurons at the same axes",
        clauses=(
            f"with random f-vectors on {AXES} axes more neurons do not help, exponent",
            f"with random f-vectors on {AXES} axes it depends on the number of neurons, exponent",
            f"whether more neurons help with random f-vectors on {AXES} axes",
        ),
    ),
    Claim(
        (RANDOM, "plain", "depth"),
        "with random f-vectors the error grows with depth, layers 2 to 6 (exponent 0.9 to 1.5)",
        above=0.9,
        below=1.5,
        overturned_by="errors that double every layer, or stop growing",
        clauses=(
            "With random f-vectors it grows from layer 2 to 6 with an exponent of",
            "With random f-vectors its growth from layer 2 to 6 is not the claimed one, exponent",
            "The exponent of its growth from layer 2 to 6 with random f-vectors",
        ),
    ),
    Claim(
        (RANDOM, "plain", "law"),
        "with random f-vectors neither a power of the depth nor a constant factor per layer fits "
        "much better (rms residuals within 0.05 of each other)",
        above=-0.05,
        below=0.05,
        overturned_by="residuals further apart over more layers",
        clauses=(
            "these layers do not distinguish a power of the depth from a constant factor per "
            "layer; residuals differ by",
            "{better} fits better than {worse}, residuals differ by",
            "whether it is a power of the depth or a constant factor per layer",
        ),
    ),
    Claim(
        (SPREAD, "plain", "depth"),
        "with evenly spread f-vectors the error grows with an exponent of 0.4 to 0.9",
        above=0.4,
        below=0.9,
        overturned_by="the same growth as along random f-vectors",
        clauses=(
            "With evenly spread f-vectors it grows more slowly, exponent",
            "With evenly spread f-vectors its growth is not the claimed one, exponent",
            "The exponent with evenly spread f-vectors",
        ),
    ),
    Claim(
        SAVED,
        "rounding lowers the exponent of depth by more than 0.4 with random f-vectors",
        above=0.4,
        overturned_by="rounded errors that grow as fast as others",
        clauses=(
            "rounding every layer lowers the exponent of random f-vectors by",
            "rounding every layer lowers the exponent of random f-vectors by less than 0.4:",
            "the decrease of random f-vectors' exponent by rounding every layer",
        ),
    ),
    Claim(
        (SPREAD, "rounded", "depth"),
        "with rounding and evenly spread f-vectors the error hardly grows (exponent below 0.5)",
        below=0.5,
        overturned_by="an exponent of 0.5 or more at these loads",
        clauses=(
            "and leaves little of the exponent of evenly spread ones:",
            "and leaves the exponent of evenly spread ones at 0.5 or more:",
            "and the exponent of evenly spread ones after rounding",
        ),
    ),
]


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """One clause per claim, by its judgment."""
    own, width, random, law, spread, saved, rounded = clauses(CLAIMS, findings)
    laws = ["a power of the depth", "a factor a layer"]
    worse, better = laws if findings[3].value > 0 else laws[::-1]
    law = law.format(better=better, worse=worse)
    return f"{own}; {width}. {random}; {law}. {spread}; {saved}, {rounded}."


def report(run: StudyRun) -> StudyResult:
    """The claims, the median errors of every layer, and the exponents."""
    measured, depths = measures(run.values), range(1, DEPTH + 1)
    plain, rounded = (measured[RANDOM, how, "depth"] for how in ROUNDING)
    saved = [one - other for one, other in zip(plain, rounded, strict=True)]
    findings = judge(CLAIMS, {**measured, SAVED: saved}, "circuits")
    errors = [
        [arm, how, n]
        + [statistics.median(rms_at(run.values, arm, n, how, depth)) for depth in depths]
        for arm, how, n in itertools.product(ARMS, ROUNDING, NEURONS)
    ]
    exponents = [
        [*key, statistics.fmean(by_seed), min(by_seed), max(by_seed)]
        for key, by_seed in measured.items()
    ]
    return run.result(
        verdict(findings),
        settings={
            "neurons": list(NEURONS),
            "features": FEATURES,
            "neurons_per_gate": PER_GATE,
            "axes": AXES,
            "most_on": MOST_ON,
        },
        claims=findings,
        details=[
            Table(
                "Root mean square errors",
                ["way", "readoffs", "neurons", *(f"layer {depth}" for depth in depths)],
                errors,
                "Medians over seeds.",
            ),
            Table(
                "Exponents, and which law fits",
                ["way", "readoffs", "of", "mean", "lowest seed", "highest seed"],
                exponents,
                "Law: the rms residual of ln rms about a power of the depth less that about a "
                "factor a layer; above 0 where the factor fits better.",
            ),
        ],
        notes=[
            f"Circuits of {FEATURES} functions a layer, half ANDs, half XORs, {PER_GATE} neurons a "
            f"gate and {DEPTH} layers; in superposition on {AXES} axes. Exponents are of this "
            "range: how steep the growth is, not that it is a power of the depth; they say "
            "nothing of circuits whose activity grows or dies out."
        ],
        plots=[stacking_figure(run.values, how) for how in ROUNDING],
    )


STACKED_ERRORS = Study(
    "open/stacked-errors",
    "how errors grow in stacked U-AND layers: depth, neurons, rounding",
    "Computation in superposition, section 1.3 (left to future work)",
    {"small": f"{SEEDS} circuits, {len(NEURONS)} widths; about 3 minutes"},
    lambda plan: stacked_grid(plan, NEURONS),
    report,
    SEEDS,
    question="How do the errors of a circuit in superposition grow with its depth, and what helps?",
    first_seed=FRESH,
)
