"""Null model for overlaps of weights: random permutations and sign flips of residual coordinates.

Statistics of whether a head reads what another component writes are sums over residual coordinates.
The null permutes the coordinates of one side at random and flips their signs at random (a signed
permutation P). Unlike rotations, signed permutations keep the entries of the weights and so their
sparsity: a head that reads one coordinate overlaps with a head that writes one in 1 of d
permutations. Coordinates are first brought to the same units (see `coordinate_units`).

- Trace `T = tr(P B)`: mean 0, variance ||B||^2 / d, normal tail.
- Overlap `S = ||L P M||^2`, with C = L^T L and K = M M^T: `S = Y + X`, where Y sums over the
  diagonals and X over products of signs. Mean, variance and skewness are exact sums (for Y:
  Hoeffding 1951, "A combinatorial central limit theorem"). The tail is Pearson's type III.
- Tails fitted to moments are too light if only few entries matter. P-values of at most `LEVEL` are
  therefore checked against random permutations, and the larger of the two p-values is reported (on
  fitted tails beyond the draws: Knijnenburg et al. 2009). Their number is `PER_TEST` per
  comparison, within `MOST_DRAWS` and `WORK`: then the probability is 1 in `PER_TEST` that a null
  value in any comparison exceeds all draws.

The null is exact if coordinates are exchangeable, as they are when weights are drawn or shuffled
independently of each other. For trained embeddings it is approximate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from interp_toolkit.stats import LEVEL

#: of what the singular values allow at most: the effect that is denied only if it would be detected
MATTERS = 0.5
SMALLEST_SPREAD = 1e-6  # SD over mean of the overlap, below which it counts as constant
PER_TEST = 40  # draws for each comparison of the model
MOST_DRAWS = 20_000
FEWEST_DRAWS = 200  # fewer do not constrain a tail
WORK = 4e9  # multiplications for all draws of a model
ENOUGH = 10  # draws at least as large as the observed value, after which drawing stops
BATCH = 50  # draws between two checks of which comparisons are decided
TIE = 1e-4  # relative difference up to which values count as equal
ROUNDING = 1e-12  # fraction of the largest sum of squares, below which a coordinate is unwritten


def coordinate_units(squares: Float[Tensor, " d_model"]) -> Float[Tensor, " d_model"]:
    """Units of residual coordinates: square roots of their sums of squares; 0 if unwritten.

    In a model without norms, scaling a coordinate in all writes and unscaling it in all reads
    changes no logit. Output weights are therefore divided by these units and input weights
    multiplied by them before coordinates are compared. No comparison then depends on that scale.
    """
    return torch.where(squares > ROUNDING * squares.max(), squares, 0).sqrt()


def reciprocal(scale: Float[Tensor, " d_model"]) -> Float[Tensor, " d_model"]:
    """Elementwise `1 / scale`, and 0 where the scale is 0."""
    return torch.where(scale > 0, 1 / scale, 0)


@dataclass(frozen=True, eq=False)
class OverlapMoments:
    """Sums over the entries of `C = L^T L` that determine the moments of the overlap's null.

    Attributes:
        trace: sum of C_ii.
        diagonal: sums of the second and third powers of C_ii minus its mean.
        rest: sum over i ≠ j of C_ij^2.
        mixed: sum over i ≠ j of C_ij^2, weighted by C_ii minus its mean.
        triangles: sum over distinct i, j, k of C_ij C_jk C_ki.
    """

    trace: Float[np.ndarray, "..."]
    diagonal: tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]
    rest: Float[np.ndarray, "..."]
    mixed: Float[np.ndarray, "..."]
    triangles: Float[np.ndarray, "..."]

    def column(self) -> OverlapMoments:
        """The same moments with a second axis, to broadcast against those of readers."""
        second, third = self.diagonal
        return OverlapMoments(
            self.trace[:, None],
            (second[:, None], third[:, None]),
            self.rest[:, None],
            self.mixed[:, None],
            self.triangles[:, None],
        )


def overlap_moments(L: Float[Tensor, "head k d"]) -> OverlapMoments:
    """Moments of every head from its output weights or transposed input weights, without C."""
    L = L.double()
    gram = L @ L.mT
    c, square = L.square().sum(1), ((gram @ L) * L).sum(1)  # C_ii, sum over j of C_ij^2
    centered = c - c.mean(1, keepdim=True)
    sums = (
        c.sum(1),
        centered.square().sum(1),
        centered.pow(3).sum(1),
        (square - c.square()).sum(1),
        (centered * (square - c.square())).sum(1),
        torch.einsum("hij,hjk,hki->h", gram, gram, gram) - (3 * c * square - 2 * c.pow(3)).sum(1),
    )
    trace, second, third, rest, mixed, triangles = (one.cpu().numpy() for one in sums)
    return OverlapMoments(trace, (second, third), rest, mixed, triangles)


@dataclass(frozen=True, eq=False)
class OverlapNull:
    """Exact mean, standard deviation and skewness of `||L P M||^2` over signed permutations P."""

    mean: Float[np.ndarray, "..."]
    sd: Float[np.ndarray, "..."]
    skew: Float[np.ndarray, "..."]

    def z(self, overlap: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Z-scores; NaN where every permutation gives the same overlap."""
        varies = self.sd > SMALLEST_SPREAD * self.mean
        with np.errstate(invalid="ignore", divide="ignore"):
            z: np.ndarray = np.where(varies, (overlap - self.mean) / self.sd, np.nan)
        return z

    def p_value(self, overlap: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """One-sided p-values from the fitted tail; NaN where `z` is NaN."""
        z = self.z(overlap)
        defined = ~np.isnan(z)
        p = np.full(z.shape, np.nan)
        p[defined] = stats.pearson3.sf(z[defined], np.broadcast_to(self.skew, z.shape)[defined])
        return p


def overlap_null(a: OverlapMoments, b: OverlapMoments, d: int) -> OverlapNull:
    """Null of `||L P M||^2` from the moments of both sides, which broadcast against each other.

    Args:
        a: moments of the writer's L.
        b: moments of the reader's transposed M.
        d: number of permuted coordinates, at least 3.
    """
    pairs, triples = d * (d - 1), d * (d - 1) * (d - 2)
    variance = a.diagonal[0] * b.diagonal[0] / (d - 1) + 2 * a.rest * b.rest / pairs
    third = (
        a.diagonal[1] * b.diagonal[1] * d**2 / triples
        + 12 * a.mixed * b.mixed * d / triples
        + 8 * a.triangles * b.triangles / triples
    )
    sd = np.sqrt(np.maximum(variance, 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        skew = np.where(sd > 0, third / sd**3, 0)
    return OverlapNull(a.trace * b.trace / d, sd, skew)


#: (indices of comparisons, order of coordinates, signs) -> the statistic of each comparison
Statistic = Callable[
    [Int[np.ndarray, " test"], Int[Tensor, " d"], Float[Tensor, " d"]], Float[np.ndarray, " test"]
]


def held_against_draws(
    p: Float[np.ndarray, " test"],
    observed: Float[np.ndarray, " test"],
    statistic: Statistic,
    d: int,
    *,
    n_tests: int,
    work: float,
    cost: int,
) -> Float[np.ndarray, " test"]:
    """Fitted p-values, raised to those of random signed permutations where these are larger.

    They are returned unchanged if `work` allows fewer than FEWEST_DRAWS permutations.

    Args:
        p: p-values from a fitted tail; NaN where undefined.
        observed: observed values of the statistic.
        statistic: function that returns the statistic under one permutation.
        d: number of permuted coordinates.
        n_tests: number of comparisons in the whole model.
        work: number of multiplications to spend on these comparisons.
        cost: multiplications for one comparison under one permutation.
    """
    p, running = p.copy(), np.flatnonzero(p <= LEVEL)
    if not len(running):  # includes models in which no coordinate is written, where cost is 0
        return p
    draws = int(min(PER_TEST * n_tests, MOST_DRAWS, work / (cost * len(running))))
    if draws < FEWEST_DRAWS:
        return p
    rng, as_large = np.random.default_rng(0), np.zeros(len(p), int)
    for draw in range(1, draws + 1):
        order, sign = (
            torch.from_numpy(rng.permutation(d)),
            torch.from_numpy(rng.choice((-1.0, 1.0), d)),
        )
        reached = statistic(running, order, sign) >= observed[running] * (1 - TIE)
        as_large[running] += reached
        if draw % BATCH == 0 or draw == draws:
            enough = (as_large[running] >= ENOUGH) | (draw == draws)
            done = running[enough & (as_large[running] > 0)]
            p[done] = np.maximum(p[done], (as_large[done] + 1) / (draw + 1))
            running = running[~enough]
            if not len(running):
                break
    return p
