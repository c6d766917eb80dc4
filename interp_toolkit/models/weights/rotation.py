"""Rotary positions as a matrix a position: what turns a query or key where it stands.

Pairs of coordinates turn by an angle proportional to the position (Su et al. 2021, arXiv
2104.09864). A rotary model has no single QK matrix; with `matrix(p)` it has one for every pair of
positions, `W_Q matrix(q) matrix(k).T W_K.T`, which depends on q - k alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.models.rotary import quarter_turn, turned

Table = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class RotaryTables:
    """How one layer turns its queries and keys.

    Attributes:
        dim: the first `dim` coordinates of a head turn, the rest stay.
        adjacent: pairs are (0, 1), (2, 3), ... (GPT-J) rather than (0, dim/2), ... (Llama).
        base: of the frequencies, as configured; scaled variants (NTK, YaRN) keep their base here
            and differ in the tables.
        tables: the model's own cosines and sines of positions 0 to n - 1, [n dim] each.
    """

    dim: int
    adjacent: bool
    base: float | None
    tables: Table = field(repr=False)

    def rotate(self, x: Float[Tensor, "*batch pos head d_head"]) -> Tensor:
        """Queries or keys of positions 0, 1, ..., turned."""
        cos, sin = self.tables(x.shape[-3])
        return turned(x, cos[:, None].to(x), sin[:, None].to(x), adjacent=self.adjacent)

    def turn(
        self, x: Float[Tensor, "n d_head"], positions: Int[Tensor, " n"]
    ) -> Float[Tensor, "n d_head"]:
        """Queries or keys of one head, each turned for its own position."""
        cos, sin = self.tables(int(positions.max()) + 1 if len(positions) else 1)
        places = positions.to(cos.device)
        return turned(x, cos[places].to(x), sin[places].to(x), adjacent=self.adjacent)

    def matrix(self, position: int, d_head: int) -> Float[Tensor, "d_head d_head"]:
        """M with `turned = x @ M` at this position; negative positions turn the other way."""
        cos, sin = self.tables(abs(position) + 1)
        cos, sin = cos[-1], sin[-1] if position >= 0 else -sin[-1]
        turn = torch.eye(d_head, dtype=cos.dtype, device=cos.device)
        head = turn[: self.dim, : self.dim]
        turn[: self.dim, : self.dim] = head * cos + quarter_turn(head, adjacent=self.adjacent) * sin
        return turn
