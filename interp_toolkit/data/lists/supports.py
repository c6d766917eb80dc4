"""Which values a hard list is drawn from: the exact distribution of its support, and a sampler.

The recipe of "hard" lists (Qi & Zhong 2023, on sorting transformers) first chooses a set of
values, then draws the list's items from it with replacement. With probability 2/3 a chance p is
drawn uniformly from (0, 1) and each value kept with probability p, all again, p included, while
nothing was kept; otherwise the set is all integers between two uniform draws, ends included.
Given p, a set of k out of n values has probability p^k (1 - p)^(n - k). Integrated over p this is
1 / ((n + 1) C(n, k)), so that the first branch is a size uniform in 1..n and then a uniform set of
that size. No rejection is needed, and while 2^n is small the whole mixture fits in one table,
sampled in constant time by the alias method (Walker 1977, built as by Vose 1991).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

#: P(the set is scattered, of a uniform size), in the recipe; otherwise it is an interval
SCATTERED = 2 / 3
#: 2^16 - 1 supports are a table of 9 MB; larger alphabets are drawn without one
MAX_TABLE_VALUES = 16


class SupportTable(NamedTuple):
    """An alias table over all supports; support s holds the values of the bits of s + 1.

    Attributes:
        keep: the chance that a uniformly drawn column stands for itself.
        alias: the support that it stands for otherwise.
        size: how many values a support holds.
        members: a support's values in increasing order, then zeros.
    """

    keep: Float[Tensor, " support"]
    alias: Int[Tensor, " support"]
    size: Float[Tensor, " support"]
    members: Int[Tensor, "support value"]


def support_probabilities(n_values: int) -> Float[np.ndarray, " support"]:
    """The probability of every support; entry s is the set of the bits of s + 1."""
    supports = np.arange(1, 2**n_values)
    bits = (supports[:, None] >> np.arange(n_values)) & 1
    sizes = bits.sum(axis=1)
    of_size = np.array([math.comb(n_values, k) for k in range(n_values + 1)])
    scattered = 1 / (n_values * of_size[sizes])
    lowest = supports & -supports
    is_interval = (supports + lowest) & supports == 0
    ends = np.where(sizes == 1, 1, 2)  # ordered pairs of ends that give this interval
    interval = is_interval * ends / n_values**2
    mixture: Float[np.ndarray, " support"] = SCATTERED * scattered + (1 - SCATTERED) * interval
    return mixture


@functools.lru_cache(maxsize=16)
def support_table(n_values: int, device: torch.device) -> SupportTable:
    """The alias table of an alphabet of at most MAX_TABLE_VALUES values, made once a device."""
    keep, alias = alias_table(support_probabilities(n_values))
    bits = (np.arange(1, 2**n_values)[:, None] >> np.arange(n_values)) & 1
    members = np.argsort(1 - bits, axis=1, kind="stable") * np.sort(bits, axis=1)[:, ::-1]
    return SupportTable(
        keep=torch.from_numpy(keep).to(device, torch.float32),
        alias=torch.from_numpy(alias).to(device),
        size=torch.from_numpy(bits.sum(axis=1)).to(device, torch.float32),
        members=torch.from_numpy(np.ascontiguousarray(members)).to(device, torch.int64),
    )


def alias_table(
    probabilities: Float[np.ndarray, " outcome"],
) -> tuple[Float[np.ndarray, " outcome"], Int[np.ndarray, " outcome"]]:
    """Vose's alias table: outcome i keeps its column with chance keep[i], else alias[i] has it."""
    n = len(probabilities)
    scaled = (probabilities * (n / probabilities.sum())).tolist()
    keep, alias = np.ones(n), np.arange(n)
    small = [i for i, weight in enumerate(scaled) if weight < 1]
    large = [i for i, weight in enumerate(scaled) if weight >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            small.append(large.pop())
    return keep, alias
