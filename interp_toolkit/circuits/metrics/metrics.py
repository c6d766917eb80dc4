"""Metrics: one number per prompt from its logits, higher is better.

A metric is a pure function of the logits at the positions that it reads. For prompts with answers:
- `LogitDifference`: the answer's logit minus the wrong answer's (Wang et al. 2023,
  "Interpretability in the Wild");
- `LogProbability` of the answers, for circuits at least that of a guess among all answers: an
  ablation that does more than remove the answer says nothing more about the task;
- `Accuracy`, `Preference`: the fraction of answers that get the largest logit, or a larger one than
  the wrong answer.
For prompts of repeated tokens:
- `RepeatedTokens`: minus the loss on tokens that the context determines;
- `InContextAdvantage`: the loss on unpredictable tokens minus that loss (Olsson et al. 2022,
  "In-context Learning and Induction Heads").
For any prompts: `KLDivergence` from the intact model's output, and `FunctionMetric`, a user's own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.stats import UNSEEN

MetricName = Literal["logit-difference", "log-probability", "kl"]
METRICS: tuple[MetricName, ...] = get_args(MetricName)
Logits = Float[Tensor, "row position d_vocab"]
Rows = Int[Tensor, " row"]
Positions = Int[Tensor, "row position"]
Values = Float[Tensor, " row"]
#: `(logits [row pos d_vocab], rows [row], reference [row pos d_vocab]) -> [row]`
MetricFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


class Metric(ABC):
    """One number per prompt; see the module.

    Attributes:
        name: the metric in a word or two.
        definition: definition of the numbers.
        unit: unit of the numbers.
        measures_task: whether the intact model's value tells how well it performs a task; False
            where it is 0 by definition.
        because: why the metric measures no task, where the prompts could have defined one.
        unseen: how far a prompt may differ that was not drawn, as in `stats.estimate`.
        compares: whether it reads the whole model's logits too.
    """

    name: str
    definition: str
    unit: str
    measures_task: bool = True
    because: str | None = None
    unseen: float = 0.0
    compares: bool = False

    def positions(self, rows: Rows) -> Positions | None:
        """The positions whose logits are read for these rows of the prompts; None: all."""
        return None

    def narrowed(self) -> tuple[Int[Tensor, " token"], Metric] | None:
        """The tokens whose logits are read, ascending, and the same metric of these logits alone.

        None: the logits of all tokens are read.
        """
        return None

    @abstractmethod
    def __call__(self, logits: Logits, rows: Rows, reference: Logits | None = None) -> Values:
        """The value of each row.

        Args:
            logits: logits at the rows' `positions`.
            rows: indices of the prompts.
            reference: the whole model's logits at the same positions.
        """

    def from_full_logits(
        self, logits: Float[Tensor, "row pos d_vocab"], rows: Rows, reference: Tensor | None = None
    ) -> Values:
        """The value of each row, from its logits at all positions."""
        positions = self.positions(rows)
        if positions is None:
            return self(logits, rows, reference)
        return self(logits_at(logits, positions), rows)

    def _check(self, logits: Logits, rows: Rows, where: str, count: int) -> None:
        """Raise InputError unless the logits can be those at so many positions of each row."""
        if logits.ndim != 3 or logits.shape[:2] != (len(rows), count):
            raise InputError(
                f"the {self.name} takes logits at {where}, [{len(rows)}, {count}, d_vocab], not "
                f"{list(logits.shape)}; for logits at all positions use from_full_logits"
            )


@dataclass(frozen=True, eq=False)
class AnswerMetric(Metric):
    """A mean over each prompt's answers, from the logits at their positions."""

    prompts: Prompts

    @property
    def answers(self) -> Int[Tensor, "row position"]:
        """The answers of all prompts."""
        assert self.prompts.answers is not None
        return self.prompts.answers

    def positions(self, rows: Rows) -> Positions:
        """The positions of these rows' answers."""
        assert self.prompts.answer_positions is not None
        return self.prompts.answer_positions[rows]

    def __call__(self, logits: Logits, rows: Rows, reference: Logits | None = None) -> Values:
        """The mean over each row's answers; raises InputError for logits at other positions."""
        self._check(logits, rows, "the answer positions", self.answers.shape[1])
        wrong = self.answers if self.prompts.wrong is None else self.prompts.wrong
        if (largest := max(int(self.answers.max()), int(wrong.max()))) >= logits.shape[-1]:
            raise InputError(
                f"the model returns {logits.shape[-1]} logits, too few for the answer {largest}; "
                "give a model with the logits of all tokens"
            )
        return self.by_answer(logits, rows).double().mean(1)

    @abstractmethod
    def by_answer(self, logits: Logits, rows: Rows) -> Float[Tensor, "row position"]:
        """The value at each answer."""


class LogitDifference(AnswerMetric):
    """Logit of the answer minus the wrong answer's; in nats, the log odds between the two."""

    name = "logit difference"
    definition = "logit of the answer minus that of the wrong answer"
    unit = "logits per answer"
    unseen = UNSEEN

    def narrowed(self) -> tuple[Int[Tensor, " token"], Metric] | None:
        """The answers and the wrong ones, and the difference of their logits."""
        assert self.prompts.wrong is not None
        ids = torch.cat([self.answers, self.prompts.wrong])
        tokens: Tensor = ids.unique()  # type: ignore[no-untyped-call]
        answers, wrong = (
            torch.searchsorted(tokens, part) for part in (self.answers, self.prompts.wrong)
        )
        return tokens, LogitDifference(replace(self.prompts, answers=answers, wrong=wrong))

    def by_answer(self, logits: Logits, rows: Rows) -> Float[Tensor, "row position"]:
        """The value at each answer, in double precision."""
        assert self.prompts.wrong is not None
        answer, wrong = (
            logits.gather(-1, ids[rows][..., None].to(logits.device))[..., 0].double()
            for ids in (self.answers, self.prompts.wrong)
        )
        return answer - wrong


ROUNDING = 4  # relative errors of the largest logit: smaller differences are no preference


class Preference(LogitDifference):
    """Fraction of answers whose logit is larger than the wrong answer's; ties count one half."""

    name = "preference for the answer"
    definition = "fraction of answers whose logit exceeds that of the wrong answer"
    unit = "of the answers"
    unseen = 0.0

    def narrowed(self) -> None:
        """None: rounding is relative to the largest of all logits."""
        return None

    def by_answer(self, logits: Logits, rows: Rows) -> Float[Tensor, "row position"]:
        """1, one half (equal up to rounding), or 0 for each answer."""
        difference = super().by_answer(logits, rows)
        rounding = ROUNDING * torch.finfo(logits.dtype).eps * logits.abs().amax(-1).double()
        return (torch.where(difference.abs() > rounding, difference, 0).sign() + 1) / 2


class Accuracy(AnswerMetric):
    """Fraction of answers that get the largest logit."""

    name = "accuracy"
    definition = "fraction of answers that get the largest logit"
    unit = "of the answers"

    def by_answer(self, logits: Logits, rows: Rows) -> Float[Tensor, "row position"]:
        """1 or 0 for each answer."""
        return (logits.argmax(-1) == self.answers[rows].to(logits.device)).double()


@dataclass(frozen=True, eq=False)
class LogProbability(AnswerMetric):
    """Log-probability of the answers.

    Attributes:
        at_least_guess: whether it is at least that of a guess among all answers.
        precision: at least the precision in which the metric is computed.
    """

    at_least_guess: bool = True
    precision: torch.dtype = torch.float64
    name = "answers"
    definition = "log-probability of the answers, at least that of a guess"
    unit = "nats per answer"
    unseen = UNSEEN

    @cached_property
    def floor(self) -> float:
        """The least value of an answer."""
        guess = -math.log(max(len(torch.unique(self.answers)), 2))
        return guess if self.at_least_guess else -math.inf

    def by_answer(self, logits: Logits, rows: Rows) -> Float[Tensor, "row position"]:
        """The value at each answer, in nats."""
        logits = logits.to(torch.promote_types(logits.dtype, self.precision))
        answers = self.answers[rows].to(logits.device)
        values = logits.log_softmax(-1).gather(-1, answers[..., None])[..., 0]
        return values.clamp(min=self.floor)


@dataclass(frozen=True, eq=False)
class RepeatedTokens(Metric):
    """Minus the mean loss on the tokens that repetition determines."""

    prompts: Prompts
    name = "prediction of repeated tokens"
    definition = "minus the loss on repeated tokens"
    unit = "nats"

    def positions(self, rows: Rows) -> Positions:
        """The positions at which at least one of these rows determines its next token."""
        anywhere = self.prompts.repeated()[rows].any(0).numpy()
        return torch.from_numpy(np.flatnonzero(anywhere)).repeat(len(rows), 1)

    def __call__(self, logits: Logits, rows: Rows, reference: Logits | None = None) -> Values:
        """The value of each row, in single precision at least.

        Raises InputError for logits at other positions.
        """
        positions = self.positions(rows)
        self._check(logits, rows, "the positions before repeated tokens", positions.shape[1])
        repeated = self.prompts.repeated()[rows].gather(1, positions)
        following = self.prompts.tokens[rows].gather(1, positions + 1)
        return -token_losses(logits, following, repeated, torch.float32, "mean")


@dataclass(frozen=True, eq=False)
class InContextAdvantage(Metric):
    """Mean loss on unpredictable tokens minus mean loss on repeated ones."""

    prompts: Prompts
    name = "in-context advantage"
    definition = "loss on unpredictable tokens minus loss on repeated tokens"
    unit = "nats"

    def __call__(self, logits: Logits, rows: Rows, reference: Logits | None = None) -> Values:
        """The value of each row, in double precision.

        Raises InputError for logits that are not at all positions.
        """
        self._check(logits, rows, "all positions", self.prompts.n_pos)
        following = self.prompts.tokens[rows, 1:]
        losses = token_losses(
            logits[:, :-1], following, torch.ones_like(following, dtype=torch.bool)
        )
        repeated, unrepeated = (
            mask[rows, :-1].to(losses) / mask[rows, :-1].sum(1, keepdim=True).to(losses)
            for mask in (self.prompts.repeated(), self.prompts.unrepeated())
        )
        return (losses * (unrepeated - repeated)).sum(1)


@dataclass(frozen=True, eq=False)
class KLDivergence(Metric):
    """Minus the KL divergence from the reference output, mean over positions."""

    because: str | None = None
    name = "output"
    definition = "negative KL divergence from the intact model's output"
    unit = "nats per position"
    measures_task = False
    compares = True

    def __call__(self, logits: Logits, rows: Rows, reference: Logits | None = None) -> Values:
        """The value of each row, in double precision."""
        assert reference is not None
        p, q = reference.double().log_softmax(-1), logits.double().log_softmax(-1)
        return -(p.exp() * (p - q)).sum(-1).mean(-1)


class FunctionMetric(Metric):
    """A user's function `(logits, rows, reference) -> [row]` of the logits at all positions.

    Its name and the first line of its docstring are the name and definition that results show.
    """

    unit = "of the metric"
    compares = True

    def __init__(self, function: MetricFunction):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        text = (getattr(function, "__doc__", None) or "").strip()
        self.definition = text.partition("\n")[0].rstrip(".") or "a function that was given"

    def __call__(self, logits: Logits, rows: Rows, reference: Logits | None = None) -> Values:
        """The function's values; raises InputError unless they are one number per prompt."""
        assert reference is not None
        value: Any = self.function(logits, rows, reference)
        if not isinstance(value, Tensor) or value.shape != (len(rows),):
            form = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(
                f"the metric {self.name!r} returned {form} for {len(rows)} rows; it must return a "
                "tensor [row], one number for each"
            )
        if not bool(value.isfinite().all()):
            raise InputError(f"the metric {self.name!r} gave a number that is not finite")
        return value


def named_metric(prompts: Prompts, metric: str | MetricFunction) -> Metric:
    """The metric of this name, one of METRICS, or of a function.

    Raises InputError for another name, and for a metric of answers, or of wrong ones, where the
    prompts have none.
    """
    if not isinstance(metric, str):
        return FunctionMetric(metric)
    if metric not in METRICS:
        raise InputError(f"there is no metric {metric!r}{suggestion(metric, METRICS)}")
    if metric == "kl":
        return KLDivergence()
    if prompts.answers is None:
        raise InputError(
            f"the metric {metric} needs rows with answers; give answers, or the metric kl"
        )
    if metric == "log-probability":
        return LogProbability(prompts)
    if prompts.wrong is None:
        raise InputError(
            "the metric logit-difference needs prompts with a wrong answer; give 'wrong', "
            "or the metric log-probability"
        )
    return LogitDifference(prompts)


def logits_at(logits: Float[Tensor, "row pos d_vocab"], positions: Positions) -> Logits:
    """The logits at each row's own positions; no copy where these are one range for all rows."""
    on_host = (positions if positions.device.type == "cpu" else positions.cpu()).numpy()
    first = on_host[0]
    if (on_host == first).all() and (np.diff(first) == 1).all():
        return logits[:, int(first[0]) : int(first[-1]) + 1]
    number = torch.arange(len(positions), device=logits.device)[:, None]
    return logits[number, positions.to(logits.device)]


def token_losses(
    logits: Logits,
    targets: Int[Tensor, "row position"],
    scored: Bool[Tensor, "row position"],
    precision: torch.dtype = torch.float64,
    reduction: str = "none",
) -> Float[Tensor, "row *scored"]:
    """Loss (nats) of each row's scored targets, or its mean, in this precision at least.

    Rows are read one at a time, so that copies are small. Positions are listed on the host: a mask
    on a device makes the host wait for each row.
    """
    held = np.asarray(scored if scored.device.type == "cpu" else scored.cpu())
    counts, at = held.sum(1).tolist(), torch.from_numpy(np.nonzero(held)[1]).to(logits.device)
    targets = targets.to(logits.device)
    wider = torch.promote_types(logits.dtype, precision)
    losses = [
        F.cross_entropy(
            row.index_select(0, own).to(wider),
            row_targets.index_select(0, own),
            reduction=reduction,
        )
        for row, row_targets, own in zip(logits, targets, torch.split(at, counts), strict=True)
    ]
    return torch.stack(losses)


def require_finite(logits: Tensor) -> None:
    """Raise InputError unless all logits are finite."""
    ends = torch.stack(logits.aminmax())  # NaN is both; no copy is made, and one number is read
    if not bool(ends.isfinite().all()):
        raise InputError(
            "the model's logits are not finite on these prompts, so nothing can be measured"
        )
