"""Which random layers compute universal AND, and from which width: `open/random-layers`.

Each of m features has its own dimension; the inputs are all sets of up to three features. The AND
of every pair is read from a random layer by fitted readouts (`UANDReadout`), which are fitted on
four fifths of the inputs and measured on the rest. The error is the mean over pairs of the worst
error after the best gain and bias. The width that a layer needs is where this mean falls below 1/4,
the error of an affine function, interpolated on logarithmic scales. At that width many pairs still
have an error above 1/4. No weight is trained.

    construction  0/1 weights, bias -1, with the best density found by a search ("Computation in
                  superposition", section 1.2), read by the same fitted readouts
    gaussian      relu(w x + b), with normal w and b
    sparse        as gaussian, with one weight in five
    squares       (w x)^2
    gated         relu(w x + b) (v x + c)
    linear        w x + b: the control, whose error cannot be below 1/4

Sections 1.2 and 2 ("Is universal calculation generic?") ask this question.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from interp_studies.claims import Claim, JudgedClaim, clauses, in_words, judge
from interp_studies.jobs.attempt import Outcome
from interp_studies.power_law import LEAST, exponent
from interp_studies.result import FRESH, StudyResult
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.plots import shade
from interp_toolkit.probes import UANDReadout
from interp_toolkit.results import Figure, Table
from interp_toolkit.toys.superposition.layers.layer import choose_density

SEEDS = 8
FEATURES = (12, 16, 24, 32, 40)
WIDTHS = (24, 48, 96, 192, 384, 768)
MOST_ON, HELD_OUT = 3, 5
AT = 32  # features at which kinds are compared
SPARSE = 0.2

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
    *,
    folder: Path,
    kind: str,
    n_features: int,
    widths: Sequence[int],
    most_on: int,
    held_out: int,
    seed: int,
) -> Outcome:
    """Errors of one kind of layer with `n_features` features, at every width."""
    rng = np.random.default_rng([seed, n_features])
    on = rng.permutation(all_composites(n_features, most_on))
    x = on.astype(np.float64)
    errors = [mean_error(KINDS[kind](x, width, rng), on, held_out) for width in widths]
    return Outcome(
        {
            "kind": kind,
            "n_features": n_features,
            "seed": seed,
            "widths": list(widths),
            "error": [error for error, _ in errors],
            "read": [read for _, read in errors],
        }
    )


def mean_error(
    activations: Float[np.ndarray, "input neuron"],
    on: Bool[np.ndarray, "input feature"],
    held_out: int,
) -> tuple[float, float]:
    """The mean over pairs of the worst error after offset, and the fraction of pairs below 1/4.

    Both are measured on every `held_out`-th input; the readouts are fitted on the others.
    """
    fitted = len(on) - len(on) // held_out
    readout = UANDReadout(n_jobs=1).fit(activations[:fitted], on[:fitted])
    worst = readout.errors(activations[fitted:], on[fitted:]).worst_after_offset
    worst = worst[~np.isnan(worst)]
    return float(worst.mean()), float((worst < AFFINE).mean())


def needed_width(widths: Sequence[int], errors: Sequence[float]) -> float:
    """The width where the error first falls below 1/4, interpolated on logarithmic scales.

    0 if the error at the smallest width is below 1/4, and infinity if none is: the width then lies
    outside the measured range.
    """
    x = np.log(np.array(widths, dtype=float))
    y = np.log(np.maximum(np.array(errors, dtype=float), LEAST))
    below = np.flatnonzero(y < np.log(AFFINE))
    if not len(below):
        return math.inf
    after = int(below[0])
    if after == 0:
        return 0.0
    share = (y[after - 1] - np.log(AFFINE)) / (y[after - 1] - y[after])
    return float(np.exp(x[after - 1] + share * (x[after] - x[after - 1])))


def grid(plan: Plan) -> Grid:
    """All kinds and numbers of features; linear layers only at the smallest widths."""
    return {
        (kind, m): plan.each_seed(
            f"{kind}-{m}",
            layers_job,
            cost=float(m) ** 3,
            kind=kind,
            n_features=m,
            widths=list(WIDTHS[:3] if kind == "linear" else WIDTHS),
            most_on=MOST_ON,
            held_out=HELD_OUT,
        )
        for kind in KINDS
        for m in FEATURES
    }


def measures(values: Sequence[Values]) -> dict[str, list[float]]:
    """By seed: each kind's exponent of width in features, widths at AT features, the control.

    Not finite if a required width lies outside the measured range.
    """
    by_seed: dict[str, list[float]] = {}
    for seed in sorted({v["seed"] for v in values}):
        of = [v for v in values if v["seed"] == seed]
        width = {
            (v["kind"], v["n_features"]): needed_width(v["widths"], v["error"])
            for v in of
            if v["kind"] != "linear"
        }
        sizes = sorted({v["n_features"] for v in of})
        for kind in RANDOM:
            needed = [width[kind, m] for m in sizes]
            inside = all(0 < w < math.inf for w in needed)
            by_seed.setdefault(kind, []).append(exponent(sizes, needed) if inside else math.nan)
        at = AT if AT in sizes else sizes[-1]
        for kind in ("gaussian", "sparse", "gated"):
            beside = width["construction" if kind == "gaussian" else "gaussian", at]
            ratio = width[kind, at] / beside if beside else math.nan
            by_seed.setdefault(f"{kind} beside", []).append(ratio)
        linear = min(e for v in of if v["kind"] == "linear" for e in v["error"])
        by_seed.setdefault("linear", []).append(linear)
    return by_seed


CLAIMS = [  # made on seeds 0 to 7
    Claim(
        "gaussian",
        "a Gaussian ReLU layer needs a width about proportional to the number of features "
        "(exponent 0.6 to 1.3)",
        above=0.6,
        below=1.3,
        overturned_by="an exponent near 2 at more features",
        clauses=(
            "about proportional to the number of features for Gaussian ReLU layers, exponent",
            "not proportional to the number of features for Gaussian ReLU layers, exponent",
            "for Gaussian ReLU layers its exponent in the features",
        ),
    ),
    Claim(
        "construction",
        "the construction's width grows more slowly than the features (exponent 0.5 to 1)",
        above=0.5,
        below=1.0,
        overturned_by="an exponent of 1 or more at more features",
        clauses=(
            "slower growth for the construction, exponent",
            "an exponent outside 0.5 to 1 for the construction:",
            "for the construction the exponent",
        ),
    ),
    Claim(
        "squares",
        "the width that squares need grows faster than the features (exponent above 1.4)",
        above=1.4,
        overturned_by="an exponent near 1",
        clauses=(
            "faster growth for squares, exponent",
            "an exponent of at most 1.4 for squares:",
            "for squares the exponent",
        ),
    ),
    Claim(
        "gaussian beside",
        f"at {AT} features a Gaussian layer needs 0.8 to 1.25 times the construction's width",
        above=0.8,
        below=1.25,
        overturned_by="a ratio outside at more features",
        factor=True,
    ),
    Claim(
        "gated beside",
        f"at {AT} features a gated layer needs 0.8 to 1.25 times a Gaussian ReLU layer's width",
        above=0.8,
        below=1.25,
        overturned_by="a ratio outside at another scale of weights",
        factor=True,
    ),
    Claim(
        "sparse beside",
        f"at {AT} features a sparse layer needs more than 1.2 times a Gaussian ReLU layer's width",
        above=1.2,
        overturned_by="a ratio near 1 at another scale of biases",
        factor=True,
    ),
    Claim(
        "linear",
        "without a nonlinearity the error stays above 1/4",
        above=AFFINE,
        overturned_by="any such layer below 1/4, which would be a fault of the code",
        check=True,
    ),
]


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """One clause for each claim about exponents, by its judgment, and the factors."""
    relu, built, faster, *_ = clauses(CLAIMS, findings)
    beside, gated, sparse = map(in_words, findings[3:6])
    return (
        "The width at which the mean over pairs of the worst error falls below 1/4 (some pairs "
        f"stay above): {relu}; {built}; {faster}. Ratios of widths at {AT} features: Gaussian "
        f"layer to construction {beside}, gated to Gaussian layer {gated}, sparse to Gaussian "
        f"layer {sparse}."
    )


def median_widths(values: Sequence[Values]) -> dict[tuple[str, int], float]:
    """The width that each kind needs, by kind and features; 0 or infinite outside the range."""
    widths: dict[tuple[str, int], list[float]] = {}
    for v in values:
        if v["kind"] in RANDOM:
            needed = needed_width(v["widths"], v["error"])
            widths.setdefault((v["kind"], v["n_features"]), []).append(needed)
    return {point: statistics.median(needed) for point, needed in widths.items()}


def width_table(values: Sequence[Values]) -> Table:
    """The width that each kind needs, by number of features."""
    widths, sizes = median_widths(values), sorted({v["n_features"] for v in values})
    outside = {
        0.0: f"below {min(min(v['widths']) for v in values)}",
        math.inf: f"above {max(max(v['widths']) for v in values)}",
    }
    rows = [
        [kind, *(outside[w] if (w := widths[kind, m]) in outside else round(w) for m in sizes)]
        for kind in RANDOM
    ]
    caption = (
        "Neurons at which the mean worst error after offset crosses 1/4, where that lies between "
        "widths measured; medians over draws."
    )
    return Table("Width needed", ["layer", *(f"m = {m}" for m in sizes)], rows, caption)


def width_figure(values: Sequence[Values]) -> Figure:
    """The width that each kind needs against the number of features."""
    widths, sizes = median_widths(values), sorted({v["n_features"] for v in values})
    data = [
        plots.line(
            sizes,
            [w if 0 < (w := widths[kind, m]) < math.inf else None for m in sizes],
            shade(number, len(RANDOM)),
            kind,
        )
        | plots.marked(plots.symbol(number), size=8)
        for number, kind in enumerate(RANDOM)
    ]
    pairs = [m * (m + 1) / 2 for m in sizes]
    data.append(plots.dashed(sizes, pairs, "m (m + 1) / 2, where squares are exact"))
    layout = plots.layout(plots.axis("features m", "log"), plots.axis("neurons needed", "log"))
    caption = "Where the mean over pairs of the worst held-out error crosses 1/4; medians."
    return Figure("Width needed to compute universal AND", caption, data, layout)


def error_figure(run: StudyRun) -> Figure:
    """The error of each kind against width, at AT features."""
    m = AT if AT in FEATURES else FEATURES[0]
    data = []
    for number, kind in enumerate(KINDS):
        seeds = run.by_point[kind, m]
        errors = zip(*(v["error"] for v in seeds), strict=True)
        medians = [statistics.median(at_width) for at_width in errors]
        color = shade(number, len(KINDS))
        data.append(plots.line(seeds[0]["widths"], medians, color, kind) | plots.marked())
    layout = plots.layout(
        plots.axis("neurons", "log"), plots.axis("mean worst error") | plots.FROM_ZERO
    )
    layout |= {"shapes": [plots.at_y(AFFINE)]}
    caption = f"{m} features; the dashed line is the 1/4 of an affine function. Medians over draws."
    return Figure("Error against width", caption, data, layout)


def report(run: StudyRun) -> StudyResult:
    """The claims, the needed widths, and the errors of all layers."""
    findings = judge(CLAIMS, measures(run.values), "draws")
    errors = [
        [v["kind"], v["n_features"], v["seed"], width, error, read]
        for v in run.values
        for width, error, read in zip(v["widths"], v["error"], v["read"], strict=True)
    ]
    columns = ["layer", "features", "draw", "neurons", "mean worst error", "pairs below 1/4"]
    return run.result(
        verdict(findings),
        settings={"features": list(FEATURES), "widths": list(WIDTHS), "most_on": MOST_ON},
        claims=findings,
        details=[width_table(run.values), Table("Every layer", columns, errors)],
        notes=[
            f"Features with an axis each, {min(FEATURES)} to {max(FEATURES)}, up to {MOST_ON} on; "
            "weights of one scale a kind. The width is of a mean over pairs: at it pairs are left "
            "above 1/4. Readoffs are fitted, so the claim is that ANDs can be read, not that "
            "anything reads them."
        ],
        plots=[width_figure(run.values), error_figure(run)],
    )


RANDOM_LAYERS = Study(
    "open/random-layers",
    "which random layers compute universal AND, and the width that they need",
    "Computation in superposition, sections 1.2 and 2 (left open)",
    {"small": f"{SEEDS} draws of {len(KINDS)} kinds of layers; about 3 minutes"},
    grid,
    report,
    SEEDS,
    question="Which random layers compute universal AND without being trained, from which width?",
    first_seed=FRESH,
)
