"""Theorem 2.1 checked: the covariance of a network's tokens and its limiting diffusion.

The means and variances of both are exact (see `recursion`), so the distance between a network of
width n and its limit is computed, not estimated. It is fitted against n. Samples of the diffusion,
of the network in law, and of hidden states in the toolkit's own mixing layers are compared with the
exact values: means must be within four exact standard errors, and variances, which have heavy
tails, within a wide tolerance at a small τ.

Source: "Is random attention sufficient for sequence modeling?", theorem 2.1 and appendix A, which
give no numbers. The diffusion is that of the proof, with drift only on the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from interp_studies.jobs.attempt import Outcome
from interp_studies.power_law import exponent
from interp_studies.random_attention.covariance.recursion import (
    MixingLaw,
    Moments,
    mean_diagonal,
    network_moments,
    sde_moments,
)
from interp_studies.random_attention.covariance.samples import (
    run_layers,
    sample_network,
    sample_sde,
)
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    compare_range,
    missed,
    overall,
    tally,
)
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.models.transformer.config import MixingVariance
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL, shade, translucent
from interp_toolkit.results import Evidence, Figure, Table

#: the covariance of three tokens to start from: unequal variances, both signs
START = ((1.0, 0.3, -0.2), (0.3, 1.5, 0.4), (-0.2, 0.4, 0.8))
TAUS = (0.125, 0.25, 0.5)
STANDARD_ERRORS = 4.0  # that a mean of draws may be off
VARIANCE_TOLERANCE = 0.25  # relative, at the first τ
SLOPE_TOLERANCE = 0.05
SYMBOLS = ("circle", "square", "diamond")  # of the figures
WHOSE = "exact"  # moments and orders that follow from the definitions; the source has no numbers

Sampler = Literal["diffusion", "network in law", "layers"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
Seeds = Sequence[Values]  # what each seed's job found
Drawn = Mapping[tuple[str, Sampler], Seeds]  # by kind of mixing and what is drawn


@dataclass(frozen=True)
class Kind:
    """A kind of mixing.

    Attributes:
        law: distribution of the mixing matrices.
        mixing: name of their variance in the toolkit's layers.
    """

    law: MixingLaw
    mixing: MixingVariance


KINDS: Mapping[str, Kind] = {
    "full": Kind(MixingLaw(), "1/(n m)"),
    "causal": Kind(MixingLaw(causal=True), "1/(n m)"),
    "causal, 4 heads, 1/(d_head m)": Kind(MixingLaw(True, 4, 4.0), "1/(d_head m)"),
}


@dataclass(frozen=True)
class CovarianceSizes:
    """Sizes of a preset.

    Attributes:
        widths: widths of the networks whose moments are computed.
        sampled_width: width of the sampled networks.
        draws: number of samples of the diffusion and of the network in law, per seed.
        layer_draws: number of samples of hidden states, per seed.
        seeds: number of seeds.
    """

    widths: tuple[int, ...]
    sampled_width: int
    draws: int
    layer_draws: int
    seeds: int


PRESETS: Mapping[str, CovarianceSizes] = {
    "small": CovarianceSizes((32, 64, 128, 256, 512), 64, 6_000, 1_000, 3),
    "paper": CovarianceSizes((32, 64, 128, 256, 512, 1024, 2048, 4096), 256, 100_000, 5_000, 5),
}


def sample_job(
    *,
    folder: Path,
    kind: str,
    law: Mapping[str, Any],
    mixing: MixingVariance,
    start: Sequence[Sequence[float]],
    taus: Sequence[float],
    sampler: Sampler,
    width: int,
    draws: int,
    seed: int,
) -> Outcome:
    """Means and variances of one seed's samples.

    Args:
        folder: not used.
        kind: name of the kind of mixing.
        law: fields of its `MixingLaw`.
        mixing: name of its variance in the toolkit's layers.
        start: initial covariance.
        taus: times.
        sampler: the sampler.
        width: width of the network.
        draws: number of samples.
        seed: random seed of the samples.
    """
    drawn_from, phi_0 = MixingLaw(**law), np.array(start)
    depths = [round(tau * width) for tau in taus]
    repaired = None
    if sampler == "diffusion":
        samples = sample_sde(phi_0, taus, draws, law=drawn_from, seed=seed)
        phi, repaired = samples.phi, samples.repaired
    elif sampler == "network in law":
        phi = sample_network(phi_0, width, depths, draws, law=drawn_from, seed=seed)
    else:
        phi = run_layers(
            phi_0,
            width,
            depths,
            draws,
            causal=drawn_from.causal,
            n_heads=drawn_from.n_heads,
            mixing=mixing,
            seed=seed,
        )
    squares = np.einsum("tdaa->td", phi) / len(phi_0)
    return Outcome(
        {
            "kind": kind,
            "sampler": sampler,
            "seed": seed,
            "draws": draws,
            "width": None if sampler == "diffusion" else width,
            "tau": list(taus),
            "mean": squares.mean(1).tolist(),
            "spread": squares.std(1, ddof=1).tolist(),
            "variances": phi.var(1, ddof=1).tolist(),
            "repaired": repaired,
        }
    )


def grid(plan: Plan) -> Grid:
    """Samples of the diffusion, of the network in law and of layers, for every kind of mixing."""
    sizes = PRESETS[plan.preset]
    return {
        (kind, sampler): plan.each_seed(
            f"{number}-{sampler.replace(' ', '-')}",
            sample_job,
            cost=3.0 if sampler == "layers" else 1.0,
            kind=kind,
            law=asdict(KINDS[kind].law),
            mixing=KINDS[kind].mixing,
            start=START,
            taus=TAUS,
            sampler=sampler,
            width=sizes.sampled_width,
            draws=sizes.layer_draws if sampler == "layers" else sizes.draws,
        )
        for number, kind in enumerate(KINDS)
        for sampler in SAMPLERS
    }


def gap(law: MixingLaw, width: int, tau: float = TAUS[-1]) -> float:
    """The largest relative difference between a variance of the network and of the diffusion."""
    start = np.array(START)
    network = network_moments(start, width, round(tau * width), law).variance
    return float(np.abs(network / sde_moments(start, tau, law).variance - 1).max())


def slope(by_width: Mapping[int, float]) -> float:
    """The exponent k of gap ~ n^k, by least squares on logarithms."""
    return exponent(by_width, by_width.values())


def gap_quantities(
    gaps: Mapping[str, Mapping[int, float]], slopes: Mapping[str, float]
) -> list[Quantity]:
    """The distance of networks from the diffusion, by width."""
    quantities = []
    for kind, by_width in gaps.items():
        of = f"network, exact: {kind}"
        for n, value in by_width.items():
            name = f"largest gap of a variance, τ = {TAUS[-1]:g}, n = {n}"
            quantities.append(
                compare(of, name, [value], unit="share", remark=f"n × gap: {n * value:.3g}")
            )
        remark = "the theorem states the limit; 1/n is the order of what a layer adds to it"
        quantities.append(
            compare_range(
                of,
                "exponent of n in the gap",
                [slopes[kind]],
                (-1.0, -1.0),
                tolerance=SLOPE_TOLERANCE,
                remark=remark,
            )
        )
    return quantities


def sample_quantities(
    kind: str, sampler: str, seeds: Seeds, sizes: CovarianceSizes
) -> list[Quantity]:
    """Samples compared with the exact moments of their distribution."""
    of = f"draws, {sampler}: {kind}"
    quantities = []
    for number, tau in enumerate(TAUS):
        exact = exact_moments(kind, sampler, sizes, tau)
        error = exact.mean_square_spread / math.sqrt(seeds[0]["draws"])
        quantities.append(
            compare_range(
                of,
                f"mean of Tr Φ/m, τ = {tau:g}",
                [values["mean"][number] for values in seeds],
                (exact.mean_square, exact.mean_square),
                tolerance=float(f"{STANDARD_ERRORS * error:.2g}"),
                remark="expected: the exact mean; allowed: four standard errors of a seed's mean",
            )
        )
    first = exact_moments(kind, sampler, sizes, TAUS[0]).variance
    quantities.append(
        compare_range(
            of,
            f"largest relative error of a variance, τ = {TAUS[0]:g}",
            [float(np.abs(np.array(v["variances"][0]) / first - 1).max()) for v in seeds],
            (0.0, 0.0),
            tolerance=VARIANCE_TOLERANCE,
            remark="sampled variances have heavy tails",
        )
    )
    return quantities


def exact_moments(kind: str, sampler: str, sizes: CovarianceSizes, tau: float) -> Moments:
    """The exact moments of what a sampler draws."""
    start, law, width = np.array(START), KINDS[kind].law, sizes.sampled_width
    if sampler == "diffusion":
        return sde_moments(start, tau, law)
    return network_moments(start, width, round(tau * width), law)


def verdict(
    gaps: Mapping[int, float],
    slopes: Mapping[str, float],
    sampled: Sequence[Quantity],
) -> str:
    """The limit of the distance, and the effect of the printed variance."""
    first, last = min(gaps), max(gaps)
    exponents = ", ".join(f"{value:.2f}" for value in slopes.values())

    def growth(scale: float, width: int) -> float:
        """(1 + c r/n)^d at the last τ, for entries of variance c/(nm)."""
        r, depth = 1 - 1 / len(START), round(TAUS[-1] * width)
        return (1 + scale * r / width) ** depth

    printed = {n: growth(math.sqrt(n * len(START)), n) for n in (first, last)}
    return (
        "The network's covariance tends to the diffusion of theorem 2.1 if the drift acts on "
        f"the diagonal only, which the printed theorem omits: at τ = {TAUS[-1]:g} variances "
        f"differ by {gaps[first]:.2%} at width {first} and {gaps[last]:.2%} at {last}, with "
        f"exponents {exponents} in n (full, causal, and with heads). With the printed variance "
        "1/sqrt(nm) there is no such limit: the growth factor of the mean, "
        f"{growth(1.0, last):.1f} with 1/(nm), is {printed[first]:.2g} at width {first} and "
        f"{printed[last]:.2g} at {last}. Samples of the diffusion, of the network's law and of "
        "hidden states in the toolkit's layers, compared with exact moments: "
        f"{tally(sampled, WHOSE)}"
    )


def printed_drift(width: int) -> Table:
    """The mean of Φ under the drift as printed, as derived, and in a network."""
    start, tau = np.array(START), TAUS[-1]
    excess = float(np.trace(start) / len(start) - start.mean())
    derived = sde_moments(start, tau).mean
    network = network_moments(start, width, round(tau * width)).mean
    rows = [
        [
            f"Φ{a + 1}{b + 1}",
            float(start[a, b]),
            float(start[a, b]) + excess * tau,
            float(derived[a, b]),
            float(network[a, b]),
        ]
        for a in range(len(start))
        for b in range(a, len(start))
    ]
    columns = ["entry", "at the start", "drift as printed", "drift on the diagonal", f"n = {width}"]
    caption = (
        f"Means at τ = {tau:g}. As printed the drift Tr Φ/m - M(Φ) adds to every entry alike, "
        "and moves them all by itself times τ; the proof's (A.6) has a Kronecker delta, which puts "
        "it on the diagonal. Networks do the second: means off the diagonal stay where they were."
    )
    return Table("The drift as printed", columns, rows, caption)


def variance_names(widths: Sequence[int]) -> Table:
    """The effect of three variances of the mixing's entries on the mean diagonal."""
    start, tau, heads = np.array(START), TAUS[-1], 4
    rows = []
    for n in widths:
        scales = (1.0, float(heads), math.sqrt(n * len(start)))
        rows.append([n, *(float(mean_diagonal(start, tau, n, c).mean()) for c in scales)])
    columns = ["width", "1/(n m)", f"1/(d_head m), {heads} heads", "1/sqrt(n m)"]
    caption = (
        f"E Tr Φ/m at τ = {tau:g}, from {np.trace(start) / len(start):.3g}, where every token sees "
        "all. 1/(n m) is the proof's (A.4), 1/(d_head m) the released code's, which has a limit "
        "with another drift; 1/sqrt(n m) is eq. 2.3 as printed."
    )
    return Table("The three variances", columns, rows, caption)


def path_figure(kind: str, drawn: Drawn, sizes: CovarianceSizes) -> Figure:
    """Tr Φ/m along τ: exact means and standard deviations, and one point per seed."""
    start, law, width = np.array(START), KINDS[kind].law, sizes.sampled_width
    depths = sorted({round(width * TAUS[-1] * step / 16) for step in range(17)})
    taus = [depth / width for depth in depths]
    data: list[plots.Part] = []
    for name, path, color in (
        ("diffusion, exact", [sde_moments(start, tau, law) for tau in taus], CLASS_COLORS[0]),
        (
            f"network, n = {width}, exact",
            [network_moments(start, width, depth, law) for depth in depths],
            CLASS_COLORS[1],
        ),
    ):
        low = [m.mean_square - m.mean_square_spread for m in path]
        high = [m.mean_square + m.mean_square_spread for m in path]
        data.append(plots.band(taus, low, high, translucent(color, 0.12)))
        data.append(plots.line(taus, [m.mean_square for m in path], color, name))
    for number, sampler in enumerate(SAMPLERS):
        seeds = drawn[kind, sampler]
        x = [tau for values in seeds for tau in values["tau"]]
        y = [mean for values in seeds for mean in values["mean"]]
        symbol = SYMBOLS[number]
        data.append(plots.markers(x, y, NEUTRAL, f"draws: {sampler}", symbol=symbol, size=7))
    layout = plots.layout(plots.axis("τ = depth / width"), plots.axis("Tr Φ / m"))
    caption = (
        f"Mixing: {kind}. Lines: exact means; shaded: one standard deviation on either side, of "
        "a single draw. Points: means of draws, one per seed."
    )
    return Figure(f"The tokens' mean square along τ, {kind}", caption, data, layout)


def gap_figure(gaps: Mapping[str, Mapping[int, float]], tau: float) -> Figure:
    """The largest relative difference of a variance against the width, on logarithmic scales."""
    data = [
        plots.line(by_width, by_width.values(), shade(number, len(gaps)), kind)
        | plots.marked(SYMBOLS[number % len(SYMBOLS)], size=8)
        for number, (kind, by_width) in enumerate(gaps.items())
    ]
    widths = list(next(iter(gaps.values())))
    first = next(iter(gaps.values()))[widths[-1]]
    x, y = [widths[0], widths[-1]], [first * widths[-1] / widths[0], first]
    data.append(plots.line(x, y, NEUTRAL, "1/n", width=1.5, dash="dash"))
    layout = plots.layout(
        plots.axis("width n", "log"), plots.axis("largest relative gap of a variance", "log")
    )
    caption = (
        f"How far the variances of a network's Φ are from the diffusion's at τ = {tau:g}, both "
        "exact: the gap falls as 1/n."
    )
    return Figure("From the network to its limit", caption, data, layout)


@dataclass(frozen=True)
class CovarianceEvidence(Evidence):
    """The evidence of the verdict on the covariance.

    Attributes:
        gaps: distances between network and diffusion, by kind and width.
        slopes: slopes of log distance against log width.
        tolerances: allowed differences from the exact values.
    """

    gaps: Mapping[str, Mapping[str, float]]
    slopes: Mapping[str, float]
    tolerances: Mapping[str, str]


def report(run: StudyRun) -> StudyResult:
    """Exact moments of networks and diffusion, and samples of both."""
    sizes, drawn = PRESETS[run.preset], run.by_point
    gaps = {kind: {n: gap(KINDS[kind].law, n) for n in sizes.widths} for kind in KINDS}
    slopes = {kind: slope(by_width) for kind, by_width in gaps.items()}
    sampled = [
        q
        for (kind, sampler), seeds in drawn.items()
        for q in sample_quantities(kind, sampler, seeds, sizes)
    ]
    quantities = [*gap_quantities(gaps, slopes), *sampled]
    rows = [
        [kind, sampler, values["seed"], values["draws"], tau, mean, spread, values["repaired"]]
        for (kind, sampler), seeds in drawn.items()
        for values in seeds
        for tau, mean, spread in zip(values["tau"], values["mean"], values["spread"], strict=True)
    ]
    columns = ["mixing", "draws of", "seed", "draws", "τ", "mean", "spread", "steps repaired"]
    caption = (
        "Mean and standard deviation of Tr Φ/m. Repaired: the share of the diffusion's steps that "
        "left the cone of covariances."
    )
    return run.result(
        verdict(gaps["full"], slopes, sampled),
        settings={"start": [list(row) for row in START]},
        quantities=quantities,
        evidence=CovarianceEvidence(
            status=overall(quantities),
            reason=missed(quantities),
            gaps={kind: {str(n): g for n, g in by_n.items()} for kind, by_n in gaps.items()},
            slopes=slopes,
            tolerances={
                "means": f"{STANDARD_ERRORS:g} standard errors, from the exact variance",
                "variances": f"{VARIANCE_TOLERANCE:.0%} at τ = {TAUS[0]:g}; draws of Φ have heavy "
                "tails, so that sampled variances at larger τ say little",
            },
        ),
        whose=WHOSE,
        details=[
            Table("Every seed", columns, rows, caption),
            printed_drift(max(sizes.widths)),
            variance_names(sizes.widths),
        ],
        plots=[
            *(path_figure(kind, drawn, sizes) for kind in KINDS),
            gap_figure(gaps, TAUS[-1]),
        ],
    )


SDE = Study(
    "random-attention/sde",
    "the covariance SDE of theorem 2.1 against networks: exact moments, samples, difference",
    "Is random attention sufficient for sequence modeling?, theorem 2.1 and appendix A",
    {
        "small": "widths 32 to 512, 3 seeds of 6,000 draws; a minute or two",
        "paper": "widths 32 to 4,096, 5 seeds of 100,000 draws; the source gives no numbers",
    },
    grid,
    report,
    {preset: sizes.seeds for preset, sizes in PRESETS.items()},
)
