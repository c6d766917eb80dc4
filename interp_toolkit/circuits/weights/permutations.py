"""Agreement by chance: a head's residual coordinates in random order and with random signs.

Whether a head reads what is written to the residual stream shows in sums over its coordinates. The
null gives the coordinates of one side to the other in random order, each with a random sign (a
signed permutation P). Weights keep their entries, and so their sparsity, which rotations do not:
a head that reads one coordinate meets a head that writes one in 1 of d permutations. Entries are
compared with coordinates in the same units: see `coordinate_units`.

- Trace `T = tr(P B)`: mean 0, variance ||B||^2 / d, normal tail.
- Overlap `S = ||L P M||^2`, with C = L^T L and K = M M^T: `S = Y + X`, Y the part of the diagonals
  and X that of signs' products, so that mean, variance and skewness are exact sums (the Y of random
  permutations: Hoeffding 1951, "A combinatorial central limit theorem"); tail: Pearson's type III.
- Tails fitted to moments are too light where few entries count. So the p-values at most `LEVEL` are
  held against drawn permutations, as many as keep the chance that none of them reaches a value of
  the null in any comparison at 1 in `PER_TEST`, or as `WORK` allows; of the two p-values the larger
  counts (on fitted tails beyond the draws: Knijnenburg et al. 2009).

A p-value's exactness rests on coordinates that are exchangeable, as they are where weights are
drawn or shuffled independently of each other; trained embeddings make it approximate.
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

SMALLEST_SPREAD = 1e-6  # of the overlap, over its mean: below it every permutation gives the same
PER_TEST = 40  # draws for each comparison of the model
MOST_DRAWS = 20_000
FEWEST_DRAWS = 200  # fewer say nothing about a tail
WORK = 4e9  # multiplications for all draws of a model
ENOUGH = 10  # draws as large as the observed value, after which its p-value is known
BATCH = 50  # draws between two looks at which comparisons are decided
TIE = 1e-4  # relative: values so close are equal up to rounding
ROUNDING = 1e-12  # of the largest sum of squares: a coordinate below it is not written


def coordinate_units(squares: Float[Tensor, " d_model"]) -> Float[Tensor, " d_model"]:
    """Units of residual coordinates: roots of the sums of squares written to them; 0 where nothing.

    In a model without norms, coordinates may be scaled when written and unscaled when read, which
    changes no logit. What is written is divided by these units, and what reads is multiplied,
    before coordinates are compared, so that nothing depends on that scale.
    """
    return torch.where(squares > ROUNDING * squares.max(), squares, 0).sqrt()


def reciprocal(scale: Float[Tensor, " d_model"]) -> Float[Tensor, " d_model"]:
    """1 over the scale, and 0 where that is 0."""
    return torch.where(scale > 0, 1 / scale, 0)


@dataclass(frozen=True, eq=False)
class OverlapMoments:
    """Sums over the entries of `C = L^T L` that the overlap's null depends on.

    Attributes:
        trace: sum of C_ii.
        diagonal: sums of the second and third powers of C_ii less their mean.
        rest: sum over i ≠ j of C_ij^2.
        mixed: the same, weighed with C_ii less the mean.
        triangles: sum over different i, j, k of C_ij C_jk C_ki.
    """

    trace: Float[np.ndarray, "..."]
    diagonal: tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]
    rest: Float[np.ndarray, "..."]
    mixed: Float[np.ndarray, "..."]
    triangles: Float[np.ndarray, "..."]

    def column(self) -> OverlapMoments:
        """The same with an axis for what they are compared with."""
        second, third = self.diagonal
        return OverlapMoments(
            self.trace[:, None],
            (second[:, None], third[:, None]),
            self.rest[:, None],
            self.mixed[:, None],
            self.triangles[:, None],
        )


def overlap_moments(L: Float[Tensor, "head k d"]) -> OverlapMoments:
    """The sums for every head, without making C, from what it writes or, transposed, reads."""
    L = L.double()
    gram = L @ L.mT
    c, square = L.square().sum(1), ((gram @ L) * L).sum(1)  # C_ii, sum over j of C_ij^2
    centred = c - c.mean(1, keepdim=True)
    sums = (
        c.sum(1),
        centred.square().sum(1),
        centred.pow(3).sum(1),
        (square - c.square()).sum(1),
        (centred * (square - c.square())).sum(1),
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
        """Standard deviations above the mean; NaN where every permutation gives the same."""
        varies = self.sd > SMALLEST_SPREAD * self.mean
        with np.errstate(invalid="ignore", divide="ignore"):
            z: np.ndarray = np.where(varies, (overlap - self.mean) / self.sd, np.nan)
        return z

    def p_value(self, overlap: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The chance of so large an overlap, by the fitted tail; NaN where `z` is."""
        z = self.z(overlap)
        defined = ~np.isnan(z)
        p = np.full(z.shape, np.nan)
        p[defined] = stats.pearson3.sf(z[defined], np.broadcast_to(self.skew, z.shape)[defined])
        return p


def overlap_null(a: OverlapMoments, b: OverlapMoments, d: int) -> OverlapNull:
    """The null of `||L P M||^2` from the sums of both sides, which broadcast against each other.

    Args:
        a: of what is written, L.
        b: of what reads, M transposed.
        d: coordinates that are permuted, at least 3.
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


#: numbers of the comparisons, an order of coordinates, signs -> their values
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
    """Fitted p-values, raised to those of drawn signed permutations where these are larger.

    Args:
        p: by a fitted tail; NaN where there is none.
        observed: values of the statistic.
        statistic: its values under one permutation.
        d: coordinates that are permuted.
        n_tests: comparisons that are made of the model altogether.
        work: multiplications that may be spent on these.
        cost: multiplications for one comparison under one permutation.
    """
    p, running = p.copy(), np.flatnonzero(p <= LEVEL)
    if not len(running):  # also where no coordinate is written, and a comparison costs nothing
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
