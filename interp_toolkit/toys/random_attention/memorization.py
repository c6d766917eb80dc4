"""Learn a random table by heart: pairs of keys, and for each pair a value drawn once.

A row is `k1 k2`, one of `side`² pairs, and the answer, asked at k2, is the table's value: one of
`side` values, drawn independently and uniformly from `table_seed`, so log2(side) bits a pair. k1
is one of the ids below `side`, which are the values too, k2 one of the `side` ids from there on.
There is no rule to find, so there is nothing to test on but the table itself.
Models have room for three positions, as the source's parameter counts do (the value's is never
read from).
Source: "Is random attention sufficient for sequence modeling?", section 3.1, after Zhong and
Andreas 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp_toolkit.toys.random_attention.task import FiniteTask, TaskRows


@dataclass(frozen=True)
class Memorization(FiniteTask):
    """Know a table by heart.

    Attributes:
        side: how many keys of each kind, and how many values (the source's 512).
        table_seed: which table.
    """

    side: int
    table_seed: int = 0

    name: ClassVar[str] = "memorization"
    guess_rule: ClassVar[str] = "the best rule that knows only the second key"

    @property
    def d_vocab(self) -> int:
        """The keys of both kinds; values share the ids of the first."""
        return 2 * self.side

    @property
    def n_ctx(self) -> int:
        """Two keys and a value."""
        return 3

    @property
    def guess(self) -> float:
        """Of the best rule that knows k2 alone: each one's most frequent value in this table."""
        second = torch.arange(self.side).repeat(self.side)
        counts = torch.bincount(second * self.side + self.table(), minlength=self.n_rows)
        return int(counts.view(self.side, self.side).amax(1).sum()) / self.n_rows

    @property
    def n_rows(self) -> int:
        """All pairs of keys."""
        return self.side**2

    @property
    def stored_bits(self) -> float:
        """log2 of the number of tables, as the source counts."""
        return self.n_rows * math.log2(self.side)

    def table(self) -> Int[Tensor, " row"]:
        """The values of all pairs, in the order of their numbers."""
        generator = torch.Generator().manual_seed(self.table_seed)
        return torch.randint(self.side, (self.n_rows,), generator=generator)

    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The pairs of these numbers, from 0; see `FiniteTask.numbered`."""
        first, second = numbers // self.side, numbers % self.side
        tokens = torch.stack([first, self.side + second], dim=1)
        values = self.table().to(numbers.device)[numbers]
        return TaskRows(tokens, torch.ones_like(tokens[:, :1]), values[:, None])
