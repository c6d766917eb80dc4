"""Metrics for circuits: one number per prompt from its logits, higher is better.

Where the rows have answers and wrong ones beside them, it is the logit difference (Wang et al.
2023, "Interpretability in the Wild"). Where they have answers only, it is the log-probability of
these, no lower than a guess among all answers: what a cut does beyond taking the answer away says
nothing more of the behaviour. Where the model predicts the next of its own tokens and the prompts
repeat, it is the advantage that repetition gives: mean loss where nothing tells the next token,
less mean loss where the context does (Olsson et al. 2022, "In-context Learning and Induction
Heads"). Elsewhere (bidirectional attention, logits over another vocabulary, nothing that repeats,
repetition that the model makes no use of) it is how close the output stays to the whole model's:
minus the mean over positions of the KL divergence. Another one can be asked for by its name, or be
a function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import next_losses, repeating, why_none
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.behaviour.task import (
    RepeatTask,
    TaskCheck,
    check_task,
    log_probabilities,
    logit_differences,
    logits_at,
    task_of,
)
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.model import Model

Metric = Literal["logit-difference", "log-probability", "kl"]
METRICS: tuple[Metric, ...] = get_args(Metric)
Logits = Float[Tensor, "row pos d_vocab"]
Asked = Float[Tensor, "row asked d_vocab"]
Rows = Int[Tensor, " row"]
Values = Float[Tensor, " row"]
#: `(logits [row pos d_vocab], rows [row], whole [row pos d_vocab]) -> [row]`, as an `Objective`
OwnFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


class Objective(ABC):
    """One number a row; see the module.

    Attributes:
        name: what an edge can carry, in a word or two.
        definition: of the numbers.
        unit: of the numbers.
        is_behaviour: whether the intact model's own value says something (a behaviour that a
            model may lack), or is 0 by definition.
    """

    name: str
    definition: str
    unit: str
    is_behaviour: bool
    because: str | None = None

    @abstractmethod
    def __call__(self, logits: Logits, rows: Rows, whole: Logits) -> Values:
        """The value of each row.

        Args:
            logits: what is judged.
            rows: which of the prompts' rows they are.
            whole: the logits of the same rows with no edge cut.
        """


@dataclass(frozen=True, eq=False)
class Advantage(Objective):
    """Loss where the next token is not told, less loss where it is."""

    tokens: Int[Tensor, "row pos"]
    repeated: Bool[Tensor, "row pos"]
    unrepeated: Bool[Tensor, "row pos"]
    name: str = "in-context advantage"
    definition: str = "loss on unpredictable tokens minus loss on repeated tokens"
    unit: str = "nats"
    is_behaviour: bool = True

    def __call__(self, logits: Logits, rows: Rows, whole: Logits) -> Values:
        """The advantage of each row."""
        losses = next_losses(logits, self.tokens[rows])
        repeated, unrepeated = (
            mask[rows, :-1].to(losses) / mask[rows, :-1].sum(1, keepdim=True).to(losses)
            for mask in (self.repeated, self.unrepeated)
        )
        return (losses * (unrepeated - repeated)).sum(1)


class AskedObjective(Objective):
    """An objective that reads the logits at some positions of each row only.

    Attributes:
        positions: of the tokens whose logits it reads.
    """

    positions: Int[Tensor, "row asked"]

    def __call__(self, logits: Logits, rows: Rows, whole: Logits) -> Values:
        """The value of each row."""
        return self.of_asked(logits_at(logits, self.positions[rows]), rows)

    @abstractmethod
    def of_asked(self, asked: Asked, rows: Rows) -> Values:
        """The value of each row, from its logits at the asked places."""


@dataclass(frozen=True, eq=False)
class LogitDifference(AskedObjective):
    """Logit of the answer less that of the wrong one; in nats, the log odds between the two."""

    answers: Int[Tensor, "row asked"]
    wrong: Int[Tensor, "row asked"]
    positions: Int[Tensor, "row asked"]
    name: str = "logit difference"
    definition: str = "logit of the answer minus that of the wrong answer"
    unit: str = "logits an answer"
    is_behaviour: bool = True

    def of_asked(self, asked: Asked, rows: Rows) -> Values:
        """The mean over each row's answers."""
        return logit_differences(asked, self.answers[rows], self.wrong[rows]).mean(1)


@dataclass(frozen=True, eq=False)
class AnswerLikelihood(AskedObjective):
    """Log-probability of the rows' answers, no lower than `floor`."""

    answers: Int[Tensor, "row asked"]
    positions: Int[Tensor, "row asked"]
    floor: float
    name: str = "answers"
    definition: str = "log-probability of the answers, at least that of a guess"
    unit: str = "nats an answer"
    is_behaviour: bool = True

    def of_asked(self, asked: Asked, rows: Rows) -> Values:
        """The mean over each row's answers."""
        likely = log_probabilities(asked.double(), self.answers[rows])
        return likely.clamp(min=self.floor).mean(1)


@dataclass(frozen=True, eq=False)
class Closeness(Objective):
    """Minus the KL divergence of the judged output from the whole model's, a position.

    Attributes:
        because: why nothing that the model does is measured, where it might have been.
    """

    name: str = "output"
    definition: str = "minus the KL divergence from the whole model's output"
    unit: str = "nats a position"
    is_behaviour: bool = False
    because: str | None = None

    def __call__(self, logits: Logits, rows: Rows, whole: Logits) -> Values:
        """The closeness of each row."""
        p, q = whole.double().log_softmax(-1), logits.double().log_softmax(-1)
        return -(p.exp() * (p - q)).sum(-1).mean(-1)


@dataclass(frozen=True, eq=False)
class OwnMetric(Objective):
    """A function of one's own: `(logits, rows, whole) -> [row]`, as an `Objective` is called.

    Its name and the first line of its docstring are the name and definition that results show.
    """

    function: OwnFunction
    name: str = "own metric"
    definition: str = "a function that was given"
    unit: str = "of the metric"
    is_behaviour: bool = True

    def __call__(self, logits: Logits, rows: Rows, whole: Logits) -> Values:
        """The function's values; raises InputError unless they are one number per prompt."""
        value = self.function(logits, rows, whole)
        if not isinstance(value, Tensor) or value.shape != (len(rows),):
            form = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(
                f"the metric {self.name!r} gave {form} for {len(rows)} rows; it must give a "
                "tensor [row], one number each"
            )
        if not bool(value.isfinite().all()):
            raise InputError(f"the metric {self.name!r} gave a number that is not finite")
        return value


def objective(
    model: Model,
    prompts: Prompts,
    memory: int | str | None = None,
    *,
    metric: str | OwnFunction | None = None,
) -> tuple[Objective, TaskCheck | None]:
    """The metric for these prompts, and the model's performance by it.

    Without a metric: rows with answers are judged by these, whether or not the model knows them
    (the caller looks at `TaskCheck`). Rows that repeat are judged by the advantage only where the
    model certainly has one: lists to sort may repeat too. All else is judged by closeness.

    Args:
        model: any TransformerLens model.
        prompts: the rows.
        memory: bound for the run.
        metric: one of METRICS or a function (see `OwnMetric`), in place of what fits the rows;
            what the model does there is then told of rows with answers, and of "kl" never.

    Raises:
        InputError: a metric that there is not, or that needs answers where there are none;
            answers that the model's logits do not have.
    """
    if metric == "kl":
        return Closeness(), None
    if metric is not None:
        return _chosen(prompts, metric), _task_check(model, prompts, memory)
    if prompts.answers is not None:
        fits: Metric = "log-probability" if prompts.wrong is None else "logit-difference"
        return _chosen(prompts, fits), _task_check(model, prompts, memory)
    repeat = len(repeating(prompts)) == len(prompts)
    if repeat and why_none(model, prompts) is None:
        task = RepeatTask(prompts, repeating(prompts))
        task_check = check_task(model, task, memory)
        if task_check.yes:
            judged = Advantage(
                torch.as_tensor(prompts.tokens), prompts.repeated(), prompts.unrepeated()
            )
            return judged, task_check
        return Closeness(because="the model does not significantly use repetition here"), None
    return Closeness(), None


def _chosen(prompts: Prompts, metric: str | OwnFunction) -> Objective:
    """The objective of a metric that looks at the answers, or of a function."""
    if not isinstance(metric, str):
        name = getattr(metric, "__name__", type(metric).__name__)
        description = (
            (getattr(metric, "__doc__", None) or "").strip().partition("\n")[0].rstrip(".")
        )
        return OwnMetric(metric, name, description or "a function that was given")
    if metric not in METRICS:
        raise InputError(f"there is no metric {metric!r}{suggestion(metric, METRICS)}")
    answers, positions, wrong = prompts.answers, prompts.answer_positions, prompts.wrong
    if answers is None or positions is None:
        raise InputError(
            f"the metric {metric} needs rows with answers; give answers, or the metric kl"
        )
    if metric == "logit-difference":
        if wrong is None:
            raise InputError(
                "the metric logit-difference needs prompts with a wrong answer; give 'wrong', "
                "or the metric log-probability"
            )
        return LogitDifference(answers, wrong, positions)
    floor = -math.log(max(len(torch.unique(answers)), 2))
    return AnswerLikelihood(answers, positions, floor)


def _task_check(model: Model, prompts: Prompts, memory: int | str | None) -> TaskCheck | None:
    """The model's performance on rows with answers; None for other rows."""
    if prompts.answers is None:
        return None
    task, _ = task_of(model, prompts)
    assert task is not None
    return check_task(model, task, memory)
