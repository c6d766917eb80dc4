"""Is a mean over rows more than chance, with this many looks? Signs of whole rows are flipped.

If a contrast has no direction, its sign in each row is a coin's. All contrasts of all heads have
their rows' signs flipped together, which keeps how they depend on each other, and each mean (in
root mean squares of its rows, which flips do not change) is set against the largest of all in each
draw (Westfall and Young 1993): the chance of any false one is at most the p-value. Rows are
taken as independent of each other.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

DRAWS = 4000
AT_ONCE = 250  # draws, of many contrasts
ROUNDING = 1e-6  # of the largest contrast: below, contrasts are zero
TIE = 1e-6


def flip_p_values(
    contrasts: Float[np.ndarray, "test row"], *, draws: int = DRAWS, seed: int = 0
) -> Float[np.ndarray, " test"]:
    """Two-sided p-values, adjusted for all tests together; NaN rows take no part.

    Args:
        contrasts: a row's number in each test; contrasts that are only rounding must be 0.
        draws: of signs. The smallest p-value is about 1 / draws, or 2 / 2^rows if that is more.
        seed: of the draws.

    Examples:
        >>> found = flip_p_values(np.array([[1.0] * 12, [1.0, -1.0] * 6]))
        >>> bool(found[0] < 0.01), bool(found[1] > 0.9)
        (True, True)
    """
    defined = ~np.isnan(contrasts)
    values = np.where(defined, contrasts, 0.0)
    size = np.sqrt(defined.sum(1) * np.square(values).sum(1))
    scaled = (values / np.where(size > 0, size, 1.0)[:, None]).astype(np.float32)
    rng = np.random.default_rng(seed)
    largest = np.zeros(draws)
    for start in range(0, draws, AT_ONCE):
        stop = min(start + AT_ONCE, draws)
        signs = rng.integers(0, 2, (scaled.shape[1], stop - start)).astype(np.float32) * 2 - 1
        largest[start:stop] = np.abs(scaled @ signs).max(0, initial=0.0)
    observed = np.abs(scaled.sum(1)).astype(float) - TIE
    observed[~defined.any(1)] = np.nan
    return among_largest(observed, largest)


def among_largest(
    observed: Float[np.ndarray, "*test"], largest: Float[np.ndarray, " draw"]
) -> Float[np.ndarray, "*test"]:
    """The share of draws whose largest statistic reaches each observed one, itself counted."""
    reached = np.searchsorted(np.sort(largest), observed, side="left")
    p_values: np.ndarray = (1 + len(largest) - reached) / (1 + len(largest))
    return np.where(np.isnan(observed), np.nan, p_values)
