"""Scores of all pairs of tokens, stored as factors `left @ right.T`, and the weights behind them.

*Norms*: the linear part of a norm is folded into the adjacent weights. A norm before a head centers
(LN only), divides by a number that depends on the whole residual stream, multiplies by `w` and adds
`b`. Centering and `w` are linear and move into the weights. The divisor is one positive number per
position, which cancels in every ratio of weights. `b` is constant and is added to the biases. The
same holds for a norm after the heads (Gemma 2): up to the divisor, a head adds its output times the
weights returned here to the residual stream.

*Tokens* enter as the residual stream after the embeddings. This is exactly the input of layer 0. In
deeper layers it is the direct path: outputs of earlier heads and MLPs are left out, and a norm
before attention takes its statistics from the embedding alone (Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits", on paths from the embedding).

*Scores* of a head's circuit between tokens have the rank of the head, so a vocabulary of 50,000
needs two matrices of 50,000 by d_head instead of 10 GB of pairs. Pairs, rows and the diagonal are
computed directly from the factors, and the highest pairs are found tile by tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.running.memory import format_size, parse_memory
from interp_toolkit.models.weights.parts import Division, NormWeights, soft_capped
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.view import ModelWeights


def read_through(
    norm: NormWeights, W: Float[Tensor, "*head d_model out"]
) -> Float[Tensor, "*head d_model out"]:
    """Input weights with the norm before them folded in, up to its scale: `C diag(w) W`."""
    W = at_least_single(W)
    W = W if norm.w is None else W * norm.w.to(W.dtype)[:, None]
    return W - W.mean(-2, keepdim=True) if norm.kind == "LN" else W


def written_through(
    norm: NormWeights, W: Float[Tensor, "*head into d_model"]
) -> Float[Tensor, "*head into d_model"]:
    """Output weights with the norm after them folded in, up to its scale: `W C diag(w)`."""
    W = at_least_single(W)
    W = W - W.mean(-1, keepdim=True) if norm.kind == "LN" else W
    return W if norm.w is None else W * norm.w.to(W.dtype)


def normalized_by(
    norm: NormWeights, W: Float[Tensor, "*head into d_model"]
) -> Float[Tensor, "*head into d_model"]:
    """Output weights as a reader after the norm sees them: for LN, without the mean."""
    return W - W.mean(-1, keepdim=True) if norm.kind == "LN" else W


def read_dimensions(norm: NormWeights, d_model: int) -> int:
    """Number of residual dimensions after a norm: LN's centering removes one."""
    return d_model - 1 if norm.kind == "LN" else d_model


def token_residual(
    view: ModelWeights, tokens: Int[Tensor, " n"], position: int | None = None
) -> Float[Tensor, "n d_model"]:
    """Residual stream before block 0, for tokens at a position.

    Args:
        view: the model's weights.
        tokens: token ids.
        position: position of the tokens. None takes the mean of learned position embeddings, which
            is exact for no position. Models without learned positions ignore it.

    Raises:
        InputError: the token or the position does not exist.
    """
    return view.embed(tokens, None if position is None else torch.full_like(tokens, position))


#: a tile, the sum it is made of, and what picking its best entries takes
_COPIES = 4
_MAX_TILE = 1024

TokenIds = int | Sequence[int] | Int[Tensor, "..."]


def through(norm: NormWeights, latent: Division | None) -> Division | None:
    """The division by a latent, for vectors behind the norm without its weights."""
    return None if latent is None else replace(latent, W=read_through(norm, latent.W))


class TokenPair(NamedTuple):
    """One entry of a `TokenScores`: its row, its column and the score."""

    row: int
    column: int
    score: float


@dataclass(frozen=True, eq=False)
class TokenScores(ShortRepr):
    """Scores `cap(left @ right.T + row_term[:, None] + column_term) + offset` of pairs of tokens.

    In a QK circuit, rows are query tokens and columns are key tokens. In an OV circuit, rows are
    source tokens and columns are the logits of output tokens.

    Attributes:
        left, right: the factors, one row per token.
        row_term, column_term: terms added to every entry of a row or a column, if not None.
        soft_cap: `soft_cap * tanh(score / soft_cap)`, if not None.
        offset: added to every entry last.
        exact: whether the model computes exactly these numbers for such tokens.
        note: description of the scores and of any approximation; "" if there is none.
    """

    left: Float[Tensor, "n_rows r"]
    right: Float[Tensor, "n_columns r"]
    row_term: Float[Tensor, " n_rows"] | None = None
    column_term: Float[Tensor, " n_columns"] | None = None
    soft_cap: float | None = None
    offset: float = 0.0
    exact: bool = True
    note: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self.left), len(self.right)

    def score(self, rows: TokenIds, columns: TokenIds) -> Float[Tensor, "..."]:
        """The scores of pairs: entry `rows[i], columns[i]` for each i.

        Args:
            rows: ids: one number, a list, or a tensor of integers.
            columns: as many ids, or one.

        Raises:
            InputError: a row or column does not exist, or ids are not integers.
        """
        rows = self._checked(rows, len(self.left), "row")
        columns = self._checked(columns, len(self.right), "column")
        scores = (self.left[rows] * self.right[columns]).sum(-1)
        scores = scores if self.row_term is None else scores + self.row_term[rows]
        scores = scores if self.column_term is None else scores + self.column_term[columns]
        return self._finish(scores)

    def row(self, row: int) -> Float[Tensor, " n_columns"]:
        """One whole row: a query token against all keys, or a source token's effect on all logits.

        Raises:
            InputError: the row does not exist.
        """
        self._checked(torch.tensor([row]), len(self.left), "row")
        return self._tile(slice(row, row + 1), slice(None))[0]

    def diagonal(self) -> Float[Tensor, " n"]:
        """Score of each token with itself, for ids that are both rows and columns."""
        both = torch.arange(min(self.shape), device=self.left.device)
        return self.score(both, both)

    def matrix(self, memory: int | str | None = None) -> Float[Tensor, "n_rows n_columns"]:
        """All scores at once.

        Args:
            memory: memory limit for the computation, such as "4GiB"; None: 1 GiB.

        Raises:
            InputError: the matrix exceeds the memory limit.
        """
        limit = parse_memory(memory)
        needed = _COPIES * self.left.element_size() * len(self.left) * len(self.right)
        if needed > limit:
            raise InputError(
                f"all {len(self.left)} x {len(self.right)} scores take {format_size(needed)}, more "
                f"than the {format_size(limit)} allowed; use tiles(), top() or row(), or "
                "raise memory"
            )
        return self._tile(slice(None), slice(None))

    def tiles(
        self, memory: int | str | None = None
    ) -> Iterator[tuple[slice, slice, Float[Tensor, "tile_rows tile_columns"]]]:
        """All scores in tiles, each with its rows and columns.

        Args:
            memory: memory limit for one tile; None: 1 GiB.
        """
        numbers = parse_memory(memory) // (_COPIES * self.left.element_size())
        side = max(1, min(math.isqrt(numbers), _MAX_TILE))
        for start in range(0, len(self.left), side):
            rows = slice(start, min(start + side, len(self.left)))
            for begin in range(0, len(self.right), side):
                columns = slice(begin, min(begin + side, len(self.right)))
                yield rows, columns, self._tile(rows, columns)

    def top(self, k: int, memory: int | str | None = None) -> list[TokenPair]:
        """The k pairs with the highest scores, highest first; all pairs if there are fewer.

        Args:
            k: number of pairs.
            memory: see `tiles`.

        Raises:
            InputError: `k` is below 1.
        """
        if k < 1:
            raise InputError(f"k is {k}; it must be at least 1")
        best = self.left.new_empty(0)
        empty = torch.empty(0, dtype=torch.long, device=self.left.device)
        for rows, columns, tile in self.tiles(memory):
            values, index = _candidates(tile.flatten(), best, k)
            row = rows.start + index // tile.shape[1]
            index = row * len(self.right) + columns.start + index % tile.shape[1]
            best, empty = torch.cat([best, values]), torch.cat([empty, index])
            best, order = best.topk(min(k, len(best)))
            empty = empty[order]
        rows_columns = (empty // len(self.right), empty % len(self.right))
        return [
            TokenPair(*pair)
            for pair in zip(*(part.tolist() for part in (*rows_columns, best)), strict=True)
        ]

    def _tile(self, rows: slice, columns: slice) -> Tensor:
        scores = self.left[rows] @ self.right[columns].T
        scores = scores if self.row_term is None else scores + self.row_term[rows, None]
        return self._finish(
            scores if self.column_term is None else scores + self.column_term[columns]
        )

    def _finish(self, scores: Tensor) -> Tensor:
        scores = soft_capped(scores, self.soft_cap)
        return scores + self.offset if self.offset else scores

    def _checked(self, ids: TokenIds, end: int, what: str) -> Int[Tensor, "..."]:
        index = torch.as_tensor(ids)
        if index.is_floating_point() or index.dtype == torch.bool:
            raise InputError(f"a {what} must be an integer id, not {index.dtype}")
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < end:
            raise InputError(
                f"the {what} is out of range; these scores have {what}s 0 to {end - 1}"
            )
        return index.to(self.left.device)


def _candidates(values: Tensor, best: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values that can still be among the k best, at most k, and their indices."""
    if len(best) < k:
        return values.topk(min(k, len(values)))
    index = (values > best[-1]).nonzero()[:, 0]
    values, order = values[index].topk(min(k, len(index)))
    return values, index[order]
