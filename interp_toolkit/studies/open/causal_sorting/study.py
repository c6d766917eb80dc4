"""Why is causal sorting worse? Attention, optimiser, rates and weight decay, one at a time.

The source's causal model sorts worse than its bidirectional one, and as evidence that the previous
token misleads it fixes the query; its models share an optimiser and rates. This project's first
models with a fixed query did not: they had AdamW on a cosine, with which plain causal ones do well
too. Here every layout is trained with both optimisers at both schedules of rates, on lists of ten,
for as many steps, and losses are compared with one thing changed at a time. The optimisers differ
in what weight decay is: Adam adds it to the gradient, AdamW takes it off the weights. So Adam
without decay is trained too, at the high rates. Whether the pattern of the first steps foretells
the outcome is asked as well.

Compared are mean cross-entropies on the source's hard lists, as ratios of geometric means over
seeds with Student's intervals of their logarithms, and shares of hard lists sorted wrongly.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023), "Why Does the
Causal Model Perform So Much Worse?".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from interp_toolkit import plots
from interp_toolkit.circuits.sorting.evaluation import counterexamples
from interp_toolkit.circuits.sorting.evolution import sorting_evolution
from interp_toolkit.palette import CLASS_COLORS, NEUTRAL
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Figure, Table
from interp_toolkit.studies.jobs.attempt import Outcome
from interp_toolkit.studies.jobs.runner import Job, Runner
from interp_toolkit.studies.open.finding import Finding, coverage_of_each
from interp_toolkit.studies.open.result import FRESH, OpenResult, open_result
from interp_toolkit.studies.seed_interval import Interval, difference, over_seeds
from interp_toolkit.studies.train_seed import train_seed
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.sorting import evaluate

NAME = "open/causal-sorting"
SOURCE = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023), last section"
QUESTION = "Why do causal models sort worse: their attention, optimiser, rates, or weight decay?"
STEPS, EARLY = 3_000, 300
SEARCHED = 100_000  # hard lists, for each model
Key = tuple[str, str, str]  # layout, optimiser, rates
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
SEEDS = {"small": 8, "paper": 32}
RANKED = 12  # seeds at least whose correlation has an interval that covers as it says
KEYS: Sequence[Key] = [
    *itertools.product(LAYOUTS, ("adam", "adamw"), RATES),
    *((layout, "adam, no decay", "high") for layout in ("causal", "fixed query")),
]
SOURCES_OWN: Key = ("causal", "adam", "low")
MANY, MUCH, SOME, LITTLE, ALIKE = 100.0, 10.0, 3.0, 1.2, 1.5  # ratios of losses
FEW = 0.001  # of hard lists, wrong
LARGEST = 700.0  # an exponent of e that a float can have

COLORS = dict(zip(OPTIMISERS, (*CLASS_COLORS, NEUTRAL), strict=True))

Values = Mapping[str, Any]
Found = Mapping[Key, Sequence[Values]]


class RatioClaim(NamedTuple):
    """That one cell's loss over another's lies above a bound, and below another."""

    words: str
    first: Key
    second: Key
    above: float = 0.0
    below: float = math.inf


#: fixed on the seeds 0 and 1
RATIOS: Sequence[RatioClaim] = [
    RatioClaim(
        f"causal, Adam: the loss at low rates is more than {LITTLE:g} × that at high ones",
        ("causal", "adam", "low"),
        ("causal", "adam", "high"),
        above=LITTLE,
    ),
    RatioClaim(
        f"causal, high rates: Adam's loss is more than {SOME:g} × AdamW's",
        ("causal", "adam", "high"),
        ("causal", "adamw", "high"),
        above=SOME,
    ),
    RatioClaim(
        f"causal, Adam, high rates: without weight decay the loss is within {SOME:g} × AdamW's",
        ("causal", "adam, no decay", "high"),
        ("causal", "adamw", "high"),
        above=1 / SOME,
        below=SOME,
    ),
    RatioClaim(
        f"fixed query, Adam, high rates: without weight decay it is within {SOME:g} × AdamW's too",
        ("fixed query", "adam, no decay", "high"),
        ("fixed query", "adamw", "high"),
        above=1 / SOME,
        below=SOME,
    ),
    RatioClaim(
        f"Adam, low rates: the causal loss is more than {LITTLE:g} × that of a fixed query",
        ("causal", "adam", "low"),
        ("fixed query", "adam", "low"),
        above=LITTLE,
    ),
    RatioClaim(
        f"Adam, high rates: the causal loss is within {ALIKE:g} × that of a fixed query",
        ("causal", "adam", "high"),
        ("fixed query", "adam", "high"),
        above=1 / ALIKE,
        below=ALIKE,
    ),
    RatioClaim(
        f"AdamW, high rates: the causal loss is more than {MANY:g} × that of a fixed query",
        ("causal", "adamw", "high"),
        ("fixed query", "adamw", "high"),
        above=MANY,
    ),
    RatioClaim(
        f"AdamW, high rates: the causal loss is more than {SOME:g} × a bidirectional layer's",
        ("causal", "adamw", "high"),
        ("bidirectional", "adamw", "high"),
        above=SOME,
    ),
]
CLAIMS = len(RATIOS) + 3


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
    """Train one seed; its losses, its failures, and its attention early on."""
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
        "early": {k: then.metrics[k] for k in ("above_lift", "smallest_lift", "logit_fit_r2")},
    }
    end_run(folder)
    return Outcome(values)


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Train every layout with both optimisers; `seeds` overrides how many of each."""
    numbers = runner.seeds(seeds or SEEDS[preset])
    plan = {key: [_job(key, seed, runner.device) for seed in numbers] for key in KEYS}
    ranked = runner.seeds(max(RANKED, len(numbers))) if seeds is None else numbers
    own = [_job(SOURCES_OWN, seed, runner.device) for seed in ranked]
    every = {job.name: job for job in [*own, *(job for mine in plan.values() for job in mine)]}
    jobs = runner.run(list(every.values()))
    found = {key: [jobs[job.name] for job in mine] for key, mine in plan.items()}
    early = [jobs[job.name] for job in own]
    findings = _findings(found, early)
    settings = {"preset": preset, "steps": STEPS, "device": runner.device}
    return open_result(
        NAME,
        SOURCE,
        QUESTION,
        _verdict(findings),
        findings,
        jobs,
        settings=settings,
        seeds=numbers,
        details=[_layouts(found), _by_seed(found)],
        plots=[_losses(found), _foretold(early)],
    )


def _job(key: Key, seed: int, device: str) -> Job:
    layout, optimiser, rates = key
    recipe, own = LAYOUTS[layout]
    settings = {**own, **RATES[rates], **OPTIMISERS[optimiser], "steps": STEPS}
    arguments = {"recipe": recipe, "settings": settings, "early": EARLY, "searched": SEARCHED}
    name = f"{layout}-{optimiser}-{rates}-seed-{seed}".replace(",", "").replace(" ", "-")
    return Job(name, sorter, {**arguments, "seed": seed, "device": device})


def _findings(found: Found, early: Sequence[Values]) -> list[Finding]:
    level = coverage_of_each(CLAIMS)
    units = f"{len(found[SOURCES_OWN])} seeds of each"
    return [
        *(_ratio(found, claim, level, units) for claim in RATIOS),
        _few_wrong(found, level, units),
        _wrong(found, level, units),
        _foretells(early, level),
    ]


def _ratio(found: Found, claim: RatioClaim, level: float, units: str) -> Finding:
    """The ratio of two geometric means of losses."""
    gap = difference(
        *(
            over_seeds([math.log(v["loss"]) for v in found[key]], level=level)
            for key in (claim.first, claim.second)
        )
    )
    value, low, high = (
        math.exp(x) if x < LARGEST else math.inf for x in (gap.value, gap.low, gap.high)
    )
    return Finding(
        claim.words,
        value,
        low,
        high,
        units,
        above=claim.above,
        below=claim.below,
        overturned_by="other seeds, steps or rates of the same optimiser",
    )


def _few_wrong(found: Found, level: float, units: str) -> Finding:
    """How many hard lists causal models sort wrongly at the high rates."""
    share = _wrong_share(found["causal", "adam", "high"], level)
    return Finding(
        f"Adam, high rates: causal models sort less than {100 * FEW:g} % of hard lists wrongly",
        share.value,
        share.low,
        share.high,
        units,
        below=FEW,
        overturned_by="seeds that fail",
    )


def _wrong(found: Found, level: float, units: str) -> Finding:
    """How many more hard lists causal models sort wrongly than bidirectional ones, low rates."""
    keys = ("causal", "adam", "low"), ("bidirectional", "adam", "low")
    gap = difference(*(_wrong_share(found[key], level) for key in keys))
    return Finding(
        "Adam, low rates: causal models sort more hard lists wrongly than bidirectional ones",
        gap.value,
        gap.low,
        gap.high,
        units,
        above=0.0,
        overturned_by="as many wrong of both",
    )


def _wrong_share(seeds: Sequence[Values], level: float) -> Interval:
    shares = [v["wrong"] / v["searched"] for v in seeds]
    return over_seeds(shares, seeds[0]["searched"], level)


def _foretells(seeds: Sequence[Values], level: float) -> Finding:
    """Spearman's correlation of early attention above the previous token with the final loss."""
    x = [v["early"]["above_lift"] for v in seeds]
    y = [v["loss"] for v in seeds]
    value, low, high = spearman(x, y, level)
    return Finding(
        f"causal, Adam, low rates: more attention above the previous token at step {EARLY} goes "
        "with a higher final loss",
        value,
        low,
        high,
        f"{len(seeds)} seeds",
        above=0.0,
        overturned_by="no correlation over more seeds",
    )


def spearman(x: Sequence[float], y: Sequence[float], level: float) -> tuple[float, float, float]:
    """Spearman's correlation, and Fisher's interval with Bonett and Wright's (2000) spread.

    Of fewer than `RANKED` pairs that interval covers less often than it says: all is possible.
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


def _verdict(findings: Sequence[Finding]) -> str:
    rates, decay, without, too, low, high, least, other, few, wrong, foretold = findings
    words = {
        "confirmed": "goes with a higher final loss",
        "refuted": "goes with a lower final loss",
        "undecided": "is not settled to go with the final loss",
    }
    judged = {j: sum(f.judgement == j for f in findings) for j in ("confirmed", "refuted")}
    return (
        f"A causal layer's loss is {_times(low)} that of one with a fixed query under Adam at low "
        f"rates, {_times(high)} at high ones, and under AdamW {_times(least)} (a bidirectional "
        f"one's: {_times(other)}). In causal layers low rates end with {_times(rates)} the loss of "
        f"high ones; at these Adam with {_times(decay)} that of AdamW, without weight decay "
        f"{_times(without)} (with a fixed query {_times(too)}). At high rates Adam's causal layers "
        f"sort {_percent(few)} of hard lists wrongly; at low ones {_percent(wrong)} more than bidirectional layers. Attention above "
        f"the previous token at step {EARLY} {words[foretold.judgement]} (Spearman "
        f"{foretold.value:.2f}, {foretold.low:.2f} to {foretold.high:.2f}). "
        f"{judged['confirmed']} of {len(findings)} claims are confirmed, {judged['refuted']} "
        "refuted."
    )


def _percent(finding: Finding) -> str:
    low, high = f"{100 * finding.low:.2g}", f"{100 * finding.high:.2g}"
    return f"{100 * finding.value:.2g} % ({low} to {high})"


def _times(finding: Finding) -> str:
    if not 1e-3 < finding.low < finding.high < 1e6:
        return f"{finding.value:.2g} × (how far from it is not known)"
    return f"{finding.value:.2g} × ({finding.low:.2g} to {finding.high:.2g})"


def _layouts(found: Found) -> Table:
    rows: list[list[Any]] = []
    for key, mine in found.items():
        losses = [v["loss"] for v in mine]
        pairs = [100 * v["two_values"] for v in mine if v["two_values"] is not None]
        rows.append(
            [
                *key,
                len(mine),
                float(np.exp(np.mean(np.log(losses)))),
                min(losses),
                max(losses),
                min(100 * v["hard"] for v in mine),
                min(pairs) if pairs else None,
                sum(v["wrong"] == 0 for v in mine),
            ]
        )
    columns = ["attention", "optimiser", "rates", "seeds", "loss", "least", "most"]
    columns += ["hard right, worst seed %", "two values, worst %", "seeds without a failure"]
    caption = (
        f"{STEPS:,} steps each. Low rates: 1e-3 to 1e-4, geometrically (the source's); high: 3e-3 "
        "to 3e-5 on a cosine, β₂ 0.99. Loss: nats an item on hard lists, geometric mean over "
        f"seeds. A seed without a failure sorts {SEARCHED:,} hard lists."
    )
    return Table("By attention, optimiser and rates", columns, rows, caption)


def _by_seed(found: Found) -> Table:
    rows = [
        [*key, v["seed"], v["loss"], v["wrong"], v["early"]["above_lift"]]
        for key, mine in found.items()
        for v in mine
    ]
    columns = ["attention", "optimiser", "rates", "seed", "loss", "wrong", "above, lift, early"]
    return Table("Every seed", columns, rows, f"Wrong: of {SEARCHED:,} hard lists.")


def _losses(found: Found) -> Figure:
    data = []
    cells = list(dict.fromkeys(key[1:] for key in KEYS))
    for side, (optimiser, rates) in enumerate(cells):
        points = [
            (place + 0.1 * (2 * side - len(cells) + 1), v["loss"])
            for place, layout in enumerate(LAYOUTS)
            for v in found.get((layout, optimiser, rates), ())
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
    caption = "Each point is a seed. What rates and optimiser do is within a column."
    return Figure("Loss by attention, optimiser and rates", caption, data, layout)


def _foretold(mine: Sequence[Values]) -> Figure:
    points = plots.markers(
        [v["early"]["above_lift"] for v in mine],
        [v["loss"] for v in mine],
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


CAUSAL_SORTING = Artefact(
    name=NAME,
    summary="why causal models sort worse: attention, optimiser, rates; what early steps foretell",
    source=SOURCE,
    presets={k: f"{n} seeds of {len(KEYS)} ways to train" for k, n in SEEDS.items()},
    run=study,
    first_seed=FRESH,
)
