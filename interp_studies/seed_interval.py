"""Intervals of 95 % for what a recipe reaches over seeds, and for the gap between two recipes.

A figure measured on k seeds, all tested on the same n examples, errs in two ways:

    seeds   what another seed reaches: t of k - 1 degrees of freedom times s / sqrt(k); a single
            seed knows nothing of it, so its interval is everything
    test    what other examples give, for shares: the exact (Clopper & Pearson 1934) interval of
            the mean share on n examples; n and not k n, because the seeds share them

Both enter as distances from the mean, joined by Pythagoras. The gap is joined from its two sides
in the same way: upwards by how far the first may lie above and the second below (Zou & Donner
2008). Where the spread between seeds is normal, such an interval covers the truth at least as
often as it says, whatever the two spreads are (Banerjee 1961).

What it cannot see: a seed that fails one time in five is missing from three seeds half the time.
With spreads that are skewed like a share's near 1, simulated coverage is 93 % to 99 %; with seeds
that as a rule learn and now and then do not, no interval from a few of them covers as it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interp_toolkit.stats import COVERAGE, clopper_pearson, mean_interval


@dataclass(frozen=True)
class Interval:
    """A value and how far below and above it the truth may lie.

    Attributes:
        value: the estimate.
        below, above: distances to the interval's ends; infinite where nothing is known.
        least, most: what is possible at all.
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
        values: one a seed.
        examples: examples of the test that the seeds share, where the values are shares of it;
            None: they are no shares, and only the spread between seeds is known.
        level: how often the interval covers the truth; a higher one where many are compared.

    Raises:
        ValueError: no values, or values that are no shares.
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
    """The mean over seeds of a sum of shares less others, each paired by seed.

    What other seeds give is the spread of the sums; what another test gives is joined from every
    share's own interval, as if each had a test of its own. Shares of the same rows that are taken
    off each other err together where a row is hard for both, and then it is too wide.

    Args:
        shares: fractions of a test set, one per seed.
        less: the same, to be taken off.
        examples: examples of the test.
        level: how often the interval covers the truth.

    Raises:
        ValueError: values that are no shares, or not as many of each.
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
    """The first less the second, which were estimated independently."""
    return Interval(
        first.value - second.value,
        math.hypot(first.below, second.above),
        math.hypot(first.above, second.below),
        first.least - second.most,
        first.most - second.least,
    )


def _of_test(mean: float, examples: int, level: float) -> tuple[float, float]:
    """How far below and above a mean share another test may lie."""
    low, high = clopper_pearson(min(mean, 1.0) * examples, examples, level)
    return mean - low, high - mean


def _spread(values: Sequence[float], level: float) -> float:
    """Half the interval of the mean that the spread between the values gives."""
    n = len(values)
    if n < 2:
        return math.inf
    mean, _, high = mean_interval(np.array(values), level)
    return float(high - mean)
