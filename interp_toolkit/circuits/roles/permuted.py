"""What in an effect is specific to the prompt's answer, against permuted answers.

An output w reads d · w on the direction d of its prompt's answer. Only what varies with the answer
is specific to it: the covariance over prompts, mean(w · d) - mean(w) · mean(d). It is 0 for an
output that is the same in all prompts, however frequent one answer is. The null deals the prompts'
answers out again: w of one prompt reads d of another, for random permutations of all prompts, which
are exact if outputs do not depend on answers.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.stats import max_statistic_p_values

ORDERS = 1_999  # random permutations
ROUNDING = 1e-6  # of the largest effect: below, effects do not vary
SAME = 1e-9  # of weights near 1: below, they are the same


def asked_alone(
    logits: Float[np.ndarray, "query some token"],
    weights: Float[np.ndarray, "query token"],
    slots: int,
) -> Float[np.ndarray, "query some"]:
    """What depends on the answer asked for: (logits - mean) · (weights - mean), by query.

    Means are over prompts, for each of a prompt's answers. The mean over prompts is the effect on
    the prompts' own answers less the mean effect on all prompts' answers, dealt out at random: the
    covariance of what is written and what is asked. It is 0 for what is the same in all prompts,
    however frequent one answer is. NaN if all prompts ask the same.

    Args:
        logits: effects on some tokens.
        weights: of these tokens in each query's preference; NaN for queries without one.
        slots: number of answers of a prompt.
    """
    defined = ~np.isnan(weights).any(1)
    written, asked = (_without_mean(v, defined, slots) for v in (logits, weights))
    if not (np.abs(asked[defined]) > SAME).any():
        return np.full(logits.shape[:2], np.nan)
    alone: np.ndarray = np.einsum("ast,at->as", written, asked)
    return alone


def _without_mean(
    values: Float[np.ndarray, "query *some"], defined: Bool[np.ndarray, " query"], slots: int
) -> Float[np.ndarray, "query *some"]:
    by_slot = np.where(defined.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)
    by_slot = by_slot.reshape(-1, slots, *values.shape[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a slot may be undefined in all prompts
        rest: np.ndarray = (by_slot - np.nanmean(by_slot, axis=0)).reshape(values.shape)
    return rest


def orders(asked: Int[np.ndarray, "row slot"], seed: int) -> Int[np.ndarray, "query order"]:
    """What each query asks in the prompts' own order, the first, and in random orders."""
    rng = np.random.default_rng(seed)
    rows = np.stack([np.arange(len(asked)), *(rng.permutation(len(asked)) for _ in range(ORDERS))])
    return asked[rows].transpose(1, 2, 0).reshape(-1, ORDERS + 1)


def smallest_p(asked: Int[np.ndarray, "row slot"]) -> float:
    """The smallest p-value that permuting prompts can give: some orders change nothing."""
    same = sum(math.lgamma(n + 1) for n in Counter(map(tuple, asked.tolist())).values())
    return max(1 / (1 + ORDERS), math.exp(same - math.lgamma(len(asked) + 1)))


def permuted_means(
    logits: Float[np.ndarray, "query some token"],
    weights: Float[np.ndarray, "query token"],
    slots: int,
    seed: int,
) -> tuple[Float[np.ndarray, "some order"], float]:
    """Mean effects with prompts permuted (see `orders`), and the smallest p-value they can give.

    Prompts with a query without weights (NaN) are left out.
    """
    whole = ~np.isnan(weights).any(1).reshape(-1, slots).any(1)
    chosen = np.repeat(whole, slots)
    kinds, asked = np.unique(weights[chosen], axis=0, return_inverse=True)
    asked = asked.reshape(-1, slots)
    means = np.zeros((logits.shape[1], ORDERS + 1))
    if len(asked):
        for effects, read in zip(logits[chosen], orders(asked, seed), strict=True):
            means += (effects @ kinds.T)[:, read] / asked.size
    return means, smallest_p(asked)


def permutation_p_values(means: Float[np.ndarray, "test order"]) -> Float[np.ndarray, " test"]:
    """Two-sided p-values of the first order among all, adjusted for all tests (largest of each)."""
    apart = means - means.mean(1, keepdims=True)
    spread = apart.std(1, keepdims=True)
    varies = spread > ROUNDING * np.abs(means).max(1, keepdims=True)
    z = np.where(varies, np.abs(apart) / np.where(varies, spread, 1), 0)
    return max_statistic_p_values(z[:, 0] - ROUNDING, z[:, 1:].T)
