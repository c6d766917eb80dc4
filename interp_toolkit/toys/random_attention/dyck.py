"""Is a string of parentheses balanced (a word of the Dyck language of one kind)?

A row is `length` parentheses ('(' is 0, ')' is 1) and '=' (2), where the answer is asked: false (3)
or true (4). Of uniformly random strings of 40 only one in 171 is balanced, so each row is balanced
with probability 1/2, and then uniform among the balanced strings (cycle lemma: of the rotations of
n/2 '(' and n/2 + 1 ')' exactly one is a balanced string and a last ')'). An unbalanced row
is, with probability 1/3 each,
    a near miss: a balanced string with one parenthesis, at a random place, turned round;
    as many '(' as ')' in random order, so that only the order tells;
    a uniformly random string.
Where one of the last two comes out balanced it is mended: of the one kind the first '(' goes to
the end, in the other it is turned round.
Source: "Is random attention sufficient for sequence modeling?", section 3.1; it does not say how
its strings are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp_toolkit.toys.random_attention.task import Task, TaskRows

OPEN, CLOSE, EQUALS, FALSE, TRUE = range(5)


@dataclass(frozen=True)
class Dyck(Task):
    """Tell balanced strings of `length` parentheses, an even number."""

    length: int

    name: ClassVar[str] = "dyck-1"
    guess_rule: ClassVar[str] = "either answer"

    @property
    def d_vocab(self) -> int:
        """Two parentheses, '=' and two answers."""
        return 5

    @property
    def n_ctx(self) -> int:
        """The string and '='."""
        return self.length + 1

    @property
    def guess(self) -> float:
        """Half of the rows are balanced."""
        return 0.5

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Fresh rows; see `Task.draw`."""
        drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
        kind = torch.randint(6, (n_rows, 1), **drawing)  # 0 to 2: balanced
        made = balanced_strings(n_rows, self.length, generator)
        turned = torch.randint(self.length, (n_rows, 1), **drawing)
        positions = torch.arange(self.length, device=generator.device)
        strings = torch.where((kind == 3) & (positions == turned), 1 - made, made)
        even = shuffled(n_rows, self.length // 2, self.length // 2, generator)
        even = torch.where(is_balanced(even)[:, None], even.roll(-1, 1), even)
        strings = torch.where(kind == 4, even, strings)
        free = torch.randint(2, (n_rows, self.length), **drawing)
        free = torch.where(is_balanced(free)[:, None] & (positions == 0), CLOSE, free)
        strings = torch.where(kind == 5, free, strings)
        tokens = torch.cat([strings, torch.full_like(kind, EQUALS)], dim=1)
        read = torch.full_like(kind, self.length)
        return TaskRows(tokens, read, torch.where(kind < 3, TRUE, FALSE))


def is_balanced(strings: Int[Tensor, "row place"]) -> Bool[Tensor, " row"]:
    """Whether no prefix has more ')' than '(', and the whole has as many."""
    height = (1 - 2 * strings).cumsum(1)
    return (height >= 0).all(1) & (height[:, -1] == 0)


def shuffled(
    n_rows: int, n_open: int, n_close: int, generator: torch.Generator
) -> Int[Tensor, "row place"]:
    """So many '(' and ')' in random order, every order as likely."""
    uniform = torch.rand(
        n_rows,
        n_open + n_close,
        generator=generator,
        device=generator.device,
        dtype=torch.float64,  # without ties
    )
    return (uniform.argsort(1) >= n_open).long()


def balanced_strings(
    n_rows: int, length: int, generator: torch.Generator
) -> Int[Tensor, "row place"]:
    """Balanced strings of an even length, every one as likely."""
    cycle = shuffled(n_rows, length // 2, length // 2 + 1, generator)
    lowest = (1 - 2 * cycle).cumsum(1).argmin(1, keepdim=True)  # the first of them
    positions = torch.arange(1, length + 1, device=generator.device)
    return cycle.gather(1, (lowest + positions) % (length + 1))
