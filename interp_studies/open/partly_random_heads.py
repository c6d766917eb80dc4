"""How many trained query-key pairs does in-context retrieval need?

The paper trains all queries and keys or none. It names partly trained models, and unfreezing during
training, as future work. Here two layers learn retrieval while the query-key pairs of some heads
are trained and those of the others are frozen. Conditions differ by layer, by number of heads, and
by whether training these pairs starts at once or after half of the steps; in some, frozen pairs
start with sharp attention.

A head's query-key pair is its W_Q and W_K. In each layer the first heads train theirs and the
others keep their initial values; all other parameters are trained in every model. Frozen pairs get
gradients of zero and no weight decay, so they stay bitwise unchanged.

The claims were formed on trials with the seeds 0 to 2 and 1000 to 1004. Whether a model learns
depends on the seed, so claims are about the fraction of seeds.

Source: "Is random attention sufficient for sequence modeling?", section 5, "Implications for
architecture design".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_studies.claims import (
    JudgedClaim,
    contrast,
    counted,
    coverage_of_each,
    in_words,
    judged_claim,
)
from interp_studies.jobs.attempt import Outcome
from interp_studies.result import FRESH, StudyResult
from interp_studies.study import Grid, Plan, Study, StudyRun
from interp_toolkit import plots
from interp_toolkit.plots import NEUTRAL, shade
from interp_toolkit.results import Figure, Table
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.random_attention.tasks import TaskRows
from interp_toolkit.training.engine.trainer import fit
from interp_toolkit.training.tasks.problem import TaskProblem
from interp_toolkit.training.tasks.recipes import RetrievalTraining

SEEDS = {"small": 8, "paper": 16}
_SHARED: Mapping[str, Any] = {
    "examples": 0,
    "layers": 2,
    "initial_std": 0.05,
    "lr": 5e-3,
    "schedule": "constant",
    "warm_up": 50,
    "target": 0.02,  # error: a seed that has learnt need not go on
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
NONE, FIRST, LAST_ONE = "none", "first layer, all", "last layer, one"
ONE_EACH, ALL, LATE, SHARP = "one in each layer", "all", "all, from half on", "none, sharp start"
LEARNS = 0.6  # accuracy: naming any value of the context is right in fewer than half the rows
SOME, MOST = 0.25, 0.6  # shares of seeds that claims are about


TRAINED: Mapping[str, str] = {
    NONE: "no pair trained",
    FIRST: "all pairs of the first layer trained, none of the last",
    LAST_ONE: "one pair of the last layer trained, none of the first",
    ONE_EACH: "one pair of each layer trained",
    ALL: "all pairs trained",
    LATE: "all pairs trained, from half the steps on",
    SHARP: "no pair trained, queries and keys four times as large",
}


@dataclass(frozen=True)
class Condition:
    """Which query-key pairs are trained, and from which step on.

    Attributes:
        name: name of the condition in tables.
        trained: number of heads of each layer whose pairs are trained, the first of the layer.
        since: the fraction of the steps after which their training starts.
        qk_std: the standard deviation of all initial W_Q and W_K, which sets the sharpness of
            frozen attention.
    """

    name: str
    trained: tuple[int, ...]
    since: float = 0.0
    qk_std: float = 0.05


class PartlyFrozen(TaskProblem):
    """Retrieval with a model in which some pairs are frozen; the target loss is the error rate.

    Attributes:
        steps: number of batches drawn so far.
        frozen_steps: number of steps in which all pairs are frozen.
    """

    capturable = False  # the steps are counted outside the model
    watched = "error"

    def __init__(self, config: RetrievalTraining, seed: int, condition: Condition):
        super().__init__(config, seed)
        self.steps, self.frozen_steps = 0, round(condition.since * config.steps)
        for block, trained in zip(self.model.blocks, condition.trained, strict=True):
            learns = (torch.arange(config.heads) < trained).to(config.device)[:, None, None]
            for weight in (block.attn.W_Q, block.attn.W_K):
                weight.register_hook(self._masked(learns))

    def draw(self, generator: torch.Generator) -> TaskRows:
        """Draw a batch and count it."""
        self.steps += 1
        return super().draw(generator)

    def evaluate(self) -> dict[str, float]:
        """Accuracy and error rate on part of the test prompts."""
        scores = super().evaluate()
        return {**scores, "error": 1 - scores["accuracy"]}

    def _masked(self, learns: Tensor) -> Any:
        def hook(gradient: Float[Tensor, "head d_model d_head"]) -> Tensor:
            masked: Tensor = gradient * (learns & (self.steps > self.frozen_steps))
            return masked

        return hook


def settings_of(settings: Mapping[str, Any], condition: Condition) -> RetrievalTraining:
    """The recipe's settings for a condition."""
    return RetrievalTraining(**{**settings, "qk_std": condition.qk_std, "weight_decay": 0.0})


def partly_frozen_job(
    *, folder: Path, settings: Mapping[str, Any], condition: Mapping[str, Any], seed: int
) -> Outcome:
    """Train one seed under a condition; returns held-out accuracy and the learning curve.

    Args:
        folder: not used; an interrupted training of this size is repeated.
        settings: settings of the retrieval recipe.
        condition: the fields of a `Condition`.
        seed: random seed of the model and its batches.
    """
    chosen = Condition(**{**condition, "trained": tuple(condition["trained"])})
    config = settings_of(settings, chosen)
    problem = PartlyFrozen(config, seed, chosen)
    fitted = fit(problem, config, seed)
    return Outcome(
        {
            "seed": seed,
            "condition": chosen.name,
            "accuracy": problem.accuracy(problem.test_rows),
            "guess": config.task.guess,
            "steps": [step for step, _ in fitted.curve],
            "curve": list(fitted.measured["accuracy"]),
        }
    )


def conditions(n_heads: int) -> list[Condition]:
    """The conditions, for models with `n_heads` heads per layer."""
    return [
        Condition(NONE, (0, 0)),
        Condition(FIRST, (n_heads, 0)),
        Condition(LAST_ONE, (0, 1)),
        Condition(ONE_EACH, (1, 1)),
        Condition(ALL, (n_heads, n_heads)),
        Condition(LATE, (n_heads, n_heads), since=0.5),
        Condition(SHARP, (0, 0), qk_std=0.2),
    ]


def grid(plan: Plan) -> Grid:
    """All conditions."""
    settings = {**SETTINGS[plan.preset], "device": plan.runner.device}
    return {
        condition.name: plan.each_seed(
            f"condition-{number}",
            partly_frozen_job,
            settings=settings,
            condition=asdict(condition),
        )
        for number, condition in enumerate(conditions(settings["heads"]))
    }


ByCondition = Mapping[str, Sequence[Mapping[str, Any]]]  # what each seed's job found, by condition


def accuracies(by_condition: ByCondition, name: str) -> list[float]:
    """The accuracies under a condition, by seed."""
    return [float(values["accuracy"]) for values in by_condition[name]]


def learnt(by_condition: ByCondition, name: str) -> int:
    """The number of seeds in which the model learns retrieval under a condition."""
    return sum(value > LEARNS for value in accuracies(by_condition, name))


def judge(by_condition: ByCondition, examples: int) -> list[JudgedClaim]:
    """The claims that the trials suggested, each with its interval.

    Some seeds learn under no condition. Claims are therefore about the number of seeds that learn,
    with an exact binomial interval, and about the accuracy that a second trained pair adds, with
    the errors of both seeds and test prompts.

    Args:
        by_condition: results of each seed's job, by condition.
        examples: number of held-out prompts, which are equal for all models.
    """
    n_claims = len(by_condition) + 1
    level = coverage_of_each(n_claims)
    listed = []
    for name in by_condition:
        count, seeds = learnt(by_condition, name), len(by_condition[name])
        low, high = clopper_pearson(count, seeds, level)
        fails = name in (NONE, FIRST, LATE)
        share = f"fewer than {MOST:g}" if fails else f"more than {SOME:g}"
        listed.append(
            JudgedClaim(
                f"{TRAINED[name]}: learns (accuracy above {LEARNS:g}) in {share} of seeds",
                *(count / seeds, low, high, f"{seeds} seeds"),
                above=-math.inf if fails else SOME,
                below=MOST if fails else math.inf,
                overturned_by="the same training over more seeds, or a longer one",
            )
        )
    gain = contrast(
        "with one trained pair in the last layer, also training one in the first layer increases "
        "the accuracy",
        [accuracies(by_condition, ONE_EACH)],
        [accuracies(by_condition, LAST_ONE)],
        examples,
        above=0.0,
        overturned_by="seeds that do as well without it",
        units=f"{len(by_condition[ALL])} seeds, paired",
    )
    listed.append(judged_claim(gain, level))
    return listed


def verdict(
    findings: Sequence[JudgedClaim], by_condition: ByCondition, settings: Mapping[str, Any]
) -> str:
    """The number of seeds that learn under each condition, and the confirmed claims."""
    by = dict(zip(by_condition, findings, strict=False))
    gain, n = findings[-1], len(by_condition[ALL])
    counts = "; ".join(
        f"{TRAINED[name]}: {learnt(by_condition, name)} ({median:.2f})"
        for name in by_condition
        for median in [statistics.median(accuracies(by_condition, name))]
    )
    text = (
        f"Retrieval of {settings['most_pairs']} pairs, two layers of {settings['heads']} heads, "
        f"{settings['steps']} steps; seeds of {n} that learn it (median accuracy; a guess "
        f"has {by_condition[NONE][0]['guess']:.2f}): {counts}."
    )
    confirmed = {name for name in by_condition if by[name].judgement == "confirmed"}
    if LAST_ONE in confirmed:
        text += f" So one trained pair of the last layer can be enough (in more than {SOME:.0%}"
        text += " of seeds)."
    few = [TRAINED[name] for name in (NONE, FIRST, LATE) if name in confirmed]
    if few:
        text += f" Learned by fewer than {MOST:.0%} of seeds: {'; '.join(few)}."
    if gain.judgement == "confirmed":
        text += f" A trained pair in the first layer as well adds {in_words(gain)} to the accuracy."
    if SHARP in confirmed:
        text += f" If frozen pairs start four times as large, more than {SOME:.0%} of seeds learn "
        text += "without any trained pair."
    return f"{text} {counted(findings)}, for this size and budget."


def report(run: StudyRun) -> StudyResult:
    """The claims, and the accuracy of every condition."""
    settings, by_condition = SETTINGS[run.preset], run.by_point
    compared = conditions(settings["heads"])
    findings = judge(by_condition, settings["test_examples"])
    rows = [
        [
            *(condition.name, *condition.trained, condition.qk_std, condition.since),
            *(statistics.median(values), min(values), max(values)),
            *(learnt(by_condition, condition.name), len(values)),
        ]
        for condition in compared
        for values in [accuracies(by_condition, condition.name)]
    ]
    columns = ["trained pairs", "first layer", "last layer", "std of Q, K", "frozen for"]
    columns += ["accuracy", "lowest", "highest", "learns", "seeds"]
    caption = (
        "Heads of each layer whose W_Q and W_K are trained; all else is, everywhere. Frozen for: "
        "the share of the steps during which these are frozen too. Accuracy: the median over seeds "
        "on held-out rows, its range, and in how many seeds it is above 0.6."
    )
    return run.result(
        verdict(findings, by_condition, settings),
        settings={"settings": settings, "conditions": [asdict(c) for c in compared]},
        claims=findings,
        details=[Table("Accuracy by what is trained", columns, rows, caption)],
        plots=[accuracy_figure(by_condition), curve_figure(by_condition)],
    )


def accuracy_figure(by_condition: ByCondition) -> Figure:
    """Accuracy by condition: one point per seed, and a bar at the median."""
    names = [name for name, values in by_condition.items() for _ in values]
    shares = [value for name in by_condition for value in accuracies(by_condition, name)]
    medians = [statistics.median(accuracies(by_condition, name)) for name in by_condition]
    guess = by_condition[NONE][0]["guess"]
    data = [
        plots.bars(list(by_condition), medians, NEUTRAL, "median"),
        plots.markers(names, shares, shade(0, 2), "a seed", size=8),
        plots.dashed(
            list(by_condition), [guess] * len(by_condition), "naming any value of the context"
        ),
    ]
    layout = plots.layout(plots.axis("trained pairs", "category"), plots.axis("accuracy"))
    caption = "Accuracy on held-out rows; a point a seed, bars their median."
    return Figure("Accuracy by which query-key pairs are trained", caption, data, layout)


def curve_figure(by_condition: ByCondition) -> Figure:
    """Median accuracy during training, by condition."""
    data = []
    for number, (name, seeds) in enumerate(by_condition.items()):
        steps = max((s["steps"] for s in seeds), key=len)
        curves = [s["curve"] + [s["curve"][-1]] * (len(steps) - len(s["curve"])) for s in seeds]
        medians = [statistics.median(at) for at in zip(*curves, strict=True)]
        line = plots.line(steps, medians, shade(number, len(by_condition)), name)
        data.append(line | plots.marked(plots.symbol(number), 5))
    layout = plots.layout(plots.axis("step"), plots.axis("accuracy"))
    caption = "Accuracy on some of the held-out rows along the training, the median over seeds; "
    caption += "a seed that has learnt stops, and its last accuracy stands for what follows."
    return Figure("Accuracy along the training", caption, data, layout)


PARTLY_RANDOM_HEADS = Study(
    "open/partly-random-heads",
    "retrieval with frozen queries and keys in some heads: how many heads must be trained",
    "Is random attention sufficient for sequence modeling?, section 5",
    {
        "small": "6 pairs, 2 layers of 2 heads, 7 conditions × 8 seeds; minutes",
        "paper": "12 pairs, 2 layers of 4 heads, 4,000 steps, 16 seeds; for a GPU",
    },
    grid,
    report,
    SEEDS,
    question="How many trained query-key pairs does in-context retrieval need?",
    first_seed=FRESH,
)
