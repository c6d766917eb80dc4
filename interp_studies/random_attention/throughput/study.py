"""Training throughput of frozen-qk and MixiT relative to the standard transformer (appendix D).

The paper trains 1,022.8 samples per second with the standard transformer on FineWeb-Edu, 1,267.1
with frozen-qk (+23.9 %) and 1,349.0 with MixiT (+32.0 %), on GPUs of an unspecified kind. Here all
variants are timed in turn in one process (see `timing`). A repeat uses new models, and its value is
the median of its rounds' ratios. The machine's speed cancels in the ratio; attention's part of a
step does not, and depends on the sizes. Intervals are over repeats on one machine in one session,
and do not include variation between machines or days.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interp_studies.claims import JudgedClaim, SeedClaim, judged
from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.random_attention.throughput.timing import (
    TIMED,
    TimingSizes,
    frozen_share,
    gains,
    variant_rates,
)
from interp_studies.result import Quantity, StudyResult, claims_evidence, compare
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.formatting import percent
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, Table
from interp_toolkit.toys.random_attention.variants import Variant

THEIRS: Mapping[str, float] = {"frozen-qk": 0.239, "mixit": 0.320}
PRESETS: Mapping[str, TimingSizes] = {
    "small": TimingSizes(2, 128, 4, 64, 256, rows=32, steps=3, rounds=9),
    "paper": TimingSizes(12, 512, 8, 2_048, 16_384, rows=4, steps=5, rounds=9),
}
REPEATS = 5


def timing_job(
    *, folder: Path, sizes: Mapping[str, Any], variants: Sequence[Variant], seed: int, device: str
) -> Outcome:
    """One repeat.

    Args:
        folder: not used.
        sizes: fields of a `TimingSizes`.
        variants: variants to time, in turn.
        seed: random seed of models and tokens.
        device: device to time on.
    """
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else "one CPU thread"
    found = variant_rates(TimingSizes(**sizes), seed, device, variants)
    return Outcome({"device": name, "seed": seed, "rates": found})


def job_arguments(plan: Plan) -> dict[str, Any]:
    """The arguments of every repeat."""
    sizes = asdict(PRESETS[plan.preset])
    return {"sizes": sizes, "variants": TIMED, "device": plan.runner.device}


def grid(plan: Plan) -> Grid:
    """The repeats, each a job that runs alone."""
    arguments = job_arguments(plan)
    return {
        seed: [Job(f"repeat-{seed}", timing_job, {**arguments, "seed": seed})]
        for seed in plan.seeds
    }


def rate_quantities(
    medians: Mapping[str, Sequence[float]],
    repeats: Sequence[Values],
    *,
    judge: bool,
) -> list[Quantity]:
    """Gains compared with the paper's, and steps per second."""
    found = []
    for variant, values in medians.items():
        theirs = THEIRS[variant]
        remark = f"theirs: {percent(theirs, 1)} at 12 layers, 512 wide, 2,048 positions"
        shown = compare(
            variant,
            "steps a second over standard's",
            values,
            theirs if judge else None,
            remark="" if judge else remark,
        )
        found.append(shown)
    for variant in TIMED:
        seconds = [statistics.median(one["rates"][variant]) for one in repeats]
        found.append(compare(variant, "steps a second", seconds, unit=""))
    return found


def verdict(findings: Sequence[JudgedClaim], device: str, sizes: TimingSizes, bound: float) -> str:
    """Each variant's gain and the paper's; `bound`: fraction of arithmetic that freezing saves."""
    by_variant = "; ".join(
        f"{variant} trains {100 * f.value:+.1f} % ({100 * f.low:+.1f} to {100 * f.high:+.1f} %) "
        f"steps a second, the source's {100 * THEIRS[variant]:+.1f} %"
        for variant, f in zip(THEIRS, findings, strict=True)
    )
    return (
        f"Timed alternately on {device}, {sizes.n_layers} layers, {sizes.d_model} wide, "
        f"{sizes.n_ctx} positions, relative to standard: {by_variant}. Intervals are for this "
        f"session: over {findings[0].units} of models, not over machines or days. Omitting only "
        f"the gradients of W_Q and W_K saves {percent(bound, 1)} of the matrix products, so "
        f"frozen-qk could gain at most {100 * (1 / (1 - bound) - 1):+.1f} %, plus the savings in "
        "the optimizer step."
    )


def gain_figure(repeats: Sequence[Values]) -> Figure:
    """One point per round of every repeat, and the paper's gains."""
    data: list[plots.Part] = []
    for (variant, theirs), color in zip(THEIRS.items(), CLASS_COLORS, strict=True):
        points = [100 * gain for one in repeats for gain in gains(one["rates"], variant)]
        data.append(plots.markers([variant] * len(points), points, color, variant, size=6))
        data.append(
            plots.markers(
                *([variant], [100 * theirs], NEUTRAL, f"source, {variant}"),
                symbol="diamond",
                size=11,
            )
        )
    layout = plots.layout(plots.axis("", "category"), plots.axis("steps a second over standard, %"))
    caption = "A point a round of every repeat; diamonds: the source's, of other sizes on GPUs."
    return Figure("Training throughput over standard", caption, data, layout)


def report(run: StudyRun) -> StudyResult:
    """Each variant's gain over standard by repeat, and the paper's."""
    repeats, sizes = run.values, PRESETS[run.preset]
    timed_on = " and ".join(dict.fromkeys(one["device"] for one in repeats))
    medians = {v: [statistics.median(gains(one["rates"], v)) for one in repeats] for v in THEIRS}
    findings = judged(
        [
            SeedClaim(
                f"{variant} does more training steps a second than standard in this session (gain "
                "above 0)",
                values,
                above=0.0,
                overturned_by="the same sizes, timed in turn, without a gain",
            )
            for variant, values in medians.items()
        ]
    )
    rows = [
        [
            *(one["seed"], variant, statistics.median(one["rates"][variant])),
            *(100 * x for x in (statistics.median(each), min(each), max(each))),
        ]
        for one in repeats
        for variant in TIMED
        for each in [gains(one["rates"], variant)]
    ]
    columns = ["repeat", "variant", "steps a second", "over standard %", "lowest", "highest"]
    caption = "Medians over rounds; the gain is of each round's own ratio, with its range."
    return run.result(
        verdict(findings, timed_on, sizes, frozen_share(sizes.config("standard", 0))),
        settings={**job_arguments(run), "timed_on": timed_on},
        quantities=rate_quantities(medians, repeats, judge=run.preset == "paper"),
        claims=findings,
        evidence=claims_evidence(findings),
        details=[Table("Every repeat", columns, rows, caption)],
        plots=[gain_figure(repeats)],
    )


THROUGHPUT = Study(
    "random-attention/throughput",
    "training steps per second of frozen-qk and MixiT, relative to standard",
    "Is random attention sufficient for sequence modeling?, appendix D",
    {
        "small": "2 layers, 128 wide, 64 positions, 5 repeats of 9 rounds; a minute",
        "paper": "12 layers, 512 wide, 2,048 positions; needs a GPU",
    },
    grid,
    report,
    REPEATS,
    apart=True,
)
