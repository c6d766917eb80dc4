"""Figure 3 of the source: frozen-qk forms an induction circuit, found and checked.

The circuit is there in a seed if, after training, a head of the first layer is detected as
attending from values to their keys and a head of a later layer as attending from the asked key to
its value (see `job`), and the accuracy falls without the one group and without the other,
each by MATERIAL of the intact accuracy or more with a 95 % interval above 0. Heads that are found
without such a fall leave it undecided.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from interp_studies.jobs.attempt import Job
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.cells import SOURCE
from interp_studies.random_attention.circuit.figures import pattern_figure, score_figure
from interp_studies.random_attention.circuit.job import (
    PREVIOUS,
    RECIPE,
    RETRIEVING,
    VARIANT,
    best,
    frozen_circuit,
    settings_of,
)
from interp_studies.random_attention.entries import written
from interp_studies.recipe_settings import settings_phrase
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    study_provenance,
)
from interp_toolkit.circuits.behaviour.task import MATERIAL
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Status, Table, head_name

NAME = "random-attention/figure-3"
#: what differs from the retrieval recipe's presets
DIFFERS: Mapping[str, Mapping[str, Any]] = {"small": {}, "paper": {"examples": 0}}
SEEDS = {"small": 1, "paper": 3}
SCORED_ROWS, ABLATED_ROWS = 64, 512
THEIRS = 0.9701  # accuracy at 30 pairs, table 1
LIMITS = {
    "small": (
        "The small preset has fewer pairs and a narrower model than the source's 30 pairs and "
        "width 1,024, and trains on fresh rows."
    ),
    "paper": (
        "The source shows one row of one model; sizes are its own, rows are fresh, where it has "
        "40,000 fixed ones."
    ),
}
PARTS = ((PREVIOUS.name, "first layer"), (RETRIEVING.name, "later layers"))

SHOWN = ("accuracy", "lost", "low", "high")

Values = Mapping[str, Any]
Found = Literal["confirmed", "undecided", "not_detected"]


def reproduce_circuit(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """Train, score, ablate; `seeds` overrides how many models."""
    settings = settings_of(preset, DIFFERS[preset], runner.settings_for(RECIPE, VARIANT))
    jobs = [
        Job(
            name=f"frozen-qk-circuit-seed-{seed}",
            function=frozen_circuit,
            arguments={
                "settings": settings,
                "scored_rows": SCORED_ROWS,
                "ablated_rows": ABLATED_ROWS,
                "seed": seed,
                "device": runner.device,
            },
        )
        for seed in runner.seeds(seeds or SEEDS[preset])
    ]
    found = runner.run(jobs)
    values = [found[job.name] for job in jobs]
    outcomes = [outcome(seed) for seed in values]
    run = {"preset": preset, "seeds": len(jobs), "settings": settings, "device": runner.device}
    said = [_counted(outcomes), _told(values[0]), LIMITS[preset], settings_phrase(runner.given)]
    return StudyResult(
        probe=NAME,
        verdict=" ".join(part for part in said if part),
        evidence=FrozenCircuitEvidence(
            status=status(outcomes),
            seeds=outcomes,
            heads=[seed["parts"] for seed in values],
        ),
        provenance=study_provenance(NAME, f"{SOURCE} figure 3", run, runner.first_seed),
        quantities=_quantities(values, judged=preset == "paper"),
        jobs=found,
        details=[_by_seed(values, outcomes), _heads(values), _ablations(values)],
        plots=[
            *(score_figure(values[0], name) for name, _ in PARTS),
            *(pattern_figure(p, values[0]["tokens"]) for p in values[0]["patterns"]),
        ],
    )


@dataclass(frozen=True)
class FrozenCircuitEvidence(Evidence):
    """What the verdict on the circuit rests on.

    Attributes:
        seeds: what each seed shows.
        heads: of each seed, the heads of every part.
    """

    seeds: Sequence[Found]
    heads: Sequence[Any]


def outcome(seed: Values) -> Found:
    """Whether a seed has the circuit, by the module's rule."""
    if not all(seed["parts"][name] for name, _ in PARTS):
        return "not_detected"
    lost = {row["without"]: row for row in seed["ablations"]}
    groups = [lost[f"all {name} heads"] for name, _ in PARTS]
    needed = all(g["low"] > 0 and g["lost"] >= MATERIAL * g["intact"] for g in groups)
    return "confirmed" if needed else "undecided"


def status(outcomes: Sequence[Found]) -> Status:
    """The machine word for all seeds."""
    if len(set(outcomes)) == 1:
        return outcomes[0]
    return "partly_reached" if "confirmed" in outcomes else "undecided"


def _counted(outcomes: Sequence[Found]) -> str:
    n = outcomes.count("confirmed")
    seeds = "seed" if len(outcomes) == 1 else "seeds"
    text = (
        f"In {n} of {len(outcomes)} {seeds} frozen-qk has an induction circuit that is found and "
        "that ablation confirms"
    )
    found = outcomes.count("undecided")
    return f"{text}; in {found} it is found and not confirmed." if found else f"{text}."


def _told(seed: Values) -> str:
    """What the first seed's heads do, in a sentence."""
    said = []
    for (name, where), first in zip(PARTS, (True, False), strict=True):
        layer, head = best(seed["after"], name, first=first)
        scores = {
            when: next(
                s["score"]
                for s in seed[when]
                if (s["detector"], s["layer"], s["head"]) == (name, layer, head)
            )
            for when in ("before", "after")
        }
        detected = [head_name(*at) for at in seed["parts"][name]]
        said.append(
            f"{where}: {head_name(layer, head)} gives {scores['after']:.0%} of its attention "
            f"({name}; before training {scores['before']:.0%}), detected "
            f"{', '.join(detected) or 'none'}"
        )
    accuracy = written(seed["accuracy"], "share")
    return f"Seed {seed['seed']}, {accuracy} right, {'; '.join(said)}."


def _quantities(values: Sequence[Values], *, judged: bool) -> list[Quantity]:
    accuracies = [seed["accuracy"] for seed in values]
    remark = "" if judged else "theirs: 97.01 % with 30 pairs"
    found = [
        compare("frozen-qk", "accuracy", accuracies, THEIRS if judged else None, remark=remark)
    ]
    for (name, where), first in zip(PARTS, (True, False), strict=True):
        for when in ("before", "after"):
            scores = [_best_score(seed[when], name, first=first) for seed in values]
            found.append(compare(f"{name}, {where}", f"largest score {when}", scores))
    return found


def _best_score(scores: Sequence[Values], name: str, *, first: bool) -> float:
    at = best(scores, name, first=first)
    mine = (s for s in scores if s["detector"] == name and (s["layer"], s["head"]) == at)
    return float(next(mine)["score"])


def _by_seed(values: Sequence[Values], outcomes: Sequence[Found]) -> Table:
    rows = [
        [
            seed["seed"],
            written(seed["accuracy"], "share"),
            *(", ".join(head_name(*at) for at in seed["parts"][name]) or None for name, _ in PARTS),
            word,
        ]
        for seed, word in zip(values, outcomes, strict=True)
    ]
    columns = ["seed", "accuracy", *(f"{name} heads, {where}" for name, where in PARTS), "circuit"]
    return Table("Every seed", columns, rows)


def _heads(values: Sequence[Values]) -> Table:
    rows = []
    for seed in values:
        for was, now in zip(seed["before"], seed["after"], strict=True):
            rows.append(
                [
                    seed["seed"],
                    head_name(now["layer"], now["head"]),
                    now["detector"],
                    was["score"],
                    now["score"],
                    now["uniform"],
                    now["p_adjusted"],
                    "detected" if now["detected"] else "not_detected",
                ]
            )
    columns = ["seed", "head", "detector", "before", "after", "uniform", "p adjusted", "outcome"]
    caption = (
        "Before and after training: the mean share of attention that goes where the detector "
        "looks; uniform: what uniform attention would give; p adjusted (Holm) over all heads and "
        "detectors, after training."
    )
    return Table("Attention by head", columns, rows, caption)


def _ablations(values: Sequence[Values]) -> Table:
    rows = [
        [seed["seed"], row["without"], *(100 * row[key] for key in SHOWN)]
        for seed in values
        for row in seed["ablations"]
    ]
    intact = statistics.median(seed["ablations"][0]["intact"] for seed in values)
    caption = (
        "In per cent, on rows with as many pairs as there can be (intact, the median over seeds: "
        f"{written(intact, 'share')}). A head taken out holds its mean over the rows; low and "
        "high: 95 % interval of what is lost, paired over rows."
    )
    columns = ["seed", "without", "accuracy %", "lost", "low", "high"]
    return Table("Accuracy without heads", columns, rows, caption)


FIGURE_3 = Artefact(
    name=NAME,
    summary="frozen-qk on retrieval: which heads form a circuit, and what ablation says",
    source=f"{SOURCE} figure 3",
    presets={
        "small": f"{SEEDS['small']} model. {LIMITS['small']}",
        "paper": f"{SEEDS['paper']} models. {LIMITS['paper']}",
    },
    run=reproduce_circuit,
)
