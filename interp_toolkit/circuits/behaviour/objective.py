"""What a circuit is judged by: one number for each row of logits, higher is better.

Where the model predicts the next of its own tokens and the prompts repeat, it is the advantage
that repetition gives: mean loss where nothing tells the next token, less mean loss where the
context does (Olsson et al. 2022, "In-context Learning and Induction Heads"). Elsewhere
(bidirectional attention, logits over another vocabulary, nothing that repeats) it is how close the
output stays to the whole model's: minus the mean over positions of the KL divergence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import repeating, why_none
from interp_toolkit.circuits.behaviour.prompts import Prompts
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
class Closeness(Objective):
    """Minus the KL divergence of the judged output from the whole model's, a position."""

    name: str = "output"
    definition: str = "minus the KL divergence from the whole model's output"
    unit: str = "nats a position"
    is_behaviour: bool = False

    def __call__(
        self,
        logits: Float[Tensor, "row pos d_vocab"],
        rows: Int[Tensor, " row"],
        whole: Float[Tensor, "row pos d_vocab"],
    ) -> Float[Tensor, " row"]:
        """The closeness of each row."""
        p, q = whole.double().log_softmax(-1), logits.double().log_softmax(-1)
        return -(p.exp() * (p - q)).sum(-1).mean(-1)


def objective(model: Model, prompts: Prompts) -> Objective:
    """What to judge a model by on these prompts; rows that do not repeat have no advantage.

    Args:
        model: any TransformerLens model.
        prompts: the rows; they all repeat, or the model is judged by closeness.
    """
    repeat = len(repeating(prompts)) == len(prompts)
    if repeat and why_none(model, prompts) is None:
        return Advantage(torch.as_tensor(prompts.tokens), prompts.known(), prompts.unknown())
    return Closeness()
