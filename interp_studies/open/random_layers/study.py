"""Which random layers compute universal AND, and from which width: `open/random-layers`.

m features with an axis each, all inputs with up to three on. A random layer's neurons are read for
the AND of every pair by fitted readoffs (`UANDReadout`), fitted on four fifths of the inputs and
measured on the rest; its error is the mean over pairs of the worst error after the best gain and
bias, and the width that it needs is where this mean crosses the 1/4 of an affine function, between
two widths measured, on logarithms. At that width many a pair is still above 1/4. Nothing of the
weights is trained.

    construction  0/1 weights, bias -1, at the density a search gives ("Computation in
                  superposition", section 1.2), read by the same fitted readoffs
    gaussian      relu(w x + b), all normal
    sparse        the same with one weight in five
    squares       (w x)^2
    gated         relu(w x + b) (v x + c)
    linear        w x + b: the control, which can have no error below 1/4

The question is that section's and section 2's ("Is universal calculation generic?").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.jobs.attempt import Job
from interp_studies.jobs.runner import Runner
from interp_studies.open.claim import JudgedClaim
from interp_studies.open.random_layers.figures import (
    AT,
    error_figure,
    error_table,
    width_figure,
    width_table,
)
from interp_studies.open.random_layers.layers import KINDS, RANDOM
from interp_studies.open.random_layers.width import layers_job, needed_width
from interp_studies.open.result import FRESH, OpenResult, open_result
from interp_studies.open.seed_claim import (
    SeedClaim,
    in_words,
    judged,
    outcome_in_words,
)
from interp_studies.power_law import exponent
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.registry import Artefact

NAME = "open/random-layers"
SOURCE = "Computation in superposition, sections 1.2 and 2 (left open)"
QUESTION = "Which random layers compute universal AND without being trained, from which width?"
SEEDS = 8
FEATURES = (12, 16, 24, 32, 40)
WIDTHS = (24, 48, 96, 192, 384, 768)
MOST_ON, HELD_OUT = 3, 5

Values = Mapping[str, Any]


def study_jobs(seeds: Sequence[int]) -> list[Job]:
    """A job for each seed and setting."""
    return [
        Job(
            f"{kind}-{m}-seed-{seed}",
            layers_job,
            {
                "kind": kind,
                "n_features": m,
                "widths": list(WIDTHS[:3] if kind == "linear" else WIDTHS),
                "most_on": MOST_ON,
                "held_out": HELD_OUT,
                "seed": seed,
            },
            cost=float(m) ** 3,
        )
        for kind in KINDS
        for m in FEATURES
        for seed in seeds
    ]


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Draw, read, judge; `seeds` overrides how many draws."""
    numbers = runner.seeds(seeds or SEEDS)
    found = runner.run(study_jobs(numbers))
    values = list(found.values())
    findings = judge(fit(values))
    settings = {
        "preset": preset,
        "features": list(FEATURES),
        "widths": list(WIDTHS),
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
        details=[width_table(values), error_table(values)],
        notes=[
            f"Features with an axis each, {min(FEATURES)} to {max(FEATURES)}, up to {MOST_ON} on; "
            "weights of one scale a kind. The width is of a mean over pairs: at it pairs are left "
            "above 1/4. Readoffs are fitted, so the claim is that ANDs can be read, not that "
            "anything reads them."
        ],
        plots=[width_figure(values), error_figure(values)],
    )


Fitted = Mapping[str, Sequence[float]]


def fit(values: Sequence[Values]) -> Fitted:
    """By seed: each kind's exponent of width in features, widths at AT beside, the control.

    Not finite where a width that it takes lies outside the widths measured.
    """
    seeds = sorted({v["seed"] for v in values})
    found: dict[str, list[float]] = {}
    for seed in seeds:
        mine = [v for v in values if v["seed"] == seed]
        width = {
            (v["kind"], v["n_features"]): needed_width(v["widths"], v["error"])
            for v in mine
            if v["kind"] != "linear"
        }
        sizes = sorted({v["n_features"] for v in mine})
        for kind in RANDOM:
            needed = [width[kind, m] for m in sizes]
            inside = all(0 < w < math.inf for w in needed)
            of = exponent(sizes, needed) if inside else math.nan
            found.setdefault(kind, []).append(of)
        at = AT if AT in sizes else sizes[-1]
        for kind in ("gaussian", "sparse", "gated"):
            against = "construction" if kind == "gaussian" else "gaussian"
            ratio = width[kind, at] / width[against, at] if width[against, at] else math.nan
            found.setdefault(f"{kind} beside", []).append(ratio)
        linear = [e for v in mine if v["kind"] == "linear" for e in v["error"]]
        found.setdefault("linear", []).append(min(linear))
    return found


def judge(fitted: Fitted) -> list[JudgedClaim]:
    """The claims, fixed on seeds 0 to 7."""
    units = f"{len(fitted['linear'])} draws"
    claims: list[tuple[str, str, dict[str, Any], str]] = [
        (
            "gaussian",
            "a Gaussian ReLU layer needs a width about in proportion to the features (exponent "
            "0.6 to 1.3)",
            {"above": 0.6, "below": 1.3},
            "an exponent near 2 at more features",
        ),
        (
            "construction",
            "the construction's width grows more slowly than the features (exponent 0.5 to 1)",
            {"above": 0.5, "below": 1.0},
            "an exponent of 1 or more at more features",
        ),
        (
            "squares",
            "squares need a width that grows faster (exponent above 1.4)",
            {"above": 1.4},
            "an exponent near 1",
        ),
        (
            "gaussian beside",
            f"at {AT} features a Gaussian layer needs 0.8 to 1.25 times the construction's width",
            {"above": 0.8, "below": 1.25},
            "a ratio outside at more features",
        ),
        (
            "gated beside",
            f"at {AT} features a gated layer needs 0.8 to 1.25 times a Gaussian ReLU layer's",
            {"above": 0.8, "below": 1.25},
            "a ratio outside at another scale of weights",
        ),
        (
            "sparse beside",
            f"at {AT} features a layer with one weight in five needs more than 1.2 times as many",
            {"above": 1.2},
            "a ratio near 1 at another scale of biases",
        ),
        (
            "linear",
            "without a nonlinearity the error stays above 1/4",
            {"above": AFFINE, "check": True},
            "any such layer below: then the readoffs know more than the inputs say",
        ),
    ]
    return judged(
        [
            SeedClaim(
                words,
                fitted[key],
                units=units,
                **bounds,
                overturned_by=said,
                factor=key.endswith("beside"),
            )
            for key, words, bounds, said in claims
        ]
    )


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """A clause for each claim, by its judgement."""
    gaussian, construction, squares, beside, gated, sparse, _ = findings
    relu = outcome_in_words(
        gaussian,
        "is about in proportion to the features for Gaussian ReLU layers, exponent",
        "is not in proportion to the features for Gaussian ReLU layers, exponent",
        "for Gaussian ReLU layers its exponent in the features",
    )
    built = outcome_in_words(
        construction,
        "grows more slowly for the construction, exponent",
        "is not of an exponent of 0.5 to 1 for the construction:",
        "for the construction the exponent",
    )
    faster = outcome_in_words(
        squares,
        "faster for squares, exponent",
        "no faster than 1.4 for squares, exponent",
        "for squares the exponent",
    )
    ratios = (
        f"the construction's width to a Gaussian layer {in_words(beside)}, a Gaussian layer's to a "
        f"gated one {in_words(gated)}, to a sparse one {in_words(sparse)}"
    )
    return (
        "The width at which the mean over pairs of the worst error falls below 1/4, which leaves "
        f"pairs above: {relu}; {built}; {faster}. Factors at {AT} features, from {ratios}."
    )


RANDOM_LAYERS = Artefact(
    name=NAME,
    summary="which random layers compute universal AND, and from which width",
    source=SOURCE,
    presets={"small": f"{SEEDS} draws of {len(KINDS)} kinds of layers; about 3 minutes"},
    run=study,
    first_seed=FRESH,
)
