"""The least boolean function of some features that is true where scores are high.

Scores of sets of features make two groups where the largest gap between them is wider than either
group, so that the worst error after the best gain and bias is below 1/4, which no affine function
of two bits attains for their AND (see `boolean_functions`). The function is the smallest set of
features on which high and low depend, and its truth table there; combinations that no key has are
"?".

Over all ways to hand the same values out to the sets, how often does a function of as few features
fit? For k given features it fits where all sets of a combination are alike: as many ways as there
are to choose combinations that hold together as many sets as are high. Their sum over all choices
of k features, each over the number of all ways, bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.boolean_functions import after_offset

MOST_FEATURES = 5  # of a function
MOST_SETS = 20_000  # sets of features that are tried at each size


@dataclass(frozen=True, eq=False)
class TwoGroups:
    """Scores in two groups.

    Attributes:
        high: whether each set's score is in the upper one.
        error: the worst error after the best gain and bias, as a readout of `high`.
    """

    high: Bool[np.ndarray, " set"]
    error: float


@dataclass(frozen=True)
class KeyFunction:
    """A boolean function of key features.

    Attributes:
        features: by number, the first the most significant digit of the table.
        table: 0, 1, and ? where no key says.
        others: other sets of as many features that would do too.
    """

    features: tuple[int, ...]
    table: str
    others: int

    def values(self, on: Bool[np.ndarray, "set feature"]) -> Bool[np.ndarray, " set"]:
        """The function's values; false where it is undefined."""
        return np.asarray(np.array([bit == "1" for bit in self.table])[_codes(on, self.features)])

    def decides(self, on: Bool[np.ndarray, "set feature"]) -> Bool[np.ndarray, " set"]:
        """The rows on which the table is defined."""
        return np.asarray(np.array([bit != "?" for bit in self.table])[_codes(on, self.features)])


def split_scores(
    low: Float[np.ndarray, " set"],
    high: Float[np.ndarray, " set"],
    mean: Float[np.ndarray, " set"],
) -> TwoGroups | None:
    """The two groups about the widest gap between means; None without two different ones."""
    order = np.argsort(mean, kind="stable")
    gaps = np.diff(mean[order])
    if not len(gaps) or gaps.max() <= 0:
        return None
    upper = np.zeros(len(mean), dtype=bool)
    upper[order[int(np.argmax(gaps)) + 1 :]] = True
    ends = [
        np.array([end(values[side])])
        for side in (upper, ~upper)
        for end, values in ((np.min, low), (np.max, high))
    ]
    return TwoGroups(upper, float(after_offset(*ends)[0]))


def least_function(
    on: Bool[np.ndarray, "set feature"], value: Bool[np.ndarray, " set"]
) -> KeyFunction | None:
    """The function of the fewest features that has these values; None where it takes too many.

    Of several sets of as many features the first is named, and how many others there are.
    """
    n_features = on.shape[1]
    for size in range(min(MOST_FEATURES, n_features) + 1):
        if comb(n_features, size) > MOST_SETS:
            return None
        fitting = [
            chosen for chosen in combinations(range(n_features), size) if _fits(on, value, chosen)
        ]
        if fitting:
            codes = _codes(on, fitting[0])
            ones = np.bincount(codes, value, 2**size)
            observed = np.bincount(codes, minlength=2**size)
            table = "".join(
                "?" if not n else "01"[int(k > 0)] for n, k in zip(observed, ones, strict=True)
            )
            return KeyFunction(fitting[0], table, len(fitting) - 1)
    return None


def chance_to_fit(
    on: Bool[np.ndarray, "set feature"], value: Bool[np.ndarray, " set"], size: int
) -> float:
    """Upper bound of the chance that a function of `size` features fits shuffled values.

    Exact for each choice of features, summed over the choices (see the module); 1 at most.
    """
    n_high = min(int(value.sum()), len(value) - int(value.sum()))
    ways = 0.0
    for chosen in combinations(range(on.shape[1]), size):
        cells = np.bincount(_codes(on, chosen))
        reached = np.zeros(n_high + 1)
        reached[0] = 1
        for cell in cells[(cells > 0) & (cells <= n_high)].tolist():
            reached[cell:] = reached[cell:] + reached[:-cell]
        ways += float(reached[n_high])
    return min(1.0, int(ways) / comb(len(value), n_high))


def _fits(
    on: Bool[np.ndarray, "set feature"], value: Bool[np.ndarray, " set"], chosen: tuple[int, ...]
) -> bool:
    codes = _codes(on, chosen)
    ones = np.bincount(codes, value, 2 ** len(chosen))
    return bool(((ones == 0) | (ones == np.bincount(codes, minlength=2 ** len(chosen)))).all())


def _codes(on: Bool[np.ndarray, "set feature"], chosen: tuple[int, ...]) -> np.ndarray:
    powers = 1 << np.arange(len(chosen) - 1, -1, -1)
    return np.asarray(on[:, list(chosen)] @ powers, dtype=np.int64)
