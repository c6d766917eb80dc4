"""Places in rows of tokens: which to look at, and the activations there.

Rows are read by `activations`, whose batches hold rows of one length; only the places' values are
handed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.streaming import activations

Position = int | Literal["all"] | None


@runtime_checkable
class TokenRows(Protocol):
    """The source of labelled samples, such as `data.FeatureData`."""

    @property
    def tokens(self) -> Any:
        """Rows of token ids."""

    @property
    def features(self) -> Any:
        """Booleans [row feature]; no column where features come from elsewhere."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the feature columns."""

    @property
    def positions(self) -> Any:
        """The position of each row, counted from its start, or None."""

    @property
    def groups(self) -> Any:
        """The group of each row, or None."""

    @property
    def source(self) -> str:
        """The source of the rows."""


class RowPositions(NamedTuple):
    """Places by row and then by position: the number of the row, and the position in it."""

    rows: Int[np.ndarray, " n"]
    positions: Int[np.ndarray, " n"]


def all_positions(data: TokenRows, position: Position, *, one_a_row: bool) -> RowPositions:
    """The places of all rows; `labelled_samples` says which.

    Raises InputError for positions outside a row, and for all of them where it is to be one a row.
    """
    lengths = np.array([len(row) for row in data.tokens])
    numbers = np.arange(len(lengths))
    if one_a_row and position == "all":
        raise InputError(
            f"{data.source}: columns say what is true of a row, so they are read at one position "
            "of it (--position N)"
        )
    if position is None and data.positions is not None:
        return RowPositions(numbers, data.positions)
    if position is None and one_a_row:
        return RowPositions(numbers, lengths - 1)
    if position is None or position == "all":
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return RowPositions(np.repeat(numbers, lengths), np.arange(lengths.sum()) - starts)
    outside = np.flatnonzero((position >= lengths) | (position < -lengths))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{data.source}: position {position} is outside row {row}, which has "
            f"{lengths[row]} tokens"
        )
    return RowPositions(numbers, np.where(position < 0, lengths + position, position))


def draw(sites: RowPositions, most: int, seed: int) -> RowPositions:
    """Whole rows in a random order, as long as their places are at most so many.

    Raises InputError when not even one row is that short.
    """
    if len(sites.rows) <= most:
        return sites
    counts = np.bincount(sites.rows)
    order = np.random.default_rng(seed).permutation(len(counts))
    taken = order[np.cumsum(counts[order]) <= most]
    if not len(taken):
        raise InputError(
            f"a row has {counts[order[0]]:,} places, more than the {most:,} that are looked at: "
            "give one position"
        )
    chosen = np.isin(sites.rows, taken)
    return RowPositions(sites.rows[chosen], sites.positions[chosen])


@dataclass(frozen=True)
class _Rows:
    """Some of the data's rows, each read at one position or (None) at all."""

    tokens: Sequence[Any]
    positions: np.ndarray | None


def stream(
    model: Model,
    data: TokenRows,
    sites: RowPositions,
    hooks: Sequence[str],
    memory: int | str | None,
) -> Iterator[tuple[Int[np.ndarray, " batch"], Mapping[str, Shaped[Tensor, "batch ..."]]]]:
    """Activations at places, in batches: which places these are, and hook -> values there."""
    used, first, counts = np.unique(sites.rows, return_index=True, return_counts=True)
    tokens = [data.tokens[row] for row in used.tolist()]
    single = bool((counts == 1).all())
    rows = _Rows(tokens, sites.positions[first] if single else None)
    where = None if single else "all"
    for batch in activations(model, rows, hooks, where, memory=memory):
        chosen = batch.index.numpy()
        if single:
            yield first[chosen], batch
            continue
        repeats = np.repeat(np.arange(len(chosen)), counts[chosen])
        offsets = np.arange(len(repeats)) - np.repeat(
            np.cumsum(counts[chosen]) - counts[chosen], counts[chosen]
        )
        index = first[chosen][repeats] + offsets
        at = torch.from_numpy(repeats), torch.from_numpy(sites.positions[index])
        yield index, {hook: value[at] for hook, value in batch.items()}
