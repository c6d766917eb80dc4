"""Tasks: prompts with their metric, and whether a model performs the task at all.

The metric (`metrics`) of prompts with answers is the fraction of right answers (`AnswerTask`), or
with wrong answers the fraction that is preferred to these (`PreferenceTask`). That of prompts
of repeated tokens is minus the loss on these tokens (`RepeatTask`). Chance is the value that a
model gets without reading the prompt: by the most frequent answer, at each position or over all; by
one of the two answers; or by a guess among the prompts' ids.

Effects are fractions of the metric above chance. `check` first tests whether the intact model is
significantly better than chance. If it is not, no effect means anything, and verdicts are *not
tested*.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.metrics import (
    Accuracy,
    AnswerMetric,
    InContextAdvantage,
    KLDivergence,
    LogProbability,
    Metric,
    MetricFunction,
    Preference,
    RepeatedTokens,
    logits_at,
    named_metric,
    require_finite,
)
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.repetition import (
    LEAST_ADVANTAGE,
    losses_of_batch,
    repeating_rows,
    row_batches,
    why_not_measurable,
)
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.stats import (
    COVERAGE,
    Estimate,
    Share,
    clopper_pearson,
    estimate,
    mean_of_shares,
    ratio_estimate,
    ratio_share,
)

TINY = 1e-3  # of the metric above chance: its least value in an interval that reaches chance
EFFECT_THRESHOLD = 0.05  # of the metric above chance: the least effect that counts
LEAST_ANSWERS = 0.03  # of the answers: the least effect on accuracy that counts


@dataclass(frozen=True)
class TaskCheck:
    """Whether a model performs a task on these prompts.

    Attributes:
        yes: whether it is significantly better than chance.
        value: the intact model's metric, mean over prompts with its interval.
        chance: the metric of a guess that does not read the prompt.
        loss: nats at the positions that the metric reads.
        summary: the result in one sentence.
        unit: unit of the value.
        above: each prompt's metric above chance; None where there is none per prompt.
        most: the largest fraction of the metric that counts as lost. It is 1 for an accuracy: a
            model that falls below chance, certain of a wrong answer, has lost no more than all.
        task: what the model is to do, as a verb phrase.
        metric: the metric above chance, in words.
    """

    yes: bool
    value: Estimate
    chance: float
    loss: float
    summary: str
    unit: str
    above: Float[np.ndarray, " row"] | None = None
    most: float = math.inf
    task: str = "perform the task"
    metric: str = "accuracy minus that of a guess"

    @property
    def failure(self) -> str:
        """What a check that is not passed shows."""
        return f"the model has not been shown to {self.task}"

    @property
    def whole(self) -> float:
        """The metric above chance."""
        return self.value.mean - self.chance

    @property
    def size(self) -> str:
        """The metric above chance, with its interval and unit."""
        low, high = self.value.low - self.chance, self.value.high - self.chance
        return f"{self.whole:.3g} [{low:.3g}, {high:.3g}] {self.unit}"

    def fraction(self, lost: Float[np.ndarray, " row"], coverage: float) -> Share:
        """A loss on the first prompts of the task as a fraction of the metric, with its interval.

        The interval includes the uncertainty of the metric and of chance. It is that of
        `ratio_estimate`; for an accuracy, of which few prompts may change, of `ratio_share`.
        """
        assert self.above is not None
        above = self.above[: len(lost)]
        if math.isinf(self.most):
            return ratio_estimate(lost, above, coverage)
        share = ratio_share(lost, above, coverage)
        return Share(*(min(end, self.most) for end in (share.mean, share.low, share.high)))

    def share(self, effect: Estimate) -> Share:
        """An effect as a fraction of the metric, whose own interval widens the effect's.

        The metric lies between the ends of its interval, less chance. Each end of the effect is
        divided by the end that makes the interval wider.
        """
        small = max(self.value.low - self.chance, TINY * abs(self.whole) + 1e-12)
        large = max(self.value.high - self.chance, small)
        low = effect.low / (large if effect.low > 0 else small)
        high = effect.high / (small if effect.high > 0 else large)
        return Share(effect.mean / self.whole, low, high)


@dataclass(frozen=True, eq=False)
class CircuitTask(ABC):
    """Prompts, the metric by which a model performs their task, and the check whether it does.

    Attributes:
        prompts: the prompts.
        rows: indices of the prompts that are measured.
        metric_class: the class of the metric.
        first_look: number of prompts that usually decide; more are run where they do not.
        smallest_effect: the least loss of the metric that is above the effect-size threshold.
    """

    prompts: Prompts
    rows: Int[Tensor, " row"]
    metric_class: ClassVar[type[AnswerMetric | RepeatedTokens]]
    first_look: ClassVar[int]
    smallest_effect: ClassVar[float]

    @cached_property
    def metric(self) -> AnswerMetric | RepeatedTokens:
        """The metric of a prompt."""
        return self.metric_class(self.prompts)

    @property
    def log_probability(self) -> Metric:
        """Minus the loss (nats), at the positions that the metric reads."""
        return self.metric

    @abstractmethod
    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """Whether the intact model, with these readings, performs the task."""

    @abstractmethod
    def interval(self, values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
        """The mean of values, or of their differences, with its interval."""

    def least(self, whole: float) -> float:
        """The effect-size threshold for a metric of this size above chance."""
        return max(EFFECT_THRESHOLD * whole, self.smallest_effect)

    def positions(self, rows: Int[Tensor, " batch"]) -> Int[Tensor, " position"]:
        """The positions, in order, that metric and loss of these rows are read at."""
        positions: Tensor = torch.unique(self.metric.positions(rows))
        return positions

    def read(
        self, logits: Float[Tensor, "batch pos d_vocab"], rows: Int[Tensor, " batch"]
    ) -> Float[np.ndarray, "batch column"]:
        """Per prompt: its metric, its loss (nats), and further inputs of `check`."""
        return self.read_at(logits, rows, torch.arange(logits.shape[1]))

    def read_at(
        self,
        logits: Float[Tensor, "batch position d_vocab"],
        rows: Int[Tensor, " batch"],
        positions: Int[Tensor, " position"],
    ) -> Float[np.ndarray, "batch 2"]:
        """Metric and loss per prompt, as `read` gives them, from the logits at these positions."""
        require_finite(logits)
        logits = logits_at(logits, torch.searchsorted(positions, self.metric.positions(rows)))
        value = self.metric(logits, rows)
        same = self.log_probability is self.metric
        likely = value if same else self.log_probability(logits, rows)
        columns: np.ndarray = torch.stack([value.double(), -likely.double()], dim=1).cpu().numpy()
        return columns


class AnswerTask(CircuitTask):
    """Giving the prompts' answers."""

    metric_class: ClassVar[type[AnswerMetric]] = Accuracy
    first_look = 256
    smallest_effect = LEAST_ANSWERS

    @cached_property
    def log_probability(self) -> Metric:
        """The log-probability of the answers."""
        return LogProbability(self.prompts, at_least_guess=False, precision=torch.float32)

    def interval(self, values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
        """Exact bounds of a mean of values within -1 and 1."""
        return mean_of_shares(values, coverage)

    def guesses(self) -> Float[np.ndarray, " row"]:
        """Accuracy per prompt of the best guess that ignores the prompt.

        The guess (one answer for all, or one for each answer position) is chosen on one half of
        the prompts and tested on the other, so that chance is not overestimated.
        """
        assert self.prompts.answers is not None
        answers = self.prompts.answers[self.rows].numpy()
        chances = np.empty(len(answers))
        halves = np.arange(len(answers)) % 2
        for half in (0, 1):
            others, own = answers[halves != half], answers[halves == half]
            if not len(others):
                others = own
            one = _commonest(others)
            each = np.array([_commonest(column) for column in others.T])
            best = max((one, each), key=lambda guess: float((others == guess).mean()))
            chances[halves == half] = (own == best).mean(1)
        return chances

    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """Whether answers are right more often than by the best guess without the prompt."""
        values, guesses = readings[:, 0], self.guesses()
        value = _of_shares(values)
        above = values - guesses
        chance = float(guesses.mean())
        text = (
            f"{percent_ci(value, 1)} of the answers are right (n = "
            f"{len(readings)}); a fixed answer, chosen on one half of the prompts and tested on "
            f"the other, gets {percent(chance, 1)}"
        )
        yes = self.interval(above, COVERAGE).low > 0
        loss = float(readings[:, 1].mean())
        return TaskCheck(yes, value, chance, loss, text, self.metric.unit, above, 1.0)


def _commonest(ids: Int[np.ndarray, "..."]) -> int:
    values, counts = np.unique(ids, return_counts=True)
    return int(values[counts.argmax()])


def _of_shares(values: Float[np.ndarray, " row"]) -> Estimate:
    """The mean fraction of right answers, with exact bounds (see `clopper_pearson`)."""
    low, high = clopper_pearson(float(values.sum()), len(values), COVERAGE)
    return replace(estimate(values), low=low, high=high)


class PreferenceTask(AnswerTask):
    """Preferring the answer to the wrong one.

    Chance is one half. If a preference among the tokens that ignores the prompt (see
    `fixed_preferences`) gets significantly more than that, chance is what it gets.
    """

    metric_class = Preference

    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """Whether the answer is preferred more often than not."""
        assert self.prompts.answers is not None
        assert self.prompts.wrong is not None
        values, chance = readings[:, 0], 0.5
        value = _of_shares(values)
        answers, wrong = self.prompts.answers[self.rows], self.prompts.wrong[self.rows]
        blind = fixed_preferences(answers.numpy(), wrong.numpy())
        text = (
            f"{percent_ci(value, 1)} prefer the answer to the wrong "
            f"one (n = {len(readings)}); "
            f"chance is {percent(chance)}"
        )
        above, yes = values - chance, value.low > chance
        if clopper_pearson(float(blind.sum()), len(blind), COVERAGE)[0] > chance:
            above, chance = values - blind, float(blind.mean())
            yes = yes and self.interval(above, COVERAGE).low > 0
            text += f", and a fixed preference among the answers gets {percent(chance, 1)}"
        loss = float(readings[:, 1].mean())
        what = "fraction that prefers the answer, minus chance"
        return TaskCheck(yes, value, chance, loss, text, self.metric.unit, above, 1.0, metric=what)


def fixed_preferences(
    answers: Int[np.ndarray, "row answer"], wrong: Int[np.ndarray, "row answer"]
) -> Float[np.ndarray, " row"]:
    """Accuracy per prompt of a fixed preference among tokens, learned from the other prompts.

    A token's score is the number of other prompts that have it as answer, minus the number that
    have it as wrong answer; ties count one half. Randomly sampled names thus get about one half,
    and prompts that all have the same answer get 1.

    Examples:
        >>> fixed_preferences(np.array([[3], [3], [3]]), np.array([[4], [5], [4]])).tolist()
        [1.0, 1.0, 1.0]
    """
    ids, numbers = np.unique(np.stack([answers, wrong]), return_inverse=True)
    answers, wrong = numbers.reshape(2, *answers.shape)
    counts = np.zeros(len(ids))
    np.add.at(counts, answers, 1)
    np.add.at(counts, wrong, -1)
    right = []
    for good, bad in zip(answers, wrong, strict=True):
        others = counts.copy()
        np.add.at(others, good, -1)
        np.add.at(others, bad, 1)
        right.append((1 + np.sign(others[good] - others[bad]).mean()) / 2)
    return np.array(right)


class RepeatTask(CircuitTask):
    """Predicting repeated tokens.

    The in-context advantage decides whether a model does (`RepetitionLosses.uses_repetition`).
    Chance is the loss of a uniform guess among the prompts' ids, or the loss in the first period if
    that is lower. A model can be confidently wrong in the first period, so the loss there alone
    could overstate the metric.
    """

    metric_class = RepeatedTokens
    first_look = 16
    smallest_effect = LEAST_ADVANTAGE

    def read(
        self, logits: Float[Tensor, "batch pos d_vocab"], rows: Int[Tensor, " batch"]
    ) -> Float[np.ndarray, "batch column"]:
        """Metric, loss on repeated tokens, before, and of the prompt's other tokens; rounding.

        The last column bounds the rounding error of a difference of two of these losses.
        """
        require_finite(logits)
        losses = losses_of_batch(logits, self.prompts, rows)
        repeated = losses.loss_repeated
        columns = [-repeated, repeated, losses.loss_unrepeated, losses.loss_others, losses.rounding]
        return np.stack(columns, axis=1)

    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """Whether repeated tokens are likelier than before, and than the prompt's other tokens.

        An advantage that is no larger than the rounding error of the losses is not reported as one.
        """
        repeated, unrepeated, others, rounding = readings[:, 1:].T
        advantage = self.interval(unrepeated - repeated, COVERAGE)
        preferred = self.interval(others - repeated, COVERAGE)
        yes = all(e.low > 0 and e.mean >= LEAST_ADVANTAGE for e in (advantage, preferred))
        n_ids = len(torch.unique(self.prompts.tokens[:, self.prompts.first :]))
        above, guess = unrepeated - repeated, float(unrepeated.mean())
        uniform = float(np.log(n_ids))
        against = f"{guess:.3g} before repetition"
        beaten = uniform - float(repeated.mean()) >= LEAST_ADVANTAGE
        taken = "the model's prediction before repetition"
        if not beaten:
            taken += (
                f" (its loss on repeated tokens is not {LEAST_ADVANTAGE:g} nats below that of a "
                f"uniform guess, {uniform:.3g})"
            )
        elif guess <= uniform:
            taken += ", which is better than uniform"
        else:
            taken, guess = "uniform among the prompts' tokens", uniform
            above = guess - repeated
            against += f" and {guess:.3g} for a uniform guess among the prompts' tokens"
        is_rounding = max(-advantage.low, advantage.high) <= rounding.mean()
        if is_rounding and not yes:
            effect = "repetition changes the loss on the next token by no more than rounding "
            effect += f"({rounding.mean():.1g} nats, n = {len(readings)})"
        else:
            mean, low, high = advantage.mean, advantage.low, advantage.high
            raises = "raises"
            if mean < 0:
                mean, low, high, raises = -mean, -high, -low, "lowers"
            effect = f"repetition {raises} the next token's log-probability by {mean:.3g} nats "
            effect += f"[{low:.3g}, {high:.3g}] (n = {len(readings)})"
        if not yes and not is_rounding and advantage.low > 0:
            effect = _not_enough(effect, advantage, preferred)
        text = (
            f"{effect}; the loss on repeated tokens is {repeated.mean():.3g} nats, against "
            f"{against}"
        )
        value = self.interval(readings[:, 0], COVERAGE)
        loss = float(repeated.mean())
        return TaskCheck(
            yes,
            value,
            -guess,
            loss,
            text,
            self.metric.unit,
            above,
            task="predict repeated tokens",
            metric=f"loss of a guess minus loss on repeated tokens; the guess is {taken}",
        )

    def interval(self, values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
        """The t interval."""
        return estimate(values, coverage)


def _not_enough(effect: str, advantage: Estimate, preferred: Estimate) -> str:
    """The effect of repetition in words, with the reason why it does not count."""
    least = f"less than {LEAST_ADVANTAGE:g} nats"
    if advantage.mean < LEAST_ADVANTAGE:
        return f"{effect}, and {least} does not count"
    others = "the prompt's other tokens"
    why = f"the loss on the correct next token is {least} below that on {others}"
    if preferred.low <= 0:
        why = f"the correct next token is not significantly likelier than {others}"
    return f"{why}, although {effect}"


def task_of(model: Model, prompts: Prompts) -> tuple[CircuitTask | None, str | None]:
    """The task of these prompts, or the reason why they define none.

    Args:
        model: any TransformerLens model.
        prompts: prompts with answers (and perhaps wrong answers), or prompts that repeat.

    Raises:
        InputError: answers that the model's logits do not have.
    """
    if prompts.answers is not None:
        d_out = int(getattr(model.cfg, "d_vocab_out", model.cfg.d_vocab))
        for ids, what in ((prompts.answers, "answer"), (prompts.wrong, "wrong answer")):
            largest = -1 if ids is None else int(ids.max())
            if largest >= d_out:
                raise InputError(f"the {what} {largest} is not one of the model's {d_out} outputs")
        order = torch.randperm(len(prompts), generator=torch.Generator().manual_seed(0))
        kind = AnswerTask if prompts.wrong is None else PreferenceTask
        return kind(prompts, order), None  # files are often sorted, and looks take the first
    reason = why_not_measurable(model, prompts)
    if reason is not None:
        return None, reason
    return RepeatTask(prompts, repeating_rows(prompts)), None


def check_task(model: Model, task: CircuitTask, memory: int | str | None = None) -> TaskCheck:
    """Whether the model performs the task, from one pass over its prompts."""
    return task.check(intact_readings(model, task, memory))


def intact_readings(
    model: Model, task: CircuitTask, memory: int | str | None = None
) -> Float[np.ndarray, "row column"]:
    """The task's readings of the intact model, from one pass over its prompts."""
    parts = []
    for batch in row_batches(model, task.prompts, task.rows, 0, memory):
        logits = run(model, task.prompts.tokens[batch])
        assert logits is not None
        parts.append(task.read(logits, batch))
    return np.concatenate(parts)


def first_rows(task: CircuitTask, n: int) -> CircuitTask:
    """The task on its first n prompts."""
    return replace(task, rows=task.rows[:n])


def metric_for(
    model: Model,
    prompts: Prompts,
    memory: int | str | None = None,
    *,
    metric: str | MetricFunction | None = None,
) -> tuple[Metric, TaskCheck | None]:
    """The metric for these prompts, and whether the model performs their task.

    Without a metric: prompts with answers are measured by their answers, whether or not the model
    gives them (see the check). Prompts with repetition are measured by the in-context advantage if
    the model significantly has one, because lists to sort may repeat too. All others are measured
    by the KL divergence.

    Args:
        model: any TransformerLens model.
        prompts: the prompts.
        memory: bound for the run.
        metric: one of METRICS or a function (see `FunctionMetric`), in place of the one that fits
            the prompts; the check is then made of prompts with answers only, and with "kl" never.

    Raises:
        InputError: an unknown metric, one that needs answers where there are none, or answers
            that the model's logits do not have.
    """
    if metric is None and prompts.answers is None:
        rows = repeating_rows(prompts)
        if len(rows) < len(prompts) or why_not_measurable(model, prompts) is not None:
            return KLDivergence(), None
        task_check = check_task(model, RepeatTask(prompts, rows), memory)
        if task_check.yes:
            return InContextAdvantage(prompts), task_check
        because = "the prompts repeat, but the model does not significantly use the repetition"
        return KLDivergence(because), None
    if metric is None:
        metric = "log-probability" if prompts.wrong is None else "logit-difference"
    chosen = named_metric(prompts, metric)
    if prompts.answers is None or metric == "kl":
        return chosen, None
    task, _ = task_of(model, prompts)
    assert task is not None
    return chosen, check_task(model, task, memory)
