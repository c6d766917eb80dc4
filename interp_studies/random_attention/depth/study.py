"""Table 6: similarity of the hidden states of different tokens, by depth.

Untrained random transformers and MixiT of 2 to 32 layers run on random tokens. The main measure is
the mean cosine between hidden states of different tokens after the last block and the final norm.
Their covariance before and after the norm is reported too (see `likeness`). The paper reports a
"covariance" on Wikitext and specifies neither its normalization nor whether its models were
trained. Its numbers are therefore shown, and only ratios, which do not depend on scale, are
compared.

On text, models of some depths are measured untrained and trained (see `on_text`); table 5 measures
its own models in the same way.

How far a random transformer collapses depends on its initialization, which the paper does not
specify. Three are run: normal weights of standard deviation 0.02, the usual choice for language
models, which the verdict is about; 1/√n, that of this toolkit's recipes; and PyTorch's defaults, 1
for the embedding and 1/√(3 fan-in) for linear maps.

Source: "Is random attention sufficient for sequence modeling?", section 5, table 6.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp_studies.jobs.attempt import Outcome
from interp_studies.random_attention.depth import on_text
from interp_studies.random_attention.depth.likeness import likeness
from interp_studies.random_attention.depth.models import (
    INITIALISATIONS,
    MAIN,
    DepthSizes,
    untrained,
)
from interp_studies.result import Quantity, StudyResult, compare, missed, overall, tally
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.circuits.similarity import similarity_by_depth
from interp_toolkit.data import FeatureData
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Table
from interp_toolkit.toys.random_attention.variants import Variant

DEPTHS = (2, 4, 8, 16, 32)
NAMES: Mapping[Variant, str] = {"random": "random transformer", "mixit": "MixiT"}
THEIRS: Mapping[Variant, tuple[float, ...]] = {
    "random": (0.00218, 0.01450, 0.02075, 0.01946, 0.05438),
    "mixit": (0.00088, 0.00260, 0.00210, 0.00154, 0.00104),
}
DASHES = ("solid", "dash", "dot")
MEASURED = ("cosine", "covariance", "normed_covariance", "dimensions", "centred_dimensions")


PRESETS: Mapping[str, DepthSizes] = {
    "small": DepthSizes(128, 4, 256, 1000, 8, 3),
    "paper": DepthSizes(512, 8, 256, 1000, 32, 5),
}


def depth_job(
    *,
    folder: Path,
    sizes: Mapping[str, Any],
    depths: Sequence[int],
    variant: Variant,
    initialisation: str,
    seed: int,
    device: str,
) -> Outcome:
    """The models of one seed, at every depth, on equal prompts.

    Args:
        folder: not used.
        sizes: fields of a `DepthSizes`.
        depths: depths of the models.
        variant: variant of the models.
        initialisation: name of the initialization.
        seed: random seed of weights and tokens.
        device: device of the models.
    """
    chosen = DepthSizes(**sizes)
    shape = (chosen.rows, chosen.n_ctx)
    tokens = np.random.default_rng(seed).integers(chosen.d_vocab, size=shape)
    data = FeatureData(tokens, np.zeros((chosen.rows, 0), bool), (), source="random tokens")
    measured: dict[str, list[float]] = {name: [] for name in MEASURED}
    for depth in depths:
        model = untrained(variant, depth, chosen, initialisation, seed).to(device)
        similarity = similarity_by_depth(model, data)
        measured["cosine"].append(float(similarity.cosines[-1].mean()))
        measured["dimensions"].append(float(similarity.dimensions[-1]))
        measured["centred_dimensions"].append(float(similarity.centred_dimensions[-1]))
        alike = likeness(model, torch.from_numpy(tokens).to(device))
        measured["covariance"].append(alike["covariance"])
        measured["normed_covariance"].append(alike["normed covariance"])
    of = {"variant": variant, "initialisation": initialisation, "seed": seed}
    return Outcome({**of, "depth": list(depths), **measured})


def grid(plan: Plan) -> Grid:
    """Untrained models with every initialization, and models on text.

    Raises:
        InputError: the user's settings do not fit.
    """
    points = [(start, variant) for start in INITIALISATIONS for variant in THEIRS]
    untrained_jobs = {
        (start, variant): plan.each_seed(
            f"{variant}-{INITIALISATIONS.index(start)}",
            depth_job,
            sizes=asdict(PRESETS[plan.preset]),
            depths=DEPTHS,
            variant=variant,
            initialisation=start,
            device=plan.runner.device,
        )
        for start, variant in points
    }
    return {**untrained_jobs, **on_text.grid(plan)}


ByStart = Mapping[tuple[str, Variant], Sequence[Values]]  # by start and variant, one per seed


def medians(
    by_start: ByStart, initialisation: str, variant: Variant, measure: str = "cosine"
) -> list[float]:
    """The median of a measure over seeds, by depth."""
    seeds = by_start[initialisation, variant]
    return [statistics.median(v[measure][index] for v in seeds) for index in range(len(DEPTHS))]


def start_quantities(by_start: ByStart, start: str) -> list[Quantity]:
    """The value at every depth, and the ratios that do not depend on scale."""
    listed = []
    for variant, name in NAMES.items():
        for number, depth in enumerate(DEPTHS):
            ours = [values["cosine"][number] for values in by_start[start, variant]]
            remark = f"theirs, of unknown scale: {THEIRS[variant][number]:.3g}"
            of = f"{name}, weights {start}"
            listed.append(compare(of, f"cosine, depth {depth}", ours, unit="", remark=remark))
    pairs = list(zip(by_start[start, "random"], by_start[start, "mixit"], strict=True))
    random, mixit = THEIRS["random"], THEIRS["mixit"]
    deepest, first = DEPTHS[-1], DEPTHS[0]
    listed.append(
        compare(
            f"ratios, weights {start}",
            f"MixiT over random transformer, depth {deepest}",
            [abs(m["cosine"][-1]) / abs(r["cosine"][-1]) for r, m in pairs],
            mixit[-1] / random[-1],
            better="lower",
        )
    )
    listed.append(
        compare(
            f"ratios, weights {start}",
            f"random transformer, depth {deepest} over depth {first}",
            [r["cosine"][-1] / r["cosine"][0] for r, _ in pairs],
            random[-1] / random[0],
            unit="",
            remark="a cosine cannot grow beyond 1",
        )
    )
    return listed


def verdict(by_start: ByStart, main: Sequence[Quantity], sizes: DepthSizes) -> str:
    """How cosines and covariances grow with depth, by initialization."""

    def ends(values: Sequence[float]) -> str:
        return f"{values[0]:.2g} to {values[-1]:.2g}"

    random, mixit = (medians(by_start, MAIN, variant) for variant in THEIRS)
    covariances = [medians(by_start, MAIN, variant, "covariance") for variant in THEIRS]
    others = "; ".join(
        f"{ends(medians(by_start, start, 'random'))} with {start}" for start in INITIALISATIONS[1:]
    )
    largest = max(
        abs(value) for start in INITIALISATIONS for value in medians(by_start, start, "mixit")
    )
    bound = math.ceil(100 * largest) / 100
    return (
        f"Untrained, {sizes.d_model} wide, on random tokens: from depth {DEPTHS[0]} to "
        f"{DEPTHS[-1]} the mean cosine between hidden states of different tokens goes from "
        f"{random[0]:.2f} to {random[-1]:.2f} in the random transformer and from {mixit[0]:.4f} "
        f"to {mixit[-1]:.4f} in MixiT (weights {MAIN}); how far the random transformer collapses "
        f"depends on the initialization ({others}), and MixiT stays below {bound:g} in all. The "
        f"covariance before the norm goes from {ends(covariances[0])} and from "
        f"{ends(covariances[1])}; the source's, of unknown scale, from {ends(THEIRS['random'])} "
        f"and from {ends(THEIRS['mixit'])}. Of the ratios that can be compared with the source, "
        f"{tally(main)}"
    )


def depth_table(by_start: ByStart) -> Table:
    """The paper's covariance and our measures, by depth."""
    rows: list[list[Any]] = []
    for variant, name in NAMES.items():
        rows.append([name, "the source's covariance", *(100 * x for x in THEIRS[variant])])
        for start in INITIALISATIONS:
            ours = (100 * x for x in medians(by_start, start, variant))
            rows.append([name, f"cosine, weights {start}", *ours])
        for measure in ("covariance", "normed_covariance"):
            ours = (100 * x for x in medians(by_start, MAIN, variant, measure))
            where = "before the norm" if measure == "covariance" else "behind the norm"
            rows.append([name, f"covariance {where}, weights {MAIN}", *ours])
    columns = ["model", "measured", *(f"{depth} layers" for depth in DEPTHS)]
    caption = (
        "In units of 0.01, as the source has them. Ours: untrained, on random tokens, the median "
        "over seeds of the mean cosine between hidden states of different tokens, last block, "
        "after the norm, and of their covariance over coordinates. "
        "The source's normalization and training are not given; compare the shapes."
    )
    return Table("Theirs and ours by depth", columns, rows, caption)


def depth_figure(by_start: ByStart) -> Figure:
    """Cosines by depth, and the source's covariance."""

    def line(name: str, values: Sequence[float], color: str, dash: str) -> plots.Part:
        shown = [value if value > 0 else None for value in values]
        return plots.line(DEPTHS, shown, color, name, dash=dash) | plots.marked()

    data: list[plots.Part] = []
    for side, (variant, name) in enumerate(NAMES.items()):
        for start, dash in zip(INITIALISATIONS, DASHES, strict=True):
            label, values = f"{name}, {start}", medians(by_start, start, variant)
            data.append(line(label, values, CLASS_COLORS[1 - side], dash))
        data.append(line(f"source, {name}", THEIRS[variant], NEUTRAL, DASHES[side]))
    layout = plots.layout(
        plots.axis("layers", "log") | {"tickvals": list(DEPTHS)},
        plots.axis("mean cosine (source: covariance)", "log"),
    )
    caption = (
        "Hidden states of different tokens behind the last block and the norm, untrained, median "
        "over seeds; gray: the source's covariance, whose scale is not given."
    )
    return Figure("How alike hidden states are, by depth", caption, data, layout)


@dataclass(frozen=True)
class DepthEvidence(Evidence):
    """The evidence of the verdict on depth.

    Attributes:
        cosines: median cosine over seeds by depth, for each variant and initialization.
        on_text: medians over seeds of every measure, untrained and trained, by variant and depth.
        not_shown: what the comparison does not show.
    """

    cosines: Mapping[str, list[float]]
    on_text: Mapping[str, Mapping[str, Mapping[str, float]]]
    not_shown: str


def report(run: StudyRun) -> StudyResult:
    """Similarity of hidden states by depth, untrained and on text."""
    by_start: ByStart = {p: v for p, v in run.by_point.items() if isinstance(p, tuple)}
    read: on_text.Read = {p: v for p, v in run.by_point.items() if not isinstance(p, tuple)}
    text = {cell: run.grid[cell][0].arguments["settings"] for cell in read}
    quantities = [q for start in INITIALISATIONS for q in start_quantities(by_start, start)]
    main = [quantity for quantity in quantities if quantity.of.endswith(MAIN)]
    rows = [
        [
            *(NAMES[variant], start, values["seed"], depth),
            *(values[name][number] for name in MEASURED),
        ]
        for (start, variant), seeds in by_start.items()
        for values in seeds
        for number, depth in enumerate(DEPTHS)
    ]
    columns = ["model", "weights", "seed", "depth", "cosine", "covariance", "behind the norm"]
    caption = (
        "Covariance: over coordinates, before the final norm and behind it. Dimensions: "
        "participation ratio of the directions of all hidden states; centered: of their covariance."
    )
    given = run.runner.given
    return run.result(
        f"{verdict(by_start, main, PRESETS[run.preset])} {on_text.sentence(read)}",
        settings={
            "device": run.runner.device,
            "on_text": {cell.group: settings for cell, settings in text.items()},
            **({"given": given} if given else {}),
        },
        quantities=[*quantities, *on_text.quantities(read)],
        evidence=DepthEvidence(
            status=overall(main),
            reason=missed(main),
            cosines={
                f"{variant}, {start}": medians(by_start, start, variant)
                for start, variant in by_start
            },
            on_text={
                f"{cell.variant}, {cell.group}": medians_on_text
                for cell, medians_on_text in on_text.medians(read).items()
            },
            not_shown="the source's models: language models on Wikitext, of which it does not say "
            "whether they were trained, nor how covariance is normalized; the text here is "
            f"{next(iter(text.values())).get('text', 'generated')}",
        ),
        details=[
            Table(
                "Every seed, untrained, on random tokens",
                [*columns, "dimensions", "centred"],
                rows,
                caption,
            ),
            depth_table(by_start),
            on_text.table(read),
        ],
        plots=[depth_figure(by_start)],
    )


TABLE_6 = Study(
    "random-attention/table-6",
    "similarity of hidden states by depth: random transformer and MixiT",
    "Is random attention sufficient for sequence modeling?, section 5, table 6",
    {
        "small": "untrained: width 128, 3 seeds; on generated text (--set toy-text.text=FOLDER): "
        "1 seed of 2 × 3 models, 64 wide, trained for a little; minutes",
        "paper": "untrained: width 512, 5 seeds; on Wikitext: 1 seed of 2 × 5 models, trained",
    },
    grid,
    report,
    {preset: sizes.seeds for preset, sizes in PRESETS.items()},
)
