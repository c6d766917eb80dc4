"""Does each token's own entry stand out in its row of a token-by-token matrix `left @ right.T`?

Ranks see what means cannot: a head may copy a few tokens strongly, or all of them a little.
Rows are made a tile at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class OwnRank:
    """Where tokens' own entries stand in their rows.

    Attributes:
        first: share of tokens whose own entry is the largest of its row (ties count as not).
        above: mean share of the row's other entries that lie below the own one (ties count half);
            0.5 by chance, 1 where it is always the largest.
        tokens: how many were looked at.
    """

    first: float
    above: float
    tokens: int


def own_rank(
    left: Float[Tensor, "token rank"], right: Float[Tensor, "token rank"], memory: int
) -> OwnRank:
    """Ranks of the diagonal of `left @ right.T` in its rows.

    Args:
        left: rows' factor, of the tokens that are also columns.
        right: columns' factor, as many; adding the same vector to all changes nothing.
        memory: bytes for a tile and its comparisons.
    """
    count = len(left)
    if count < 2:
        return OwnRank(float("nan"), float("nan"), count)
    chunk = max(memory // (4 * count * max(left.element_size(), 4)), 1)
    first, above = 0, 0.0
    for start in range(0, count, chunk):
        tile = left[start : start + chunk] @ right.T
        rows = torch.arange(len(tile), device=tile.device)
        own = tile[rows, rows + start, None]
        below, ties = (tile < own).sum(1), (tile == own).sum(1) - 1
        first += int((below == count - 1).sum())
        above += float((below + ties / 2).sum()) / (count - 1)
    return OwnRank(first / count, above / count, count)
