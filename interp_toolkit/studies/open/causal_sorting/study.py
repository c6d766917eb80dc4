"""Why is causal sorting worse? Attention and optimiser, each with the other held.

The source's causal model sorts worse than its bidirectional one, and as evidence that the previous
token misleads it fixes the query; its models share an optimiser. This project's first models with a
fixed query did not: they were trained with AdamW, under which plain causal ones do well too. Here
every layout is trained with both, for as many steps, and losses are compared with one thing changed
at a time. Whether the pattern of the first 500 steps foretells the outcome is asked as well.

Compared are mean cross-entropies on the source's hard lists, as ratios of geometric means over
seeds with Student's intervals of their logarithms, and shares of hard lists sorted wrongly.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023), "Why Does the
Causal Model Perform So Much Worse?".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from interp_toolkit import plots
from interp_toolkit.circuits.sorting.evaluation import counterexamples
from interp_toolkit.circuits.sorting.evolution import sorting_evolution
from interp_toolkit.palette import CLASS_COLORS, CLASS_SYMBOLS
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Figure, Table
from interp_toolkit.studies.jobs.attempt import Outcome
from interp_toolkit.studies.jobs.runner import Job, Runner
from interp_toolkit.studies.open.finding import Finding, coverage_of_each
from interp_toolkit.studies.open.result import OpenResult, open_evidence
from interp_toolkit.studies.result import study_provenance
from interp_toolkit.studies.seed_interval import Interval, difference, over_seeds
from interp_toolkit.studies.train_seed import train_seed, variant_of
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.sorting import evaluate

NAME = "open/causal-sorting"
SOURCE = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023), last section"
QUESTION = "Why do causal models sort worse: for their attention, or for their optimiser?"
STEPS, EARLY = 5_000, 500
SEARCHED = 100_000  # hard lists, for each model
#: recipe and variant by layout and optimiser
MODELS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("causal", "Adam"): ("sort-causal", "post"),
    ("causal", "AdamW"): ("sort-causal", "adamw"),
    ("fixed query", "Adam"): ("sort-causal", "fixed-query-adam"),
    ("fixed query", "AdamW"): ("sort-causal", "fixed-query"),
    ("bidirectional", "Adam"): ("sort-bidirectional", "post"),
    ("bidirectional", "AdamW"): ("sort-bidirectional", "adamw"),
}
SEEDS = {"small": 8, "paper": 32}
LAYOUTS = ("causal", "fixed query", "bidirectional")
OPTIMISERS = ("Adam", "AdamW")
CLAIMS = 7
MUCH, SOME, LITTLE = 10.0, 3.0, 1.2  # ratios of losses
FEW = 0.001  # of hard lists, wrong

Values = Mapping[str, Any]
Key = tuple[str, str]
Found = Mapping[Key, Sequence[Values]]


def sorter(
    *, folder: Path, recipe: str, variant: str, steps: int, seed: int, device: str
) -> Outcome:
    """Train one seed; its losses, its failures, and its attention early on."""
    settings = {**variant_of(recipe, variant), "steps": steps, "checkpoints": (EARLY,)}
    if steps < EARLY:
        settings["checkpoints"] = (steps,)
    config, run = train_seed(recipe, settings, seed, device, folder)
    scores = evaluate(run.model, config)
    search = counterexamples(run.model, config.layout, config.source, n=SEARCHED, keep=1)
    [early] = sorting_evolution(folder, config.layout, distinct=False)
    values = {
        "seed": seed,
        **scores._asdict(),
        "wrong": search.failed,
        "searched": search.searched,
        "early": {k: early.metrics[k] for k in ("above_lift", "smallest_lift", "logit_fit_r2")},
    }
    end_run(folder)
    return Outcome(values)


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Train every layout with both optimisers; `seeds` overrides how many of each."""
    numbers = runner.seeds(seeds or SEEDS[preset])
    plan = {key: [_job(key, seed, runner.device) for seed in numbers] for key in MODELS}
    jobs = runner.run([job for mine in plan.values() for job in mine])
    found = {key: [jobs[job.name] for job in mine] for key, mine in plan.items()}
    findings = _findings(found)
    settings = {"preset": preset, "seeds": len(numbers), "steps": STEPS, "device": runner.device}
    return OpenResult(
        probe=NAME,
        verdict=_verdict(findings),
        evidence=open_evidence(findings),
        provenance=study_provenance(NAME, SOURCE, settings, runner.first_seed),
        question=QUESTION,
        findings=findings,
        jobs=jobs,
        details=[_layouts(found), _by_seed(found)],
        plots=[_losses(found), _foretold(found)],
    )


def _job(key: Key, seed: int, device: str) -> Job:
    recipe, variant = MODELS[key]
    arguments = {"recipe": recipe, "variant": variant, "steps": STEPS, "seed": seed}
    name = f"{recipe}-{variant}-seed-{seed}"
    return Job(name, sorter, {**arguments, "device": device})


def _findings(found: Found) -> list[Finding]:
    level = coverage_of_each(CLAIMS)
    units = f"{len(found['causal', 'Adam'])} seeds of each"
    return [
        *(
            _ratio(
                found,
                (layout, "Adam"),
                (layout, "AdamW"),
                f"{layout}: the loss under Adam is more than {MUCH:g} × that under AdamW",
                level,
                units,
                above=MUCH,
            )
            for layout in ("causal", "fixed query")
        ),
        _ratio(
            found,
            ("causal", "Adam"),
            ("fixed query", "Adam"),
            f"under Adam a causal model's loss is more than {LITTLE:g} × that with a fixed query",
            level,
            units,
            above=LITTLE,
        ),
        _ratio(
            found,
            ("causal", "AdamW"),
            ("fixed query", "AdamW"),
            f"under AdamW it is more than {SOME:g} × that with a fixed query",
            level,
            units,
            above=SOME,
        ),
        _few_wrong(found, level, units),
        _wrong(found, level, units),
        _foretells(found["causal", "Adam"], level),
    ]


def _ratio(
    found: Found,
    first: Key,
    second: Key,
    claim: str,
    level: float,
    units: str,
    *,
    above: float = 0.0,
    below: float = math.inf,
) -> Finding:
    """The ratio of two geometric means of losses."""
    logs = [
        over_seeds([math.log(v["loss"]) for v in found[key]], level=level)
        for key in (first, second)
    ]
    gap = difference(*logs)
    ends = (math.exp(x) if x < 700 else math.inf for x in (gap.value, gap.low, gap.high))
    value, low, high = ends
    return Finding(
        claim,
        value,
        low,
        high,
        units,
        above=above,
        below=below,
        overturned_by="other seeds, steps or rates of the same optimiser",
    )


def _few_wrong(found: Found, level: float, units: str) -> Finding:
    """How many hard lists causal models sort wrongly under AdamW."""
    share = _wrong_share(found["causal", "AdamW"], level)
    return Finding(
        f"under AdamW causal models sort less than {100 * FEW:g} % of hard lists wrongly",
        share.value,
        share.low,
        share.high,
        units,
        below=FEW,
        overturned_by="seeds that fail",
    )


def _wrong(found: Found, level: float, units: str) -> Finding:
    """How many more hard lists causal models sort wrongly than bidirectional ones, under Adam."""
    keys = ("causal", "Adam"), ("bidirectional", "Adam")
    gap = difference(*(_wrong_share(found[key], level) for key in keys))
    return Finding(
        "under Adam causal models sort more hard lists wrongly than bidirectional ones",
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
        f"causal, Adam: more attention above the previous token at step {EARLY} goes with a "
        "higher final loss",
        value,
        low,
        high,
        f"{len(seeds)} seeds",
        above=0.0,
        overturned_by="no correlation over more seeds",
    )


def spearman(x: Sequence[float], y: Sequence[float], level: float) -> tuple[float, float, float]:
    """Spearman's correlation, and Fisher's interval with Bonett and Wright's (2000) spread."""
    n = len(x)
    if n < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return 0.0, -1.0, 1.0
    value = float(stats.spearmanr(x, y).statistic)
    if n < 5:
        return value, -1.0, 1.0
    spread = math.sqrt((1 + value**2 / 2) / (n - 3))
    middle = math.atanh(min(max(value, -0.999999), 0.999999))
    reach = float(stats.norm.ppf((1 + level) / 2)) * spread
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return value, min(low, value), max(high, value)


def _verdict(findings: Sequence[Finding]) -> str:
    causal, fixed, adam, adamw, few, wrong, foretold = findings
    settled = foretold.judgement != "undecided"
    goes = "goes" if settled else "is not settled to go"
    return (
        f"The same causal layers end with {_times(causal)} the loss under Adam that they have "
        f"under AdamW, those with a fixed query with {_times(fixed)}. With one optimiser held, a "
        f"causal model's loss is {_times(adam)} that with a fixed query under Adam, and "
        f"{_times(adamw)} under AdamW, where it sorts {_percent(few)} of hard lists wrongly. "
        f"Under Adam causal models sort {_percent(wrong)} more of the hard lists wrongly than "
        f"bidirectional ones. Attention at step {EARLY} {goes} with the final loss (Spearman "
        f"{foretold.value:.2f}, {foretold.low:.2f} to {foretold.high:.2f})."
    )


def _percent(finding: Finding) -> str:
    low, high = f"{100 * finding.low:.2g}", f"{100 * finding.high:.2g}"
    return f"{100 * finding.value:.2g} % ({low} to {high})"


def _times(finding: Finding) -> str:
    return f"{finding.value:.2g} × ({finding.low:.2g} to {finding.high:.2g})"


def _layouts(found: Found) -> Table:
    rows = []
    for (layout, optimiser), mine in found.items():
        losses = [v["loss"] for v in mine]
        right = [100 * v["hard"] for v in mine]
        pairs = [100 * v["two_values"] for v in mine if v["two_values"] is not None]
        perfect = sum(v["wrong"] == 0 for v in mine)
        rows.append(
            [
                layout,
                optimiser,
                len(mine),
                float(np.exp(np.mean(np.log(losses)))),
                min(losses),
                max(losses),
                min(right),
                min(pairs) if pairs else None,
                perfect,
            ]
        )
    columns = ["attention", "optimiser", "seeds", "loss", "least", "most"]
    columns += ["hard right, worst seed %", "two values, worst %", "seeds without a failure"]
    caption = (
        f"{STEPS:,} steps each. Loss: nats an item on hard lists, geometric mean over seeds. A "
        f"seed without a failure sorts {SEARCHED:,} hard lists."
    )
    return Table("By attention and optimiser", columns, rows, caption)


def _by_seed(found: Found) -> Table:
    rows = [
        [layout, optimiser, v["seed"], v["loss"], v["wrong"], v["early"]["above_lift"]]
        for (layout, optimiser), mine in found.items()
        for v in mine
    ]
    columns = ["attention", "optimiser", "seed", "loss", "wrong", "above, lift, early"]
    return Table("Every seed", columns, rows, f"Wrong: of {SEARCHED:,} hard lists.")


def _losses(found: Found) -> Figure:
    data = []
    for side, optimiser in enumerate(OPTIMISERS):
        points = [
            (place + 0.12 * (2 * side - 1), v["loss"])
            for place, layout in enumerate(LAYOUTS)
            for v in found[layout, optimiser]
        ]
        data.append(
            plots.markers(
                [x for x, _ in points],
                [y for _, y in points],
                CLASS_COLORS[side],
                optimiser,
                symbol=CLASS_SYMBOLS[side],
                size=9,
            )
        )
    names = plots.ticks(range(len(LAYOUTS)), LAYOUTS)
    layout = plots.layout(
        names | plots.BARE | {"range": [-0.5, len(LAYOUTS) - 0.5]},
        plots.axis("loss on hard lists (nats an item)", "log"),
    )
    caption = "Each point is a seed. What the optimiser does is within a column, attention across."
    return Figure("Loss by attention and optimiser", caption, data, layout)


def _foretold(found: Found) -> Figure:
    mine = found["causal", "Adam"]
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
    caption = "Causal models under Adam: does the early pattern foretell how well they will sort?"
    return Figure("Does early attention foretell the loss?", caption, [points], layout)


CAUSAL_SORTING = Artefact(
    name=NAME,
    summary="why causal models sort worse: attention × optimiser; what early steps foretell",
    source=SOURCE,
    presets={k: f"{n} seeds × 3 layouts × 2 optimisers" for k, n in SEEDS.items()},
    run=study,
)
