"""The scores of one feature's pairs on held-out inputs, reduced by class of input.

One tile is a feature i with its partners j: its scores are looked at in two parts, inputs with i
on (both on, or one) and inputs without (one on, or none).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.probes.uand.errors import (
    BOTH,
    N_BINS,
    NONE,
    ONE,
    PairErrors,
    Pairs,
    error_histogram,
)


class Tile(NamedTuple):
    """The pairs of one feature.

    Attributes:
        first: the feature.
        partners: the other features.
        places: of the pairs in the list that they come from.
    """

    first: int
    partners: Int[np.ndarray, " partner"]
    places: Int[np.ndarray, " partner"]


def tiles_of(pairs: Pairs, chosen: Int[np.ndarray, " chosen"]) -> list[Tile]:
    """Some of the pairs, by their first feature."""
    order = chosen[np.argsort(pairs[chosen, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(pairs[order, 0], prepend=-1))
    parts = np.split(order, starts[1:]) if len(order) else []
    return [Tile(int(pairs[part[0], 0]), pairs[part, 1], part) for part in parts]


class TileErrors:
    """What a tile's scores do on some inputs; two of them merge.

    Attributes: as in `PairErrors`, for the partners.
    """

    def __init__(self, n_partners: int):
        self.count = np.zeros((3, n_partners), dtype=np.int64)
        self.low = np.full((3, n_partners), np.inf)
        self.high = np.full((3, n_partners), -np.inf)
        self.squares = np.zeros((3, n_partners))
        self.histogram = np.zeros((3, N_BINS), dtype=np.int64)

    def add(
        self,
        scores: Float[np.ndarray, "partner input"],
        first: Bool[np.ndarray, " input"],
        others: Bool[np.ndarray, "partner input"],
        step: int,
    ) -> None:
        """Count in the scores of inputs with these features on.

        Args:
            scores: of each pair.
            first: whether feature i is on.
            others: whether feature j is.
            step: of the scores of class none, every so-manieth input goes into the histogram.
        """
        with_first, without = scores[:, first], scores[:, ~first]
        both, one = others[:, first], others[:, ~first]
        self._add_few(BOTH, with_first, both, 1.0)
        self._add_few(ONE, with_first, ~both, 0.0)
        self._add_few(ONE, without, one, 0.0)
        self._add_rest(without, one, step)

    def _add_few(
        self,
        kind: int,
        scores: Float[np.ndarray, "partner input"],
        chosen: Bool[np.ndarray, "partner input"],
        target: float,
    ) -> None:
        """The chosen scores, gathered."""
        rows, columns = np.nonzero(chosen)
        if not len(rows):
            return
        values = scores[rows, columns]
        counts = np.bincount(rows, minlength=len(scores))
        present = np.flatnonzero(counts)
        starts = np.concatenate([[0], np.cumsum(counts[present])[:-1]])
        self._extend(
            kind,
            present,
            np.minimum.reduceat(values, starts),
            np.maximum.reduceat(values, starts),
        )
        errors = values.astype(np.float64) - target
        self.count[kind] += counts
        self.squares[kind] += np.bincount(rows, errors**2, minlength=len(scores))
        self.histogram[kind] += error_histogram(errors)

    def _add_rest(
        self,
        scores: Float[np.ndarray, "partner input"],
        left_out: Bool[np.ndarray, "partner input"],
        step: int,
    ) -> None:
        """All scores but those left out; `scores` is overwritten."""
        count = scores.shape[1] - left_out.sum(axis=1)
        present = np.flatnonzero(count)
        if not len(present):
            return
        self.count[NONE] += count
        self.histogram[NONE] += error_histogram(scores[:, ::step][~left_out[:, ::step]])
        scores[left_out] = 0.0
        self.squares[NONE] += np.einsum("pi,pi->p", scores, scores, dtype=np.float64)
        scores[left_out] = np.inf
        low = scores.min(axis=1)
        scores[left_out] = -np.inf
        self._extend(NONE, present, low[present], scores.max(axis=1)[present])

    def _extend(
        self,
        kind: int,
        partners: Int[np.ndarray, " present"],
        low: Float[np.ndarray, " present"],
        high: Float[np.ndarray, " present"],
    ) -> None:
        self.low[kind, partners] = np.minimum(self.low[kind, partners], low)
        self.high[kind, partners] = np.maximum(self.high[kind, partners], high)


def gathered(
    pairs: Pairs,
    fitted: Int[np.ndarray, " pair"],
    together: Int[np.ndarray, " pair"],
    tiles: Sequence[Tile],
    errors: Sequence[TileErrors],
) -> PairErrors:
    """All tiles' errors, in the order of the pairs."""
    count, squares = np.zeros((3, len(pairs)), dtype=np.int64), np.zeros((3, len(pairs)))
    low, high = np.full((2, 3, len(pairs)), np.nan)
    histogram = np.zeros((3, N_BINS), dtype=np.int64)
    for tile, found in zip(tiles, errors, strict=True):
        count[:, tile.places], squares[:, tile.places] = found.count, found.squares
        absent = found.count == 0
        low[:, tile.places] = np.where(absent, np.nan, found.low)
        high[:, tile.places] = np.where(absent, np.nan, found.high)
        histogram += found.histogram
    return PairErrors(pairs, fitted, together, count, low, high, squares, histogram)
