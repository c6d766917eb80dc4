"""Which random layers compute universal AND, and from which width: `open/random-layers`.

m features with an axis each, all inputs with up to three on. A random layer's neurons are read for
the AND of every pair by fitted readoffs (`UANDReadoff`), fitted on four fifths of the inputs and
measured on the rest; its error is the mean over pairs of the worst error after the best gain and
bias, and the width that it needs is where this crosses the 1/4 of an affine function, between the
widths measured, on logarithms. Nothing of the weights is trained.

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

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit import plots
from interp_toolkit.data.composites import all_composites
from interp_toolkit.epsilon import AFFINE
from interp_toolkit.errors import InputError
from interp_toolkit.palette import shade
from interp_toolkit.probes import UANDReadoff
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Figure, Table
from interp_toolkit.studies.jobs.attempt import Job, Outcome
from interp_toolkit.studies.jobs.runner import Runner
from interp_toolkit.studies.open.exponents import exponent
from interp_toolkit.studies.open.finding import Finding
from interp_toolkit.studies.open.result import FRESH, OpenResult, open_evidence
from interp_toolkit.studies.open.seed_claim import SeedClaim, in_words, judged
from interp_toolkit.studies.result import study_provenance
from interp_toolkit.toys.superposition.layers.density import choose_density

NAME = "open/random-layers"
SOURCE = "Computation in superposition, sections 1.2 and 2 (left open)"
QUESTION = "Which random layers compute universal AND without being trained, from which width?"
SEEDS = 8
FEATURES = (12, 16, 24, 32, 40)
WIDTHS = (48, 96, 192, 384, 768)
MOST_ON, HELD_OUT = 3, 5
SPARSE = 0.2
AT = 32  # features at which widths are compared

Values = Mapping[str, Any]
Inputs = Float[np.ndarray, "input feature"]


def _gaussian(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray(np.maximum(_affine(x, width, rng), 0))


def _affine(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray(x @ rng.standard_normal((x.shape[1], width)) + rng.standard_normal(width))


def _sparse(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    shape = (x.shape[1], width)
    weights = rng.standard_normal(shape) * (rng.random(shape) < SPARSE)
    return np.asarray(np.maximum(x @ weights + rng.standard_normal(width) / 2, 0))


def _squares(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray((x @ rng.standard_normal((x.shape[1], width))) ** 2)


def _gated(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray(_gaussian(x, width, rng) * _affine(x, width, rng))


def _construction(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    try:
        density = choose_density(x.shape[1], width)
    except InputError:  # too narrow for its own readoffs: about one pair without neurons a pair
        density = min(0.9, 1 / np.sqrt(width))
    return np.asarray(np.maximum(x @ (rng.random((x.shape[1], width)) < density) - 1.0, 0))


KINDS: Mapping[str, Callable[[Inputs, int, np.random.Generator], Float[np.ndarray, "input _"]]] = {
    "construction": _construction,
    "gaussian": _gaussian,
    "sparse": _sparse,
    "squares": _squares,
    "gated": _gated,
    "linear": _affine,
}
RANDOM = tuple(kind for kind in KINDS if kind != "linear")


def layers_job(
    *, folder: Path, kind: str, n_features: int, widths: Sequence[int], seed: int
) -> Outcome:
    """One kind of layer on so many features, at every width."""
    rng = np.random.default_rng([seed, n_features])
    on = rng.permutation(all_composites(n_features, MOST_ON))
    x = on.astype(np.float64)
    found = [mean_error(KINDS[kind](x, width, rng), on) for width in widths]
    return Outcome(
        {
            "kind": kind,
            "n_features": n_features,
            "seed": seed,
            "widths": list(widths),
            "error": [error for error, _ in found],
            "read": [read for _, read in found],
        }
    )


def mean_error(
    activations: Float[np.ndarray, "input neuron"], on: Bool[np.ndarray, "input feature"]
) -> tuple[float, float]:
    """The mean over pairs of the worst held-out error after offset; the share below 1/4."""
    fitted = len(on) - len(on) // HELD_OUT
    readoff = UANDReadoff(n_jobs=1).fit(activations[:fitted], on[:fitted])
    worst = readoff.errors(activations[fitted:], on[fitted:]).worst_after_offset
    worst = worst[~np.isnan(worst)]
    return float(worst.mean()), float((worst < AFFINE).mean())


def needed_width(widths: Sequence[int], errors: Sequence[float]) -> float:
    """Where the error crosses 1/4, on logarithms; beyond the ends the end's line goes on."""
    x, y = np.log(np.array(widths, dtype=float)), np.log(np.array(errors))
    below = np.flatnonzero(y < np.log(AFFINE))
    place = int(np.clip(below[0] if len(below) else len(x) - 1, 1, len(x) - 1))
    slope = (y[place] - y[place - 1]) / (x[place] - x[place - 1])
    return float(np.exp(x[place] + (np.log(AFFINE) - y[place]) / slope))


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Draw, read, judge; `seeds` overrides how many draws."""
    numbers = runner.seeds(seeds or SEEDS)
    jobs = [
        Job(
            f"{kind}-{m}-seed-{seed}",
            layers_job,
            {
                "kind": kind,
                "n_features": m,
                "widths": list(WIDTHS[:2] if kind == "linear" else WIDTHS),
                "seed": seed,
            },
            cost=float(m) ** 3,
        )
        for kind in KINDS
        for m in FEATURES
        for seed in numbers
    ]
    found = runner.run(jobs)
    values = list(found.values())
    findings = judge(fit(values))
    settings = {
        "preset": preset,
        "seeds": len(numbers),
        "features": list(FEATURES),
        "widths": list(WIDTHS),
        "most_on": MOST_ON,
    }
    return OpenResult(
        probe=NAME,
        verdict=_verdict(findings),
        evidence=open_evidence(findings, numbers),
        provenance=study_provenance(NAME, SOURCE, settings, runner.first_seed),
        question=QUESTION,
        findings=findings,
        jobs=found,
        details=[_width_table(values), _error_table(values)],
        notes=[
            f"Features with an axis each, {min(FEATURES)} to {max(FEATURES)}, up to {MOST_ON} on; "
            "weights of one scale a kind. The width is of a mean over pairs; single pairs may need "
            "more. Readoffs are fitted, so the claim is that ANDs can be read, not that anything "
            "reads them."
        ],
        plots=[_width_figure(values), _error_figure(values)],
    )


Fitted = Mapping[str, Sequence[float]]


def fit(values: Sequence[Values]) -> Fitted:
    """By seed: each kind's exponent of width in features, widths at AT beside, the control."""
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
            of = exponent(sizes, [width[kind, m] for m in sizes])
            found.setdefault(kind, []).append(of)
        at = AT if AT in sizes else sizes[-1]
        for kind in ("gaussian", "sparse", "gated"):
            against = "construction" if kind == "gaussian" else "gaussian"
            found.setdefault(f"{kind} beside", []).append(width[kind, at] / width[against, at])
        linear = [e for v in mine if v["kind"] == "linear" for e in v["error"]]
        found.setdefault("linear", []).append(min(linear))
    return found


def judge(fitted: Fitted) -> list[Finding]:
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
            "so does the construction (exponent 0.5 to 1.1)",
            {"above": 0.5, "below": 1.1},
            "an exponent near 2 at more features",
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
            {"above": AFFINE},
            "any such layer below: then the readoffs know more than the inputs say",
        ),
    ]
    return judged(
        [
            SeedClaim(words, fitted[key], **bounds, overturned_by=said, units=units)
            for key, words, bounds, said in claims
        ]
    )


def _verdict(findings: Sequence[Finding]) -> str:
    gaussian, construction, squares, beside, gated, sparse, _ = findings
    return (
        "All random layers with a nonlinearity do, once they are wide enough: the width at which "
        f"the mean worst error falls below 1/4 grows as the features to the power "
        f"{in_words(gaussian)} for Gaussian ReLU layers, {in_words(construction)} for the "
        f"construction and {in_words(squares)} for squares; at {AT} features a Gaussian layer "
        f"needs {in_words(beside)} times the construction's, a gated one {in_words(gated)} and a "
        f"sparse one {in_words(sparse)} times the Gaussian's."
    )


def _widths(values: Sequence[Values], kind: str, m: int) -> list[float]:
    kept = [v for v in values if v["kind"] == kind and v["n_features"] == m]
    return [needed_width(v["widths"], v["error"]) for v in kept]


def _width_table(values: Sequence[Values]) -> Table:
    sizes = sorted({v["n_features"] for v in values})
    rows = [
        [kind, *(round(statistics.median(_widths(values, kind, m))) for m in sizes)]
        for kind in RANDOM
    ]
    caption = "Neurons at which the mean worst error after offset crosses 1/4; medians over draws."
    return Table("Width needed", ["layer", *(f"m = {m}" for m in sizes)], rows, caption)


def _error_table(values: Sequence[Values]) -> Table:
    rows = [
        [v["kind"], v["n_features"], v["seed"], width, error, read]
        for v in values
        for width, error, read in zip(v["widths"], v["error"], v["read"], strict=True)
    ]
    columns = ["layer", "features", "draw", "neurons", "mean worst error", "pairs below 1/4"]
    return Table("Every layer", columns, rows)


def _width_figure(values: Sequence[Values]) -> Figure:
    sizes = sorted({v["n_features"] for v in values})
    data = [
        plots.line(
            sizes,
            [statistics.median(_widths(values, kind, m)) for m in sizes],
            shade(place, len(RANDOM)),
            kind,
        )
        | plots.marked(plots.symbol(place), size=8)
        for place, kind in enumerate(RANDOM)
    ]
    pairs = [m * (m + 1) / 2 for m in sizes]
    data.append(plots.dashed(sizes, pairs, "m (m + 1) / 2, where squares are exact"))
    layout = plots.layout(plots.axis("features m", "log"), plots.axis("neurons needed", "log"))
    caption = "Where the mean over pairs of the worst held-out error crosses 1/4; medians."
    return Figure("Width needed to compute universal AND", caption, data, layout)


def _error_figure(values: Sequence[Values]) -> Figure:
    m = AT if any(v["n_features"] == AT for v in values) else values[0]["n_features"]
    data = []
    for place, kind in enumerate(KINDS):
        kept = [v for v in values if v["kind"] == kind and v["n_features"] == m]
        widths = kept[0]["widths"]
        medians = [statistics.median(v["error"][k] for v in kept) for k in range(len(widths))]
        data.append(plots.line(widths, medians, shade(place, len(KINDS)), kind) | plots.marked())
    layout = plots.layout(
        plots.axis("neurons", "log"), plots.axis("mean worst error") | plots.FROM_ZERO
    )
    layout |= {"shapes": [plots.at_y(AFFINE)]}
    caption = f"{m} features; the dashed line is the 1/4 of an affine function. Medians over draws."
    return Figure("Error against width", caption, data, layout)


RANDOM_LAYERS = Artefact(
    name=NAME,
    summary="which random layers compute universal AND, and from which width",
    source=SOURCE,
    presets={"small": f"{SEEDS} draws of {len(KINDS)} kinds of layers; about 3 minutes"},
    run=study,
    first_seed=FRESH,
)
