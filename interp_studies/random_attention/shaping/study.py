"""Unshaped mixing, with variance N(0, 1/m), compared with three shaped variances, by depth.

The paper shapes its mixing matrices (identity, centering, a small variance) so that the forward
pass is stable, "in particular ruling out the numerical degeneracy such as rank collapse and
vanishing gradients". Both are measured at initialization, with shaped and unshaped matrices: in the
theorem's recursion of attention layers, and in whole models with skip connections, norms and MLPs.
The random transformer, whose attention is a softmax, is measured too (see `signals`).

In the theorem, depth and width grow together. Depths here are multiples of the width: at depth
τ·width the diffusion predicts the change of the tokens' covariance, which continues with τ.
Source: "Is random attention sufficient for sequence modeling?", section 2, theorem 2.1 and section
5, which give no numbers for this.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interp_studies.claims import JudgedClaim, SeedClaim, counted, in_words, judged
from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.random_attention.depth.models import MAIN, DepthSizes
from interp_studies.random_attention.figures import ranged
from interp_studies.random_attention.shaping.signals import MEASURES, through_layers, through_model
from interp_studies.result import FRESH, StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.models.transformer.config import UNSHAPED, MixingVariance
from interp_toolkit.plots import shade
from interp_toolkit.results import Figure, Table

KINDS: tuple[MixingVariance, ...] = (UNSHAPED, "1/(d_head m)", "1/(n m)", "1/sqrt(n m)")
SOFTMAX = "random transformer"
STARTS = (MAIN, "1/sqrt(n) everywhere")


@dataclass(frozen=True)
class ShapingSizes:
    """Sizes of a preset.

    Attributes:
        width, n_pos: sizes of the recursion.
        depths: measured depths, including width and FAR times width.
        n_heads: numbers of heads of the recursion: one as in the theorem, and more.
        model: sizes of whole models and their prompts.
        model_depths: depths of whole models.
        seeds: number of seeds.
    """

    width: int
    n_pos: int
    depths: tuple[int, ...]
    n_heads: tuple[int, int]
    model: DepthSizes
    model_depths: tuple[int, ...]
    seeds: int


FAR = 4  # widths: the greatest depth
PRESETS: Mapping[str, ShapingSizes] = {
    "small": ShapingSizes(
        64, 32, (1, 4, 16, 64, 256), (1, 4), DepthSizes(64, 4, 48, 256, 4, 1), (2, 8, 32), 12
    ),
    "paper": ShapingSizes(
        256,
        64,
        (1, 4, 16, 64, 256, 1024),
        (1, 8),
        DepthSizes(512, 8, 256, 1000, 8, 1),
        (2, 8, 32),
        10,
    ),
}


def signal_job(
    *,
    folder: Path,
    sizes: Mapping[str, Any],
    kinds: Sequence[MixingVariance],
    starts: Sequence[str],
    seed: int,
) -> Outcome:
    """The recursions and whole models of one seed.

    Args:
        folder: not used.
        sizes: fields of a `ShapingSizes`.
        kinds: kinds of mixing.
        starts: initializations of whole models.
        seed: random seed of weights and tokens.
    """
    chosen = ShapingSizes(**{**sizes, "model": DepthSizes(**sizes["model"])})
    return Outcome(signals_of(chosen, kinds, starts, seed))


def signals_of(
    sizes: ShapingSizes, kinds: Sequence[MixingVariance], starts: Sequence[str], seed: int
) -> dict[str, Any]:
    """Every measure of a seed."""
    layers = [
        {
            "mixing": mixing,
            "causal": causal,
            "n_heads": n_heads,
            **through_layers(
                mixing,
                causal=causal,
                n_heads=n_heads,
                width=sizes.width,
                n_pos=sizes.n_pos,
                depths=sizes.depths,
                seed=seed,
            ),
        }
        for n_heads in sizes.n_heads
        for causal in (True, False)
        for mixing in kinds
    ]
    models = [
        {
            "mixing": mixing or SOFTMAX,
            "start": start,
            "depth": depth,
            **through_model(mixing, depth, sizes.model, start, seed),
        }
        for start in starts
        for mixing in (*kinds, None)
        for depth in sizes.model_depths
    ]
    return {"seed": seed, "depths": list(sizes.depths), "layers": layers, "models": models}


Seeds = Sequence[Values]  # what each seed's job found


def grid(plan: Plan) -> Grid:
    """Every kind of mixing at every depth."""
    arguments = {"sizes": asdict(PRESETS[plan.preset]), "kinds": KINDS, "starts": STARTS}
    return {
        seed: [Job(f"seed-{seed}", signal_job, {**arguments, "seed": seed})] for seed in plan.seeds
    }


def layer_values(
    runs: Seeds, measure: str, depth: int, mixing: str, *, n_heads: int, causal: bool = True
) -> list[float]:
    """A measure of the recursion at a depth, by seed."""
    chosen = (mixing, causal, n_heads)
    return [
        float(one[measure][of["depths"].index(depth)])
        for of in runs
        for one in of["layers"]
        if (one["mixing"], one["causal"], one["n_heads"]) == chosen
    ]


def model_values(runs: Seeds, mixing: str, start: str, depth: int) -> list[Mapping[str, Any]]:
    """The measurements of whole models of a kind, by seed."""
    chosen = (mixing, start, depth)
    return [
        one
        for of in runs
        for one in of["models"]
        if (one["mixing"], one["start"], one["depth"]) == chosen
    ]


def claims(runs: Seeds, sizes: ShapingSizes) -> list[SeedClaim]:
    """The claims, one line each; with causal mixing unless stated otherwise."""
    one, some = sizes.n_heads
    near, far = sizes.width, FAR * sizes.width
    deepest = sizes.model_depths[-1]

    def gradient(depth: int, mixing: str, n_heads: int, *, causal: bool = True) -> list[float]:
        return layer_values(runs, "gradient", depth, mixing, n_heads=n_heads, causal=causal)

    def likeness(depth: int, mixing: str, n_heads: int, *, causal: bool = True) -> list[float]:
        return layer_values(runs, "likeness", depth, mixing, n_heads=n_heads, causal=causal)

    def least_ratio(seed: int) -> float:
        """log10 of the ratio of the first block's gradient to the last's, where it is smallest."""
        return min(
            gradient_ratio(model_values(runs, mixing, start, deepest)[seed])
            for mixing in (*KINDS, SOFTMAX)
            for start in STARTS
        )

    listed = [
        SeedClaim(
            f"layers, unshaped, {some} heads: through {near} layers the gradient falls by more "
            "than 10 decades (log10 below -10)",
            gradient(near, UNSHAPED, some),
            below=-10.0,
            overturned_by="unshaped causal layers whose gradients pass",
        )
    ]
    for mixing, n_heads in (("1/(n m)", one), ("1/(d_head m)", some)):
        listed += [
            SeedClaim(
                f"layers, {mixing}, heads {n_heads}: through {depth} layers the gradient keeps its "
                f"size (log10 between {-most:g} and {most:g})",
                gradient(depth, mixing, n_heads),
                above=-most,
                below=most,
                overturned_by=f"a factor of more than 10^{most:g} between the layers' ends",
            )
            for depth, most in ((near, 1.0), (far, 1.5))
        ]
    listed += [
        SeedClaim(
            f"layers, 1/sqrt(n m), {some} heads: through {near} layers the gradient grows by more "
            "than a decade (log10 above 1)",
            gradient(near, "1/sqrt(n m)", some),
            above=1.0,
            overturned_by="a printed variance that keeps gradients as they are",
        ),
        *(
            SeedClaim(
                f"layers, 1/(n m), one head: behind {depth} layers tokens have a mean squared "
                f"cosine above {bound:g} (independent: {1 / sizes.width:.3f})",
                likeness(depth, "1/(n m)", one),
                above=bound,
                overturned_by="shaped layers that keep directions apart at this depth",
            )
            for depth, bound in ((near, 0.3), (far, 0.5))
        ),
        SeedClaim(
            f"layers, unshaped and unmasked, {some} heads: behind {far} layers tokens have a mean "
            "squared cosine below 0.05",
            likeness(far, UNSHAPED, some, causal=False),
            below=0.05,
            overturned_by="unshaped layers of several heads that collapse without a mask",
        ),
        SeedClaim(
            f"layers, unshaped and unmasked, {some} heads: through {far} layers the gradient keeps "
            "its size within a decade (log10 between -1 and 1)",
            gradient(far, UNSHAPED, some, causal=False),
            above=-1.0,
            below=1.0,
            overturned_by="a factor of more than 10 between the layers' ends",
        ),
        SeedClaim(
            f"whole models, {deepest} blocks, weights {MAIN}: the random transformer's tokens have "
            "a mean cosine above 0.5",
            [float(v["cosine"]) for v in model_values(runs, SOFTMAX, MAIN, deepest)],
            above=0.5,
            overturned_by="a softmax that keeps tokens apart",
        ),
        SeedClaim(
            f"whole models, {deepest} blocks, weights {MAIN}: unshaped MixiT's tokens have a mean "
            "cosine between -0.05 and 0.05",
            [float(v["cosine"]) for v in model_values(runs, UNSHAPED, MAIN, deepest)],
            above=-0.05,
            below=0.05,
            overturned_by="unshaped mixing that collapses in whole models",
        ),
        SeedClaim(
            f"whole models, {deepest} blocks, every mixing and the random transformer: the first "
            "block's gradient is more than 0.316 of the last's (log10 above -0.5)",
            [least_ratio(seed) for seed in range(len(runs))],
            above=-0.5,
            overturned_by="a whole model whose first block gets no gradient",
        ),
    ]
    return listed


def gradient_ratio(model: Mapping[str, Any]) -> float:
    """log10 of the ratio of the first block's gradient to the last's."""
    gradients = model["gradients"]
    return math.log10(gradients[0] / gradients[-1])


def verdict(findings: Sequence[JudgedClaim], sizes: ShapingSizes) -> str:
    """Every estimate, and the conclusion of the confirmed claims."""

    def confirmed(*claims: JudgedClaim) -> bool:
        return all(claim.judgement == "confirmed" for claim in claims)

    (falls, theorem, theorem_far, default, default_far, printed) = findings[:6]
    (like, like_far, apart, passes, softmax, unshaped, first) = findings[6:]
    near, far = sizes.width, FAR * sizes.width
    some, deepest = sizes.n_heads[1], sizes.model_depths[-1]
    text = [
        f"In attention layers alone, {near} wide, gradients through {near} causal layers change "
        f"by {in_words(falls, 1)} decades with unshaped mixing; with shaped mixing, by "
        f"{in_words(theorem)} with 1/(n m) and one head and {in_words(default)} with 1/(d_head "
        f"m) and {some} heads, and through {far} layers by {in_words(theorem_far)} and "
        f"{in_words(default_far)}; with the printed 1/sqrt(n m) by {in_words(printed)}.",
        "With 1/(n m) and one head, as in the theorem, the tokens' mean squared cosine is "
        f"{in_words(like)} after {near} layers and {in_words(like_far)} after {far}.",
        f"Without a causal mask, unshaped mixing of {some} heads changes gradients by "
        f"{in_words(passes)} decades through {far} layers, and leaves a mean squared cosine of "
        f"{in_words(apart, 3)}.",
        f"In whole models of {deepest} blocks, weights {MAIN}, unshaped MixiT's tokens have a mean "
        f"cosine of {in_words(unshaped, 3)} and the random transformer's one of "
        f"{in_words(softmax)}; the first block's gradient over the last's is {in_words(first)} "
        f"decades or more in all, weights {' or '.join(STARTS)}.",
    ]
    if confirmed(theorem, theorem_far, default, default_far):
        text.append(
            f"So gradients survive a depth of {FAR} widths with these two shaped mixings"
            + (", but not one width with unshaped mixing." if confirmed(falls) else ".")
        )
    if confirmed(like_far):
        text.append(
            "With 1/(n m) and one head, tokens become alike, although the source says that "
            "shaping prevents it."
        )
    if confirmed(apart, passes):
        text.append(
            f"Without a mask, unshaped layers of {some} heads preserve both gradients and "
            "directions."
        )
    if confirmed(unshaped, first):
        text.append(
            f"In untrained whole models of {deepest} blocks with unshaped mixing, no gradient "
            f"vanishes and, with weights {MAIN}, tokens do not become alike. Skip connections, "
            "norms and the softmax were not removed, so the cause is unknown."
        )
    text.append(f"{counted(findings)}, all at initialization.")
    return " ".join(text)


AXES = {
    "gradient": "log10 of the gradient, first over last",
    "likeness": "mean squared cosine",
}


def layers_figure(
    runs: Seeds, measure: str, n_heads: tuple[int, int], kinds: Sequence[str]
) -> Figure:
    """A measure against layers: median and range over seeds, a panel per mask and head number."""
    shown = [(causal, count) for causal in (True, False) for count in n_heads]
    panels = plots.beside(len(shown), 2)
    data: list[plots.Part] = []
    layout: plots.Part = {"annotations": [], "height": 620}
    depths = runs[0]["depths"]
    for (causal, count), panel in zip(shown, panels, strict=True):
        for kind, mixing in enumerate(kinds):
            seeds = [
                one[measure]
                for of in runs
                for one in of["layers"]
                if (one["mixing"], one["causal"], one["n_heads"]) == (mixing, causal, count)
            ]
            by_depth = list(zip(*seeds, strict=True))
            line = ranged(depths, by_depth, shade(kind, len(kinds)), mixing, plots.symbol(kind))
            data.append(line | plots.grouped(mixing, listed=panel.number == 0) | panel.trace)
        x = plots.axis("layers" if panel.lowest else "", "log")
        x |= plots.ticks(depths, map(str, depths))
        layout |= panel.layout(x, plots.axis(AXES[measure] if panel.leftmost else ""))
        heads = "one head" if count == 1 else f"{count} heads"
        layout["annotations"].append(
            panel.heading(f"{'causal' if causal else 'unmasked'}, {heads}")
        )
    caption = (
        "Attention layers alone, at initialization: the median over seeds with their range. "
        "Log10 of the gradient: of its norm at the first layer over that at the last."
        if measure == "gradient"
        else "Attention layers alone, at initialization: the mean squared cosine between tokens, "
        "the median over seeds with their range; 1: all tokens lie on one line."
    )
    return Figure(f"Layers of random mixing: {measure}", caption, data, layout)


def models_figure(runs: Seeds, depth: int, start: str, kinds: Sequence[str]) -> Figure:
    """The median norm of the gradient in every block's W_V, relative to the last block's."""
    data = []
    for kind, mixing in enumerate(kinds):
        seeds = [
            [g / one["gradients"][-1] for g in one["gradients"]]
            for of in runs
            for one in of["models"]
            if (one["mixing"], one["start"], one["depth"]) == (mixing, start, depth)
        ]
        by_block = [statistics.median(values) for values in zip(*seeds, strict=True)]
        line = plots.line(range(depth), by_block, shade(kind, len(kinds)), mixing)
        data.append(line)
    layout = plots.layout(plots.axis("block"), plots.axis("gradient over the last block's", "log"))
    caption = (
        f"Whole models of {depth} blocks, untrained, weights {start}: the norm of the loss's "
        "gradient in W_V by block, the median over seeds."
    )
    return Figure("Gradients by block", caption, data, layout)


def report(run: StudyRun) -> StudyResult:
    """The claims, and every measure by kind of mixing and depth."""
    runs, sizes = run.values, PRESETS[run.preset]
    findings = judged(claims(runs, sizes))
    quantities = [
        compare(
            f"layers, {mixing}, {'causal' if causal else 'unmasked'}, heads {n_heads}",
            f"{name}, {depth} layers",
            layer_values(runs, measure, depth, mixing, n_heads=n_heads, causal=causal),
            unit="",
        )
        for n_heads in sizes.n_heads
        for causal in (True, False)
        for mixing in KINDS
        for depth in (sizes.width, FAR * sizes.width)
        for measure, name in (("gradient", "log10 of the gradient"), ("likeness", "likeness"))
    ]
    layers = [
        [
            *(of["seed"], one["mixing"], "causal" if one["causal"] else "unmasked"),
            *(one["n_heads"], depth),
            *(one[measure][number] for measure in MEASURES),
        ]
        for of in runs
        for one in of["layers"]
        for number, depth in enumerate(of["depths"])
    ]
    kinds = dict.fromkeys((m["mixing"], m["start"], m["depth"]) for m in runs[0]["models"])
    models = [
        [
            *kind,
            statistics.median(v["cosine"] for v in values),
            statistics.median(gradient_ratio(v) for v in values),
        ]
        for kind in kinds
        for values in [model_values(runs, *kind)]
    ]
    return run.result(
        verdict(findings, sizes),
        settings={"sizes": asdict(sizes)},
        quantities=quantities,
        claims=findings,
        details=[
            Table(
                "Every seed, layers",
                ["seed", "mixing", "mask", "heads", "layers", *MEASURES],
                layers,
                "Attention layers alone. Size and gradient: log10 of the last over the first; "
                "likeness: the mean squared cosine between tokens; dimensions: their "
                "participation ratio; spread: log10 of the largest over the smallest mean square "
                "of a token.",
            ),
            Table(
                "Whole models",
                ["mixing", "weights", "blocks", "cosine", "gradient, first over last"],
                models,
                "Untrained, on random tokens, the median over seeds: the mean cosine of hidden "
                "states of different tokens, last block, after the norm; log10 of the gradient's "
                "norm in the first block's W_V over the last block's.",
            ),
        ],
        plots=[
            layers_figure(runs, "gradient", sizes.n_heads, KINDS),
            layers_figure(runs, "likeness", sizes.n_heads, KINDS),
            models_figure(runs, sizes.model_depths[-1], MAIN, (*KINDS, SOFTMAX)),
        ],
    )


SHAPING = Study(
    "random-attention/shaping",
    "shaped and unshaped mixing: collapse and gradients by depth",
    "Is random attention sufficient for sequence modeling?, section 2 and theorem 2.1",
    {
        "small": "64 wide, to 256 layers and models of 32 blocks, 12 seeds; minutes, no training",
        "paper": "256 wide, to 1,024 layers, models 512 wide; the source gives no numbers",
    },
    grid,
    report,
    {preset: sizes.seeds for preset, sizes in PRESETS.items()},
    first_seed=FRESH,
)
