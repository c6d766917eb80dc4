"""Synthetic tasks: rows of tokens, the positions of their answers, and the right answers.

Rows are drawn on the generator's device, all of one length (shorter ones are padded behind, where
a causal model cannot look back from). An answer is a token that the logits at a position predict.
Source: "Is random attention sufficient for sequence modeling?", section 3.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

NOTHING = -100  # an answer that is not asked for; what PyTorch's cross-entropy ignores


class TaskRows(NamedTuple):
    """Prompts: token ids, the positions to read an answer at, and the right answers.

    `answer` is NOTHING where a row asks for fewer answers than others.
    """

    tokens: Int[Tensor, "row pos"]
    read: Int[Tensor, "row item"]
    answer: Int[Tensor, "row item"]

    def to(self, device: str | torch.device) -> TaskRows:
        """The rows on a device."""
        return TaskRows(*(tensor.to(device) for tensor in self))

    def take(self, which: Int[Tensor, " taken"] | slice | Bool[Tensor, " row"]) -> TaskRows:
        """Some of the rows."""
        return TaskRows(*(tensor[which] for tensor in self))


@dataclass(frozen=True)
class Task(ABC):
    """A task; its fields are its sizes.

    Attributes:
        name: as in its recipe's name and in a checkpoint's task record.
        whole_rows: whether a row counts as right only with all its answers right (sequence
            accuracy); otherwise each answer counts for itself.
        guess_rule: which rule `guess` is the accuracy of, in words that begin a sentence's clause.
    """

    name: ClassVar[str]
    guess_rule: ClassVar[str]
    whole_rows: ClassVar[bool] = True

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Token ids, from 0."""

    @property
    @abstractmethod
    def n_ctx(self) -> int:
        """Positions that a model of this task needs."""

    @property
    def stored_bits(self) -> float | None:
        """What a model has learned by heart that has every row right; None: rules tell answers."""
        return None

    @property
    @abstractmethod
    def guess(self) -> float | None:
        """The accuracy of a rule that does not solve the task, `guess_rule`; None: not known."""

    @abstractmethod
    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Fresh rows, made on the generator's device from it alone."""

    def record(self) -> dict[str, Any]:
        """The task record of a checkpoint: the name and the sizes, as JSON data."""
        return {"name": self.name, **asdict(self)}


class FiniteTask(Task):
    """A task with so few rows that they can be numbered."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The rows of these numbers, from 0, on the numbers' device."""

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Fresh rows, every one as likely, on the generator's device."""
        device = generator.device
        return self.numbered(
            torch.randint(self.n_rows, (n_rows,), generator=generator, device=device)
        )


def right_share(
    predictions: Int[Tensor, "row item"], answer: Int[Tensor, "row item"], *, whole_rows: bool
) -> float:
    """The share of rows, or of answers, for which the right tokens are given."""
    asked = answer != NOTHING
    right = (predictions == answer) | ~asked
    if whole_rows:
        return right.all(1).double().mean().item()
    return (right & asked).sum().item() / asked.sum().item()
