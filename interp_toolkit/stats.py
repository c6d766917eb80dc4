"""Statistics shared by the analyses: intervals, p-values, corrections for many tests.

- Means over prompts: Student's t interval (`mean_interval`), the same but no narrower than unseen
  prompts allow (`estimate`), t tests, ratios (`ratio_interval`, `ratio_estimate`).
- Proportions and other bounded values: exact intervals (`clopper_pearson`, `bounded_interval`,
  `mean_of_shares`), and their joint with Fieller's (`ratio_share`).
- P-values of many tests: sign flips with the largest statistic (Westfall & Young), Holm, Simes,
  Benjamini & Hochberg, Benjamini & Yekutieli.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Num
from scipy import special

from interp_toolkit.errors import InputError

LEVEL = 0.05  # of significance
COVERAGE = 0.95  # of intervals
UNSEEN = 8.0  # times the median effect: how far a prompt may differ where all that were drawn agree
ALIKE = 0.6  # interquartile range over the median from which prompts are not alike
FLIPS = 4000  # draws of signs
FLIPS_AT_ONCE = 250
TIE = 1e-6  # relative: statistics that differ by less are tied


# Means over prompts.


@dataclass(frozen=True)
class Share:
    """An effect as a fraction of the metric, with its confidence interval.

    Attributes:
        mean: estimate. low, high: ends of its interval.
    """

    mean: float
    low: float
    high: float

    def negated(self) -> Share:
        """The same effect in the other direction."""
        return Share(-self.mean, -self.high, -self.low)


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts with its confidence interval.

    Attributes:
        mean: mean over prompts.
        low, high: ends of its interval, by default at 95 % (see `estimate`).
        p_value: two-sided, against a mean of zero.
        n: number of prompts.
    """

    mean: float
    low: float
    high: float
    p_value: float
    n: int


def estimate(
    values: Float[np.ndarray, " row"],
    coverage: float = COVERAGE,
    unseen: float = 0.0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """The mean over prompts with its interval; for paired comparisons, pass the differences.

    Student's t interval assumes that the prompts show how much prompts differ. If all that were
    drawn are alike, it narrows to a point, though a rare kind of prompt may not have been drawn: up
    to 1 - 0.025^(1/n) of all prompts may be of a kind that none of n is (Clopper & Pearson, at
    95 %). The effect of such a prompt is assumed to differ from the mean by at most the largest
    deviation from the median that was seen or, if prompts are alike, by `unseen` times the median.
    The interval is no narrower than that allows, and the p-value is no smaller.

    Args:
        values: one value per prompt.
        coverage: of the interval.
        unseen: UNSEEN for effects of single prompts that have no bound; 0 where each value is
            itself a mean over many positions or draws. It decreases to 0 as the interquartile range
            grows to ALIKE times the median: prompts that vary have shown how much they do.
        bounds: the smallest and the largest possible value of a prompt.

    Raises:
        InputError: fewer than two prompts, which have no variance.

    Examples:
        >>> effect = estimate(np.ones(8), unseen=UNSEEN)
        >>> effect.low < 0, effect.p_value > 0.05
        (True, True)
        >>> estimate(np.ones(64), unseen=UNSEEN).low > 0
        True
    """
    n = len(values)
    if n < 2:
        raise InputError(f"a mean over {n} rows has no confidence interval; give at least 2 rows")
    mean, low, high = map(float, mean_interval(values, coverage))
    lower, median, upper = (float(x) for x in np.quantile(values, (0.25, 0.5, 0.75)))
    size = abs(median)
    alike = max(0.0, 1 - (upper - lower) / (ALIKE * size)) if size else 0.0
    far = max(float(np.abs(values - median).max()), unseen * size * alike)
    least, most = bounds
    down, up = (
        min(far, d) * clopper_pearson(0, n, coverage)[1] for d in (mean - least, most - mean)
    )
    p_value = float(mean_p_value(values))
    if far > 0:
        p_value = max(p_value, min(1.0, 2 * max(0.0, 1 - abs(mean) / far) ** n))
    low, high = max(least, min(low, mean - down)), min(most, max(high, mean + up))
    return Estimate(mean, low, high, p_value, n)


def mean_interval(
    values: Float[np.ndarray, "row *more"], coverage: float = COVERAGE
) -> tuple[Float[np.ndarray, "*more"], Float[np.ndarray, "*more"], Float[np.ndarray, "*more"]]:
    """Means over the first axis and the ends of their t intervals; NaN values are ignored.

    The ends are NaN for fewer than two values.

    Examples:
        >>> [round(float(x), 2) for x in mean_interval(np.array([1.0, 2.0, 3.0]))]
        [2.0, -0.48, 4.48]
    """
    n, mean, error = _standard_error(values)
    half = special.stdtrit(np.maximum(n - 1, 1), (1 + coverage) / 2) * error
    return mean, np.asarray(mean - half), np.asarray(mean + half)


def mean_p_value(values: Float[np.ndarray, "row *more"]) -> Float[np.ndarray, "*more"]:
    """Two-sided p-values of Student's t against a mean of 0; 1 where the mean is exactly 0.

    NaN values are ignored. Identical values other than 0 give 0, a single one NaN.
    """
    n, mean, error = _standard_error(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(mean == 0, 0.0, np.abs(mean) / error)
    return np.asarray(2 * special.stdtr(np.maximum(n - 1, 1), -t))


def _standard_error(
    values: Float[np.ndarray, "row *more"],
) -> tuple[Num[np.ndarray, "*more"], Float[np.ndarray, "*more"], Float[np.ndarray, "*more"]]:
    """Number, mean and standard error of the values that are not NaN, over the first axis."""
    defined = ~np.isnan(values)
    n = np.asarray(defined.sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.asarray(np.where(defined, values, 0).sum(0) / n)
        squares = np.where(defined, values - mean, 0) ** 2
        return n, mean, np.asarray(np.sqrt(squares.sum(0) / (n - 1) / n))


def ratio_interval(
    above: Float[np.ndarray, " row"], below: Float[np.ndarray, " row"], coverage: float = COVERAGE
) -> tuple[float, float]:
    """Fieller's interval of `mean(above) / mean(below)`, paired over prompts.

    It is infinite if the denominator may be 0, and for a single prompt.

    Examples:
        >>> ratio_interval(np.array([4.0, 5.0, 6.0]), np.array([8.0, 10.0, 12.0]))
        (0.5, 0.5)
    """
    n = len(above)
    t = float(special.stdtrit(n - 1, (1 + coverage) / 2)) / np.sqrt(n) if n > 1 else np.inf
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


def rows_needed(estimate: Estimate, half: float, most: int = 10**7) -> int | None:
    """Approximate number of prompts that would narrow the interval to this half-width.

    None if it is that narrow already, if no number would narrow it so, or if more than `most` would
    be needed.
    """
    now = (estimate.high - estimate.low) / 2
    if not (half > 0 and now > 0):
        return None
    needed = int(np.ceil(estimate.n * (now / half) ** 2))
    return needed if estimate.n < needed <= most else None


# Proportions, and values of which few differ.


def clopper_pearson(
    successes: float | int, trials: float | int, coverage: float = COVERAGE
) -> tuple[float, float]:
    """The exact interval of a proportion (Clopper & Pearson 1934).

    `scipy.stats.binomtest` takes integers only; a mean over seeds, or over prompts with several
    answers, need not be one. The proportion of right answers of such a prompt varies less than a
    yes or no with the same mean, so the interval is then conservative.

    Args:
        successes: 0 to `trials`.
        trials: number of independent trials.
        coverage: lower bound on the probability that the interval contains the truth.
    """
    tail, failures = (1 - coverage) / 2, trials - successes
    low = special.betaincinv(successes, failures + 1, tail) if successes > 0 else 0.0
    high = special.betaincinv(successes + 1, failures, 1 - tail) if failures > 0 else 1.0
    return float(low), float(high)


def mean_of_shares(values: Float[np.ndarray, " row"], coverage: float) -> Estimate:
    """Like `estimate`, for values or differences within -1 and 1, without further assumptions.

    The interval is `bounded_interval`'s; for yes and no it is Clopper and Pearson's.
    """
    low, high = bounded_interval(values, -1.0, 1.0, coverage)
    return replace(estimate(values, coverage), low=low, high=high)


def ratio_estimate(
    part: Float[np.ndarray, " row"],
    whole: Float[np.ndarray, " row"],
    coverage: float = COVERAGE,
    unseen: float = 0.0,
) -> Share:
    """`mean(part) / mean(whole)` with its interval, for effects without bounds.

    Fieller's interval, joined with that of `estimate` for `part / mean(whole)`, which allows for
    kinds of prompts that were not drawn.

    Examples:
        >>> ratio_estimate(np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 4.0])).mean
        0.5
    """
    mean = float(part.mean() / whole.mean())
    low, high = ratio_interval(part, whole, coverage)
    if math.isfinite(low) and math.isfinite(high):
        joined = estimate(part / whole.mean(), coverage, unseen)
        low, high = min(low, joined.low), max(high, joined.high)
    return Share(mean, low, high)


def ratio_share(
    part: Float[np.ndarray, " row"], whole: Float[np.ndarray, " row"], coverage: float
) -> Share:
    """`mean(part) / mean(whole)` with its interval.

    Fieller's interval takes no account of unseen prompts: it has zero width if all prompts agree,
    though the next one may differ. It is therefore joined with `bounded_interval` of each prompt's
    `part / mean(whole)`. An unseen prompt is assumed to differ from the median one by at most the
    whole metric or, if more, by the largest deviation seen.

    Examples:
        >>> effect = ratio_share(np.ones(10), np.ones(10), 0.9)
        >>> effect.mean, round(effect.low, 2)
        (1.0, 0.74)
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = float(part.mean() / whole.mean())
        each = part / whole.mean()
    low, high = ratio_interval(part, whole, coverage)
    if np.isfinite(each).all():
        middle = float(np.median(each))
        far = max(1.0, float(np.abs(each - middle).max()))
        least, most = bounded_interval(each, middle - far, middle + far, coverage)
        low, high = min(low, least), max(high, most)
    return Share(mean, low, high)


def bounded_interval(
    values: Float[np.ndarray, " row"], least: float, most: float, coverage: float
) -> tuple[float, float]:
    """The interval of a mean of values that lie within two bounds, whatever their distribution.

    Gaffke (2005): weights that are uniform on the simplex (Dirichlet) are put on the n values and
    on one more at the bound; the ends are the quantiles of the weighted sum. If all values are at
    the bounds, it is Clopper and Pearson's interval. It is monotone: no value that moves outward
    narrows it. Quantiles are by Lugannani and Rice's approximation (1980), within 1 % of the
    interval's width.

    Args:
        values: the values.
        least: smallest possible value.
        most: largest possible value.
        coverage: of the interval.

    Examples:
        >>> [round(x, 2) for x in bounded_interval(np.repeat([1.0, 0.0], [8, 2]), 0.0, 1.0, 0.95)]
        [0.44, 0.97]
    """
    tail = (1 - coverage) / 2
    return _lower_bound(values, least, tail), -_lower_bound(-values, -most, tail)


def _lower_bound(values: Float[np.ndarray, " row"], least: float, tail: float) -> float:
    """The `tail` quantile of the values' sum under weights uniform on the simplex.

    P(sum of weight · value <= t) = P(sum of (value - t) E <= 0) with independent exponential E. By
    Lugannani and Rice, with the saddlepoint s as parameter: v = t + 1 / s lies below all values,
    and -1 / s is the harmonic mean of the values' distances from it.
    """
    points = np.append(values, least).astype(float)
    low, span = float(points.min()), float(np.ptp(points))
    if span <= TIE * np.abs(points).max():
        return low
    scaled = (points - low) / span

    def relative_distances(log_v: float) -> tuple[float, np.ndarray]:
        distances = scaled + math.exp(log_v)
        harmonic_mean = len(distances) / float((1 / distances).sum())
        return harmonic_mean, distances / harmonic_mean

    from scipy import optimize  # late, like `stats`: each takes long to import

    def excess(log_v: float) -> float:
        _, ratios = relative_distances(log_v)
        root = -math.sqrt(max(2 * float(np.log(ratios).sum()), 0.0))
        slope = -math.sqrt(float(((1 / ratios - 1) ** 2).sum()))
        if not (root and slope):
            return 0.5 - tail
        correction = math.exp(-root * root / 2) / math.sqrt(2 * math.pi) * (1 / root - 1 / slope)
        return float(special.ndtr(root)) + correction - tail

    smallest, largest = math.log(1e-12), math.log(1e4)
    if excess(smallest) >= 0:
        return low
    log_v = float(optimize.brentq(excess, smallest, largest, xtol=1e-9))
    return low + span * (relative_distances(log_v)[0] - math.exp(log_v))


def cover_probability(n_points: int, affine_dim: int) -> float:
    """The chance that uniformly random labels of points in general position are separable.

    Cover (1965), with a threshold: P[Binomial(n_points - 1, 1/2) <= affine_dim]. It is 1 for
    n_points <= affine_dim + 1, one half at 2 (affine_dim + 1), and falls fast beyond.

    Args:
        n_points: number of distinct points.
        affine_dim: dimension of the smallest flat that contains all points.
    """
    if n_points <= affine_dim + 1:
        return 1.0
    return float(special.betainc(n_points - 1 - affine_dim, affine_dim + 1, 0.5))


# P-values of many tests.


def max_statistic_p_values(
    observed: Float[np.ndarray, " test"], null: Float[np.ndarray, "draw test"]
) -> Float[np.ndarray, " test"]:
    """P-values corrected for the number of tests, from joint null draws (Westfall & Young 1993).

    Each test is compared with the largest null statistic over all tests, draw by draw, so the
    chance that *any* test falls below p is at most p, whatever their dependence. The smallest
    possible value is 1 / (draws + 1). An observed NaN stays NaN. NaN in the null is ignored, and so
    is a draw that is NaN at every test.
    """
    null = null[~np.isnan(null).all(axis=1)]
    largest = np.where(np.isnan(null), -np.inf, null).max(axis=1, initial=-np.inf)
    return rank_p_values(np.asarray(observed, dtype=float), largest)


def rank_p_values(
    observed: Float[np.ndarray, "*test"], null: Float[np.ndarray, " draw"]
) -> Float[np.ndarray, "*test"]:
    """The fraction of null draws that reach each observed statistic, itself included.

    NaN stays NaN.
    """
    reached = len(null) - np.searchsorted(np.sort(null), observed, side="left")
    p_values: np.ndarray = (1 + reached) / (1 + len(null))
    return np.where(np.isnan(observed), np.nan, p_values)


def sign_flip_p_values(
    contrasts: Float[np.ndarray, "test row"], *, draws: int = FLIPS, seed: int = 0
) -> Float[np.ndarray, " test"]:
    """Two-sided p-values of means over prompts, adjusted for all tests together; NaN is ignored.

    Under the null hypothesis, a contrast is equally likely to have either sign in each prompt.
    The signs of a prompt are flipped together in all contrasts, which preserves their dependence.
    Each mean, divided by the root mean square of its contrast (which flips do not change), is
    compared with the largest of all in each draw (Westfall & Young 1993). Prompts are taken as
    independent.

    Args:
        contrasts: one number per test and prompt; contrasts that are only rounding must be 0.
        draws: number of sign draws. The smallest p-value is about 1 / draws, or 2 / 2^prompts if
            that is more.
        seed: random seed of the draws.

    Examples:
        >>> p = sign_flip_p_values(np.array([[1.0] * 12, [1.0, -1.0] * 6]))
        >>> bool(p[0] < 0.01), bool(p[1] > 0.9)
        (True, True)
    """
    defined = ~np.isnan(contrasts)
    values = np.where(defined, contrasts, 0.0)
    size = np.sqrt(defined.sum(1) * np.square(values).sum(1))
    scaled = (values / np.where(size > 0, size, 1.0)[:, None]).astype(np.float32)
    rng = np.random.default_rng(seed)
    largest = np.zeros(draws)
    for start in range(0, draws, FLIPS_AT_ONCE):
        stop = min(start + FLIPS_AT_ONCE, draws)
        signs = rng.integers(0, 2, (scaled.shape[1], stop - start)).astype(np.float32) * 2 - 1
        largest[start:stop] = np.abs(scaled @ signs).max(0, initial=0.0)
    observed = np.abs(scaled.sum(1)).astype(float) - TIE
    observed[~defined.any(1)] = np.nan
    return rank_p_values(observed, largest)


def holm(p: Float[np.ndarray, " test"], n: int | None = None) -> Float[np.ndarray, " test"]:
    """Holm's (1979) adjusted p-values: rejecting those <= alpha bounds the familywise error rate.

    Valid under any dependence of the tests. NaN stays NaN and is not counted as a test.

    Args:
        p: p-values.
        n: number of tests, of which the others have p = 1; None: those in `p`.

    Raises:
        ValueError: values outside 0 to 1.
    """

    def adjust(p: Float[np.ndarray, " known"]) -> Float[np.ndarray, " known"]:
        order = np.argsort(p, kind="stable")
        adjusted = np.empty(len(p))
        steps = p[order] * ((n or len(p)) - np.arange(len(p)))
        adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
        return adjusted

    return _ignoring_nan(p, adjust)


def simes(p: Float[np.ndarray, " test"], n: int) -> float:
    """Simes' (1986) p-value for the joint null of n tests; `p` needs only the smallest p-values."""
    return float(min(1.0, *(n * np.sort(p) / np.arange(1, len(p) + 1)))) if len(p) else 1.0


def benjamini_hochberg(p: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Benjamini & Hochberg's (1995) q-values: rejecting q <= alpha keeps the FDR at most alpha.

    Valid for tests that are independent or positively dependent. NaN stays NaN and is not counted.

    Raises:
        ValueError: values outside 0 to 1.
    """
    from scipy import stats

    return _ignoring_nan(p, stats.false_discovery_control)


def discovery_threshold(
    p: Float[np.ndarray, " test"], n_taken: int, n_tests: int, level: float
) -> float:
    """Benjamini & Hochberg's threshold: p-values up to it are discoveries; 0 if there are none.

    Args:
        p: the small p-values; the others only count in `n_tests`.
        n_taken: number of further tests that are discoveries already.
        n_tests: total number of tests.
        level: level of the false discovery rate.
    """
    ordered = np.sort(p)
    rank = n_taken + np.arange(1, len(p) + 1)
    below = np.flatnonzero(ordered <= level * rank / n_tests)
    return float(ordered[below[-1]]) if len(below) else 0.0


def benjamini_yekutieli(
    p: Float[np.ndarray, " test"], n: int | None = None
) -> Float[np.ndarray, " test"]:
    """Benjamini & Yekutieli's (2001) q-values: valid under any dependence of the tests.

    NaN stays NaN and is not counted as a test.

    Args:
        p: p-values.
        n: number of tests, of which the others have p = 1; None: those in `p`.

    Raises:
        ValueError: values outside 0 to 1.
    """
    from scipy import special, stats

    def weight(tests: int) -> float:
        return float(tests * (special.digamma(tests + 1) + np.euler_gamma))

    def adjust(p: Float[np.ndarray, " known"]) -> Float[np.ndarray, " known"]:
        if n is not None and len(p):  # q-values are proportional to this weight, up to 1
            p = np.minimum(p * (weight(n) / weight(len(p))), 1.0)
        return np.asarray(stats.false_discovery_control(p, method="by"))

    return _ignoring_nan(p, adjust)


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
