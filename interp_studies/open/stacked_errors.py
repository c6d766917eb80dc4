"""How do errors grow when U-AND is stacked? Depth, neurons, rounding: `open/stacked-errors`.

Circuits of ANDs and XORs are executed as in `superposition/stacking`, over more widths and seeds.
Each seed has exponents of its own, by least squares on logarithms:

    neurons   rms ~ d^-a, the mean exponent over the layers (from the second on in superposition,
              since the circuit's input has an axis a feature)
    depth     rms ~ L^b over layers 2 to 6, the mean over widths: how steeply it grows there,
              whatever the law
    law       the rms residual of that power law less that of rms ~ g^L, both of ln rms, the mean
              over widths: above 0 where a factor a layer fits better

The question is of "Computation in superposition", section 1.3, which leaves it to future work.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.jobs.runner import Runner
from interp_studies.open.claim import JudgedClaim
from interp_studies.open.result import FRESH, OpenResult, open_result
from interp_studies.open.seed_claim import SeedClaim, judged, outcome_in_words
from interp_studies.power_law import exponent, exponential_residual, power_residual
from interp_studies.superposition.stacking import (
    ARMS,
    AXES,
    DEPTH,
    FEATURES,
    MOST_ON,
    PER_GATE,
    ROUNDING,
    rms_at,
    stacked_jobs,
    stacking_figure,
)
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Table

NAME = "open/stacked-errors"
SOURCE = "Computation in superposition, section 1.3 (left to future work)"
QUESTION = "How do the errors of a circuit in superposition grow with its depth, and what helps?"
SEEDS = 12
NEURONS = (512, 1_024, 2_048, 4_096, 8_192)
OWN, RANDOM, SPREAD = ARMS

Values = Mapping[str, Any]
Exponents = Mapping[
    tuple[str, str, str], Sequence[float]
]  # by way, rounding, and "neurons", "depth" or "law"


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Stack circuits, fit every seed's exponents, judge; `seeds` overrides how many circuits."""
    numbers = runner.seeds(seeds or SEEDS)
    found = runner.run(stacked_jobs(NEURONS, numbers))
    values = list(found.values())
    exponents = fit(values)
    findings = judge(exponents)
    settings = {
        "preset": preset,
        "neurons": list(NEURONS),
        "features": FEATURES,
        "neurons_per_gate": PER_GATE,
        "axes": AXES,
        "most_on": MOST_ON,
    }
    return open_result(
        NAME,
        SOURCE,
        QUESTION,
        verdict(findings),
        findings,
        found,
        settings=settings,
        seeds=numbers,
        details=[_table(values), _exponent_table(exponents)],
        notes=[
            f"Circuits of {FEATURES} functions a layer, half ANDs, half XORs, {PER_GATE} neurons a "
            f"gate and {DEPTH} layers; in superposition on {AXES} axes. Exponents are of this "
            "range: how steep the growth is, not that it is a power of the depth; they say "
            "nothing of circuits whose activity grows or dies out."
        ],
        plots=[stacking_figure(values, how) for how in ROUNDING],
    )


def fit(values: Sequence[Values]) -> Exponents:
    """Every seed's exponents."""
    seeds = sorted({v["seed"] for v in values})
    widths = sorted({v["n_neurons"] for v in values})
    found: dict[tuple[str, str, str], list[float]] = {}
    for arm in ARMS:
        first = 1 if arm == OWN else 2
        for how in ROUNDING:
            for seed in seeds:
                mine = [v for v in values if v["seed"] == seed]
                rms = {n: [rms_at(mine, arm, n, how, k)[0] for k in _layers(mine)] for n in widths}
                by_width = [
                    exponent(widths, [rms[n][layer - 1] for n in widths])
                    for layer in range(first, len(_layers(mine)) + 1)
                ]
                deep = range(2, len(_layers(mine)) + 1)
                of_seed = {
                    "neurons": by_width,
                    "depth": [exponent(deep, r[1:]) for r in rms.values()],
                    "law": [
                        power_residual(deep, r[1:]) - exponential_residual(deep, r[1:])
                        for r in rms.values()
                    ],
                }
                for kind, values_of in of_seed.items():
                    found.setdefault((arm, how, kind), []).append(statistics.fmean(values_of))
    return found


def _layers(values: Sequence[Values]) -> range:
    return range(1, len(values[0]["plain"]) + 1)


def judge(exponents: Exponents) -> list[JudgedClaim]:
    """The claims, fixed on seeds 0 to 11."""
    some = exponents[OWN, "plain", "neurons"]
    units = f"{len(some)} circuits"
    saved = [
        plain - rounded
        for plain, rounded in zip(
            exponents[RANDOM, "plain", "depth"], exponents[RANDOM, "rounded", "depth"], strict=True
        )
    ]
    claims = [
        SeedClaim(
            "on axes of their own the error falls about as the root of the neurons (exponent "
            "-0.65 to -0.4)",
            some,
            units=units,
            above=-0.65,
            below=-0.4,
            overturned_by="an exponent near -1 or 0 at more neurons",
        ),
        SeedClaim(
            "along random f-vectors it does not depend on the neurons (exponent -0.1 to 0.1)",
            exponents[RANDOM, "plain", "neurons"],
            units=units,
            above=-0.1,
            below=0.1,
            overturned_by="an error that falls with neurons at the same axes",
        ),
        SeedClaim(
            "along random f-vectors it grows with depth, layers 2 to 6 (exponent 0.9 to 1.5)",
            exponents[RANDOM, "plain", "depth"],
            units=units,
            above=0.9,
            below=1.5,
            overturned_by="errors that double every layer, or stop growing",
        ),
        SeedClaim(
            "and there neither a power of the depth nor a factor a layer fits much better (rms "
            "residuals within 0.05 of each other)",
            exponents[RANDOM, "plain", "law"],
            units=units,
            above=-0.05,
            below=0.05,
            overturned_by="residuals further apart over more layers",
        ),
        SeedClaim(
            "along f-vectors that are spread evenly it grows more slowly (exponent 0.4 to 0.9)",
            exponents[SPREAD, "plain", "depth"],
            units=units,
            above=0.4,
            below=0.9,
            overturned_by="the same growth as along random f-vectors",
        ),
        SeedClaim(
            "rounding takes more than 0.4 off the exponent of depth along random f-vectors",
            saved,
            units=units,
            above=0.4,
            overturned_by="rounded errors that grow as fast as others",
        ),
        SeedClaim(
            "rounded and spread evenly it hardly grows (exponent below 0.5)",
            exponents[SPREAD, "rounded", "depth"],
            units=units,
            below=0.5,
            overturned_by="an exponent of 0.5 or more at these loads",
        ),
    ]
    return judged(claims)


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """A clause for each claim, by its judgement."""
    own, width, random, law, spread, saved, rounded = findings
    axes = outcome_in_words(
        own,
        "On axes of their own the error falls about as the root of the neurons, exponent",
        "On axes of their own the error does not fall as the root of the neurons, exponent",
        "How the error falls with neurons on axes of their own",
    )
    neurons = outcome_in_words(
        width,
        f"along {AXES} axes of random f-vectors more neurons do not help, exponent",
        f"along {AXES} axes of random f-vectors it depends on the neurons, exponent",
        f"whether more neurons help along {AXES} axes of random f-vectors",
    )
    grows = outcome_in_words(
        random,
        "There it grows from layer 2 to 6, by an exponent of",
        "There it grows otherwise than claimed from layer 2 to 6, exponent",
        "How it grows there from layer 2 to 6, by its exponent,",
    )
    shape = outcome_in_words(
        law,
        "these layers do not tell a power of the depth from a factor a layer, residuals differ by",
        "a factor a layer fits better than a power of the depth, residuals differ by"
        if law.value > 0
        else "a power of the depth fits better than a factor a layer, residuals differ by",
        "whether as a power or by a factor a layer",
    )
    even = outcome_in_words(
        spread,
        "Along evenly spread ones it grows more slowly, exponent",
        "Along evenly spread ones it grows otherwise than claimed, exponent",
        "Its exponent along evenly spread ones",
    )
    less = outcome_in_words(
        saved,
        "rounding every layer takes off the first exponent",
        "rounding every layer takes less than 0.4 off the first exponent",
        "what rounding every layer takes off the first exponent",
    )
    flat = outcome_in_words(
        rounded,
        "and leaves little of the second:",
        "and leaves 0.5 or more of the second:",
        "and what it leaves of the second",
    )
    return f"{axes}; {neurons}. {grows}; {shape}. {even}; {less}, {flat}."


def _table(values: Sequence[Values]) -> Table:
    widths = sorted({v["n_neurons"] for v in values})
    rows = [
        [
            arm,
            how,
            n,
            *(statistics.median(rms_at(values, arm, n, how, k)) for k in _layers(values)),
        ]
        for arm in ARMS
        for how in ROUNDING
        for n in widths
    ]
    columns = ["way", "readoffs", "neurons", *(f"layer {k}" for k in _layers(values))]
    return Table("Root mean square errors", columns, rows, "Medians over seeds.")


def _exponent_table(exponents: Exponents) -> Table:
    rows = [
        [arm, how, kind, statistics.fmean(found), min(found), max(found)]
        for (arm, how, kind), found in exponents.items()
    ]
    columns = ["way", "readoffs", "of", "mean", "lowest seed", "highest seed"]
    caption = (
        "Law: the rms residual of ln rms about a power of the depth less that about a factor a "
        "layer; above 0 where the factor fits better."
    )
    return Table("Exponents, and which law fits", columns, rows, caption)


STACKED_ERRORS = Artefact(
    name=NAME,
    summary="how errors grow when U-AND is stacked: depth, neurons, rounding",
    source=SOURCE,
    presets={"small": f"{SEEDS} circuits, {len(NEURONS)} widths; about 3 minutes"},
    run=study,
    first_seed=FRESH,
)
