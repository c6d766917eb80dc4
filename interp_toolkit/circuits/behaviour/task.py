"""Tasks: one metric value per prompt, and whether the model performs the task at all.

Three tasks: rows that ask something are scored by the share of their answers that get the largest
logit (`AnswerTask`), or where each answer has a wrong one beside it, a larger logit than that
(`PreferenceTask`); rows without answers, made to repeat, by the loss where they do (`RepeatTask`,
nats). The value by chance is what a model gets that knows nothing of the row: the most frequent
answer, at each asked place or over all; one of the two; or a guess among the rows' ids.

Effects are measured as shares of the behaviour, the intact value less chance. Before any of that,
`check` asks whether there is a behaviour: its interval must lie above chance. Where it does not,
nothing can be said of what carries it, and verdicts are *not tested*.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import (
    LEAST_ADVANTAGE,
    measured,
    repeating,
    row_batches,
    why_none,
)
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.stats import (
    COVERAGE,
    Estimate,
    Share,
    clopper_pearson,
    estimate,
    mean_of_shares,
    ratio_interval,
    ratio_share,
)

TINY = 1e-3  # of the behaviour: least that it is taken for, where it is hardly certain
EFFECT_THRESHOLD = 0.05  # of the behaviour: what counts as a material effect
LEAST_ANSWERS = 0.03  # of the answers: no effect on accuracy below it is material


def logits_at(
    logits: Float[Tensor, "row pos d_vocab"], positions: Int[Tensor, "row asked"]
) -> Float[Tensor, "row asked d_vocab"]:
    """The logits at each row's own positions."""
    number = torch.arange(len(positions), device=logits.device)[:, None]
    return logits[number, positions.to(logits.device)]


def logit_differences(
    asked: Float[Tensor, "row asked d_vocab"],
    answers: Int[Tensor, "row asked"],
    wrong: Int[Tensor, "row asked"],
) -> Float[Tensor, "row asked"]:
    """Logits of the answers less those of the wrong ones, in doubles."""
    good, bad = (
        asked.gather(-1, ids[..., None].to(asked.device))[..., 0].double()
        for ids in (answers, wrong)
    )
    return good - bad


def log_probabilities(
    asked: Float[Tensor, "row asked d_vocab"], answers: Int[Tensor, "row asked"]
) -> Float[Tensor, "row asked"]:
    """Log-probabilities (nats) of the answers."""
    return asked.log_softmax(-1).gather(-1, answers[..., None].to(asked.device))[..., 0]


@dataclass(frozen=True)
class TaskCheck:
    """Whether a model does a task on these rows.

    Attributes:
        yes: whether it is better than chance, with its interval.
        value: of the intact model, mean over rows with its interval.
        chance: what knowing nothing of the row gives.
        loss: nats at the asked places.
        summary: in one sentence.
        unit: of the value.
        above: of each row of the task, its value above chance; None where that is not by row.
        most: the largest fraction of the metric that can be lost: 1 of an accuracy, which a model
            may lose to below chance, by being certain of something wrong, without losing more.
    """

    yes: bool
    value: Estimate
    chance: float
    loss: float
    summary: str
    unit: str
    above: Float[np.ndarray, " row"] | None = None
    most: float = math.inf

    @property
    def whole(self) -> float:
        """The behaviour: the value above chance."""
        return self.value.mean - self.chance

    def fraction(self, lost: Float[np.ndarray, " row"], coverage: float) -> Share:
        """A loss on the first rows of the task as a fraction of the metric, with its interval.

        The metric's own uncertainty, chance's included, is part of the interval: Fieller's, and for
        an accuracy what few changed rows allow (see `ratio_share`).
        """
        assert self.above is not None
        above = self.above[: len(lost)]
        if math.isinf(self.most):
            return Share(float(lost.mean() / above.mean()), *ratio_interval(lost, above, coverage))
        share = ratio_share(lost, above, coverage)
        return Share(*(min(end, self.most) for end in (share.mean, share.low, share.high)))

    def share(self, effect: Estimate) -> Share:
        """An effect as a share of the behaviour, whose own interval widens the effect's.

        The behaviour lies between the ends of its value's interval, less chance: each end of the
        effect is divided by that end which makes the interval wider.
        """
        small = max(self.value.low - self.chance, TINY * abs(self.whole) + 1e-12)
        large = max(self.value.high - self.chance, small)
        low = effect.low / (large if effect.low > 0 else small)
        high = effect.high / (small if effect.high > 0 else large)
        return Share(effect.mean / self.whole, low, high)


class RowTask(ABC):
    """The metric of rows; see the module.

    Attributes:
        prompts: the rows.
        rows: which of them are measured.
        name: the behaviour, in a word or two.
        unit: of its value.
        first_look: rows that usually decide; more are run where they do not.
    """

    prompts: Prompts
    rows: Int[Tensor, " row"]
    name: str
    unit: str
    first_look: int

    def least(self, whole: float) -> float:
        """The least loss of value that is material, for a behaviour of this size."""
        return max(EFFECT_THRESHOLD * whole, LEAST_ADVANTAGE)

    @abstractmethod
    def read(
        self, logits: Float[Tensor, "batch pos d_vocab"], rows: Int[Tensor, " batch"]
    ) -> Float[np.ndarray, "batch column"]:
        """Per prompt: its metric, the loss at the answers (nats), and inputs of `check`."""

    @abstractmethod
    def positions(self, rows: Int[Tensor, " batch"]) -> Int[Tensor, " position"]:
        """The positions, in order, whose logits the value and the loss of these rows rest on."""

    @abstractmethod
    def read_at(
        self,
        logits: Float[Tensor, "batch position d_vocab"],
        rows: Int[Tensor, " batch"],
        positions: Int[Tensor, " position"],
    ) -> Float[np.ndarray, "batch 2"]:
        """Metric and loss per prompt, as `read` gives them, from the logits at these positions."""

    @abstractmethod
    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """Whether the intact model, with these readings, does the task."""

    @abstractmethod
    def interval(self, values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
        """The mean of values, or of their differences, with its interval."""


@dataclass(frozen=True, eq=False)
class AskedTask(RowTask):
    """A metric of the answers that rows ask for."""

    prompts: Prompts
    rows: Int[Tensor, " row"]
    unit: str = "of the answers"
    first_look: int = 256

    def least(self, whole: float) -> float:
        """The threshold of every task, but at least a few answers in a hundred."""
        return max(EFFECT_THRESHOLD * whole, LEAST_ANSWERS)

    def interval(self, values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
        """The t interval; where hardly any row differs from the others, exact bounds."""
        return mean_of_shares(values, coverage)

    def positions(self, rows: Int[Tensor, " batch"]) -> Int[Tensor, " position"]:
        """The positions at which these rows have answers."""
        positions: Tensor = torch.unique(_asked(self.prompts)[1][rows])
        return positions

    def read(
        self, logits: Float[Tensor, "batch pos d_vocab"], rows: Int[Tensor, " batch"]
    ) -> Float[np.ndarray, "batch column"]:
        """Share right or preferred, and loss."""
        return self.read_at(logits, rows, torch.arange(logits.shape[1]))

    def read_at(
        self,
        logits: Float[Tensor, "batch position d_vocab"],
        rows: Int[Tensor, " batch"],
        positions: Int[Tensor, " position"],
    ) -> Float[np.ndarray, "batch 2"]:
        """Share right or preferred, and loss."""
        answers, asked_at = _asked(self.prompts)
        _require_finite(logits)
        where = torch.searchsorted(positions, asked_at[rows])
        asked = logits_at(logits, where)
        asked = asked.to(torch.promote_types(asked.dtype, torch.float32))
        targets = answers[rows].to(logits.device)
        right = self._right(asked, targets, rows)
        loss = -log_probabilities(asked, targets)
        columns = torch.stack([right.double().mean(1), loss.double().mean(1)], dim=1)
        values: np.ndarray = columns.cpu().numpy()
        return values

    @abstractmethod
    def _right(
        self,
        asked: Float[Tensor, "batch asked d_vocab"],
        targets: Int[Tensor, "batch asked"],
        rows: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch asked"]:
        """1 where these logits name the answer, 0 where they do not."""


@dataclass(frozen=True, eq=False)
class AnswerTask(AskedTask):
    """Naming the rows' answers: the share of asked places whose answer gets the largest logit."""

    name: str = "accuracy"

    def _right(
        self,
        asked: Float[Tensor, "batch asked d_vocab"],
        targets: Int[Tensor, "batch asked"],
        rows: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch asked"]:
        return (asked.argmax(-1) == targets).to(asked)

    def guesses(self) -> Float[np.ndarray, " row"]:
        """Accuracy per prompt of the best guess that ignores the prompt.

        The guess (one answer for all, or one for each asked position) is chosen on one half of the
        rows and judged on the other, so that chance is not estimated on the rows that it is fitted
        to.
        """
        answers = _asked(self.prompts)[0].numpy()[self.rows.numpy()]
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
        """Right more often than the best guess that does not look at the row."""
        values, guesses = readings[:, 0], self.guesses()
        value = _of_shares(values)
        above = values - guesses
        chance = float(guesses.mean())
        text = (
            f"{value.mean:.1%} [{value.low:.1%}, {value.high:.1%}] of the answers are right (n = "
            f"{len(readings)}); the best guess without reading the prompt gets {chance:.1%}"
        )
        yes = self.interval(above, COVERAGE).low > 0
        loss = float(readings[:, 1].mean())
        return TaskCheck(yes, value, chance, loss, text, self.unit, above, 1.0)


def _commonest(ids: Int[np.ndarray, "..."]) -> int:
    values, counts = np.unique(ids, return_counts=True)
    return int(values[counts.argmax()])


def _of_shares(values: Float[np.ndarray, " row"]) -> Estimate:
    """The mean of shares of right answers, with exact bounds (see `clopper_pearson`)."""
    low, high = clopper_pearson(float(values.sum()), len(values), COVERAGE)
    return replace(estimate(values), low=low, high=high)


@dataclass(frozen=True, eq=False)
class PreferenceTask(AskedTask):
    """Preferring the answer to a wrong one: the share of asked places where its logit is larger.

    Chance is one half. What a preference among the tokens gets that does not look at the row (see
    `fixed_preferences`) is told beside it where it is certainly more than that.
    """

    name: str = "preference for the answer"

    def _right(
        self,
        asked: Float[Tensor, "batch asked d_vocab"],
        targets: Int[Tensor, "batch asked"],
        rows: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch asked"]:
        """Equal logits count one half."""
        assert self.prompts.wrong is not None
        signs = logit_differences(asked, targets, self.prompts.wrong[rows]).sign()
        return (signs.to(asked) + 1) / 2

    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """The answer preferred more often than not."""
        assert self.prompts.wrong is not None
        values, chance = readings[:, 0], 0.5
        value = _of_shares(values)
        answers, wrong = (
            ids[self.rows].numpy() for ids in (_asked(self.prompts)[0], self.prompts.wrong)
        )
        blind = fixed_preferences(answers, wrong)
        text = (
            f"{value.mean:.1%} [{value.low:.1%}, {value.high:.1%}] prefer the answer to the wrong "
            f"one (n = {len(readings)}); "
            f"chance is {chance:.0%}"
        )
        above = values - chance
        if clopper_pearson(float(blind.sum()), len(blind), COVERAGE)[0] > chance:
            above, chance = values - blind, float(blind.mean())
            text += f", and a fixed preference among the answers gets {chance:.1%}"
        yes = value.low > 0.5 and self.interval(above, COVERAGE).low > 0
        loss = float(readings[:, 1].mean())
        return TaskCheck(yes, value, chance, loss, text, self.unit, above, 1.0)


def fixed_preferences(
    answers: Int[np.ndarray, "row asked"], wrong: Int[np.ndarray, "row asked"]
) -> Float[np.ndarray, " row"]:
    """Accuracy per prompt of a fixed preference among tokens, learned from the other prompts.

    Each token is worth how often it is an answer, less how often a wrong one, in the other rows;
    ties count one half. So names drawn at random get about one half and no more, and rows that all
    have one answer get everything.

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


@dataclass(frozen=True, eq=False)
class RepeatTask(RowTask):
    """Use of repetition: minus the loss where the row repeats, in nats.

    Whether there is any is told by the in-context advantage (`advantage.Behaviour.is_there`). How
    much is set against guessing among the rows' ids, or against the loss the first time round if
    that is less: a model that is wrong with certainty the first time would otherwise have an
    advantage larger than all there is to know.
    """

    prompts: Prompts
    rows: Int[Tensor, " row"]
    name: str = "prediction of repeated tokens"
    unit: str = "nats"
    first_look: int = 16

    def read(
        self, logits: Float[Tensor, "batch pos d_vocab"], rows: Int[Tensor, " batch"]
    ) -> Float[np.ndarray, "batch column"]:
        """Value and loss where the row repeats, the loss before, that of the row's other tokens."""
        _require_finite(logits)
        behaviour = measured(logits, self.prompts, rows)
        columns = [
            -behaviour.loss_repeated,
            behaviour.loss_repeated,
            behaviour.loss_unrepeated,
            behaviour.loss_others,
        ]
        return np.stack(columns, axis=1)

    def positions(self, rows: Int[Tensor, " batch"]) -> Int[Tensor, " position"]:
        """The positions at which one of these rows or more determines its next token."""
        return self.prompts.repeated()[rows, :-1].any(0).nonzero()[:, 0]

    def read_at(
        self,
        logits: Float[Tensor, "batch position d_vocab"],
        rows: Int[Tensor, " batch"],
        positions: Int[Tensor, " position"],
    ) -> Float[np.ndarray, "batch 2"]:
        """Value and loss where the row repeats; a row at a time, so that copies are small."""
        _require_finite(logits)
        last = self.prompts.n_pos - 1
        following = self.prompts.tokens[rows][:, (positions + 1).clamp(max=last)].to(logits.device)
        repeated = (self.prompts.repeated()[rows][:, positions] & (positions < last)).to(
            logits.device
        )
        wider = torch.promote_types(logits.dtype, torch.float32)
        loss = torch.stack(
            [
                F.cross_entropy(own[scored].to(wider), targets[scored])
                for own, targets, scored in zip(logits, following, repeated, strict=True)
            ]
        )
        columns: np.ndarray = torch.stack([-loss, loss], dim=1).double().cpu().numpy()
        return columns

    def check(self, readings: Float[np.ndarray, "row column"]) -> TaskCheck:
        """Whether repetition makes tokens likelier: than before, and than the row's others."""
        repeated, unrepeated, others = readings[:, 1:].T
        advantage = self.interval(unrepeated - repeated, COVERAGE)
        preferred = self.interval(others - repeated, COVERAGE)
        yes = all(e.low > 0 and e.mean >= LEAST_ADVANTAGE for e in (advantage, preferred))
        n_ids = len(torch.unique(self.prompts.tokens[:, self.prompts.first :]))
        above, guess = unrepeated - repeated, float(unrepeated.mean())
        of_guess = "before repetition"
        if LEAST_ADVANTAGE <= float(np.log(n_ids)) - float(repeated.mean()) < float(above.mean()):
            guess = float(np.log(n_ids))
            above, of_guess = guess - repeated, "of a uniform guess among the prompts' tokens"
        text = (
            f"repetition makes the next token likelier by {advantage.mean:.3g} nats "
            f"[{advantage.low:.3g}, {advantage.high:.3g}] (n = {len(readings)}); the "
            f"model's loss is then {repeated.mean():.3g} nats, that {of_guess} {guess:.3g}"
        )
        if not yes and advantage.low > 0:
            text += ", and it is not significantly likelier than the prompt's other tokens"
        value = self.interval(readings[:, 0], COVERAGE)
        loss = float(repeated.mean())
        return TaskCheck(yes, value, -guess, loss, text, self.unit, above)

    def interval(self, values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
        """The t interval."""
        return estimate(values, coverage)


def task_of(model: Model, prompts: Prompts) -> tuple[RowTask | None, str | None]:
    """The task of these rows; or the reason why there is none.

    Args:
        model: any TransformerLens model.
        prompts: rows with answers (and wrong ones beside them, maybe), or rows that repeat.

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
    reason = why_none(model, prompts)
    if reason is not None:
        return None, reason
    return RepeatTask(prompts, repeating(prompts)), None


def check_task(model: Model, task: RowTask, memory: int | str | None = None) -> TaskCheck:
    """Whether the model does the task: one pass over its rows."""
    return task.check(intact_readings(model, task, memory))


def intact_readings(
    model: Model, task: RowTask, memory: int | str | None = None
) -> Float[np.ndarray, "row column"]:
    """The task's readings of its rows in the intact model: one pass."""
    parts = []
    for batch in row_batches(model, task.prompts, task.rows, 0, memory):
        logits = run(model, task.prompts.tokens[batch])
        assert logits is not None
        parts.append(task.read(logits, batch))
    return np.concatenate(parts)


def first_rows(task: RowTask, n: int) -> RowTask:
    """The task on the first so many of its rows."""
    shortened: RowTask = replace(task, rows=task.rows[:n])  # type: ignore[type-var]
    return shortened


def _require_finite(logits: Tensor) -> None:
    if not all(end.isfinite() for end in logits.aminmax()):  # NaN is both; no copy is made
        raise InputError(
            "the model's logits are not finite on these prompts, so nothing can be measured"
        )


def _asked(prompts: Prompts) -> tuple[Int[Tensor, "row asked"], Int[Tensor, "row asked"]]:
    assert prompts.answers is not None
    assert prompts.answer_positions is not None
    return prompts.answers, prompts.answer_positions
