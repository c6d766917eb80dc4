"""Addition of two numbers of the same number of digits, digit by digit.

A row is `a + b = s` with one token a digit (its own id; '+' is 10, '=' is 11). a and b have
`digits` digits and no leading zero; s is written with one digit more, a zero if need be. The most
significant digit comes first, or in all three numbers the least significant with `reversed`.

All digits of s are asked for, each with the right ones before it in the row (teacher forcing), and
a row is right if all are. That is what a model scores that reads its own digits: both agree up
to the first wrong digit, and a row with one is wrong either way.
Source: "Is random attention sufficient for sequence modeling?", section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp_toolkit.toys.random_attention.task import Task, TaskRows

PLUS, EQUALS = 10, 11
MOST_DIGITS = 18  # sums of more would not fit into 64 bits


@dataclass(frozen=True)
class DecimalAddition(Task):
    """Add two numbers.

    Attributes:
        digits: of each number, 1 to 18.
        reversed: whether numbers are written with the least significant digit first.
    """

    digits: int
    reversed: bool = False

    name: ClassVar[str] = "decimal-addition"
    guess_rule: ClassVar[str] = "the best constant answer"

    @property
    def d_vocab(self) -> int:
        """Ten digits, '+' and '='."""
        return 12

    @property
    def n_ctx(self) -> int:
        """Both numbers, '+', '=', and all of the sum but its last digit."""
        return 3 * self.digits + 2

    @property
    def guess(self) -> float:
        """Always the likeliest sum, 11 · 10^(digits - 1) - 1: one pair in 9 · 10^(digits - 1)."""
        return 1 / (9 * 10.0 ** (self.digits - 1))

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Fresh rows; see `Task.draw`."""
        least = 10 ** (self.digits - 1)
        numbers = torch.randint(
            least, 10 * least, (2, n_rows), generator=generator, device=generator.device
        )
        first, second = (self._written(number, self.digits) for number in numbers)
        total = self._written(numbers.sum(0), self.digits + 1)
        plus, equals = (torch.full_like(total[:, :1], token) for token in (PLUS, EQUALS))
        tokens = torch.cat([first, plus, second, equals, total[:, :-1]], dim=1)
        read = torch.arange(2 * self.digits + 1, self.n_ctx, device=generator.device)
        return TaskRows(tokens, read.expand(n_rows, -1), total)

    def _written(self, numbers: Int[Tensor, " row"], digits: int) -> Int[Tensor, "row digit"]:
        exponents = torch.arange(digits, device=numbers.device)
        exponents = exponents if self.reversed else exponents.flip(0)
        return numbers[:, None] // 10**exponents % 10
