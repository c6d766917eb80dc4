"""Sorting transformers, again: the source's three experiments and its variants, over several seeds.

Each model is trained by its recipe, tested on the source's kinds of lists, searched for lists it
sorts wrongly, and asked which algorithm it sorts by. The source trained one model of each kind;
here the median over seeds is held against its figures, and every seed is listed.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interp_studies.jobs.runner import Runner
from interp_studies.result import (
    Quantity,
    StudyResult,
    compare,
    missed,
    overall,
    shown,
    study_provenance,
    tally,
)
from interp_studies.sorting.experiments import EXPERIMENTS, SEARCHED, Experiment
from interp_studies.sorting.figures import accuracy_by_seed, loss_curves
from interp_toolkit.circuits.sorting.figures import evolution, qk_along_training
from interp_toolkit.circuits.sorting.measures import EvolutionStep
from interp_toolkit.registry import Artefact
from interp_toolkit.results import Evidence, Figure, Table
from interp_toolkit.stats import clopper_pearson

SOURCE = "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023)"
MILLION = 1_000_000
TESTS = {
    "random": "random lists right",
    "hard": "hard lists right",
    "sets": "all sets right",
    "two_values": "lists of two values right",
}

Values = Mapping[str, Any]
Trained = Sequence[tuple[Experiment, Sequence[Values]]]


def reproduce_sorting(preset: str, seeds: int | None, runner: Runner) -> StudyResult:
    """Train, test and compare; `seeds` overrides how many of each kind of model."""
    chosen = [e for e in EXPERIMENTS if preset in e.seeds]
    jobs = {
        e: e.jobs(preset, runner.seeds(seeds or e.seeds[preset]), runner.device) for e in chosen
    }
    found = runner.run([job for mine in jobs.values() for job in mine])
    trained = [(e, [found[job.name] for job in mine]) for e, mine in jobs.items()]
    quantities = [q for e, values in trained for q in _quantities(e, values)]
    settings = {
        "preset": preset,
        "seeds": {e.name: len(mine) for e, mine in jobs.items()},
        "models": {e.name: {"recipe": e.recipe, **e.settings(preset)} for e in chosen},
        "searched": SEARCHED,
        "device": runner.device,
    }
    sentence = tally(quantities)
    return StudyResult(
        probe="sorting",
        verdict=f"{sentence[0].upper()}{sentence[1:]} {_split_by_seed(*trained[0])}",
        evidence=SortingStudyEvidence(
            status=overall(quantities),
            reason=missed(quantities),
            algorithm={e.name: _counts(seeds) for e, seeds in trained},
        ),
        provenance=study_provenance("sorting", SOURCE, settings, runner.first_seed),
        quantities=quantities,
        jobs=found,
        details=[_by_seed(trained), _algorithms(trained), _failures(trained), _hardest(trained)],
        plots=_figures(trained),
    )


@dataclass(frozen=True)
class SortingStudyEvidence(Evidence):
    """What the verdict on the trained sorters rests on.

    Attributes:
        algorithm: how many seeds of each experiment sort by which algorithm.
    """

    algorithm: Mapping[str, str]


def _quantities(experiment: Experiment, seeds: Sequence[Values]) -> list[Quantity]:
    """The experiment's figures, the source's beside ours."""
    name, remark = experiment.name, experiment.remark
    losses = [values["loss"] for values in seeds]
    rows = [
        compare(name, "loss", losses, experiment.loss, better="lower", unit="nats", remark=remark)
    ]
    for test in seeds[0]["tests"]:
        shares = [values["tests"][test]["lists_right"] for values in seeds]
        rows.append(compare(name, TESTS[test], shares, experiment.shares.get(test)))
    held_out = [values["held_out"] for values in seeds if values["held_out"] is not None]
    if held_out:
        rows.append(compare(name, "sets held out, right", held_out))
    rates = [MILLION * values["search"]["rate"] for values in seeds]
    rows.append(
        compare(
            name,
            "wrongly sorted",
            rates,
            experiment.wrong_per_million,
            better="lower",
            unit="per million",
            remark=_pooled(seeds),
        )
    )
    return rows


def _pooled(seeds: Sequence[Values]) -> str:
    """How many lists the models of all seeds sort wrongly, with an exact interval."""
    failed = sum(values["search"]["failed"] for values in seeds)
    searched = sum(values["search"]["searched"] for values in seeds)
    low, high = (shown(MILLION * x, "per million") for x in clopper_pearson(failed, searched))
    return f"{failed:,} of {searched:,} over all seeds; 95 % interval {low} to {high}"


def _split_by_seed(experiment: Experiment, seeds: Sequence[Values]) -> str:
    """How the seeds of an experiment differ, in a sentence."""
    hard = [values["tests"]["hard"]["lists_right"] for values in seeds]
    perfect = sum(_perfect(values) for values in seeds)
    text = f"Experiment {experiment.name}: {perfect} of {len(seeds)} seeds sort every test list"
    if perfect == len(seeds):
        return f"{text}."
    others = [h for h, values in zip(hard, seeds, strict=True) if not _perfect(values)]
    low, high = f"{100 * min(others):.2f}", f"{100 * max(others):.2f}"
    which = "the others" if perfect else "they"
    return f"{text}; {which} sort {low if low == high else f'{low} to {high}'} % of the hard ones."


def _perfect(values: Values) -> bool:
    return all(test["lists_right"] == 1.0 for test in values["tests"].values())


def _by_seed(trained: Trained) -> Table:
    columns = [
        "experiment",
        "seed",
        "loss",
        "random %",
        "hard %",
        "sets %",
        "two values %",
        "wrong",
        "low",
        "high",
    ]
    rows = []
    for experiment, seeds in trained:
        for values in seeds:
            tests, search = values["tests"], values["search"]
            shares = [100 * tests[t]["lists_right"] if t in tests else None for t in TESTS]
            rates = [MILLION * search[key] for key in ("rate", "low", "high")]
            row = [experiment.name, values["seed"], values["loss"], *shares, *rates]
            rows.append([*row, values["algorithm"]])
    caption = (
        "Loss in nats an item, on lists as in training; wrong, low and high: wrongly sorted lists "
        "of a million, and their 95 % interval."
    )
    return Table("Every seed", [*columns, "algorithm"], rows, caption)


def _algorithms(trained: Trained) -> Table:
    rows = [[e.name, e.algorithm, _counts(seeds)] for e, seeds in trained]
    caption = "The verdict of the sorting analysis on each seed, beside what the source concludes."
    return Table("Algorithm", ["experiment", "theirs", "ours, by seed"], rows, caption)


def _counts(seeds: Sequence[Values]) -> str:
    """The verdicts and how many seeds have them, the commonest first."""
    counts = Counter(values["algorithm"] for values in seeds).most_common()
    return ", ".join(f"{n} × {name}" for name, n in counts)


def _failures(trained: Trained) -> Table:
    rows = [
        [e.name, values["seed"], *(" ".join(map(str, example[i])) for i in range(3))]
        for e, seeds in trained
        for values in seeds
        for example in values["search"]["examples"]
    ]
    columns = ["experiment", "seed", "list", "output", "sorted"]
    return Table("Lists sorted wrongly, the first of each seed", columns, rows)


def _hardest(trained: Trained) -> Table:
    rows = [
        [
            e.name,
            values["seed"],
            *(" ".join(map(str, x[k])) for k in ("given", "output")),
            x["loss"],
        ]
        for e, seeds in trained
        for values in seeds[:1]
        for x in values["hardest"]
    ]
    columns = ["experiment", "seed", "list", "output", "loss"]
    caption = "Of all sets, or of all lists of two values: the greatest loss, nats an item."
    return Table("Lists with the greatest loss, of the first seeds", columns, rows, caption)


def _figures(trained: Trained) -> list[Figure]:
    figures = [accuracy_by_seed([(e.name, e.shares, seeds) for e, seeds in trained])]
    figures += [loss_curves(e.name, e.loss, seeds) for e, seeds in trained]
    for _, seeds in trained:
        steps = [EvolutionStep(**step) for v in seeds for step in v.get("evolution", ())]
        if steps:
            figures += [evolution(steps), qk_along_training(steps)]
    return figures


SORTING = Artefact(
    name="sorting",
    summary="tiny transformers that sort: accuracy, loss and algorithm of three experiments",
    source=SOURCE,
    presets={
        "small": "2 to 4 seeds of the three experiments and three variants",
        "paper": "8 seeds of all variants",
    },
    run=reproduce_sorting,
)
