"""Sorting transformers: the paper's three experiments and its variants, over several seeds.

Each model is trained with its recipe and tested on the paper's kinds of lists. Lists that it sorts
wrongly are searched for, and its algorithm is identified. The paper trained one model of each kind;
here the median over seeds is compared with the paper's values, and every seed is listed.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp_studies.result import Quantity, StudyResult, compare, missed, overall, shown, tally
from interp_studies.sorting.experiments import EXPERIMENTS, SEARCHED, Experiment
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.circuits.sorting.figures import evolution, qk_along_training
from interp_toolkit.circuits.sorting.measures import EvolutionStep
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, translucent
from interp_toolkit.results import Evidence, Figure, Table
from interp_toolkit.stats import clopper_pearson

MILLION = 1_000_000
TESTS = {
    "random": "random lists right",
    "hard": "hard lists right",
    "sets": "all sets right",
    "two_values": "lists of two values right",
}
SPREAD = 0.28  # in the figure the seeds of an experiment stand this far to both sides of its tick

Trained = Mapping[Experiment, Sequence[Values]]


def grid(plan: Plan) -> Grid:
    """The preset's experiments."""
    return {e: e.jobs(plan) for e in EXPERIMENTS if plan.preset in e.seeds}


def experiment_quantities(experiment: Experiment, seeds: Sequence[Values]) -> list[Quantity]:
    """The experiment's quantities, with the paper's values."""
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
            remark=failures_in_words(seeds),
        )
    )
    return rows


def failures_in_words(seeds: Sequence[Values]) -> str:
    """The number of lists that the models of all seeds sort wrongly, with an exact interval."""
    failed, searched = (sum(v["search"][key] for v in seeds) for key in ("failed", "searched"))
    low, high = (shown(MILLION * x, "per million") for x in clopper_pearson(failed, searched))
    return f"{failed:,} of {searched:,} over all seeds; 95 % interval {low} to {high}"


def seeds_in_words(experiment: Experiment, seeds: Sequence[Values]) -> str:
    """How the seeds of an experiment differ, in a sentence."""
    hard = [values["tests"]["hard"]["lists_right"] for values in seeds]
    perfect = sum(sorts_all(values) for values in seeds)
    text = f"Experiment {experiment.name}: {perfect} of {len(seeds)} seeds sort every test list"
    if perfect == len(seeds):
        return f"{text}."
    others = [h for h, values in zip(hard, seeds, strict=True) if not sorts_all(values)]
    low, high = f"{100 * min(others):.2f}", f"{100 * max(others):.2f}"
    which = "the others" if perfect else "they"
    return f"{text}; {which} sort {low if low == high else f'{low} to {high}'} % of the hard ones."


def sorts_all(values: Values) -> bool:
    """Whether a model sorts every list of its tests."""
    return all(test["lists_right"] == 1.0 for test in values["tests"].values())


def algorithms_in_words(seeds: Sequence[Values]) -> str:
    """The verdicts and how many seeds have them, the commonest first."""
    counts = Counter(values["algorithm"] for values in seeds).most_common()
    return ", ".join(f"{n} × {name}" for name, n in counts)


def accuracy_figure(trained: Trained) -> Figure:
    """Whole lists right, a point a seed, the document's figure as a line."""
    data: list[plots.Part] = []
    for side, test in enumerate(("random", "hard")):
        points = []
        x: list[float | None] = []
        y: list[float | None] = []
        for tick, (experiment, seeds) in enumerate(trained.items()):
            for number, values in enumerate(seeds):
                if test in values["tests"]:
                    aside = SPREAD * (2 * number / (len(seeds) - 1) - 1) if len(seeds) > 1 else 0.0
                    share = 100 * values["tests"][test]["lists_right"]
                    points.append((tick + aside, share, values["seed"]))
            if test in experiment.shares:
                x += [tick - 0.4, tick + 0.4, None]
                y += [100 * experiment.shares[test], 100 * experiment.shares[test], None]
        marks = plots.markers(
            [x for x, _, _ in points],
            [y for _, y, _ in points],
            CLASS_COLORS[side],
            f"{test} lists",
            symbol=CLASS_SYMBOLS[side],
            size=9,
        )
        marks["text"] = [f"seed {seed}" for _, _, seed in points]
        data.append(marks | plots.hover("%{text}: %{y:.2f} %", box="%{fullData.name}"))
        color = translucent(CLASS_COLORS[side], 0.6)
        line = plots.line(x, y, color, f"document, {test}", dash="dash")
        data.append(line | plots.hover("%{y:.2f} %", box="%{fullData.name}"))
    n = len(trained)
    names = plots.ticks(range(n), [experiment.name for experiment in trained])
    layout = plots.layout(
        names | plots.BARE | {"range": [-0.5, n - 0.5]}, plots.axis("whole lists right (%)")
    )
    caption = (
        "Each point is a seed, tested on 4,000 lists of a kind; the line is the document's one "
        "model. Where points of one experiment fall into two groups, its outcome is a matter of "
        "the seed."
    )
    return Figure("Accuracy by seed", caption, data, layout)


def loss_figure(experiment: Experiment, seeds: Sequence[Values]) -> Figure:
    """The loss along training, a line a seed, on a logarithmic scale."""
    data = [
        plots.line(
            values["curve"]["step"],
            values["curve"]["loss"],
            CLASS_COLORS[0 if sorts_all(values) else 1],
            f"seed {values['seed']}",
            width=1.5,
        )
        for values in seeds
    ]
    if experiment.loss is not None:
        last = max(values["curve"]["step"][-1] for values in seeds)
        data.append(plots.dashed([0, last], [experiment.loss] * 2, "document's final loss"))
    layout = plots.layout(plots.axis("step"), plots.axis("loss (nats an item)", "log"))
    caption = (
        "The loss of each seed on the batch of that step: blue where the trained model sorts "
        "every test list, orange where not."
    )
    return Figure(f"Loss along training: {experiment.name}", caption, data, layout)


@dataclass(frozen=True)
class SortingStudyEvidence(Evidence):
    """What the verdict on the trained sorters rests on.

    Attributes:
        algorithm: how many seeds of each experiment sort by which algorithm.
    """

    algorithm: Mapping[str, str]


def report(run: StudyRun) -> StudyResult:
    """Every experiment's figures beside the source's, every seed, and how the seeds differ."""
    trained = run.by_point
    models = [(e.name, values) for e, seeds in trained.items() for values in seeds]
    quantities = [q for e, seeds in trained.items() for q in experiment_quantities(e, seeds)]
    algorithms = {e.name: algorithms_in_words(seeds) for e, seeds in trained.items()}
    sentence = tally(quantities)
    figures = [accuracy_figure(trained), *(loss_figure(e, seeds) for e, seeds in trained.items())]
    for seeds in trained.values():
        steps = [EvolutionStep(**step) for v in seeds for step in v.get("evolution", ())]
        figures += [evolution(steps), qk_along_training(steps)] if steps else []
    return run.result(
        f"{sentence[0].upper()}{sentence[1:]} {seeds_in_words(*next(iter(trained.items())))}",
        settings={
            "seeds": {e.name: len(seeds) for e, seeds in trained.items()},
            "models": {e.name: {"recipe": e.recipe, **e.settings(run.preset)} for e in trained},
            "searched": SEARCHED,
            "device": run.runner.device,
        },
        quantities=quantities,
        evidence=SortingStudyEvidence(overall(quantities), algorithms, reason=missed(quantities)),
        details=[
            Table(
                "Every seed",
                [
                    *("experiment", "seed", "loss", "random %", "hard %", "sets %"),
                    *("two values %", "wrong", "low", "high", "algorithm"),
                ],
                [
                    [
                        *(name, v["seed"], v["loss"]),
                        *(
                            100 * v["tests"][t]["lists_right"] if t in v["tests"] else None
                            for t in TESTS
                        ),
                        *(MILLION * v["search"][key] for key in ("rate", "low", "high")),
                        v["algorithm"],
                    ]
                    for name, v in models
                ],
                "Loss in nats an item, on lists as in training; wrong, low and high: wrongly "
                "sorted lists of a million, and their 95 % interval.",
            ),
            Table(
                "Algorithm",
                ["experiment", "theirs", "ours, by seed"],
                [[e.name, e.algorithm, algorithms[e.name]] for e in trained],
                "The verdict of the sorting analysis on each seed, beside what the source "
                "concludes.",
            ),
            Table(
                "Lists sorted wrongly, the first of each seed",
                ["experiment", "seed", "list", "output", "sorted"],
                [
                    [name, v["seed"], *(" ".join(map(str, example[i])) for i in range(3))]
                    for name, v in models
                    for example in v["search"]["examples"]
                ],
            ),
            Table(
                "Lists with the greatest loss, of the first seeds",
                ["experiment", "seed", "list", "output", "loss"],
                [
                    [
                        *(e.name, seeds[0]["seed"]),
                        *(" ".join(map(str, x[key])) for key in ("input_list", "output")),
                        x["loss"],
                    ]
                    for e, seeds in trained.items()
                    for x in seeds[0]["hardest"]
                ],
                "Of all sets, or of all lists of two values: the greatest loss, nats an item.",
            ),
        ],
        plots=figures,
    )


def _seeds(preset: str) -> str:
    numbers = [e.seeds[preset] for e in EXPERIMENTS if preset in e.seeds]
    least, most = min(numbers), max(numbers)
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"


SORTING = Study(
    "sorting",
    "tiny transformers that sort: accuracy, loss and algorithm in three experiments",
    "How do tiny transformers sort lists of small integers? (Qi and Zhong 2023)",
    {
        preset: f"{_seeds(preset)} of {sum(preset in e.seeds for e in EXPERIMENTS)} "
        "experiments and variants"
        for preset in ("small", "paper")
    },
    grid,
    report,
    seeds=0,  # of each experiment its own
)
