"""How many features d dimensions store under L_p and under ε-accuracy: N_Lp(d), drawn again.

N is found by `packing`, with a ReLU after the readout and without, from
several random starts; beside it stand what is known: Welch's bound, d ln d, and how many random
directions are ε-accurate. The source shows a figure and states a conjecture and no numbers, so
nothing here is held against any.
Source: "Computation in superposition", section 2.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.power_law import exponent
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    study_provenance,
)
from interp_studies.superposition.capacity_figures import capacity_figure, loss_figure, norms_figure
from interp_studies.superposition.packing import capacity, free_norms, welch_capacity
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Table

NAME = "superposition/capacity"
SOURCE = "Computation in superposition, section 2"
SEEDS = {"small": 2, "paper": 5}
#: dimensions by power; higher powers keep so many that larger ones take too long
DIMENSIONS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "small": {
        2: (2, 3, 4, 6, 8, 12, 16, 24, 32),
        3: (2, 3, 4, 6, 8, 12, 16, 24, 32),
        4: (2, 3, 4, 6, 8, 12, 16, 24),
        6: (2, 3, 4, 6, 8, 12),
        8: (2, 3, 4, 6, 8),
    },
    "paper": {
        2: (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        3: (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        4: (2, 3, 4, 6, 8, 12, 16, 24, 32, 48),
        6: (2, 3, 4, 6, 8, 12, 16),
        8: (2, 3, 4, 6, 8, 12),
    },
}
FREE_D, FREE_N, FREE_POWERS = 8, 80, (2, 4)  # of the autoencoders with free norms
SLOPE_FROM = 4  # the least dimension that growth is fitted from

Found = Mapping[tuple[bool, int, int], Sequence[Mapping[str, Any]]]


def capacity_job(
    *, folder: Path, relu: bool, power: int, d: int, seed: int, device: str
) -> Outcome:
    """N_Lp(d) from one seed's starts."""
    best, tried = capacity(d, power, relu=relu, seed=seed, device=device)
    losses = {"n": list(tried), "loss": list(tried.values())}
    return Outcome({"relu": relu, "power": power, "d": d, "seed": seed, "N": best, **losses})


def free_job(*, folder: Path, power: int, d: int, n: int, seed: int) -> Outcome:
    """The norms of an autoencoder that chooses them."""
    loss, norms = free_norms(n, d, power, seed=seed)
    return Outcome({"power": power, "loss": loss, "norms": norms.tolist()})


def reproduce_capacity(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """Find N for every power and dimension of the preset; `seeds` overrides how many starts."""
    dimensions, n_seeds = DIMENSIONS[preset], seeds or SEEDS[preset]
    jobs = {
        (relu, power, d): [
            _job(relu, power, d, seed, runner.device) for seed in runner.seeds(n_seeds)
        ]
        for relu in (True, False)
        for power, ds in dimensions.items()
        for d in ds
    }
    (seed,) = runner.seeds(1)
    free = [
        Job(f"free-p{p}", free_job, {"power": p, "d": FREE_D, "n": FREE_N, "seed": seed}, cost=20.0)
        for p in FREE_POWERS
    ]
    values = runner.run([*(job for mine in jobs.values() for job in mine), *free])
    found: Found = {key: [values[job.name] for job in mine] for key, mine in jobs.items()}
    quantities = [_quantity(key, starts) for key, starts in found.items()]
    settings = {
        "preset": preset,
        "seeds": n_seeds,
        "dimensions": {str(power): list(ds) for power, ds in dimensions.items()},
        "device": runner.device,
    }
    slopes = {relu: {p: slope(found, relu, p) for p in dimensions} for relu in (True, False)}
    middle = found.get((True, 2, FREE_D), [])
    with_relu = medians(found, relu=True)
    return StudyResult(
        probe=NAME,
        verdict=f"{_verdict(found, slopes)}{judgement(with_relu)}",
        evidence=CapacityEvidence(
            status="described",
            growth={
                "relu" if relu else "linear": {str(p): value for p, value in by_power.items()}
                for relu, by_power in slopes.items()
            },
            tight_frames=_tight(found),
            laws=laws(with_relu[2]) if 2 in with_relu else {},
            alike=alike(with_relu),
        ),
        provenance=study_provenance(NAME, SOURCE, settings, runner.first_seed),
        quantities=quantities,
        jobs=values,
        details=[_by_seed(found), _growth(slopes), *_law_table(with_relu)],
        plots=[
            capacity_figure(medians(found, relu=True), relu=True),
            capacity_figure(medians(found, relu=False), relu=False),
            *([loss_figure(middle)] if middle else []),
            norms_figure([values[job.name] for job in free], FREE_D, FREE_N),
        ],
    )


def _job(relu: bool, power: int, d: int, seed: int, device: str) -> Job:
    return Job(
        name=f"{'relu' if relu else 'linear'}-p{power}-d{d}-seed-{seed}",
        function=capacity_job,
        arguments={"relu": relu, "power": power, "d": d, "seed": seed, "device": device},
        cost=float(d) ** (power / 1.5),
    )


@dataclass(frozen=True)
class CapacityEvidence(Evidence):
    """What is said of capacity.

    Attributes:
        growth: slopes of N against d, with a ReLU and without, by power.
        tight_frames: whether the vectors found are tight frames.
        laws: of N at p = 2 with a ReLU: by law, its constants and the scatter (see `laws`).
        alike: dimensions at which two powers keep as many, with the powers.
    """

    growth: Mapping[str, Any]
    tight_frames: Any
    laws: Mapping[str, Any]
    alike: Sequence[Sequence[int]]


def medians(found: Found, *, relu: bool) -> dict[int, dict[int, float]]:
    """The median N over starts, by power and dimension."""
    by_power: dict[int, dict[int, float]] = {}
    for (with_relu, power, d), starts in found.items():
        if with_relu == relu:
            by_power.setdefault(power, {})[d] = float(statistics.median(v["N"] for v in starts))
    return by_power


def slope(found: Found, relu: bool, power: int) -> float | None:
    """The exponent k of N ~ d^k, least squares on logarithms, from SLOPE_FROM on; None: too few."""
    points = {d: n for d, n in medians(found, relu=relu)[power].items() if d >= SLOPE_FROM}
    return exponent(points.keys(), points.values()) if len(points) > 1 else None


def laws(by_d: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """Laws for N against d, from SLOPE_FROM on: their constants, and how well they foretell.

    Scatter: the root mean square of ln N about the law fitted without that dimension, 0 where it
    holds; so a law with more constants has no advantage of its own. Empty for fewer than four
    dimensions.
    """
    points = [(d, n) for d, n in by_d.items() if d >= SLOPE_FROM]
    if len(points) < 4:
        return {}
    d, n = np.array(points, dtype=float).T
    found = {}
    for name, shape in (("a d", d), ("a d ln d", d * np.log(d))):
        ones, left = np.ones((len(d), 1)), np.log(n / shape)
        found[name] = {"a": float(np.exp(left.mean())), "scatter": _left_out(ones, left)}
    for name, of, x in (("a d^k", "k", np.log(d)), ("a g^d", "g", d)):
        steep, constant = np.polyfit(x, np.log(n), 1)
        found[name] = {
            "a": float(np.exp(constant)),
            of: float(steep if of == "k" else np.exp(steep)),
            "scatter": _left_out(np.column_stack([np.ones(len(d)), x]), np.log(n)),
        }
    return found


def _left_out(
    design: Float[np.ndarray, "point constant"], wanted: Float[np.ndarray, " point"]
) -> float:
    """The rms error at each point of the least squares fit to the others (by the hat matrix)."""
    hat = design @ np.linalg.pinv(design)
    return float(np.sqrt(np.mean(((wanted - hat @ wanted) / (1 - np.diag(hat))) ** 2)))


def alike(by_power: Mapping[int, Mapping[int, float]]) -> list[tuple[int, int, int]]:
    """Dimensions at which two powers keep as many: (d, lower power, higher power)."""
    powers = sorted(by_power)
    return [
        (d, p, q)
        for p, q in itertools.pairwise(powers)
        for d in by_power[p]
        if d in by_power[q] and by_power[p][d] == by_power[q][d]
    ]


def still_exponential(by_d: Mapping[int, float]) -> bool:
    """Whether ln N does not flatten: its slope against d is nowhere less than half the first."""
    d, n = np.array(sorted(by_d.items()), dtype=float).T
    slopes = np.diff(np.log(n)) / np.diff(d)
    return bool((slopes >= slopes[0] / 2).all())


def judgement(by_power: Mapping[int, Mapping[int, float]]) -> str:
    """What these counts say of the source's conjecture; empty where there are too few."""
    fitted = laws(by_power[2]) if 2 in by_power else {}
    if not fitted:
        return ""
    scatter = {name: law["scatter"] for name, law in fitted.items()}
    best = min(scatter, key=lambda name: scatter[name])
    dimensions = sorted(d for d in by_power[2] if d >= SLOPE_FROM)
    ratios = [by_power[2][d] / (d * math.log(d)) for d in dimensions]
    falls = all(after <= before for before, after in itertools.pairwise(ratios))
    steps = "falls with every dimension measured" if falls else "does not fall throughout"
    where = ", ".join(f"d = {d} (p = {p} and {q})" for d, p, q in alike(by_power)) or "nowhere"
    steady = [p for p, by_d in by_power.items() if len(by_d) > 2 and still_exponential(by_d)]
    return (
        f" Of the source's O(d ln d) at p = 2: N / (d ln d) {steps}, from {ratios[0]:.2f} at d = "
        f"{dimensions[0]} to {ratios[-1]:.2f} at {dimensions[-1]}, which bounds no larger d; "
        f"each ln N is foretold from the others best by {best}, to {scatter[best]:.3f}, and to "
        f"{scatter['a d ln d']:.3f} by a d ln d. Of its conjecture, the minimum of an exponential "
        f"that does not depend on p and a polynomial that does: {_fitting(by_power)}; two "
        f"neighbouring powers keep as many at {where}; ln N keeps its slope for "
        f"{', '.join(f'p = {p}' for p in steady) or 'no p'}."
    )


def _fitting(by_power: Mapping[int, Mapping[int, float]]) -> str:
    """Which p a power of d foretells better than an exponential, and which not."""
    fitted = {p: laws(by_d) for p, by_d in by_power.items()}
    known = {p: found for p, found in fitted.items() if found}
    power = [p for p, f in known.items() if f["a d^k"]["scatter"] < f["a g^d"]["scatter"]]
    groups = (
        ("a power of d foretells N better than an exponential", power),
        ("an exponential better", [p for p in known if p not in power]),
        ("too few dimensions tell", [p for p in fitted if p not in known]),
    )
    return ", ".join(
        f"{said} for p = {' and '.join(map(str, those))}" for said, those in groups if those
    )


def _quantity(key: tuple[bool, int, int], starts: Sequence[Mapping[str, Any]]) -> Quantity:
    relu, power, d = key
    remark = ""
    if not relu and power % 2 == 0:
        remark = f"Welch's bound turns at {welch_capacity(d, power):,.4g}"
    ours = [float(values["N"]) for values in starts]
    of = f"p = {power}, {'ReLU' if relu else 'linear'}"
    return compare(of, f"N at d = {d}", ours, unit="", remark=remark)


def _tight(found: Found) -> bool | None:
    """Whether a linear output at p = 2 keeps exactly d everywhere, as it must; None: not run."""
    kept = [
        all(v["N"] == d for v in starts) for (r, p, d), starts in found.items() if not r and p == 2
    ]
    return all(kept) if kept else None


def _verdict(found: Found, slopes: Mapping[bool, Mapping[int, float | None]]) -> str:
    relu = medians(found, relu=True)
    shared = max(set.intersection(*(set(by_d) for by_d in relu.values())))
    counts = ", ".join(f"{by_d[shared]:g} at p = {power}" for power, by_d in relu.items())
    growth = ", ".join(f"{k:.2f}" for k in slopes[True].values() if k is not None)
    text = f"With a ReLU, {shared} dimensions keep {counts}"
    if growth:
        text += f"; from d = {SLOPE_FROM} on N grows as d to the power {growth}, in that order"
    if 2 in relu:
        first, last = min(d for d in relu[2] if d >= SLOPE_FROM), max(relu[2])
        text += f"; at p = 2 {_ratios(relu[2], first)}, {_ratios(relu[2], last)}"
    if _tight(found):
        text += "; without the ReLU p = 2 keeps exactly d"
    return (
        f"{text}. These are the best directions that Adam finds from random starts; the source "
        "gives no numbers to hold them against."
    )


def _ratios(by_d: Mapping[int, float], d: int) -> str:
    """N beside d and beside d ln d, at one dimension."""
    n = by_d[d]
    return f"N is {n / d:.2f} d or {n / (d * math.log(d)):.2f} d ln d at d = {d}"


def _by_seed(found: Found) -> Table:
    rows = [
        ["ReLU" if relu else "linear", power, d, values["seed"], values["N"], min(values["loss"])]
        for (relu, power, d), starts in found.items()
        for values in starts
    ]
    caption = "Loss: beside that of keeping no input, each of which costs 1."
    return Table("Every start", ["output", "p", "d", "seed", "N", "loss at N"], rows, caption)


def _growth(slopes: Mapping[bool, Mapping[int, float | None]]) -> Table:
    rows = [
        ["ReLU" if relu else "linear", power, exponent, power / 2]
        for relu, by_power in slopes.items()
        for power, exponent in by_power.items()
    ]
    caption = (
        f"Least squares on logarithms, from d = {SLOPE_FROM} on. Random directions have a mean "
        "|cosine|^p of order d^(-p/2), so that N is of order d^(p/2) or more in the end; exponents "
        "below p/2 say that these dimensions are not yet large."
    )
    return Table("Growth: N ~ d^k", ["output", "p", "k", "p/2"], rows, caption)


def _law_table(by_power: Mapping[int, Mapping[int, float]]) -> list[Table]:
    fitted = laws(by_power[2]) if 2 in by_power else {}
    rows = [
        [name, law["a"], law.get("k"), law.get("g"), law["scatter"]] for name, law in fitted.items()
    ]
    caption = (
        f"With a ReLU, from d = {SLOPE_FROM} on; scatter: rms of ln N about the law fitted to the "
        "other dimensions."
    )
    columns = ["law", "a", "k", "g", "scatter"]
    return [Table("Laws for N at p = 2", columns, rows, caption)][: len(rows)]


CAPACITY = Artefact(
    name=NAME,
    summary="how many features d dimensions store: N_Lp(d) by optimisation, and ε-accuracy",
    source=SOURCE,
    presets={
        "small": "2 starts, up to 32 dimensions; minutes",
        "paper": "5 starts, up to 64 dimensions; the source does not say its own",
    },
    run=reproduce_capacity,
)
