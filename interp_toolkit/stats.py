"""Statistics shared by the analyses: Cover's count, corrections for many tests, exact intervals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

LEVEL = 0.05  # of significance
COVERAGE = 0.95  # of intervals


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
    observed: Float[np.ndarray, " test"], null: Float[np.ndarray, "draw test"]
) -> Float[np.ndarray, " test"]:
    """P-values corrected for the number of tests, from joint null draws (Westfall & Young 1993).

    Each test is compared with the largest null statistic over all tests, draw by draw, so the
    chance that *any* test falls below p is at most p, whatever their dependence. The smallest
    possible value is 1 / (draws + 1). NaN tests stay NaN and take no part; nor does a draw
    that is NaN at every test.
    """
    observed = np.asarray(observed, dtype=float)
    null = null[~np.isnan(null).all(axis=1)]
    largest = np.where(np.isnan(null), -np.inf, null).max(axis=1, initial=-np.inf)
    exceed: Bool[np.ndarray, "draw test"] = largest[:, None] >= observed[None, :]
    p_values = (1 + exceed.sum(axis=0)) / (1 + len(null))
    return np.where(np.isnan(observed), np.nan, p_values)


def holm(p: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Holm's (1979) adjusted p-values: rejecting those <= alpha errs at all with chance <= alpha.

    Holds whatever the dependence of the tests. NaN stays NaN and takes no part.

    Raises:
        ValueError: values outside 0 to 1.
    """
    return _ignoring_nan(p, _holm)


def benjamini_hochberg(p: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Benjamini & Hochberg's (1995) q-values: of those <= alpha, at most alpha false on average.

    Holds for tests that are independent or positively dependent. NaN stays NaN and takes no part.

    Raises:
        ValueError: values outside 0 to 1.
    """
    return _ignoring_nan(p, stats.false_discovery_control)


def benjamini_yekutieli(p: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Benjamini & Yekutieli's (2001) q-values: as `benjamini_hochberg`, whatever the dependence.

    Raises:
        ValueError: values outside 0 to 1.
    """
    return _ignoring_nan(p, partial(stats.false_discovery_control, method="by"))


def clopper_pearson(
    successes: float | int, trials: int, coverage: float = COVERAGE
) -> tuple[float, float]:
    """The exact interval of a share of so many trials (Clopper & Pearson 1934).

    `scipy.stats.binomtest` has it for whole numbers alone; a mean over seeds, or of rows with
    several answers, need not be one. A row's share of right answers varies less than a yes or no
    with the same mean would, so the interval is then wider than it need be.

    Args:
        successes: 0 to `trials`.
        trials: how many, independent.
        coverage: how often the interval holds the truth, at least.
    """
    tail, failures = (1 - coverage) / 2, trials - successes
    low = stats.beta.ppf(tail, successes, failures + 1) if successes > 0 else 0.0
    high = stats.beta.ppf(1 - tail, successes + 1, failures) if failures > 0 else 1.0
    return float(low), float(high)


def ratio_interval(
    above: Float[np.ndarray, " row"], below: Float[np.ndarray, " row"], coverage: float = COVERAGE
) -> tuple[float, float]:
    """Fieller's interval of a ratio of means; infinite where the lower mean is not certain.

    Examples:
        >>> ratio_interval(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
        (0.5, 0.5)
    """
    n = len(above)
    t = float(stats.t.ppf((1 + coverage) / 2, n - 1)) / np.sqrt(n) if n > 1 else np.inf
    a, b = float(above.mean()), float(below.mean())
    if n < 2 or abs(b) <= t * float(below.std(ddof=1)):
        return -np.inf, np.inf
    (var_a, covariance), (_, var_b) = np.cov(above, below)
    # r with (a - r b)^2 = t^2 var(above - r below), which is quadratic in r
    square = b * b - t * t * var_b
    linear = a * b - t * t * covariance
    constant = a * a - t * t * var_a
    root = float(np.sqrt(max(linear * linear - square * constant, 0.0)))
    return float((linear - root) / square), float((linear + root) / square)


def _holm(p: Float[np.ndarray, " known"]) -> Float[np.ndarray, " known"]:
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _ignoring_nan(
    p: Float[np.ndarray, " test"], adjust: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, " test"]:
    """Adjust the p-values that are not NaN, each at its index."""
    defined = ~np.isnan(p)
    if ((p[defined] < 0) | (p[defined] > 1)).any():
        raise ValueError("p-values lie between 0 and 1; these do not")
    adjusted = np.full(len(p), np.nan)
    adjusted[defined] = adjust(p[defined])
    return adjusted
