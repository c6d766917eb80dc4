"""Figure 3 of the paper: frozen-qk forms an induction circuit, detected and ablated.

A seed has the circuit if, after training, a head of the first layer is detected as attending from
values to their keys, and a head of a later layer as attending from the queried key to its value
(see `job`). In addition, ablating each of the two groups must lower accuracy by at least
EFFECT_THRESHOLD of the intact accuracy, with a 95 % interval above 0. If heads are detected without
such an effect, the seed is undecided.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from interp_studies.random_attention.cells import SOURCE, written
from interp_studies.random_attention.circuit.job import (
    PREVIOUS,
    RECIPE,
    RETRIEVING,
    VARIANT,
    best,
    frozen_circuit,
    settings_of,
)
from interp_studies.result import Quantity, StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun, Values
from interp_toolkit import plots
from interp_toolkit.circuits.metrics.task import EFFECT_THRESHOLD
from interp_toolkit.models.model import Head
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Status, Table, head_name

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

Found = Literal["confirmed", "undecided", "not_detected"]


def grid(plan: Plan) -> Grid:
    """One model per seed, trained, scored and ablated.

    Raises:
        InputError: the user's settings do not fit.
    """
    given = plan.runner.settings_for(RECIPE, VARIANT)
    return {
        VARIANT: plan.each_seed(
            "frozen-qk-circuit",
            frozen_circuit,
            settings=settings_of(plan.preset, DIFFERS[plan.preset], given),
            scored_rows=SCORED_ROWS,
            ablated_rows=ABLATED_ROWS,
            device=plan.runner.device,
        )
    }


def outcome(seed: Values) -> Found:
    """Whether a seed has the circuit, by the module's rule."""
    if not all(seed["parts"][name] for name, _ in PARTS):
        return "not_detected"
    lost = {row["without"]: row for row in seed["ablations"]}
    groups = [lost[f"all {name} heads"] for name, _ in PARTS]
    needed = all(g["low"] > 0 and g["lost"] >= EFFECT_THRESHOLD * g["intact"] for g in groups)
    return "confirmed" if needed else "undecided"


def status(outcomes: Sequence[Found]) -> Status:
    """The status over all seeds."""
    if len(set(outcomes)) == 1:
        return outcomes[0]
    return "partly_reached" if "confirmed" in outcomes else "undecided"


def heads_in_words(seed: Values) -> str:
    """The heads of a seed and their effects, in a sentence."""
    parts = []
    for (name, where), first in zip(PARTS, (True, False), strict=True):
        layer, head = at = best(seed["after"], name, first=first)
        before, after = (score_of(seed[when], name, at) for when in ("before", "after"))
        detected = [head_name(*at) for at in seed["parts"][name]]
        parts.append(
            f"{where}: {head_name(layer, head)} has {after:.0%} of its attention on the pattern "
            f"({name}; {before:.0%} before training), detected: {', '.join(detected) or 'none'}"
        )
    accuracy = written(seed["accuracy"], "share")
    return f"Seed {seed['seed']}, {accuracy} right, {'; '.join(parts)}."


def circuit_quantities(values: Sequence[Values], *, judged: bool) -> list[Quantity]:
    """Accuracy, and the largest score of each part before and after training."""
    accuracies = [seed["accuracy"] for seed in values]
    remark = "" if judged else "theirs: 97.01 % with 30 pairs"
    quantities = [
        compare("frozen-qk", "accuracy", accuracies, THEIRS if judged else None, remark=remark)
    ]
    for (name, where), first in zip(PARTS, (True, False), strict=True):
        for when in ("before", "after"):
            scores = [
                score_of(seed[when], name, best(seed[when], name, first=first)) for seed in values
            ]
            quantities.append(compare(f"{name}, {where}", f"largest score {when}", scores))
    return quantities


def score_of(scores: Sequence[Values], detector: str, head: Head) -> float:
    """A head's score under a detector."""
    return next(
        float(s["score"])
        for s in scores
        if (s["detector"], s["layer"], s["head"]) == (detector, *head)
    )


def score_figure(seed: Values, detector: str) -> Figure:
    """Every head's score under a detector, before and after training."""
    colors = {"before": NEUTRAL, "after": CLASS_COLORS[0]}
    data = []
    for when, color in colors.items():
        scores = [s for s in seed[when] if s["detector"] == detector]
        names = [head_name(s["layer"], s["head"]) for s in scores]
        drawn = plots.bars(names, [s["score"] for s in scores], color, f"{when} training")
        data.append(drawn | plots.hover("%{x}: %{y:.3f}", box="%{fullData.name}"))
    detected = [head_name(*at) for at in seed["parts"][detector]]
    layout = plots.layout(
        plots.axis("head") | plots.NO_GRID, plots.axis("share of attention") | {"range": [0, 1]}
    )
    layout |= {"barmode": "group"}
    caption = (
        f"Seed {seed['seed']}: the share of attention that goes where {detector} looks. Detected "
        f"after training: {', '.join(detected) or 'none'}."
    )
    return Figure(f"Attention by head: {detector}", caption, data, layout)


def pattern_figure(shown: Values, tokens: Sequence[int]) -> Figure:
    """A head's attention on one prompt of the task, whose last token is the queried key."""
    positions = [f"{position}: {token}" for position, token in enumerate(tokens)]
    trace = plots.heatmap(positions, positions, shown["pattern"], "attention", low=0, high=1)
    trace |= plots.hover("query %{y}, key %{x}<br>attention %{z}")
    layout = plots.layout(
        plots.axis("key (place: token)", "category") | plots.NO_GRID,
        plots.axis("query (place: token)", "category") | plots.NO_GRID | plots.DOWNWARD,
    )
    layout |= {"height": 480}
    asked = tokens[-1]
    value = tokens[tokens.index(asked) + 1]
    caption = (
        f"Keys and values in turn, then the asked key {asked}, whose value is {value}. "
        f"{shown['when'].capitalize()} training."
    )
    return Figure(f"Pattern of {shown['head']}, {shown['when']} training", caption, [trace], layout)


@dataclass(frozen=True)
class FrozenCircuitEvidence(Evidence):
    """The evidence of the verdict on the circuit.

    Attributes:
        seeds: outcome of each seed.
        heads: heads of each seed, by part.
    """

    seeds: Sequence[Found]
    heads: Sequence[Any]


def report(run: StudyRun) -> StudyResult:
    """Whether each seed has the circuit, and the effects of its heads."""
    values = run.values
    outcomes = [outcome(seed) for seed in values]
    confirmed, undecided = (outcomes.count(word) for word in ("confirmed", "undecided"))
    counts = (
        f"In {confirmed} of {len(outcomes)} {'seed' if len(outcomes) == 1 else 'seeds'} "
        "frozen-qk forms an induction circuit that is detected and confirmed by ablation"
    )
    if undecided:
        counts += f"; in {undecided} it is detected but not confirmed"
    intact = statistics.median(seed["ablations"][0]["intact"] for seed in values)
    [jobs] = run.grid.values()
    return run.result(
        f"{counts}. {heads_in_words(values[0])} {LIMITS[run.preset]}",
        settings={"settings": jobs[0].arguments["settings"], "device": run.runner.device},
        quantities=circuit_quantities(values, judged=run.preset == "paper"),
        evidence=FrozenCircuitEvidence(
            status=status(outcomes), seeds=outcomes, heads=[seed["parts"] for seed in values]
        ),
        details=[
            Table(
                "Every seed",
                [
                    *("seed", "accuracy"),
                    *(f"{name} heads, {where}" for name, where in PARTS),
                    "circuit",
                ],
                [
                    [
                        *(seed["seed"], written(seed["accuracy"], "share")),
                        *(
                            ", ".join(head_name(*at) for at in seed["parts"][name]) or None
                            for name, _ in PARTS
                        ),
                        word,
                    ]
                    for seed, word in zip(values, outcomes, strict=True)
                ],
            ),
            Table(
                "Attention by head",
                [
                    *("seed", "head", "detector", "before", "after", "uniform", "p adjusted"),
                    "outcome",
                ],
                [
                    [
                        *(seed["seed"], head_name(now["layer"], now["head"]), now["detector"]),
                        *(was["score"], now["score"], now["uniform"], now["p_adjusted"]),
                        "detected" if now["detected"] else "not_detected",
                    ]
                    for seed in values
                    for was, now in zip(seed["before"], seed["after"], strict=True)
                ],
                "Before and after training: the mean share of attention that goes where the "
                "detector looks; uniform: what uniform attention would give; p adjusted (Holm) "
                "over all heads and detectors, after training.",
            ),
            Table(
                "Accuracy without heads",
                ["seed", "without", "accuracy %", "lost", "low", "high"],
                [
                    [seed["seed"], lost["without"]]
                    + [100 * lost[key] for key in ("accuracy", "lost", "low", "high")]
                    for seed in values
                    for lost in seed["ablations"]
                ],
                "In per cent, on rows with as many pairs as there can be (intact, the median over "
                f"seeds: {written(intact, 'share')}). A head taken out holds its mean over the "
                "rows; low and high: 95 % interval of what is lost, paired over rows.",
            ),
        ],
        plots=[
            *(score_figure(values[0], name) for name, _ in PARTS),
            *(pattern_figure(p, values[0]["tokens"]) for p in values[0]["patterns"]),
        ],
    )


FIGURE_3 = Study(
    "random-attention/figure-3",
    "frozen-qk on retrieval: circuits of heads, tested by ablation",
    f"{SOURCE} figure 3",
    {
        "small": f"{SEEDS['small']} model. {LIMITS['small']}",
        "paper": f"{SEEDS['paper']} models. {LIMITS['paper']}",
    },
    grid,
    report,
    SEEDS,
)
