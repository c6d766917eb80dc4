"""What a circuit is judged by: one number for each row of logits, higher is better.

Where the rows ask for answers, it is the log-probability of these, no lower than a guess among all
answers: what a cut does beyond taking the answer away says nothing more of the behaviour.
Where the model predicts the next of its own tokens and the prompts repeat, it is the advantage
that repetition gives: mean loss where nothing tells the next token, less mean loss where the
context does (Olsson et al. 2022, "In-context Learning and Induction Heads"). Elsewhere
(bidirectional attention, logits over another vocabulary, nothing that repeats, repetition that the
model makes no use of) it is how close the output stays to the whole model's: minus the mean over
positions of the KL divergence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import repeating, why_none
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.behaviour.task import AtHome, RepeatTask, measured_home, task_of
from interp_toolkit.models.model import Model


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
    def __call__(
        self,
        logits: Float[Tensor, "row pos d_vocab"],
        rows: Int[Tensor, " row"],
        whole: Float[Tensor, "row pos d_vocab"],
    ) -> Float[Tensor, " row"]:
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
    known: Bool[Tensor, "row pos"]
    unknown: Bool[Tensor, "row pos"]
    name: str = "in-context advantage"
    definition: str = "loss where nothing tells the next token, less loss where it repeats"
    unit: str = "nats"
    is_behaviour: bool = True

    def __call__(
        self,
        logits: Float[Tensor, "row pos d_vocab"],
        rows: Int[Tensor, " row"],
        whole: Float[Tensor, "row pos d_vocab"],
    ) -> Float[Tensor, " row"]:
        """The advantage of each row."""
        following = self.tokens[rows, 1:, None].to(logits.device)
        losses = -logits[:, :-1].double().log_softmax(-1).gather(-1, following)[..., 0]
        known, unknown = (
            mask[rows, :-1].to(losses) / mask[rows, :-1].sum(1, keepdim=True).to(losses)
            for mask in (self.known, self.unknown)
        )
        return (losses * (unknown - known)).sum(1)


@dataclass(frozen=True, eq=False)
class AnswerLikelihood(Objective):
    """Log-probability of the rows' answers, no lower than `floor`."""

    answers: Int[Tensor, "row asked"]
    places: Int[Tensor, "row asked"]
    floor: float
    name: str = "answers"
    definition: str = "log-probability of the answers, no lower than a guess"
    unit: str = "nats an answer"
    is_behaviour: bool = True

    def __call__(
        self,
        logits: Float[Tensor, "row pos d_vocab"],
        rows: Int[Tensor, " row"],
        whole: Float[Tensor, "row pos d_vocab"],
    ) -> Float[Tensor, " row"]:
        """The mean over each row's answers."""
        number = torch.arange(len(rows), device=logits.device)[:, None]
        asked = logits[number, self.places[rows].to(logits.device)].double().log_softmax(-1)
        wanted = self.answers[rows, :, None].to(logits.device)
        return asked.gather(-1, wanted)[..., 0].clamp(min=self.floor).mean(1)


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

    def __call__(
        self,
        logits: Float[Tensor, "row pos d_vocab"],
        rows: Int[Tensor, " row"],
        whole: Float[Tensor, "row pos d_vocab"],
    ) -> Float[Tensor, " row"]:
        """The closeness of each row."""
        p, q = whole.double().log_softmax(-1), logits.double().log_softmax(-1)
        return -(p.exp() * (p - q)).sum(-1).mean(-1)


def objective(
    model: Model, prompts: Prompts, memory: int | str | None = None
) -> tuple[Objective, AtHome | None]:
    """What to judge a model by on these prompts, and what it does there.

    Rows with answers are judged by these, whether or not the model knows them (the caller looks at
    `AtHome`). Rows that repeat are judged by the advantage only where the model certainly has one:
    lists to sort may repeat too. All else is judged by closeness.

    Args:
        model: any TransformerLens model.
        prompts: the rows.
        memory: bound for the run.

    Raises:
        InputError: answers that the model's logits do not have.
    """
    if prompts.answers is not None and prompts.answer_positions is not None:
        task, _ = task_of(model, prompts)
        assert task is not None
        n_answers = max(len(torch.unique(prompts.answers)), 2)
        floor = -math.log(n_answers)
        asked = AnswerLikelihood(prompts.answers, prompts.answer_positions, floor)
        return asked, measured_home(model, task, memory)
    repeat = len(repeating(prompts)) == len(prompts)
    if repeat and why_none(model, prompts) is None:
        task = RepeatTask(prompts, repeating(prompts))
        home = measured_home(model, task, memory)
        if home.yes:
            judged = Advantage(torch.as_tensor(prompts.tokens), prompts.known(), prompts.unknown())
            return judged, home
        return Closeness(because="the model makes no certain use of repetition here"), None
    return Closeness(), None
