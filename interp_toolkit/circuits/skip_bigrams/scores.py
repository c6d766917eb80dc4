"""Scores f_q W f_k of all pairs of features, relative to their own row and column.

Each score is compared with its own row and its own column: t = (score - location) / scale. The
scale of a row is |W^T f_q| / sqrt(d), the standard deviation over random keys. If 1.4826 times the
median absolute deviation over keys is larger, it is used instead, since real features differ from
random ones. The location is the row's median, so that a key favored by every query is not a bigram;
the scale includes the error of the median. A pair's t is the smaller of its two t's, since neither
the row nor the column may explain the score; it is 0 if their signs differ.

P-values: fix a query feature f_q, and let a = W^T f_q. For a key feature drawn uniformly from the
unit sphere of R^d, (f_k . a / |a|)^2 is Beta(1/2, (d-1)/2) distributed, exactly and for any W;
t = sqrt(d) f_k . a / |a| has variance 1. If features are not like random directions, the normal
tail is used, which is heavier. Discoveries are those of Benjamini & Hochberg (1995) over all pairs.
Without real bigrams, the probability of any discovery is at most the level, for independent or
positively dependent pairs. The benchmark `skip_bigram_levels` measures it on random heads.

Scores are computed in tiles of the query x key matrix that fit in a processor's cache. Locations
come from a sample of columns and rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import special, stats
from torch import Tensor

ROUNDING = 1e-9  # singular values below this fraction of the largest count as zero


@dataclass(frozen=True, eq=False)
class Form:
    """A bilinear form of query and key, `left @ right.T`, stored as two factors.

    Attributes:
        left, right: factors, float64.
    """

    left: Float[Tensor, "d_model r"]
    right: Float[Tensor, "d_model r"]

    def at(
        self, query: Float[Tensor, "pair d_model"], key: Float[Tensor, "pair d_model"]
    ) -> Float[Tensor, " pair"]:
        """Value of the form for each pair of query and key."""
        return ((query @ self.left) * (key @ self.right)).sum(1)

    def less(
        self,
        query: Float[Tensor, "pair d_model"],
        key: Float[Tensor, "pair d_model"],
        strength: Float[Tensor, " pair"],
    ) -> Form:
        """Form minus these bigrams, each `strength * query key^T`."""
        left = torch.cat([self.left, -query.T * strength], dim=1)
        return Form(left, torch.cat([self.right, key.T], dim=1))

    def factors(self) -> tuple[Float[Tensor, "d_model k"], Float[Tensor, "d_model k"]]:
        """Factors of the form with at most d_model columns."""
        d, r = self.left.shape
        if r <= d:
            return self.left, self.right
        return self.left @ self.right.T, torch.eye(d, dtype=self.left.dtype)

    def within(self, other: Form) -> Form:
        """Projection of the form on the query and key subspaces that another form reads."""
        sides = []
        for own, read in zip(self.factors(), other.factors(), strict=True):
            U, sizes, _ = torch.linalg.svd(read, full_matrices=False)
            basis = U[:, sizes > ROUNDING * sizes.max()]
            sides.append(basis @ (basis.T @ own))
        return Form(*sides)

    def norm(self) -> float:
        """Frobenius norm of the form."""
        left, right = self.factors()
        return float(((left.T @ left) * (right.T @ right)).sum().clamp_min(0).sqrt())

    def effective_rank(self) -> float:
        """Effective rank `(sum s^2)^2 / sum s^4` over the singular values s; 0 if all are 0."""
        left, right = self.factors()
        both = (left.T @ left) @ (right.T @ right)
        fourth = float((both * both.T).sum())
        return self.norm() ** 4 / fourth if fourth > 0 else 0.0


SAMPLE = 1024  # sampled entries per row and column for its median and deviation
MAD = 1.4826  # standard deviation over median absolute deviation of a normal distribution
FLOOR = 1e-4  # smallest scale, as a fraction of the root mean square score before pursuit
ALIKE = 1.25  # mean squared cosine times d, up to which features count as random directions
TILE = 512  # features on either side of a tile, which then fits in a processor's cache
LEAST_TILE = 64  # below this size, overhead per tile dominates
CELLS, REACH = 1024, 16  # cells of a tally per unit of t, and the largest |t| it resolves
_COPIES = 8  # copies of a tile in memory while it is computed


@dataclass(frozen=True, eq=False)
class Features:
    """Unit feature directions on both sides.

    Attributes:
        query, key: features, one per row.
        d: number of dimensions that features can span.
    """

    query: Float[Tensor, "query d_model"]
    key: Float[Tensor, "key d_model"]
    d: int

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a query and a key feature."""
        return len(self.query) * len(self.key)

    @cached_property
    def alike(self) -> bool:
        """Whether the features of both sides spread over all directions as random ones do."""
        return max(_squared_cosine(self.query), _squared_cosine(self.key)) <= ALIKE / self.d


class Pairs(NamedTuple):
    """Pairs of features by index."""

    query: Int[np.ndarray, " pair"]
    key: Int[np.ndarray, " pair"]


NONE = Pairs(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class ScoreScale:
    """Location and scale of the scores in each row (query) or in each column (key).

    Attributes:
        location: median score.
        scale: scale of the scores; see the module.
        widened: ratio of the scale to that for random features.
    """

    location: Float[Tensor, " feature"]
    scale: Float[Tensor, " feature"]
    widened: Float[Tensor, " feature"]


class Sweep(NamedTuple):
    """Result of a pass over all pairs.

    Attributes:
        pairs, t: pairs with |t| above the threshold, and their t.
        row_best, column_best: largest |t| of each query and of each key.
    """

    pairs: Pairs
    t: Float[np.ndarray, " pair"]
    row_best: Float[np.ndarray, " query"]
    column_best: Float[np.ndarray, " key"]


def least_memory(n_query: int, n_key: int) -> int:
    """Memory of the smallest tile, in bytes."""
    return _COPIES * 4 * min(n_query, LEAST_TILE) * min(n_key, LEAST_TILE)


class Tally:
    """Histogram of t over pairs, in cells of 1 / CELLS; values beyond REACH share a cell."""

    def __init__(self) -> None:
        self.counts = torch.zeros(2 * REACH * CELLS, dtype=torch.int64)

    def add(self, t: Float[Tensor, "row column"]) -> None:
        """Add the t of a tile to the counts."""
        cells = (t + REACH).mul_(CELLS).clamp_(0, len(self.counts) - 1).int()
        self.counts += torch.bincount(cells.flatten(), minlength=len(self.counts))

    def between(self, edges: Float[np.ndarray, " edge"]) -> Int[np.ndarray, " bin"]:
        """Counts between ascending edges, rounded to cell boundaries; outer bins are open."""
        at = np.rint((np.clip(edges[1:-1], -REACH, REACH) + REACH) * CELLS).astype(np.int64)
        below = np.concatenate([[0], np.cumsum(self.counts.numpy())])
        bins: np.ndarray = np.diff(below[np.concatenate([[0], at, [len(self.counts)]])])
        return bins


class PairScores:
    """The t statistics of all pairs under one bilinear form; see the module."""

    def __init__(self, form: Form, features: Features, floor: float, seed: int, memory: int):
        self.n_query, self.n_key, self.floor = len(features.query), len(features.key), floor
        left, right = form.factors()
        queries, keys = features.query @ left, features.key @ right
        self._left, self._right = queries.float(), keys.float()
        generator = torch.Generator().manual_seed(seed)
        columns = torch.randperm(self.n_key, generator=generator)[:SAMPLE]
        rows = torch.randperm(self.n_query, generator=generator)[:SAMPLE]
        self._pairs = max(1, min(memory // (_COPIES * 4), TILE**2))
        self.row = self._side(self._left, self._right[columns], queries @ right.T, features.d)
        self.column = self._side(self._right, self._left[rows], keys @ left.T, features.d)
        #: dimension for p-values; infinite (normal tail) for features unlike random directions
        self.d = float(features.d) if features.alike else math.inf

    def block(self, rows: Tensor | slice, columns: Tensor | slice) -> Float[Tensor, "row column"]:
        """The t statistics of these queries with these keys."""
        scores = self._left[rows] @ self._right[columns].T
        t = (scores - self.row.location[rows, None]).div_(self.row.scale[rows, None])
        other = scores.sub_(self.column.location[columns]).div_(self.column.scale[columns])
        # the t of smaller size if the signs agree, else 0
        above = torch.minimum(t, other).clamp_min_(0)
        return torch.maximum(t, other, out=t).clamp_max_(0).add_(above)

    def tiles(self) -> Iterator[tuple[slice, slice, Float[Tensor, "row column"]]]:
        """Iterate over tiles of t, each with the slices of its queries and keys."""
        side = max(1, math.isqrt(self._pairs))
        for rows in _batches(self.n_query, max(side, self._pairs // self.n_key)):
            for columns in _batches(self.n_key, max(side, self._pairs // self.n_query)):
                yield rows, columns, self.block(rows, columns)

    def _side(
        self,
        own: Float[Tensor, "feature r"],
        others: Float[Tensor, "sample r"],
        through: Float[Tensor, "feature d_model"],
        d: int,
    ) -> ScoreScale:
        """Location and scale of each feature from its scores with a sample, `own @ others.T`."""
        location, deviation = torch.empty(len(own)), torch.empty(len(own))
        for some in _batches(len(own), max(1, self._pairs // len(others))):
            scores = own[some] @ others.T
            location[some] = _median(scores)
            deviation[some] = MAD * _median(scores.sub_(location[some, None]).abs_())
        least = max(self.floor, torch.finfo(torch.float32).tiny)  # t is 0 if all scores are 0
        exact = (through.norm(dim=1) / math.sqrt(d)).float().clamp_min(least)
        error = math.sqrt(1 + math.pi / (2 * len(others)))  # error of the median
        widened = (deviation / exact).clamp_min(1.0) * error
        return ScoreScale(location, exact * widened, widened)

    def power(self, size: float, p: float) -> float:
        """Chance that a pair is significant whose score is so many standard deviations of chance.

        Args:
            size: the score, in standard deviations over random features.
            p: two-sided p-value below which a pair is significant.
        """
        if self.floor == 0:  # every score is 0, and none could be lost in noise
            return 1.0
        widened = torch.maximum(self.row.widened[:SAMPLE, None], self.column.widened[:SAMPLE])
        z = z_scores(np.minimum(size / widened.numpy(), math.sqrt(self.d)), self.d)
        return float(stats.norm.sf(stats.norm.isf(p / 2) - z).mean())

    def sweep(
        self, least: float, taken: Pairs, echo: float = 1.0, tally: Tally | None = None
    ) -> Sweep:
        """Score all pairs once.

        Args:
            least: pairs with |t| above this are returned.
            taken: pairs to leave out.
            echo: divisor of t for pairs whose two features both occur in taken pairs.
            tally: counts of t to update, before these changes.
        """
        in_query, divisor = np.zeros(self.n_query, bool), torch.ones(self.n_key)
        in_query[taken.query] = True
        divisor[torch.from_numpy(taken.key)] = echo
        row_best, column_best = torch.zeros(self.n_query), torch.zeros(self.n_key)
        parts: list[tuple[np.ndarray, ...]] = []
        for rows, columns, t in self.tiles():
            if tally is not None:
                tally.add(t)
            inside = _within(taken.query, rows) & _within(taken.key, columns)
            t[taken.query[inside] - rows.start, taken.key[inside] - columns.start] = 0.0
            if echo != 1.0:
                active = torch.from_numpy(np.flatnonzero(in_query[rows]))
                t[active] /= divisor[columns]
            size = t.abs()
            best = size.amax(1)
            torch.maximum(row_best[rows], best, out=row_best[rows])
            torch.maximum(column_best[columns], size.amax(0), out=column_best[columns])
            some = (best > least).nonzero()[:, 0]  # few rows, which saves time
            row, column = (size[some] > least).nonzero(as_tuple=True)
            row = some[row]
            numbers = ((row + rows.start).numpy(), (column + columns.start).numpy())
            parts.append((*numbers, t[row, column].double().numpy()))
        query, key, t_values = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((key, query))
        pairs = Pairs(query[order], key[order])
        return Sweep(
            pairs, t_values[order], row_best.double().numpy(), column_best.double().numpy()
        )


def _within(numbers: Int[np.ndarray, " pair"], some: slice) -> Bool[np.ndarray, " pair"]:
    inside: np.ndarray = (numbers >= some.start) & (numbers < some.stop)
    return inside


def _batches(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _squared_cosine(directions: Float[Tensor, "feature d_model"]) -> float:
    """Mean squared cosine between two different features; 1/d for random directions."""
    m = len(directions)
    total = (directions.T @ directions).square().sum()
    return float((total - directions.norm(dim=1).pow(4).sum()) / (m * (m - 1)))


def _median(x: Float[Tensor, "row n"]) -> Float[Tensor, " row"]:
    """Median of each row; unlike torch's, the mean of the two middle values for even n."""
    return torch.from_numpy(np.median(x.numpy(), axis=1))


SMALLEST_P = 1e-300


def p_values(t: Float[np.ndarray, "*pair"], d: float) -> Float[np.ndarray, "*pair"]:
    """Two-sided p-values of t for unit vectors in d dimensions (infinite d: normal)."""
    p: np.ndarray
    if np.isinf(d):
        p = 2 * stats.norm.sf(np.abs(t))
    elif d <= 1:
        p = np.ones_like(t)
    else:
        p = special.betainc((d - 1) / 2, 0.5, np.clip(1 - t**2 / d, 0, 1))
    p = np.maximum(p, SMALLEST_P)
    return p


def t_at(p: float, d: float) -> float:
    """Inverse of `p_values`: the |t| with this two-sided p-value."""
    if np.isinf(d):
        return float(stats.norm.isf(p / 2))
    if d <= 1:
        return float("inf")
    return float(np.sqrt(d * (1 - special.betaincinv((d - 1) / 2, 0.5, p))))


def z_scores(t: Float[np.ndarray, "*pair"], d: float) -> Float[np.ndarray, "*pair"]:
    """Z-scores with the same two-sided p-value and sign as t."""
    z: np.ndarray = np.sign(t) * stats.norm.isf(p_values(t, d) / 2)
    return z
