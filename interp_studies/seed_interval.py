"""95 % intervals for the score of a recipe over seeds, and for the gap between two recipes.

A score measured on k seeds, all tested on the same n examples, has two errors:

    seeds   variation between seeds: t with k - 1 degrees of freedom times s / sqrt(k); with a
    single
            seed it is unknown, and the interval is the whole range
    test    variation between test sets, for fractions: the exact (Clopper & Pearson 1934) interval
    of
            the mean fraction on n examples; n and not k n, because the seeds share them

Both are distances from the mean and are combined as the root of the sum of squares. For a gap, the
distances of both sides are combined in the same way: upwards, that of the first above and of the
second below (Zou & Donner 2008). If scores are normal over seeds, such an interval covers the truth
at least as often as its level, whatever the two variances are (Banerjee 1961).

Limits: a seed that fails one time in five is missing from three seeds half of the time. With skewed
distributions like that of a fraction near 1, simulated coverage is 93 % to 99 %. If most seeds
learn and some do not, no interval from a few seeds has its nominal coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interp_toolkit.stats import COVERAGE, clopper_pearson, mean_interval


@dataclass(frozen=True)
class Interval:
    """A value with distances to the ends of its interval.

    Attributes:
        value: the estimate.
        below, above: distances to the ends; infinite if unknown.
        least, most: the range of possible values.
    """

    value: float
    below: float
    above: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def low(self) -> float:
        """The lower end."""
        return max(self.least, self.value - self.below)

    @property
    def high(self) -> float:
        """The upper end."""
        return min(self.most, self.value + self.above)


def over_seeds(
    values: Sequence[float], examples: int | None = None, level: float = COVERAGE
) -> Interval:
    """The mean over seeds.

    Args:
        values: one value per seed.
        examples: number of test examples that the seeds share, if values are fractions of these;
            None: only the variation between seeds is included.
        level: coverage of the interval; higher if many intervals are compared.

    Raises:
        ValueError: there are no values, or values are not fractions.
    """
    if not values:
        raise ValueError("no values")
    mean = math.fsum(values) / len(values)
    spread = _spread(values, level)
    if examples is None:
        if min(values) == max(values):  # that says nothing of how they differ
            spread = math.inf
        return Interval(mean, spread, spread)
    if not 0 <= min(values) <= max(values) <= 1:
        raise ValueError(f"shares lie between 0 and 1, not {values}")
    below, above = (math.hypot(spread, side) for side in _of_test(mean, examples, level))
    return Interval(mean, below, above, 0.0, 1.0)


def over_seeds_contrast(
    shares: Sequence[Sequence[float]],
    less: Sequence[Sequence[float]],
    examples: int,
    level: float = COVERAGE,
) -> Interval:
    """The mean over seeds of a sum of fractions minus other fractions, paired by seed.

    The error between seeds is that of the sums. The test error combines the intervals of all
    fractions as if each had its own test set. Errors of fractions of the same rows that are
    subtracted partly cancel, and the interval is then too wide.

    Args:
        shares: fractions of a test set, one per seed.
        less: fractions that are subtracted.
        examples: number of test examples.
        level: coverage of the interval.

    Raises:
        ValueError: values are not fractions, or their numbers differ.
    """
    signs = [1] * len(shares) + [-1] * len(less)
    by_share = [*shares, *less]
    sums = [
        math.fsum(sign * share for sign, share in zip(signs, of_seed, strict=True))
        for of_seed in zip(*by_share, strict=True)
    ]
    tests = []
    for sign, by_seed in zip(signs, by_share, strict=True):
        if not 0 <= min(by_seed) <= max(by_seed) <= 1:
            raise ValueError(f"shares lie between 0 and 1, not {by_seed}")
        tests.append(_of_test(math.fsum(by_seed) / len(by_seed), examples, level)[::sign])
    spread = _spread(sums, level)
    below, above = (math.hypot(spread, *sides) for sides in zip(*tests, strict=True))
    mean = math.fsum(sums) / len(sums)
    return Interval(mean, below, above, -float(len(less)), float(len(shares)))


def difference(first: Interval, second: Interval) -> Interval:
    """The first minus the second, which must be independent estimates."""
    return Interval(
        first.value - second.value,
        math.hypot(first.below, second.above),
        math.hypot(first.above, second.below),
        first.least - second.most,
        first.most - second.least,
    )


def _of_test(mean: float, examples: int, level: float) -> tuple[float, float]:
    """Distances below and above a mean fraction, from the variation between test sets."""
    low, high = clopper_pearson(min(mean, 1.0) * examples, examples, level)
    return mean - low, high - mean


def _spread(values: Sequence[float], level: float) -> float:
    """Half the width of the interval of the mean, from the variation between the values."""
    n = len(values)
    if n < 2:
        return math.inf
    mean, _, high = mean_interval(np.array(values), level)
    return float(high - mean)
