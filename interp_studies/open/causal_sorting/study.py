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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Outcome
from interp_studies.jobs.runner import Job, Runner
from interp_studies.open.causal_sorting.claims import RANKED, findings_of, verdict
from interp_studies.open.causal_sorting.figures import (
    by_seed,
    foretold,
    layouts,
    losses,
)
from interp_studies.open.causal_sorting.plan import (
    EARLY,
    KEYS,
    LAYOUTS,
    OPTIMISERS,
    RATES,
    SEARCHED,
    SOURCES_OWN,
    STEPS,
    UNCLAIMED,
    Key,
)
from interp_studies.open.result import FRESH, OpenResult, open_result
from interp_studies.train_seed import train_seed
from interp_toolkit.circuits.sorting.evaluation import counterexamples
from interp_toolkit.circuits.sorting.measures import sorting_evolution
from interp_toolkit.registry import Artefact
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.sorting import evaluate

NAME = "open/causal-sorting"
SOURCE = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023), last section"
QUESTION = "Why do causal models sort worse: their attention, optimiser, rates, or weight decay?"
SEEDS = {"small": 8, "paper": 32}
SEEDS_UNCLAIMED = {"small": 2, "paper": 32}


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
        "early_lift": then.metrics["above_lift"],
    }
    end_run(folder)
    return Outcome(values)


def study(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Train every layout with both optimisers; `seeds` overrides how many of each."""
    numbers = runner.seeds(seeds or SEEDS[preset])
    plan = {
        key: [
            _job(key, seed, runner.device) for seed in runner.seeds(_how_many(key, preset, seeds))
        ]
        for key in KEYS
    }
    jobs = runner.run([job for mine in plan.values() for job in mine])
    every = {key: [jobs[job.name] for job in mine] for key, mine in plan.items()}
    found = {key: mine[: len(numbers)] for key, mine in every.items()}
    early = every[SOURCES_OWN]
    findings = findings_of(found, early)
    settings = {"preset": preset, "steps": STEPS, "device": runner.device}
    return open_result(
        NAME,
        SOURCE,
        QUESTION,
        verdict(findings),
        findings,
        jobs,
        settings=settings,
        seeds=numbers,
        details=[layouts(found), by_seed(every)],
        plots=[losses(found), foretold(early)],
    )


def _how_many(key: Key, preset: str, seeds: int | None) -> int:
    """How many seeds are trained in this way."""
    if seeds is not None:
        return seeds
    if key == SOURCES_OWN:
        return max(RANKED, SEEDS[preset])
    return (SEEDS_UNCLAIMED if key in UNCLAIMED else SEEDS)[preset]


def _job(key: Key, seed: int, device: str) -> Job:
    layout, optimiser, rates = key
    recipe, own = LAYOUTS[layout]
    settings = {**own, **RATES[rates], **OPTIMISERS[optimiser], "steps": STEPS}
    arguments = {"recipe": recipe, "settings": settings, "early": EARLY, "searched": SEARCHED}
    name = f"{layout}-{optimiser}-{rates}-seed-{seed}".replace(",", "").replace(" ", "-")
    return Job(name, sorter, {**arguments, "seed": seed, "device": device})


CAUSAL_SORTING = Artefact(
    name=NAME,
    summary="why causal models sort worse: attention, optimiser, rates; what early steps foretell",
    source=SOURCE,
    presets={
        k: f"{n} seeds of {len(KEYS) - len(UNCLAIMED) - 1} ways to train, {max(RANKED, n)} of the "
        f"source's own, {SEEDS_UNCLAIMED[k]} of the {len(UNCLAIMED)} that no claim is about"
        for k, n in SEEDS.items()
    },
    run=study,
    first_seed=FRESH,
)
