"""Why is causal sorting worse? Attention, optimizer, rates and weight decay, one at a time.

The paper's causal model sorts worse than its bidirectional one. As evidence that the previous token
misleads the model, the paper fixes the query; its models share optimizer and learning rates. This
project's first models with a fixed query used AdamW with a cosine schedule, with which ordinary
causal models also sort well. Here every layout is trained with both optimizers and both schedules,
on lists of ten, for equal numbers of steps, and losses are compared between models that differ in
one factor. The optimizers differ in weight decay: Adam adds it to the gradient, AdamW subtracts it
from the weights. Adam without weight decay is therefore trained too, at the high rates. The study
also tests whether the attention of the first steps predicts the outcome.

Two quantities are compared on the paper's hard lists: mean cross-entropies, as ratios of geometric
means over seeds with Student's t intervals of their logarithms, and fractions of lists sorted
wrongly.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023), "Why Does the
Causal Model Perform So Much Worse?".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from interp_studies.claims import (
    Claim,
    JudgedClaim,
    SeedClaim,
    contrast,
    counted,
    coverage_of_each,
    judged_claim,
    measured,
)
from interp_studies.jobs.attempt import Outcome
from interp_studies.result import FRESH, StudyResult
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_studies.train_seed import train_seed
from interp_toolkit import plots
from interp_toolkit.circuits.sorting.evaluation import counterexamples
from interp_toolkit.circuits.sorting.measures import sorting_evolution
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, Table
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.sorting import evaluate

SEEDS = {"small": 8, "paper": 32}
SEEDS_UNCLAIMED = {"small": 2, "paper": 32}
STEPS, EARLY = 3_000, 300
SEARCHED = 100_000  # hard lists, for each model
Key = tuple[str, str, str]  # layout, optimizer, rates
#: recipe and what differs from it, by layout; lists of ten in all
LAYOUTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "causal": ("sort-causal", {}),
    "fixed query": ("sort-causal", {"fixed_query": True}),
    "bidirectional": ("sort-bidirectional", {"shortest": 10}),
}
OPTIMISERS: Mapping[str, Mapping[str, Any]] = {
    "adam": {"optimiser": "adam"},
    "adamw": {"optimiser": "adamw"},
    "adam, no decay": {"optimiser": "adam", "weight_decay": 0.0},
}
#: "low": the source's, lowered geometrically; "high": this project's, on a cosine
RATES: Mapping[str, Mapping[str, Any]] = {
    "low": {"schedule": "exponential", "lr": 1e-3, "final_lr": 1e-4, "betas": (0.9, 0.999)},
    "high": {"schedule": "cosine", "lr": 3e-3, "final_lr": 3e-5, "betas": (0.9, 0.99)},
}
KEYS: Sequence[Key] = [
    *itertools.product(LAYOUTS, ("adam", "adamw"), ["low"]),
    *itertools.product(("causal", "fixed query"), OPTIMISERS, ["high"]),
    ("bidirectional", "adamw", "high"),
]
SOURCES_OWN: Key = ("causal", "adam", "low")
#: ways that no claim is about; they stand in the table alone
UNCLAIMED: Sequence[Key] = [(layout, "adamw", "low") for layout in LAYOUTS]

ByWay = Mapping[Key, Sequence[Values]]


def sorter(
    *,
    folder: Path,
    recipe: str,
    settings: Mapping[str, Any],
    early: int,
    searched: int,
    seed: int,
    device: str,
) -> Outcome:
    """Train one seed; returns its losses, its wrong lists, and its early attention."""
    settings = {**settings, "checkpoints": (early,)}
    config, run = train_seed(recipe, settings, seed, device, folder)
    scores = evaluate(run.model, config)
    search = counterexamples(run.model, config.layout, config.source, n=searched, keep=1)
    [then] = sorting_evolution(folder, config.layout, distinct=False)
    values = {
        "seed": seed,
        **scores._asdict(),
        "wrong": search.failed,
        "searched": search.searched,
        "early_lift": then.metrics["above_lift"],
    }
    end_run(folder)
    return Outcome(values)


def seeds_of(key: Key, plan: Plan) -> range:
    """The seeds of one condition; the paper's own condition has enough for a correlation."""
    if plan.n_seeds is not None:
        return plan.seeds
    count = (SEEDS_UNCLAIMED if key in UNCLAIMED else SEEDS)[plan.preset]
    return plan.runner.seeds(max(RANKED, count) if key == SOURCES_OWN else count)


def grid(plan: Plan) -> Grid:
    """All conditions."""
    return {
        (layout, optimiser, rates): plan.each_seed(
            f"{layout}-{optimiser}-{rates}".replace(",", "").replace(" ", "-"),
            sorter,
            seeds=seeds_of((layout, optimiser, rates), plan),
            recipe=LAYOUTS[layout][0],
            settings={
                **LAYOUTS[layout][1],
                **RATES[rates],
                **OPTIMISERS[optimiser],
                "steps": STEPS,
            },
            early=EARLY,
            searched=SEARCHED,
            device=plan.runner.device,
        )
        for layout, optimiser, rates in KEYS
    }


RANKED = 12  # seeds at least whose correlation has an interval that covers as it says
MANY, SOME, LITTLE, ALIKE = 100.0, 3.0, 1.2, 1.5  # ratios of losses
FEW = 0.001  # of hard lists, wrong


#: what would overturn a claim about a ratio
RATIO = "other seeds, steps or rates of the same optimizer"


def _ratio(measure: tuple[Key, Key], claim: str, **given: Any) -> Claim:
    """A claim about the ratio of the first condition's loss to the second's."""
    return Claim(measure, claim, overturned_by=RATIO, factor=True, **given)


#: ratios of losses, made on the seeds 0 and 1. AdamW takes a share of the rate off each weight,
#: 1e-4 of it, which in a run comes to 0.05 %: it is Adam without decay but for that, hence the two
#: checks
RATIOS = [
    _ratio(
        (("causal", "adam", "low"), ("causal", "adam", "high")),
        f"causal, Adam: the loss at low rates is more than {LITTLE:g} × that at high rates",
        above=LITTLE,
    ),
    _ratio(
        (("causal", "adam", "high"), ("causal", "adamw", "high")),
        f"causal, high rates: Adam's loss is more than {SOME:g} × AdamW's",
        above=SOME,
    ),
    _ratio(
        (("causal", "adam, no decay", "high"), ("causal", "adamw", "high")),
        f"causal, Adam, high rates: without weight decay the loss is within {SOME:g} × AdamW's",
        above=1 / SOME,
        below=SOME,
        check=True,
    ),
    _ratio(
        (("fixed query", "adam, no decay", "high"), ("fixed query", "adamw", "high")),
        f"fixed query, Adam, high rates: without weight decay the loss is within {SOME:g} × "
        "AdamW's",
        above=1 / SOME,
        below=SOME,
        check=True,
    ),
    _ratio(
        (("causal", "adam", "low"), ("fixed query", "adam", "low")),
        f"Adam, low rates: the causal loss is more than {LITTLE:g} × that of a fixed query",
        above=LITTLE,
    ),
    _ratio(
        (("causal", "adam", "high"), ("fixed query", "adam", "high")),
        f"Adam, high rates: the causal loss is within {ALIKE:g} × that of a fixed query",
        above=1 / ALIKE,
        below=ALIKE,
    ),
    _ratio(
        (("causal", "adamw", "high"), ("fixed query", "adamw", "high")),
        f"AdamW, high rates: the causal loss is more than {MANY:g} × that of a fixed query",
        above=MANY,
    ),
    _ratio(
        (("causal", "adamw", "high"), ("bidirectional", "adamw", "high")),
        f"AdamW, high rates: the causal loss is more than {SOME:g} × a bidirectional layer's",
        above=SOME,
    ),
]


def ratio_claims(by_way: ByWay, claims: Sequence[Claim]) -> list[SeedClaim]:
    """Claims about ratios of losses between two conditions, by seed."""
    ratios = {
        (first, second): [
            one["loss"] / other["loss"]
            for one, other in zip(by_way[first], by_way[second], strict=True)
        ]
        for first, second in (claim.measure for claim in claims)
    }
    return measured(claims, ratios)


def judge(by_way: ByWay, early: Sequence[Values]) -> list[JudgedClaim]:
    """The judgment of every claim, from ratios by seed.

    Models of one seed have equal initial weights and equal lists, so conditions are compared by
    seed.

    Args:
        by_way: results of every condition, by seed.
        early: results of the paper's own condition, with all its seeds.
    """
    level = coverage_of_each(len(RATIOS) + 3)
    high, low, other = (
        [v["wrong"] / v["searched"] for v in by_way[key]]
        for key in (("causal", "adam", "high"), SOURCES_OWN, ("bidirectional", "adam", "low"))
    )
    searched = by_way[SOURCES_OWN][0]["searched"]
    over_seeds = [
        *ratio_claims(by_way, RATIOS),
        SeedClaim(
            f"Adam, high rates: causal models sort less than {100 * FEW:g} % of hard lists wrongly",
            high,
            below=FEW,
            overturned_by="seeds that fail",
            examples=searched,
        ),
        contrast(
            "Adam, low rates: causal models sort more hard lists wrongly than bidirectional ones",
            [low],
            [other],
            searched,
            above=0.0,
            overturned_by="as many wrong of both",
        ),
    ]
    return [
        *(judged_claim(claim, level) for claim in over_seeds),
        JudgedClaim(
            f"causal, Adam, low rates: more attention above the previous token at step {EARLY} "
            "goes with a higher final loss",
            *spearman([v["early_lift"] for v in early], [v["loss"] for v in early], level),
            f"{len(early)} seeds",
            above=0.0,
            overturned_by="no correlation over more seeds",
        ),
    ]


def spearman(x: Sequence[float], y: Sequence[float], level: float) -> tuple[float, float, float]:
    """Spearman's correlation with Fisher's interval and Bonett and Wright's (2000) variance.

    With fewer than `RANKED` pairs that interval covers less often than its level, so [-1, 1] is
    returned.
    """
    n = len(x)
    if n < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return 0.0, -1.0, 1.0
    value = float(stats.spearmanr(x, y).statistic)
    if n < RANKED:
        return value, -1.0, 1.0
    spread = math.sqrt((1 + value**2 / 2) / (n - 3))
    middle = math.atanh(min(max(value, -0.999999), 0.999999))
    reach = float(stats.norm.ppf((1 + level) / 2)) * spread
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return value, min(low, value), max(high, value)


def verdict(findings: Sequence[JudgedClaim]) -> str:
    """Every ratio with its interval, by cause, and the number of confirmed claims."""
    rates, decay, without, too, low, high, least, other, few, wrong, foretold = findings
    words = {
        "confirmed": "goes with a higher final loss",
        "refuted": "goes with a lower final loss",
        "undecided": "may or may not go with the final loss",
    }
    few_wrong, more_wrong = (
        f"{100 * f.value:.2g} % ({100 * f.low:.2g} to {100 * f.high:.2g})" for f in (few, wrong)
    )
    return (
        f"The loss of a causal layer is {_times(low)} that of a layer with a fixed query under "
        f"Adam at low learning rates, {_times(high)} at high rates, and {_times(least)} under "
        f"AdamW (compared with a bidirectional layer: {_times(other)}). In causal layers, low "
        f"rates end at {_times(rates)} the loss of high rates; at high rates Adam ends at "
        f"{_times(decay)} the loss of AdamW, and without weight decay at {_times(without)} (with "
        f"a fixed query {_times(too)}). At high rates, causal layers trained with Adam sort "
        f"{few_wrong} of hard lists wrongly; at low rates, {more_wrong} more of them than "
        f"bidirectional layers do. Attention above the previous token at step {EARLY} "
        f"{words[foretold.judgement]} (Spearman {foretold.value:.2f}, {foretold.low:.2f} to "
        f"{foretold.high:.2f}). {counted(findings)}."
    )


def _times(finding: JudgedClaim) -> str:
    value, low, high = (
        f"{x:,.0f}" if 10 <= x < 1e6 else f"{x:.2g}"
        for x in (finding.value, finding.low, finding.high)
    )
    return f"{value} × ({low} to {high})"


COLORS = dict(zip(OPTIMISERS, (*CLASS_COLORS, NEUTRAL), strict=True))


def way_table(by_way: ByWay) -> Table:
    """One row for each condition."""
    rows: list[list[Any]] = []
    for key, seeds in by_way.items():
        ends = [v["loss"] for v in seeds]
        pairs = [100 * v["two_values"] for v in seeds if v["two_values"] is not None]
        rows.append(
            [
                *key,
                len(seeds),
                float(np.exp(np.mean(np.log(ends)))),
                min(ends),
                max(ends),
                min(100 * v["hard"] for v in seeds),
                min(pairs) if pairs else None,
                sum(v["wrong"] == 0 for v in seeds),
            ]
        )
    columns = ["attention", "optimiser", "rates", "seeds", "loss", "least", "most"]
    columns += ["hard right, worst seed %", "two values, worst %", "seeds without a failure"]
    caption = (
        f"{STEPS:,} steps each. Low rates: 1e-3 to 1e-4, geometrically (the source's); high: 3e-3 "
        "to 3e-5 on a cosine, β₂ 0.99. Loss: nats an item on hard lists, geometric mean over "
        f"seeds. A seed without a failure sorts {SEARCHED:,} hard lists."
    )
    return Table("By attention, optimizer and rates", columns, rows, caption)


def loss_figure(by_way: ByWay) -> Figure:
    """The loss of every model, by attention and training condition."""
    data = []
    ways = list(dict.fromkeys(key[1:] for key in KEYS))
    for side, (optimiser, rates) in enumerate(ways):
        points = [
            (tick + 0.1 * (2 * side - len(ways) + 1), v["loss"])
            for tick, attention in enumerate(LAYOUTS)
            for v in by_way.get((attention, optimiser, rates), ())
        ]
        data.append(
            plots.markers(
                [x for x, _ in points],
                [y for _, y in points],
                COLORS[optimiser],
                f"{optimiser}, {rates} rates",
                symbol=plots.symbol(list(RATES).index(rates)),
                size=8,
            )
        )
    names = plots.ticks(range(len(LAYOUTS)), LAYOUTS)
    layout = plots.layout(
        names | plots.BARE | {"range": [-0.5, len(LAYOUTS) - 0.5]},
        plots.axis("loss on hard lists (nats an item)", "log"),
    )
    caption = "Each point is a seed. What rates and optimizer do is within a column."
    return Figure("Loss by attention, optimizer and rates", caption, data, layout)


def early_figure(seeds: Sequence[Values]) -> Figure:
    """Final losses against the attention after the first steps."""
    points = plots.markers(
        [v["early_lift"] for v in seeds],
        [v["loss"] for v in seeds],
        CLASS_COLORS[0],
        "seeds",
        size=9,
    )
    layout = plots.layout(
        plots.axis(f"attention above the previous token, step {EARLY}"),
        plots.axis("final loss (nats an item)", "log"),
    )
    caption = (
        "Causal models, Adam, low rates: does the early pattern foretell how well they will sort?"
    )
    return Figure("Does early attention foretell the loss?", caption, [points], layout)


def report(run: StudyRun) -> StudyResult:
    """The claims, with equal numbers of seeds per condition, and all models."""
    by_way = {key: seeds[: len(run.seeds)] for key, seeds in run.by_point.items()}
    early = run.by_point[SOURCES_OWN]
    findings = judge(by_way, early)
    rows = [
        [*key, v["seed"], v["loss"], v["wrong"], v["early_lift"]]
        for key, seeds in run.by_point.items()
        for v in seeds
    ]
    columns = ["attention", "optimiser", "rates", "seed", "loss", "wrong", "above, lift, early"]
    every_seed = Table("Every seed", columns, rows, f"Wrong: of {SEARCHED:,} hard lists.")
    return run.result(
        verdict(findings),
        settings={"steps": STEPS, "device": run.runner.device},
        claims=findings,
        details=[way_table(by_way), every_seed],
        plots=[loss_figure(by_way), early_figure(early)],
    )


CAUSAL_SORTING = Study(
    "open/causal-sorting",
    "why causal models sort worse: attention, optimizer, learning rate, early training",
    "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023), last section",
    {
        preset: f"{n} seeds of {len(KEYS) - len(UNCLAIMED) - 1} ways to train, {max(RANKED, n)} of "
        f"the source's own, {SEEDS_UNCLAIMED[preset]} of the {len(UNCLAIMED)} that no claim is "
        "about"
        for preset, n in SEEDS.items()
    },
    grid,
    report,
    SEEDS,
    question="Why do causal models sort worse: their attention, optimizer, rates, or weight decay?",
    first_seed=FRESH,
)
