"""What two matrices have in common by chance: a random rotation between them, in closed form.

For fixed A and B and a rotation R drawn uniformly (Haar) from O(d), the overlap
`S = ||A R B||^2 / (||A||^2 ||B||^2)` (Frobenius norms) depends on A and B through their singular
values only: `S = sum_ij x_i y_j R_ij^2`, with x and y the squared singular values over their sums.

- mean: E S = 1/d, whatever the spectra;
- variance: exact too, from E[R_ij^2 R_kl^2] = 3/(d(d+2)) for one entry, 1/(d(d+2)) for two of a row
  or column, (d+1)/(d(d-1)(d+2)) for others (Weingarten calculus: Collins & Sniady 2006);
- tail: Pearson's type III with these and the skewness of `sum_ij x_i y_j g_ij^2`, g Gaussian, which
  R_ij sqrt(d) becomes for large d (Solomon & Stephens 1977, on weighted sums of chi-squares).
  Rotations are less skewed than Gaussians, so p-values lean to the large side, the more the nearer
  the ranks are to d.

The trace `T = tr(R M)` has mean 0 and variance ||M||^2 / d exactly, and is nearly normal; where M
has rank one, its tails are lighter than the normal's (a coordinate of a random unit vector).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

SMALLEST_SPREAD = 1e-6  # of the overlap, over its mean: below it every rotation gives the same


@dataclass(frozen=True, eq=False)
class Spectra:
    """Power sums of matrices' squared singular values, these scaled to sum to 1.

    Attributes:
        second: sum of squares: 1 over the effective rank.
        third: sum of cubes.
    """

    second: Float[np.ndarray, "..."]
    third: Float[np.ndarray, "..."]


def spectra(singular_values: Float[np.ndarray, "*matrix rank"]) -> Spectra:
    """The power sums; NaN for a matrix of zeros."""
    squared = np.asarray(singular_values, dtype=float) ** 2
    with np.errstate(invalid="ignore"):
        weights = squared / squared.sum(-1, keepdims=True)
    return Spectra((weights**2).sum(-1), (weights**3).sum(-1))


@dataclass(frozen=True, eq=False)
class OverlapNull:
    """The overlap S under random rotations.

    Attributes:
        mean: 1/d.
        sd: of S, exact.
        skew: of S, for large d.
    """

    mean: float
    sd: Float[np.ndarray, "..."]
    skew: Float[np.ndarray, "..."]

    def z(self, overlap: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Standard deviations above the mean; NaN where every rotation gives the same overlap."""
        varies = self.sd > SMALLEST_SPREAD * self.mean
        with np.errstate(invalid="ignore", divide="ignore"):
            z: np.ndarray = np.where(varies, (overlap - self.mean) / self.sd, np.nan)
        return z

    def p_value(self, overlap: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The chance that a random rotation overlaps as much; NaN where `z` is."""
        z = self.z(overlap)
        known = ~np.isnan(z)
        p = np.full(z.shape, np.nan)
        skew = np.broadcast_to(self.skew, z.shape)
        p[known] = stats.pearson3.sf(z[known], skew[known])
        return p


def overlap_null(a: Spectra, b: Spectra, d: int) -> OverlapNull:
    """The null of `||A R B||^2 / (||A||^2 ||B||^2)`; the spectra broadcast against each other.

    Args:
        a: of A.
        b: of B.
        d: dimension that R turns, at least 2.
    """
    same = a.second * b.second
    line = a.second * (1 - b.second) + (1 - a.second) * b.second
    other = (1 - a.second) * (1 - b.second)
    square = (3 * same + line + other * (d + 1) / (d - 1)) / (d * (d + 2))
    sd = np.sqrt(np.maximum(square - 1 / d**2, 0))
    skew = np.sqrt(8) * (a.third * b.third) / same**1.5
    return OverlapNull(1 / d, sd, skew)


def trace_p_value(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The chance of a trace so many standard deviations above 0; NaN stays NaN."""
    p: np.ndarray = stats.norm.sf(z)
    return p
