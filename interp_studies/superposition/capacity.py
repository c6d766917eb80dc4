"""How many features d dimensions store under L_p and under ε-accuracy: N_Lp(d).

N is found by `packing`, with and without a ReLU after the readout, from several random starts. It
is shown with known values: Welch's bound, d ln d, and the number of random directions that are
ε-accurate. The paper has a figure and a conjecture without numbers, so no number is compared with
the paper.
Source: "Computation in superposition", section 2.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.power_law import exponent
from interp_studies.result import StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_studies.superposition.packing import (
    capacity,
    free_norms,
    random_capacity,
    welch_capacity,
)
from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL, shade, translucent
from interp_toolkit.results import Evidence, Figure, Table

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
EPSILON = 0.5  # of the random construction's line: a readout within it of the truth decides
SLOPE_FROM = 4  # the least dimension that growth is fitted from

ByPoint = Mapping[tuple[bool, int, int], Sequence[Values]]  # with a ReLU, power, dimension


def capacity_job(
    *, folder: Path, relu: bool, power: int, d: int, seed: int, device: str
) -> Outcome:
    """N_Lp(d) from the random starts of one seed."""
    best, tried = capacity(d, power, relu=relu, seed=seed, device=device)
    losses = {"n": list(tried), "loss": list(tried.values())}
    return Outcome({"relu": relu, "power": power, "d": d, "seed": seed, "N": best, **losses})


def free_job(*, folder: Path, power: int, d: int, n: int, seed: int) -> Outcome:
    """The norms that an autoencoder learns if they are free."""
    loss, norms = free_norms(n, d, power, seed=seed)
    return Outcome({"power": power, "loss": loss, "norms": norms.tolist()})


def grid(plan: Plan) -> Grid:
    """N for every power and dimension, with and without a ReLU, and free norms."""
    jobs: dict[tuple[bool, int, int] | tuple[str, int], list[Job]] = {}
    for relu in (True, False):
        for power, dimensions in DIMENSIONS[plan.preset].items():
            for d in dimensions:
                jobs[relu, power, d] = plan.each_seed(
                    f"{'relu' if relu else 'linear'}-p{power}-d{d}",
                    capacity_job,
                    cost=float(d) ** (power / 1.5),
                    relu=relu,
                    power=power,
                    d=d,
                    device=plan.runner.device,
                )
    for power in FREE_POWERS:
        arguments = {"power": power, "d": FREE_D, "n": FREE_N, "seed": plan.seeds[0]}
        jobs["free", power] = [Job(f"free-p{power}", free_job, arguments, cost=20.0)]
    return jobs


def medians(by_point: ByPoint, *, relu: bool) -> dict[int, dict[int, float]]:
    """The median N over starts, by power and dimension."""
    by_power: dict[int, dict[int, float]] = {}
    for (with_relu, power, d), starts in by_point.items():
        if with_relu == relu:
            by_power.setdefault(power, {})[d] = float(statistics.median(v["N"] for v in starts))
    return by_power


def slope(by_point: ByPoint, relu: bool, power: int) -> float | None:
    """The exponent k of N ~ d^k, by least squares on logarithms; None: too few points."""
    points = {d: n for d, n in medians(by_point, relu=relu)[power].items() if d >= SLOPE_FROM}
    return exponent(points.keys(), points.values()) if len(points) > 1 else None


def laws(by_d: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """Laws for N against d from SLOPE_FROM on: their constants and their prediction error.

    The scatter is the root mean square error of ln N at each dimension, for the law fitted to the
    other dimensions (0 if the law holds exactly), so that a law with more constants has no
    advantage. Empty with fewer than four dimensions.
    """
    points = [(d, n) for d, n in by_d.items() if d >= SLOPE_FROM]
    if len(points) < 4:
        return {}
    d, n = np.array(points, dtype=float).T
    fitted = {}
    for name, shape in (("a d", d), ("a d ln d", d * np.log(d))):
        ones, left = np.ones((len(d), 1)), np.log(n / shape)
        fitted[name] = {"a": float(np.exp(left.mean())), "scatter": _left_out(ones, left)}
    for name, of, x in (("a d^k", "k", np.log(d)), ("a g^d", "g", d)):
        steep, constant = np.polyfit(x, np.log(n), 1)
        fitted[name] = {
            "a": float(np.exp(constant)),
            of: float(steep if of == "k" else np.exp(steep)),
            "scatter": _left_out(np.column_stack([np.ones(len(d)), x]), np.log(n)),
        }
    return fitted


def _left_out(
    design: Float[np.ndarray, "point constant"], wanted: Float[np.ndarray, " point"]
) -> float:
    """The rms error at each point of the least squares fit to the others (by the hat matrix)."""
    hat = design @ np.linalg.pinv(design)
    return float(np.sqrt(np.mean(((wanted - hat @ wanted) / (1 - np.diag(hat))) ** 2)))


def alike(by_power: Mapping[int, Mapping[int, float]]) -> list[tuple[int, int, int]]:
    """Dimensions at which two powers keep equal numbers: (d, lower power, higher power)."""
    powers = sorted(by_power)
    return [
        (d, p, q)
        for p, q in itertools.pairwise(powers)
        for d in by_power[p]
        if d in by_power[q] and by_power[p][d] == by_power[q][d]
    ]


def still_exponential(by_d: Mapping[int, float]) -> bool:
    """Whether ln N keeps growing linearly: its slope against d is nowhere below half the first."""
    d, n = np.array(sorted(by_d.items()), dtype=float).T
    slopes = np.diff(np.log(n)) / np.diff(d)
    return bool((slopes >= slopes[0] / 2).all())


def judgement(by_power: Mapping[int, Mapping[int, float]]) -> str:
    """What the counts imply for the paper's conjecture; empty with too few dimensions."""
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
    known = {p: by_point for p, by_d in by_power.items() if (by_point := laws(by_d))}
    power = [p for p, f in known.items() if f["a d^k"]["scatter"] < f["a g^d"]["scatter"]]
    foretold = ", ".join(
        f"{by} for p = {' and '.join(map(str, those))}"
        for by, those in (
            ("a power of d predicts N better than an exponential", power),
            ("an exponential predicts it better", [p for p in known if p not in power]),
            ("there are too few dimensions", [p for p in by_power if p not in known]),
        )
        if those
    )
    steady = [p for p, by_d in by_power.items() if len(by_d) > 2 and still_exponential(by_d)]
    return (
        f" The source conjectures O(d ln d) at p = 2: N / (d ln d) {steps}, from {ratios[0]:.2f} "
        f"at d = {dimensions[0]} to {ratios[-1]:.2f} at {dimensions[-1]}, which says nothing "
        f"about larger d; leave-one-out prediction of ln N is best with {best} (error "
        f"{scatter[best]:.3f}; with a d ln d {scatter['a d ln d']:.3f}). For its conjecture "
        f"of a minimum of a p-independent exponential and a p-dependent polynomial: {foretold}; "
        f"two neighboring powers keep equally many features at {where}; ln N keeps its slope for "
        f"{', '.join(f'p = {p}' for p in steady) or 'no p'}."
    )


def counts_in_words(
    relu: Mapping[int, Mapping[int, float]], slopes: Iterable[float | None], tight: bool | None
) -> str:
    """How many features are kept, and how the number grows.

    Args:
        relu: median N with a ReLU, by power and dimension.
        slopes: exponents of these, by power.
        tight: whether a linear output at p = 2 keeps exactly d features for every d.
    """
    shared = max(set.intersection(*(set(by_d) for by_d in relu.values())))
    counts = ", ".join(f"{by_d[shared]:g} at p = {power}" for power, by_d in relu.items())
    growth = ", ".join(f"{k:.2f}" for k in slopes if k is not None)
    text = f"With a ReLU, {shared} dimensions keep {counts}"
    if growth:
        text += f"; from d = {SLOPE_FROM} on N grows as d to the power {growth}, in that order"
    if 2 in relu:
        ratios = ", ".join(
            f"N is {n / d:.2f} d or {n / (d * math.log(d)):.2f} d ln d at d = {d}"
            for d in (min(d for d in relu[2] if d >= SLOPE_FROM), max(relu[2]))
            for n in [relu[2][d]]
        )
        text += f"; at p = 2 {ratios}"
    if tight:
        text += "; without the ReLU p = 2 keeps exactly d"
    return (
        f"{text}. These are the best directions that Adam finds from random starts; the source "
        "gives no numbers to compare with."
    )


def capacity_figure(by_power: Mapping[int, Mapping[int, float]], *, relu: bool) -> Figure:
    """N against d on logarithmic scales, one line per power, with known values."""
    data = [
        plots.line(by_d, by_d.values(), shade(number, len(by_power)), f"p = {power}")
        | plots.marked(plots.symbol(number), size=8)
        for number, (power, by_d) in enumerate(by_power.items())
    ]
    dimensions = sorted({d for by_d in by_power.values() for d in by_d})
    largest = max(n for by_d in by_power.values() for n in by_d.values())
    random = [(d, random_capacity(d, EPSILON)) for d in dimensions]
    lines = [(f"random directions, ε = {EPSILON:g}", [(d, n) for d, n in random if n <= largest])]
    if relu:
        lines.append(("d ln d", [(d, d * math.log(d)) for d in dimensions]))
    else:
        lines += [
            (f"Welch, p = {p}", [(d, welch_capacity(d, p)) for d in by_d])
            for p, by_d in by_power.items()
            if p % 2 == 0
        ]
    dashes = ("dash", "dot", "dashdot", "longdash", "longdashdot")
    data += [
        plots.line(
            [d for d, _ in points],
            [n for _, n in points],
            NEUTRAL,
            name,
            width=1.5,
            dash=dashes[number % len(dashes)],
        )
        for number, (name, points) in enumerate(lines)
    ]
    layout = plots.layout(
        plots.axis("dimensions d", "log"), plots.axis("inputs worth keeping, N", "log")
    )
    output = "with a ReLU" if relu else "without a ReLU"
    known = (
        "d ln d: what the source observes at p = 2"
        if relu
        else "Welch: where the lower bound on the interference turns"
    )
    caption = (
        f"Median over starts, {output}. {known}. Random directions: how many have all cosines "
        f"within {EPSILON:g}, in expectation, from the exact distribution of a cosine; it grows "
        "exponentially in d."
    )
    return Figure(f"How many features d dimensions store, {output}", caption, data, layout)


def loss_figure(starts: Sequence[Values]) -> Figure:
    """The loss against the number of kept features, one line per start."""
    data = [
        plots.line(
            values["n"],
            values["loss"],
            CLASS_COLORS[number % 2],
            f"start {values['seed']}: N = {values['N']}",
            width=1.5,
        )
        | plots.marked()
        for number, values in enumerate(starts)
    ]
    first = starts[0]
    layout = plots.layout(plots.axis("inputs kept, n"), plots.axis("interference - n"))
    caption = (
        f"p = {first['power']}, d = {first['d']}, with a ReLU: each input kept saves 1 and "
        "interferes with the others; N is where the sum is least. It is flat there."
    )
    return Figure("The loss against how many are kept", caption, data, layout)


def norms_figure(trained: Sequence[Values], d: int, n: int) -> Figure:
    """Histograms of the free norms that autoencoders learn, one per power."""
    data = [
        {
            "type": "histogram",
            "name": f"p = {values['power']}",
            "x": values["norms"],
            "xbins": {"start": 0, "end": 1.2, "size": 0.05},
            "marker": {"color": translucent(CLASS_COLORS[number % 2], 0.7)},
        }
        for number, values in enumerate(trained)
    ]
    norm = plots.axis("norm of an input's direction") | {"range": [0, 1.2]}
    layout = plots.layout(norm, plots.axis("inputs")) | {"barmode": "overlay"}
    caption = (
        f"{n} inputs in {d} dimensions, with a ReLU, norms trained too. Two separate groups, kept "
        "and not kept, would make N a count; where the norms spread out or are all alike, there is "
        "no such number, which is why N is defined with norms held at 1."
    )
    return Figure("Norms, where they are free", caption, data, layout)


@dataclass(frozen=True)
class CapacityEvidence(Evidence):
    """The evidence of the description of capacity.

    Attributes:
        growth: slopes of ln N against ln d, with and without a ReLU, by power.
        tight_frames: whether the vectors are tight frames.
        laws: by law of N at p = 2 with a ReLU: its constants and its scatter (see `laws`).
        alike: dimensions at which two powers keep equal numbers, with the powers.
    """

    growth: Mapping[str, Any]
    tight_frames: Any
    laws: Mapping[str, Any]
    alike: Sequence[Sequence[int]]


def report(run: StudyRun) -> StudyResult:
    """N by power and dimension, its growth, and what this implies for the conjecture."""
    by_point: ByPoint = {point: run.by_point[point] for point in run.by_point if point[0] != "free"}
    free = [run.by_point["free", power][0] for power in FREE_POWERS]
    dimensions = DIMENSIONS[run.preset]
    slopes = {relu: {p: slope(by_point, relu, p) for p in dimensions} for relu in (True, False)}
    relu, linear = (medians(by_point, relu=with_relu) for with_relu in (True, False))
    outputs = {True: "ReLU", False: "linear"}
    exact = [
        all(v["N"] == d for v in starts)
        for (with_relu, p, d), starts in by_point.items()
        if not with_relu and p == 2
    ]
    tight = all(exact) if exact else None
    fitted = laws(relu[2]) if 2 in relu else {}
    law_rows = [
        [name, *(law.get(k) for k in ("a", "k", "g", "scatter"))] for name, law in fitted.items()
    ]
    middle = by_point.get((True, 2, FREE_D), [])
    return run.result(
        counts_in_words(relu, slopes[True].values(), tight) + judgement(relu),
        settings={
            "dimensions": {str(power): list(ds) for power, ds in dimensions.items()},
            "device": run.runner.device,
        },
        evidence=CapacityEvidence(
            "described",
            growth={
                "relu" if with_relu else "linear": {str(p): k for p, k in by_power.items()}
                for with_relu, by_power in slopes.items()
            },
            tight_frames=tight,
            laws=fitted,
            alike=alike(relu),
        ),
        quantities=[
            compare(
                f"p = {p}, {outputs[with_relu]}",
                f"N at d = {d}",
                [float(values["N"]) for values in starts],
                unit="",
                remark=""
                if with_relu or p % 2
                else f"Welch's bound turns at {welch_capacity(d, p):,.4g}",
            )
            for (with_relu, p, d), starts in by_point.items()
        ],
        details=[
            Table(
                "Every start",
                ["output", "p", "d", "seed", "N", "loss at N"],
                [
                    [outputs[with_relu], p, d, values["seed"], values["N"], min(values["loss"])]
                    for (with_relu, p, d), starts in by_point.items()
                    for values in starts
                ],
                "Loss: beside that of keeping no input, each of which costs 1.",
            ),
            Table(
                "Growth: N ~ d^k",
                ["output", "p", "k", "p/2"],
                [
                    [outputs[with_relu], power, k, power / 2]
                    for with_relu, by_power in slopes.items()
                    for power, k in by_power.items()
                ],
                f"Least squares on logarithms, from d = {SLOPE_FROM} on. Random directions have a "
                "mean |cosine|^p of order d^(-p/2), so that N is of order d^(p/2) or more in the "
                "end; exponents below p/2 say that these dimensions are not yet large.",
            ),
            *[
                Table(
                    "Laws for N at p = 2",
                    ["law", "a", "k", "g", "scatter"],
                    law_rows,
                    f"With a ReLU, from d = {SLOPE_FROM} on; scatter: rms of ln N about the law "
                    "fitted to the other dimensions.",
                )
            ][: len(law_rows)],
        ],
        plots=[
            capacity_figure(relu, relu=True),
            capacity_figure(linear, relu=False),
            *([loss_figure(middle)] if middle else []),
            norms_figure(free, FREE_D, FREE_N),
        ],
    )


CAPACITY = Study(
    "superposition/capacity",
    "how many features d dimensions store: N_Lp(d) by optimization, and ε-accuracy",
    "Computation in superposition, section 2",
    {
        "small": "2 starts, up to 32 dimensions; minutes",
        "paper": "5 starts, up to 64 dimensions; the source does not say its own",
    },
    grid,
    report,
    SEEDS,
)
