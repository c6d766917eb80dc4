"""A needle in a haystack: pairs of a key and a value, then one of the keys; what is its value?

A row of m pairs, m uniform from 1 to `most_pairs`, is `k1 v1 ... km vm q` and padding (token 0);
the answer is asked at the query. Values are the ids 1 to V/2 - 1, keys V/2 to V.
The source draws keys independently, so that a repeated one makes its value ambiguous (nobody can
be right in more than 94.6 % of rows at 30 pairs); keys are distinct here unless `repeated_keys`,
with which the last pair of the asked key counts.
Source: "Is random attention sufficient for sequence modeling?", section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from interp_toolkit.toys.random_attention.task import Task, TaskRows

PAD = 0


@dataclass(frozen=True)
class Retrieval(Task):
    """Find the value of a key.

    Attributes:
        most_pairs: the source's m_max.
        symbols: the source's V, an even number.
        repeated_keys: draw keys independently; the last pair of the asked key counts.
    """

    most_pairs: int
    symbols: int
    repeated_keys: bool = False

    name: ClassVar[str] = "retrieval"
    guess_rule: ClassVar[str] = "naming any value of the context"

    @property
    def d_vocab(self) -> int:
        """The key V has an id too, so there are V + 1."""
        return self.symbols + 1

    @property
    def n_ctx(self) -> int:
        """All pairs and the query."""
        return 2 * self.most_pairs + 1

    @property
    def guess(self) -> float:
        """Naming any value of the context: it is the right pair's, or happens to be the same.

        With few values, naming the one that stands there most often is right more often still.
        """
        same = 1 / (self.symbols // 2 - 1)
        by_pairs = [1 / m + (1 - 1 / m) * same for m in range(1, self.most_pairs + 1)]
        return sum(by_pairs) / self.most_pairs

    def draw(self, n_rows: int, generator: torch.Generator) -> TaskRows:
        """Fresh rows; see `Task.draw`."""
        drawing: dict[str, Any] = {"generator": generator, "device": generator.device}
        most, half = self.most_pairs, self.symbols // 2
        shape = (n_rows, most)
        if self.repeated_keys:
            keys = torch.randint(half, self.symbols + 1, shape, **drawing)
        else:
            keys = half + torch.rand(n_rows, half + 1, **drawing).argsort(-1)[:, :most]
        values = torch.randint(1, half, shape, **drawing)
        pairs = torch.randint(1, most + 1, (n_rows, 1), **drawing)
        asked = (torch.rand(n_rows, 1, **drawing) * pairs).long()
        query = keys.gather(1, asked)
        tokens = torch.zeros(n_rows, self.n_ctx, dtype=torch.int64, device=generator.device)
        tokens[:, :-1] = torch.stack([keys, values], dim=-1).flatten(1)
        positions = torch.arange(self.n_ctx, device=generator.device)
        tokens = torch.where(positions < 2 * pairs, tokens, PAD).scatter(1, 2 * pairs, query)
        number = torch.arange(most, device=generator.device)
        same = (keys == query) & (number < pairs)
        last = torch.where(same, number, -1).amax(1, keepdim=True)
        return TaskRows(tokens, 2 * pairs, values.gather(1, last))
