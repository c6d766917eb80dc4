"""Small statistics shared by the analyses: Cover's count, corrections for many looks."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats


def cover_probability(n_points: int, affine_dim: int) -> float:
    """The chance that uniformly random labels of points in general position are separable.

    Cover (1965), with a threshold: P[Binomial(n_points - 1, 1/2) <= affine_dim]. It is 1 for
    n_points <= affine_dim + 1, one half at 2 (affine_dim + 1), and falls fast beyond.

    Args:
        n_points: number of distinct points.
        affine_dim: dimension of the smallest flat that holds them all.
    """
    if n_points <= affine_dim + 1:
        return 1.0
    return float(stats.binom.cdf(affine_dim, n_points - 1, 0.5))


def max_statistic_p_values(
    observed: Float[np.ndarray, " look"], null: Float[np.ndarray, "draw look"]
) -> Float[np.ndarray, " look"]:
    """P-values corrected for the number of looks, from joint null draws (Westfall & Young 1993).

    Each look is compared with the largest null statistic over all looks, draw by draw, so the
    chance that *any* look falls below p is at most p, whatever their dependence. The smallest
    possible value is 1 / (draws + 1). NaN looks stay NaN and take no part; nor does a draw
    that is NaN at every look.
    """
    observed = np.asarray(observed, dtype=float)
    null = null[~np.isnan(null).all(axis=1)]
    largest = np.where(np.isnan(null), -np.inf, null).max(axis=1, initial=-np.inf)
    exceed: Bool[np.ndarray, "draw look"] = largest[:, None] >= observed[None, :]
    p_values = (1 + exceed.sum(axis=0)) / (1 + len(null))
    return np.where(np.isnan(observed), np.nan, p_values)


def holm(p: Float[np.ndarray, " look"]) -> Float[np.ndarray, " look"]:
    """Holm's (1979) adjusted p-values: rejecting those <= alpha errs at all with chance <= alpha.

    Holds whatever the dependence of the looks. NaN stays NaN and takes no part.

    Raises:
        ValueError: values outside 0 to 1.
    """
    known, ordered, order = _ascending(p)
    steps = ordered * np.arange(len(ordered), 0, -1)
    return _restored(p, known, order, np.maximum.accumulate(steps))


def benjamini_hochberg(p: Float[np.ndarray, " look"]) -> Float[np.ndarray, " look"]:
    """Benjamini & Hochberg's (1995) q-values: of those <= alpha, at most alpha false on average.

    Holds for looks that are independent or positively dependent. NaN stays NaN and takes no part.

    Raises:
        ValueError: values outside 0 to 1.
    """
    known, ordered, order = _ascending(p)
    steps = ordered * len(ordered) / np.arange(1, len(ordered) + 1)
    return _restored(p, known, order, np.minimum.accumulate(steps[::-1])[::-1])


def benjamini_yekutieli(p: Float[np.ndarray, " look"]) -> Float[np.ndarray, " look"]:
    """Benjamini & Yekutieli's (2001) q-values: as `benjamini_hochberg`, whatever the dependence.

    Raises:
        ValueError: values outside 0 to 1.
    """
    n = int((~np.isnan(p)).sum())
    harmonic = float((1 / np.arange(1, n + 1)).sum())
    return np.minimum(benjamini_hochberg(p) * harmonic, 1.0)


def _ascending(
    p: Float[np.ndarray, " look"],
) -> tuple[Bool[np.ndarray, " look"], Float[np.ndarray, " known"], Int[np.ndarray, " known"]]:
    """Which p-values are known, these in ascending order, and the order."""
    known = ~np.isnan(p)
    values = p[known]
    if ((values < 0) | (values > 1)).any():
        raise ValueError("p-values lie between 0 and 1; these do not")
    order = np.argsort(values, kind="stable")
    return known, values[order], order


def _restored(
    p: Float[np.ndarray, " look"],
    known: Bool[np.ndarray, " look"],
    order: Int[np.ndarray, " known"],
    adjusted: Float[np.ndarray, " known"],
) -> Float[np.ndarray, " look"]:
    """Adjusted p-values back in the order of `p`, at most 1."""
    values = np.empty(len(order))
    values[order] = np.minimum(adjusted, 1.0)
    result = np.full(len(p), np.nan)
    result[known] = values
    return result
