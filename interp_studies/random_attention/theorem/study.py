"""Theorem 5.1 in practice: functions that frozen heads fit, and that fixed mixing does not.

The theorem: one layer of attention with frozen random queries and keys, followed by an MLP,
approximates every continuous causal function arbitrarily well with enough heads. Its proof states
that the heads' outputs suffice if W_V is fitted, and that MixiT's do not, because they are linear
in the tokens. Both kinds of heads are fitted here to the functions of `fits`, at equal sizes and on
equal rows, for growing numbers of heads: once with W_V alone, and once with W_V and an MLP (see
`fits`). Errors are measured on held-out rows, separately for the first position and the later ones.

The definitions alone imply:

- every head reads h_1 at the first position, so W_V alone is linear there: the proof's random
  features do not suffice for the theorem, and the MLP is needed;
- without positions in h a head cannot distinguish the order of the tokens before its own: any fit
  misses the previous token by at least √(7/18) of its standard deviation;
- MixiT with W_V alone is linear, and more than m(m + 1)/2 - (m - 1) heads add nothing; but with as
  many heads its outputs determine the tokens, and an MLP can compute any function of them.

Statements that follow from the definitions are checks, not claims. With W_V alone, more heads
include the fits of fewer heads, so errors can hardly rise; a claim about their exponent has a bound
away from 0, which was set after seeds 0 to 4 were seen.

Source: "Is random attention sufficient for sequence modeling?", theorem 5.1 and appendix B, which
give no numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interp_studies.claims import JudgedClaim, SeedClaim, counted, in_words, judged
from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.random_attention.figures import ranged
from interp_studies.random_attention.theorem.fits import (
    FIRST,
    FUNCTIONS,
    LATER,
    POSITIONS,
    BlockSizes,
    draw,
    errors,
    exponent,
    fit_block,
    fit_values,
    linear_bound,
    values,
)
from interp_studies.random_attention.theorem.heads import (
    HEADS,
    Heads,
    features,
    lift,
    mixing_rank,
    nonlinearity,
)
from interp_studies.result import FRESH, Quantity, StudyResult, compare, compare_range
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Figure, Table

WHOSE = "by definition"  # what the source's equations say exactly; its theorem has no numbers
NONLINEAR = FUNCTIONS[1:]  # the first, the token before, is linear
SPAN = POSITIONS * (POSITIONS + 1) // 2 - (POSITIONS - 1)  # of mixing matrices
FROM = 8  # heads that the exponents begin at, SPAN or more
FALLS = 0.75  # of the error with one head, below which it counts as fallen with an MLP
KEEPS = 0.99  # of the error with FROM heads, above which it counts as standing still
WITHOUT_ORDER = float(np.sqrt(7 / 18))  # see the module: the mean over t of (1 - 1/t), t = 1, 2, 3
EXPONENT = -0.1  # of the error in the heads, above which it hardly falls
ROUNDING = 1e-12
PANELS_A_ROW = 3  # of the figures


@dataclass(frozen=True)
class TheoremSizes:
    """Sizes of a preset.

    Attributes:
        values_heads, block_heads: numbers of heads, with W_V alone and with the MLP.
        values_rows, block_rows: numbers of sequences for fitting.
        held_out: number of sequences for evaluation.
        block: settings of the layer's training.
        seeds: number of seeds.
    """

    values_heads: tuple[int, ...]
    block_heads: tuple[int, ...]
    values_rows: int
    block_rows: int
    held_out: int
    block: BlockSizes
    seeds: int


PRESETS: Mapping[str, TheoremSizes] = {
    "small": TheoremSizes(
        (1, 2, 4, 8, 16, 32, 64, 128),
        (1, 2, 4, 8, 16),
        6_000,
        20_000,
        3_000,
        BlockSizes(32, 64, 800, 256, 1e-2),
        5,
    ),
    "paper": TheoremSizes(
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        (1, 2, 4, 8, 16, 32, 64),
        20_000,
        100_000,
        5_000,
        BlockSizes(64, 256, 8_000, 512, 5e-3),
        10,
    ),
}


def fit_job(*, folder: Path, sizes: Mapping[str, Any], seed: int) -> Outcome:
    """All fits of one seed, with errors on held-out rows.

    Args:
        folder: not used.
        sizes: the fields of a `TheoremSizes`.
        seed: random seed of rows, heads and weights.
    """
    chosen = TheoremSizes(**{**sizes, "block": BlockSizes(**sizes["block"])})
    return Outcome(fits_of(chosen, seed))


def fits_of(sizes: TheoremSizes, seed: int) -> dict[str, Any]:
    """All fits of one seed."""
    rng = np.random.default_rng(seed)
    train, small, test = (
        draw(n, rng) for n in (sizes.block_rows, sizes.values_rows, sizes.held_out)
    )
    targets = values(test)
    bound = linear_bound(test, targets)
    fits: list[dict[str, Any]] = []

    def fitted(heads: Heads, n_heads: int, *, block: bool, positions: bool = True) -> None:
        rows = train if block else small
        read, held_out = (
            features(lift(of, positions=positions), heads, n_heads, seed) for of in (rows, test)
        )
        predicted = (
            fit_block(read, values(rows), held_out, sizes.block, seed)
            if block
            else fit_values(read, values(rows), held_out)
        )
        fits.append(
            {
                "heads": heads,
                "fit": "values and MLP" if block else "values alone",
                "positions": positions,
                "n_heads": n_heads,
                "first": errors(predicted, targets, FIRST),
                "later": errors(predicted, targets, LATER),
            }
        )

    for heads in HEADS:
        for n_heads in sizes.values_heads:
            fitted(heads, n_heads, block=False)
        for n_heads in sizes.block_heads:
            fitted(heads, n_heads, block=True)
    fitted("frozen-qk", sizes.block_heads[-1], block=True, positions=False)
    width = lift(test[:1]).shape[-1]
    return {
        "seed": seed,
        "fits": fits,
        "linear": {
            "first": errors(bound, targets, FIRST),
            "later": errors(bound, targets, LATER),
        },
        "nonlinearity": {heads: nonlinearity(heads, POSITIONS, 4, seed) for heads in HEADS},
        "span": mixing_rank(POSITIONS, width, sizes.values_heads[-1], seed),
    }


Seeds = Sequence[Values]  # what each seed's job found


def grid(plan: Plan) -> Grid:
    """One job per seed, with every number of heads of both kinds."""
    sizes = asdict(PRESETS[plan.preset])
    return {
        seed: [Job(f"seed-{seed}", fit_job, {"sizes": sizes, "seed": seed})] for seed in plan.seeds
    }


MEASURED = {
    "values alone": "W_V alone is fitted, by least squares",
    "values and MLP": "W_V and an MLP are trained, so that errors are upper bounds",
}


def error(
    of: Mapping[str, Any],
    heads: Heads,
    fit: str,
    n_heads: int,
    function: str,
    where: str = "later",
    *,
    positions: bool = True,
) -> float:
    """The error of one fit of a seed."""
    one = next(
        f
        for f in of["fits"]
        if (f["heads"], f["fit"], f["n_heads"], f["positions"]) == (heads, fit, n_heads, positions)
    )
    return float(one[where][function])


def claims(runs: Seeds, sizes: TheoremSizes) -> list[SeedClaim]:
    """The claims about every seed; the module explains their reasons."""
    alone, block = "values alone", "values and MLP"
    most, most_block = sizes.values_heads[-1], sizes.block_heads[-1]
    counted = [n for n in sizes.values_heads if n >= FROM]

    def falls(of: Mapping[str, Any], function: str) -> float:
        return exponent({n: error(of, "frozen-qk", alone, n, function) for n in counted})

    def worst_ratio(of: Mapping[str, Any], heads: Heads) -> float:
        return max(
            error(of, heads, block, most_block, f) / error(of, heads, block, 1, f)
            for f in FUNCTIONS
        )

    def stands_still(of: Mapping[str, Any]) -> float:
        return min(
            error(of, "mixit", alone, most, f) / error(of, "mixit", alone, FROM, f)
            for f in NONLINEAR
        )

    return [
        *(
            SeedClaim(
                f"frozen-qk, W_V alone, {function}: the error's exponent in the heads, {FROM} to "
                f"{most}, is below {EXPONENT:g} (less than {(most / FROM) ** EXPONENT:.2f} of the "
                "error is left)",
                [falls(of, function) for of in runs],
                below=EXPONENT,
                overturned_by="an error that hardly falls as heads are added",
            )
            for function in FUNCTIONS
        ),
        SeedClaim(
            f"frozen-qk, W_V alone, first position: {most} heads leave the square with an error "
            "above 0.9",
            [error(of, "frozen-qk", alone, most, "square", "first") for of in runs],
            above=0.9,
            overturned_by="heads whose readings at the first position differ",
            check=True,
        ),
        SeedClaim(
            f"MixiT, W_V alone: of what {FROM} heads leave, {most} leave {KEEPS:g} or more, in "
            "every function that is not linear",
            [stands_still(of) for of in runs],
            above=KEEPS,
            overturned_by="a head beyond the span's dimension that helps",
            check=True,
        ),
        SeedClaim(
            f"{most} heads, W_V alone: frozen-qk's error over MixiT's is below 1 in every function "
            "that is not linear",
            [
                max(
                    error(of, "frozen-qk", alone, most, f) / error(of, "mixit", alone, most, f)
                    for f in NONLINEAR
                )
                for of in runs
            ],
            below=1.0,
            overturned_by="a function that is not linear and that MixiT's heads fit as well",
        ),
        *(
            SeedClaim(
                f"{heads}, W_V and MLP: {most_block} heads leave less than {FALLS:g} of one head's "
                "error in every function",
                [worst_ratio(of, heads) for of in runs],
                below=FALLS,
                overturned_by="a function whose error stands still",
            )
            for heads in HEADS
        ),
        SeedClaim(
            f"MixiT, W_V and MLP, {most_block} heads: the error over the best linear map's is "
            "below 1 in every function that is not linear",
            [
                max(
                    error(of, "mixit", block, most_block, f) / of["linear"]["later"][f]
                    for f in NONLINEAR
                )
                for of in runs
            ],
            below=1.0,
            overturned_by="an MLP behind fixed mixing that does no better than a linear map",
        ),
        SeedClaim(
            f"W_V and MLP, {most_block} heads: frozen-qk's error over MixiT's is below 1 in "
            "retrieval",
            [
                error(of, "frozen-qk", block, most_block, "retrieval")
                / error(of, "mixit", block, most_block, "retrieval")
                for of in runs
            ],
            below=1.0,
            overturned_by="fixed mixing that retrieves as well at this size",
        ),
        SeedClaim(
            f"frozen-qk without positions, W_V and MLP, {most_block} heads: the token before is "
            f"missed by more than 0.6 (the least there can be: {WITHOUT_ORDER:.3f})",
            [error(of, "frozen-qk", block, most_block, "previous", positions=False) for of in runs],
            above=0.6,
            overturned_by="heads that tell the order of tokens without positions",
            check=True,
        ),
    ]


def error_quantities(runs: Seeds, sizes: TheoremSizes) -> list[Quantity]:
    """Errors with the most heads, and quantities that the definitions determine exactly."""
    listed = [
        compare_range(
            "MixiT's attention",
            "distance from linear",
            [of["nonlinearity"]["mixit"] for of in runs],
            (0.0, 0.0),
            tolerance=ROUNDING,
            remark="the toolkit's layer in float64; exactly linear by eq. 2.3",
        ),
        compare(
            "frozen-qk's attention",
            "distance from linear",
            [of["nonlinearity"]["frozen-qk"] for of in runs],
            unit="",
        ),
        compare_range(
            "MixiT's attention",
            f"dimensions that {sizes.values_heads[-1]} mixing matrices span",
            [float(of["span"]) for of in runs],
            (float(SPAN), float(SPAN)),
            remark="m(m + 1)/2 - (m - 1)",
        ),
    ]
    fits = {"values alone": sizes.values_heads[-1], "values and MLP": sizes.block_heads[-1]}
    for function in FUNCTIONS:
        bound = [of["linear"]["later"][function] for of in runs]
        listed.append(compare(function, "error of the best linear map", bound, unit=""))
        for fit, n_heads in fits.items():
            for heads in HEADS:
                ours = [error(of, heads, fit, n_heads, function) for of in runs]
                listed.append(
                    compare(function, f"error, {heads}, {fit}, {n_heads} heads", ours, unit="")
                )
    return listed


def verdict(runs: Seeds, findings: Sequence[JudgedClaim], sizes: TheoremSizes) -> str:
    """The verdict: all estimates, and the conclusion from the confirmed claims."""
    n = len(FUNCTIONS)
    exponents = sorted(findings[:n], key=lambda f: f.value)
    first, still, _, qk, mixit, beats, retrieves, order = findings[n:]
    linear, bent = (
        max(of["nonlinearity"][heads] for of in runs) for heads in ("mixit", "frozen-qk")
    )
    most, most_block = sizes.values_heads[-1], sizes.block_heads[-1]
    text = [
        f"Functions of {POSITIONS} tokens, held-out error: if only W_V is trained, as in the "
        f"source's proof, that of frozen-qk falls as heads^{in_words(exponents[0])} to "
        f"heads^{in_words(exponents[-1])} after the first position; at the first, where every "
        f"head reads the token itself, {most} heads leave {in_words(first)} of the square's "
        "error.",
        f"MixiT's attention is linear to {linear:.0e} (frozen-qk's deviates by {bent:.2f}), and "
        f"if only W_V is trained, {most} of its heads leave {in_words(still)} of the error of "
        f"{FROM}.",
        f"With an MLP after the heads, {most_block} leave at most {in_words(qk)} of one head's "
        f"error in frozen-qk and {in_words(mixit)} in MixiT; in retrieval frozen-qk's error is "
        f"{in_words(retrieves)} of MixiT's.",
        "Without position embeddings, frozen-qk has an error on the previous token of "
        f"{in_words(order)}.",
    ]
    if linear <= ROUNDING and beats.judgement == "confirmed":
        text.append(
            "The source says that MixiT can fit linear functions only. This holds for its "
            "attention but not for its layer: with its MLP, its error is below that of any "
            f"linear map on every nonlinear function ({', '.join(NONLINEAR)}), on sequences this "
            "short."
        )
    if first.judgement == "confirmed":
        text.append("The theorem needs the MLP, which its proof does not use.")
    text.append(
        f"{counted(findings)}; finitely many heads and functions can support a theorem but not "
        "prove it."
    )
    return " ".join(text)


def by_heads_figure(runs: Seeds, fit: str, measured: str) -> Figure:
    """One panel per function with both kinds of heads and, dashed, the best linear map.

    Args:
        runs: results of each seed's job.
        fit: name of the fit.
        measured: how the fit is made, for the caption.
    """
    panels = plots.beside(len(FUNCTIONS), PANELS_A_ROW)
    data: list[plots.Part] = []
    layout: plots.Part = {"annotations": [], "height": 560}
    for function, panel in zip(FUNCTIONS, panels, strict=True):
        listed = panel.number == 0
        across: list[int] = []
        for heads, color, symbol in zip(HEADS, CLASS_COLORS, plots.SYMBOLS, strict=False):
            points: dict[int, list[float]] = {}  # the seeds' errors by number of heads
            for of in runs:
                for one in of["fits"]:
                    if (one["heads"], one["fit"], one["positions"]) == (heads, fit, True):
                        points.setdefault(one["n_heads"], []).append(one["later"][function])
            points = dict(sorted(points.items()))
            across = list(points)
            line = ranged(across, list(points.values()), color, heads, symbol)
            data.append(line | plots.grouped(heads, listed=listed) | panel.trace)
        least = statistics.median(of["linear"]["later"][function] for of in runs)
        if least > 1e-6:  # a function that is linear has no such line
            line = plots.dashed([across[0], across[-1]], [least] * 2, "best linear map")
            data.append(line | plots.grouped("linear", listed=panel.number == 1) | panel.trace)
        x = plots.axis("heads" if panel.lowest else "", "log")
        x |= plots.ticks(across, [str(n) for n in across])
        y = plots.axis("error" if panel.leftmost else "", "log")
        layout |= panel.layout(x, y)
        layout["annotations"].append(panel.heading(function))
    caption = (
        f"Held-out error over the function's standard deviation at all positions but the first; "
        f"{measured}. Median and range over {len(runs)} seeds."
    )
    return Figure(f"Error by number of heads, {fit}", caption, data, layout)


def report(run: StudyRun) -> StudyResult:
    """The claims, and the errors of every fit."""
    runs, sizes = run.values, PRESETS[run.preset]
    findings = judged(claims(runs, sizes))
    rows = [
        [
            *(of["seed"], f["heads"], f["fit"], "yes" if f["positions"] else "no", f["n_heads"]),
            f["first"]["square"],
            *(f["later"][function] for function in FUNCTIONS),
        ]
        for of in runs
        for f in of["fits"]
    ]
    rows += [
        [
            *(of["seed"], "any", "best linear map", None, None, of["linear"]["first"]["square"]),
            *(of["linear"]["later"][function] for function in FUNCTIONS),
        ]
        for of in runs
    ]
    columns = ["seed", "heads", "fit", "positions", "number", "square, first", *FUNCTIONS]
    caption = (
        "Root mean square error over the function's standard deviation, held-out rows, at all "
        "positions but the first; the square's at the first too. The best linear map is fitted "
        "on the held-out rows themselves: no linear map does better there."
    )
    return run.result(
        verdict(runs, findings, sizes),
        settings={"sizes": asdict(sizes)},
        quantities=error_quantities(runs, sizes),
        claims=findings,
        whose=WHOSE,
        details=[Table("Every fit", columns, rows, caption)],
        plots=[by_heads_figure(runs, fit, measured) for fit, measured in MEASURED.items()],
    )


THEOREM_5_1 = Study(
    "random-attention/theorem-5-1",
    "approximation of continuous causal functions by frozen heads and by fixed mixing: error by "
    "number of heads",
    "Is random attention sufficient for sequence modeling?, theorem 5.1 and appendix B",
    {
        "small": "5 functions of 4 tokens, up to 128 heads (16 with an MLP), 5 seeds; minutes",
        "paper": "up to 512 heads (64 with an MLP), 10 seeds; the source gives no numbers",
    },
    grid,
    report,
    {preset: sizes.seeds for preset, sizes in PRESETS.items()},
    first_seed=FRESH,
)
