"""Scores f_q W f_k of all pairs of features against their own row and column, a stripe at a time.

Each score is set against what its own row and its own column lead one to expect:
t = (score - location) / scale. The scale of a row is |W^T f_q| / sqrt(d), what random keys would
give (see `null`), or 1.4826 times the median absolute deviation over keys where that is more: real
features are not like random ones. The location is the row's median, so that a key which every
query likes is no bigram; the scale is raised for its error. Of a pair's two t's the smaller counts,
and 0 where their signs differ.

No more than a stripe of the query x key matrix is ever held; locations come from a sample of
columns and rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.skip_bigrams.form import Form

SAMPLE = 1024  # columns of a row, and rows of a column, that give its median and deviation
MAD = 1.4826  # of a normal distribution: sd over median absolute deviation
FLOOR = 1e-4  # of the root mean square score before anything is taken out: below, it is rounding
ALIKE = 1.25  # mean squared cosine between features, over 1/d: up to it they are like random ones
CACHED = 2**24  # bytes of a stripe's making: beyond a processor's cache, passes over it wait
_COPIES = 8  # of a stripe, that its making holds


@dataclass(frozen=True, eq=False)
class Features:
    """Unit directions on both sides.

    Attributes:
        query, key: one a row.
        d: dimensions in which a random one would point anywhere.
    """

    query: Float[Tensor, "query d_model"]
    key: Float[Tensor, "key d_model"]
    d: int

    @property
    def n_pairs(self) -> int:
        """Of a query and a key feature."""
        return len(self.query) * len(self.key)

    @cached_property
    def alike(self) -> bool:
        """Whether the features of both sides spread over all directions as random ones do."""
        return max(_squared_cosine(self.query), _squared_cosine(self.key)) <= ALIKE / self.d


class Pairs(NamedTuple):
    """Pairs of features by their numbers."""

    query: Int[np.ndarray, " pair"]
    key: Int[np.ndarray, " pair"]


@dataclass(frozen=True, eq=False)
class ScoreScale:
    """Location and scale of one side's features: queries' rows or keys' columns.

    Attributes:
        location: the median of its scores.
        scale: see the module.
        widened: scale over that of random features.
    """

    location: Float[Tensor, " feature"]
    scale: Float[Tensor, " feature"]
    widened: Float[Tensor, " feature"]


class Sweep(NamedTuple):
    """What a pass over all pairs keeps: those with a large |t|, and the best of rows and columns.

    Attributes:
        pairs, t: those beyond the least |t| asked for.
        row_best, column_best: largest |t| of each query and each key.
    """

    pairs: Pairs
    t: Float[np.ndarray, " pair"]
    row_best: Float[np.ndarray, " query"]
    column_best: Float[np.ndarray, " key"]


def least_memory(n_key: int) -> int:
    """Bytes that a stripe of one query takes."""
    return _COPIES * 4 * n_key


class PairScores:
    """All pairs' t under one form; see the module."""

    def __init__(self, form: Form, features: Features, floor: float, seed: int, memory: int):
        self.n_query, self.n_key, self.floor = len(features.query), len(features.key), floor
        left, right = form.factors()
        queries, keys = features.query @ left, features.key @ right
        self._left, self._right = queries.float(), keys.float()
        generator = torch.Generator().manual_seed(seed)
        columns = torch.randperm(self.n_key, generator=generator)[:SAMPLE]
        rows = torch.randperm(self.n_query, generator=generator)[:SAMPLE]
        self._memory = min(memory, CACHED)
        self.row = self._side(self._left, self._right[columns], queries @ right.T, features.d)
        self.column = self._side(self._right, self._left[rows], keys @ left.T, features.d)
        #: dimensions for p-values: infinite, the normal's, where features are not like random ones
        self.d = float(features.d) if features.alike else math.inf

    def block(self, rows: Tensor, columns: Tensor | slice) -> Float[Tensor, "row column"]:
        """The t of these queries with these keys."""
        scores = self._left[rows] @ self._right[columns].T
        t = (scores - self.row.location[rows, None]).div_(self.row.scale[rows, None])
        other = scores.sub_(self.column.location[columns]).div_(self.column.scale[columns])
        # the smaller where both are positive, or both negative; else both terms are 0
        above = torch.minimum(t, other).clamp_min_(0)
        return torch.maximum(t, other, out=t).clamp_max_(0).add_(above)

    def stripes(self) -> Iterator[tuple[int, Float[Tensor, "row key"]]]:
        """All t, some queries at a time, with the number of the first."""
        for rows in _batches(self.n_query, self._at_once(self.n_key)):
            yield int(rows[0]), self.block(rows, slice(None))

    def _at_once(self, n_scores: int) -> int:
        """How many features are looked at together, where each has so many scores."""
        return max(1, self._memory // least_memory(n_scores))

    def _side(
        self,
        own: Float[Tensor, "feature r"],
        others: Float[Tensor, "sample r"],
        through: Float[Tensor, "feature d_model"],
        d: int,
    ) -> ScoreScale:
        """Location and scale of features whose scores with a sample are `own @ others.T`."""
        location, deviation = torch.empty(len(own)), torch.empty(len(own))
        for some in _batches(len(own), self._at_once(len(others))):
            scores = own[some] @ others.T
            location[some] = _median(scores)
            deviation[some] = MAD * _median(scores.sub_(location[some, None]).abs_())
        least = max(self.floor, torch.finfo(torch.float32).tiny)  # where all is 0, t is 0
        exact = (through.norm(dim=1) / math.sqrt(d)).float().clamp_min(least)
        error = math.sqrt(1 + math.pi / (2 * len(others)))  # of the median, added to the variance
        widened = (deviation / exact).clamp_min(1.0) * error
        return ScoreScale(location, exact * widened, widened)

    def sweep(self, least: float, taken: Pairs, echo: float = 1.0) -> Sweep:
        """One pass over all pairs.

        Args:
            least: |t| of the pairs to keep.
            taken: pairs that are left out.
            echo: t of pairs both of whose features are in a taken pair is divided by this.
        """
        in_query, in_key = np.zeros(self.n_query, bool), np.ones(self.n_key)
        in_query[taken.query] = True
        in_key[taken.key] = echo
        divisor = torch.from_numpy(in_key).float()
        column_best = torch.zeros(self.n_key)
        kept: list[tuple[np.ndarray, ...]] = []
        row_best = []
        for start, t in self.stripes():
            inside = (taken.query >= start) & (taken.query < start + len(t))
            t[taken.query[inside] - start, taken.key[inside]] = 0.0
            if echo != 1.0:
                active = torch.from_numpy(np.flatnonzero(in_query[start : start + len(t)]))
                t[active] /= divisor
            size = t.abs()
            row_best.append(size.amax(1))
            column_best = torch.maximum(column_best, size.amax(0))
            rows, columns = (size > least).nonzero(as_tuple=True)
            kept.append((rows.numpy() + start, columns.numpy(), t[rows, columns].double().numpy()))
        query, key, t_kept = (np.concatenate(part) for part in zip(*kept, strict=True))
        best = torch.cat(row_best).double().numpy(), column_best.double().numpy()
        return Sweep(Pairs(query, key), t_kept, *best)

    def histogram(self, edges: Float[np.ndarray, " edge"]) -> Int[np.ndarray, " bin"]:
        """How many pairs have their t between each two edges; the outermost hold the rest."""
        bounds = np.concatenate([[-np.inf], edges[1:-1], [np.inf]]).astype(np.float32)
        counts = np.zeros(len(edges) - 1, dtype=np.int64)
        for _, t in self.stripes():  # NumPy sorts a batch at a time: several times torch.bucketize
            counts += np.histogram(t.numpy(), bounds)[0]
        return counts


def _batches(n: int, size: int) -> Iterator[Int[Tensor, " batch"]]:
    for start in range(0, n, size):
        yield torch.arange(start, min(start + size, n))


def _squared_cosine(directions: Float[Tensor, "feature d_model"]) -> float:
    """The mean between two different features: 1/d for random ones."""
    m = len(directions)
    total = (directions.T @ directions).square().sum()
    return float((total - directions.norm(dim=1).pow(4).sum()) / (m * (m - 1)))


def _median(x: Float[Tensor, "row n"]) -> Float[Tensor, " row"]:
    """The mean of the two middle values where n is even, unlike torch's."""
    return torch.from_numpy(np.median(x.numpy(), axis=1))
