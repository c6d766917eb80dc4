"""How many trained query-key pairs does in-context retrieval need?

The source trains all queries and keys or none, and names models in which only some of them are
trained, or are unfrozen on the way, as work to be done. Here two layers learn retrieval with the
pairs of some heads trained and the others' frozen: by layer, one head or all, from the start or
from half the budget on; and with frozen pairs that start out sharp.

Claims were found on the seeds 0 to 2 of a trial and are judged on whichever seeds are run.

Source: "Is random attention sufficient for sequence modeling?", section 5, "Implications for
architecture design".
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from interp_toolkit import plots
from interp_toolkit.palette import NEUTRAL, shade
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Figure, Table
from interp_toolkit.studies.jobs.attempt import Job
from interp_toolkit.studies.jobs.runner import Runner
from interp_toolkit.studies.open.finding import Finding
from interp_toolkit.studies.open.partly_random_heads.training import (
    Condition,
    partly_frozen_job,
)
from interp_toolkit.studies.open.result import OpenResult, open_evidence
from interp_toolkit.studies.random_attention.claimed import SeedClaim, between, judged
from interp_toolkit.studies.result import study_provenance

NAME = "open/partly-random-heads"
SOURCE = "Is random attention sufficient for sequence modeling?, section 5"
QUESTION = "How many trained query-key pairs does in-context retrieval need?"
SEEDS = {"small": 5, "paper": 10}
_SHARED: Mapping[str, Any] = {
    "examples": 0,
    "layers": 2,
    "initial_std": 0.05,
    "lr": 5e-3,
    "schedule": "constant",
    "warm_up": 50,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "small": {
        **_SHARED,
        "most_pairs": 6,
        "symbols": 32,
        "heads": 2,
        "d_model": 32,
        "rows": 256,
        "steps": 400,
        "log_every": 25,
        "test_examples": 2_000,
    },
    "paper": {
        **_SHARED,
        "most_pairs": 12,
        "symbols": 64,
        "heads": 4,
        "d_model": 64,
        "rows": 512,
        "steps": 4_000,
        "log_every": 100,
        "test_examples": 4_000,
    },
}
NONE, FIRST, LAST_ONE, LAST = "none", "first layer, all", "last layer, one", "last layer, all"
ONE_EACH, ALL, LATE, SHARP = "one in each layer", "all", "all, from half on", "none, sharp start"
LEARNS, FAILS = 0.6, 0.6  # accuracies: a guess is right in fewer than half the rows


def conditions(n_heads: int) -> list[Condition]:
    """What is trained, by the number of heads a layer."""
    return [
        Condition(NONE, (0, 0)),
        Condition(FIRST, (n_heads, 0)),
        Condition(LAST_ONE, (0, 1)),
        Condition(LAST, (0, n_heads)),
        Condition(ONE_EACH, (1, 1)),
        Condition(ALL, (n_heads, n_heads)),
        Condition(LATE, (n_heads, n_heads), since=0.5),
        Condition(SHARP, (0, 0), qk_std=0.2),
    ]


Values = Mapping[str, Sequence[Mapping[str, Any]]]  # what each seed's job found, by condition


def partly_random_heads(preset: str, seeds: int | None, runner: Runner) -> OpenResult:
    """Train every condition; `seeds` overrides how many of each."""
    settings = SETTINGS[preset]
    numbers = runner.seeds(seeds or SEEDS[preset])
    asked = conditions(settings["heads"])
    jobs = {
        condition.name: [
            _job(place, condition, {**settings, "device": runner.device}, seed) for seed in numbers
        ]
        for place, condition in enumerate(asked)
    }
    done = runner.run([job for mine in jobs.values() for job in mine])
    found = {name: [done[job.name] for job in mine] for name, mine in jobs.items()}
    findings = judged(claims(found))
    recorded = {"preset": preset, "seeds": len(numbers), "settings": settings}
    recorded["conditions"] = [asdict(condition) for condition in asked]
    return OpenResult(
        probe=NAME,
        verdict=_verdict(findings, found, settings),
        evidence=open_evidence(findings),
        provenance=study_provenance(NAME, SOURCE, recorded, runner.first_seed),
        question=QUESTION,
        findings=findings,
        jobs=done,
        details=[_table(found, asked)],
        plots=[_accuracies(found), _curves(found)],
    )


def _job(place: int, condition: Condition, settings: Mapping[str, Any], seed: int) -> Job:
    arguments = {"settings": settings, "condition": asdict(condition), "seed": seed}
    return Job(f"condition-{place}-seed-{seed}", partly_frozen_job, arguments)


def accuracies(found: Values, name: str) -> list[float]:
    """Of a condition, by seed."""
    return [float(values["accuracy"]) for values in found[name]]


def claims(found: Values) -> list[SeedClaim]:
    """What was expected after the trial."""
    fails = "a seed and a budget at which it learns"
    learns = "seeds that do not learn in this budget"

    def apart(one: str, other: str) -> list[float]:
        pairs = zip(accuracies(found, one), accuracies(found, other), strict=True)
        return [a - b for a, b in pairs]

    return [
        SeedClaim(
            f"no trained pair: accuracy below {FAILS}",
            accuracies(found, NONE),
            below=FAILS,
            overturned_by=fails,
        ),
        SeedClaim(
            f"all pairs of the first layer and none of the last: accuracy below {FAILS}",
            accuracies(found, FIRST),
            below=FAILS,
            overturned_by=fails,
        ),
        SeedClaim(
            f"one pair of the last layer and none of the first: accuracy above {LEARNS}",
            accuracies(found, LAST_ONE),
            above=LEARNS,
            overturned_by=learns,
        ),
        SeedClaim(
            "one pair in each layer: accuracy above 0.9",
            accuracies(found, ONE_EACH),
            above=0.9,
            overturned_by=learns,
        ),
        SeedClaim(
            "a trained pair in the first layer too adds to one in the last: a gain above 0",
            apart(ONE_EACH, LAST_ONE),
            above=0.0,
            overturned_by="seeds that do as well without it",
        ),
        SeedClaim(
            "all pairs add less than 0.1 to one in each layer",
            apart(ALL, ONE_EACH),
            below=0.1,
            overturned_by="a budget in which one pair a layer falls behind",
        ),
        SeedClaim(
            "all pairs, frozen for the first half of the steps: more than 0.1 below all from the "
            "start",
            apart(ALL, LATE),
            above=0.1,
            overturned_by="models that catch up in the second half",
        ),
        SeedClaim(
            "no trained pair, but queries and keys that start four times as large: accuracy above "
            "0.9",
            accuracies(found, SHARP),
            above=0.9,
            overturned_by=learns,
        ),
    ]


def _verdict(findings: Sequence[Finding], found: Values, settings: Mapping[str, Any]) -> str:
    none, first, last_one, one_each, _, _, late, sharp = findings
    guess = found[NONE][0]["guess"]
    text = (
        f"Retrieval of {settings['most_pairs']} pairs, two layers of {settings['heads']} heads, "
        f"{settings['steps']} steps, accuracy (a guess: {guess:.2f}): without a trained pair "
        f"{between(none)}, with all of the first layer's {between(first)}, with one of the last "
        f"layer's {between(last_one)}, with one in each {between(one_each)}."
    )
    if all(f.judgement == "confirmed" for f in (none, first, last_one, one_each)):
        text += " So one trained pair can do, where it retrieves, and one a layer does nearly all."
    if sharp.judgement == "confirmed":
        text += (
            f" How many are needed is a matter of the frozen ones' scale: four times as large, no "
            f"pair need be trained ({between(sharp)})."
        )
    if late.judgement == "confirmed":
        text += (
            f" Pairs that are unfrozen at half the budget do not catch up in it ({between(late)} "
            "less)."
        )
    counts = {word: sum(f.judgement == word for f in findings) for word in ("confirmed", "refuted")}
    return (
        f"{text} {counts['confirmed']} of {len(findings)} claims are confirmed, "
        f"{counts['refuted']} refuted, for this size and budget."
    )


def _table(found: Values, asked: Sequence[Condition]) -> Table:
    rows = []
    for condition in asked:
        values = accuracies(found, condition.name)
        rows.append(
            [
                *(condition.name, *condition.trained),
                *(condition.qk_std, condition.since),
                *(statistics.median(values), min(values), max(values)),
                sum(value > 0.9 for value in values),
                len(values),
            ]
        )
    columns = ["trained pairs", "first layer", "last layer", "std of Q, K", "frozen for"]
    columns += ["accuracy", "lowest", "highest", "above 0.9", "seeds"]
    caption = (
        "Heads of each layer whose W_Q and W_K are trained; all else is, everywhere. Frozen for: "
        "the share of the steps during which these are frozen too. Accuracy: the median over seeds "
        "on held-out rows, its range, and how many seeds are above 0.9."
    )
    return Table("Accuracy by what is trained", columns, rows, caption)


def _accuracies(found: Values) -> Figure:
    names = [name for name, values in found.items() for _ in values]
    shares = [value for name in found for value in accuracies(found, name)]
    medians = [statistics.median(accuracies(found, name)) for name in found]
    guess = found[NONE][0]["guess"]
    data = [
        plots.bars(list(found), medians, NEUTRAL, "median"),
        plots.markers(names, shares, shade(0, 2), "a seed", size=8),
        plots.dashed(list(found), [guess] * len(found), "naming any value of the context"),
    ]
    layout = plots.layout(plots.axis("trained pairs", "category"), plots.axis("accuracy"))
    caption = "Accuracy on held-out rows; a point a seed, bars their median."
    return Figure("Accuracy by which query-key pairs are trained", caption, data, layout)


def _curves(found: Values) -> Figure:
    data = []
    for place, (name, seeds) in enumerate(found.items()):
        medians = [statistics.median(at) for at in zip(*(s["curve"] for s in seeds), strict=True)]
        line = plots.line(seeds[0]["steps"], medians, shade(place, len(found)), name)
        data.append(line | plots.marked(plots.symbol(place), 5))
    layout = plots.layout(plots.axis("step"), plots.axis("accuracy"))
    caption = "Accuracy on some of the held-out rows along the training, the median over seeds."
    return Figure("Accuracy along the training", caption, data, layout)


PARTLY_RANDOM_HEADS = Artefact(
    name=NAME,
    summary="retrieval with the queries and keys of some heads frozen: how many must be trained",
    source=SOURCE,
    presets={
        "small": "6 pairs, 2 layers of 2 heads, 8 conditions × 5 seeds; minutes",
        "paper": "12 pairs, 2 layers of 4 heads, 4,000 steps, 10 seeds; for a GPU",
    },
    run=partly_random_heads,
)
