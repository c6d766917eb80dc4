"""Addition of two numbers modulo a number p.

A row is `a b =` and the answer, asked at '=', is (a + b) mod p. Numbers are residues, the ids 0 to
p - 1 (the source's 1 to p are the same residues); '=' is the id p. There are p² rows.
Source: "Is random attention sufficient for sequence modeling?", section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp_toolkit.toys.random_attention.task import FiniteTask, TaskRows

EQUALS = 2  # its place in the row


@dataclass(frozen=True)
class ModularAddition(FiniteTask):
    """Add modulo `modulus`, the source's p."""

    modulus: int

    name: ClassVar[str] = "modular-addition"
    guess_rule: ClassVar[str] = "the best constant answer"

    @property
    def d_vocab(self) -> int:
        """The residues and '='."""
        return self.modulus + 1

    @property
    def n_ctx(self) -> int:
        """Two numbers and '='."""
        return 3

    @property
    def guess(self) -> float:
        """Any residue: for each first number, every answer comes once."""
        return 1 / self.modulus

    @property
    def n_rows(self) -> int:
        """All pairs."""
        return self.modulus**2

    def numbered(self, numbers: Int[Tensor, " taken"]) -> TaskRows:
        """The pairs of these numbers, from 0; see `FiniteTask.numbered`."""
        p = self.modulus
        first, second = numbers // p, numbers % p
        tokens = torch.stack([first, second, torch.full_like(first, p)], dim=1)
        return TaskRows(
            tokens, torch.full_like(tokens[:, :1], EQUALS), ((first + second) % p)[:, None]
        )
