"""Theorem 2.1 checked: the covariance of a network's tokens beside the diffusion it tends to.

Means and variances of both are exact (see `recursion`), so the distance
between a network of width n and its limit is a number, not an estimate; it is fitted against n.
Beside them stand draws of the diffusion, of the network in law, and of hidden states in the
toolkit's own mixing layers: their mean within four exact standard errors, their variances, which
have heavy tails, within a wide tolerance at a small τ.

Source: "Is random attention sufficient for sequence modeling?", theorem 2.1 and appendix A, which
give no numbers; the diffusion held against is the proof's, with the drift on the diagonal only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.power_law import exponent
from interp_studies.random_attention.covariance.figures import gap_figure, path_figure
from interp_studies.random_attention.covariance.recursion import (
    MixingLaw,
    Moments,
    network_moments,
    sde_moments,
)
from interp_studies.random_attention.covariance.samples import (
    run_layers,
    sample_network,
    sample_sde,
)
from interp_studies.random_attention.covariance.tables import (
    START,
    TAUS,
    by_seed,
    printed_drift,
    variance_names,
)
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    compare_range,
    missed,
    overall,
    study_provenance,
    tally,
)
from interp_toolkit.models.transformer.config import MixingVariance
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Figure

NAME = "random-attention/sde"
SOURCE = "Is random attention sufficient for sequence modeling?, theorem 2.1 and appendix A"
STANDARD_ERRORS = 4.0  # that a mean of draws may be off
VARIANCE_TOLERANCE = 0.25  # relative, at the first τ
SLOPE_TOLERANCE = 0.05
WHOSE = "exact"  # moments and orders that follow from the definitions; the source has no numbers

Sampler = Literal["diffusion", "network in law", "layers"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
Seeds = Sequence[Mapping[str, Any]]  # what each seed's job found


@dataclass(frozen=True)
class Kind:
    """A kind of mixing.

    Attributes:
        law: how its matrices are drawn.
        mixing: the name of their variance in the toolkit's layers.
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
    """What a preset runs.

    Attributes:
        widths: of networks whose moments are computed.
        sampled_width: of networks that are drawn.
        draws: of the diffusion and of the network in law, for each seed.
        layer_draws: of hidden states through layers, for each seed.
        seeds: how many.
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
    """Means and variances of one seed's draws.

    Args:
        folder: not used.
        kind: of mixing, its name.
        law: the fields of its `MixingLaw`.
        mixing: the name of its variance in the toolkit's layers.
        start: the covariance at first.
        taus: times.
        sampler: what is drawn.
        width: of the network.
        draws: how many.
        seed: of the draws.
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


def reproduce_sde(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """Exact moments of networks and diffusion, and draws of both; `seeds` overrides how many."""
    sizes = PRESETS[preset]
    n_seeds = seeds or sizes.seeds
    jobs = {
        (kind, sampler): [_job(kind, sampler, sizes, seed) for seed in runner.seeds(n_seeds)]
        for kind in KINDS
        for sampler in SAMPLERS
    }
    values = runner.run([job for mine in jobs.values() for job in mine])
    drawn: dict[tuple[str, str], Seeds] = {
        key: [values[job.name] for job in mine] for key, mine in jobs.items()
    }
    gaps = {kind: {n: gap(KINDS[kind].law, n) for n in sizes.widths} for kind in KINDS}
    slopes = {kind: slope(by_width) for kind, by_width in gaps.items()}
    sampled = [q for key, mine in drawn.items() for q in _sample_quantities(*key, mine, sizes)]
    quantities = [*_gap_quantities(gaps, slopes), *sampled]
    settings = {"preset": preset, "seeds": n_seeds, "start": [list(row) for row in START]}
    return StudyResult(
        probe=NAME,
        verdict=_verdict(gaps["full"], slopes, sampled),
        evidence=CovarianceEvidence(
            status=overall(quantities),
            reason=missed(quantities),
            gaps={kind: {str(n): g for n, g in mine.items()} for kind, mine in gaps.items()},
            slopes=slopes,
            tolerances={
                "means": f"{STANDARD_ERRORS:g} standard errors, from the exact variance",
                "variances": f"{VARIANCE_TOLERANCE:.0%} at τ = {TAUS[0]:g}; draws of Φ have heavy "
                "tails, so that sampled variances at larger τ say little",
            },
        ),
        provenance=study_provenance(NAME, SOURCE, settings, runner.first_seed),
        quantities=quantities,
        jobs=values,
        details=[by_seed(drawn), printed_drift(max(sizes.widths)), variance_names(sizes.widths)],
        plots=[
            *(_path(kind, drawn, sizes) for kind in KINDS),
            gap_figure(gaps, TAUS[-1]),
        ],
        whose=WHOSE,
    )


def gap(law: MixingLaw, width: int, tau: float = TAUS[-1]) -> float:
    """The largest relative distance of a variance of the network's from the diffusion's."""
    start = np.array(START)
    network = network_moments(start, width, round(tau * width), law).variance
    return float(np.abs(network / sde_moments(start, tau, law).variance - 1).max())


def slope(by_width: Mapping[int, float]) -> float:
    """The exponent k of gap ~ n^k, least squares on logarithms."""
    return exponent(by_width, by_width.values())


def _job(kind: str, sampler: Sampler, sizes: CovarianceSizes, seed: int) -> Job:
    layers = sampler == "layers"
    arguments = {
        "kind": kind,
        "law": asdict(KINDS[kind].law),
        "mixing": KINDS[kind].mixing,
        "start": START,
        "taus": TAUS,
        "sampler": sampler,
        "width": sizes.sampled_width,
        "draws": sizes.layer_draws if layers else sizes.draws,
        "seed": seed,
    }
    name = f"{list(KINDS).index(kind)}-{sampler.replace(' ', '-')}-seed-{seed}"
    return Job(name, sample_job, arguments, cost=3.0 if layers else 1.0)


@dataclass(frozen=True)
class CovarianceEvidence(Evidence):
    """What the verdict on the covariance rests on.

    Attributes:
        gaps: between network and diffusion, by kind and width.
        slopes: of the gap against the width, both as logarithms.
        tolerances: how far ours may be from what is exact.
    """

    gaps: Mapping[str, Mapping[str, float]]
    slopes: Mapping[str, float]
    tolerances: Mapping[str, str]


def _gap_quantities(
    gaps: Mapping[str, Mapping[int, float]], slopes: Mapping[str, float]
) -> list[Quantity]:
    found = []
    for kind, by_width in gaps.items():
        of = f"network, exact: {kind}"
        for n, value in by_width.items():
            name = f"largest gap of a variance, τ = {TAUS[-1]:g}, n = {n}"
            found.append(
                compare(of, name, [value], unit="share", remark=f"n × gap: {n * value:.3g}")
            )
        remark = "the theorem states the limit; 1/n is the order of what a layer adds to it"
        found.append(
            compare_range(
                of,
                "exponent of n in the gap",
                [slopes[kind]],
                (-1.0, -1.0),
                tolerance=SLOPE_TOLERANCE,
                remark=remark,
            )
        )
    return found


def _sample_quantities(
    kind: str, sampler: str, seeds: Seeds, sizes: CovarianceSizes
) -> list[Quantity]:
    """Draws against the exact moments of what they are draws of."""
    of = f"draws, {sampler}: {kind}"
    found = []
    for place, tau in enumerate(TAUS):
        exact = _exact(kind, sampler, sizes, tau)
        error = exact.mean_square_spread / math.sqrt(seeds[0]["draws"])
        found.append(
            compare_range(
                of,
                f"mean of Tr Φ/m, τ = {tau:g}",
                [values["mean"][place] for values in seeds],
                (exact.mean_square, exact.mean_square),
                tolerance=float(f"{STANDARD_ERRORS * error:.2g}"),
                remark="expected: the exact mean; allowed: four standard errors of a seed's mean",
            )
        )
    first = _exact(kind, sampler, sizes, TAUS[0]).variance
    found.append(
        compare_range(
            of,
            f"largest relative error of a variance, τ = {TAUS[0]:g}",
            [float(np.abs(np.array(v["variances"][0]) / first - 1).max()) for v in seeds],
            (0.0, 0.0),
            tolerance=VARIANCE_TOLERANCE,
            remark="sampled variances have heavy tails",
        )
    )
    return found


def _exact(kind: str, sampler: str, sizes: CovarianceSizes, tau: float) -> Moments:
    """The moments of what a sampler draws."""
    start, law, width = np.array(START), KINDS[kind].law, sizes.sampled_width
    if sampler == "diffusion":
        return sde_moments(start, tau, law)
    return network_moments(start, width, round(tau * width), law)


def _verdict(
    gaps: Mapping[int, float],
    slopes: Mapping[str, float],
    sampled: Sequence[Quantity],
) -> str:
    first, last = min(gaps), max(gaps)
    exponents = ", ".join(f"{value:.2f}" for value in slopes.values())
    growth = {n: _growth(math.sqrt(n * len(START)), n) for n in (first, last)}
    return (
        "The network's covariance tends to the diffusion of theorem 2.1 with the drift on the "
        f"diagonal only, which the printed theorem leaves out: at τ = {TAUS[-1]:g} variances "
        f"differ by {gaps[first]:.2%} at width {first} and {gaps[last]:.2%} at {last}, as n to the "
        f"power {exponents} (full, causal, and with heads). With the printed variance 1/sqrt(nm) "
        "there is no such limit: the factor of the mean's growth, "
        f"{growth[last][1]:.1f} with 1/(nm), is {growth[first][0]:.2g} at width {first} and "
        f"{growth[last][0]:.2g} at {last}. Draws of the diffusion, of the network in law and of "
        f"hidden states in the toolkit's layers against exact moments: {tally(sampled, WHOSE)}"
    )


def _growth(scale: float, width: int) -> tuple[float, float]:
    """(1 + c r/n)^d at the last τ, for entries of variance c/(nm) and of 1/(nm)."""
    r, depth = 1 - 1 / len(START), round(TAUS[-1] * width)
    return (1 + scale * r / width) ** depth, (1 + r / width) ** depth


def _path(kind: str, drawn: Mapping[tuple[str, str], Seeds], sizes: CovarianceSizes) -> Figure:
    start, law, width = np.array(START), KINDS[kind].law, sizes.sampled_width
    depths = sorted({round(width * TAUS[-1] * step / 16) for step in range(17)})
    sde = [(d / width, sde_moments(start, d / width, law)) for d in depths]
    network = [(d / width, network_moments(start, width, d, law)) for d in depths]
    samples: dict[str, Seeds] = {sampler: drawn[kind, sampler] for sampler in SAMPLERS}
    return path_figure(
        kind,
        [(tau, m.mean_square, m.mean_square_spread) for tau, m in sde],
        [(tau, m.mean_square, m.mean_square_spread) for tau, m in network],
        width,
        samples,
    )


SDE = Artefact(
    name=NAME,
    summary="the covariance SDE of theorem 2.1 beside networks: exact moments, draws, the gap",
    source=SOURCE,
    presets={
        "small": "widths 32 to 512, 3 seeds of 6,000 draws; a minute or two",
        "paper": "widths 32 to 4,096, 5 seeds of 100,000 draws; the source gives no numbers",
    },
    run=reproduce_sde,
)
