"""The exact worst-case errors of universal AND, from how many neurons each triple shares.

With `t_ijx = |S_i ∩ S_j ∩ S_x| / |S_i ∩ S_j|`, a neuron holds max(0, c - 1) where c of its features
are on, and the readoff of (i, j) is the mean over S_i ∩ S_j:

- both on, and X others: 1 + sum over X of t_ijx, so the worst error is the l-2 largest t's sum;
- one on, and X others: the sum over X of t_ijx, so the worst is the l-1 largest t's sum;
- none on, and X others: the mean of max(0, c - 1), which is at most the mean of c without any one
  of X: the sum over l-1 others of t_ijx. So it is never worse than the case before.

The best and worst scores are attained, the least are 1 and 0, and both classes' ranges are exact.
A pair without neurons reads 0 everywhere: its error is 1. Counts come from one matrix product a
feature, so that nothing larger than (features x features) is held.
Source: "Computation in superposition", section 1.2; the exact worst case is derived here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.boolean_functions import after_offset
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.density import checked_most_on

ROWS = 1_024  # pairs (i, j) of one feature i that are counted at once


@dataclass(frozen=True, eq=False)
class ExactEpsilon:
    """The worst errors of every pair's readoff over every input with at most l features on.

    Pairs are in the order (0, 1), (0, 2), ...; a pair without neurons has error 1.

    Attributes:
        most_on: l.
        neurons: how many neurons each pair has.
        both_on: each pair's worst error where both features are on.
        one_on: the same where one is; where none is, it is never more.
        mean_t: the mean of t over all pairs with neurons and all third features; NaN without.
    """

    most_on: int
    neurons: Int[np.ndarray, " pair"]
    both_on: Float[np.ndarray, " pair"]
    one_on: Float[np.ndarray, " pair"]
    mean_t: float

    @property
    def by_pair(self) -> Float[np.ndarray, " pair"]:
        """Each pair's worst error."""
        return np.asarray(np.maximum(self.both_on, self.one_on))

    @property
    def by_pair_after_offset(self) -> Float[np.ndarray, " pair"]:
        """Each pair's worst error after its best gain and bias (see `boolean_functions`)."""
        there = (self.neurons > 0).astype(float)
        return after_offset(there, there * (1 + self.both_on), 0 * there, self.one_on)

    @property
    def worst(self) -> float:
        """The largest error of all."""
        return float(self.by_pair.max())

    @property
    def worst_after_offset(self) -> float:
        """The largest over pairs after each pair's best gain and bias."""
        return float(self.by_pair_after_offset.max())

    @property
    def n_empty(self) -> int:
        """The number of pairs without a neuron."""
        return int((self.neurons == 0).sum())


def exact_epsilon(connections: Bool[Tensor, "feature neuron"], most_on: int) -> ExactEpsilon:
    """The exact errors of the readoffs along intersections; see the module.

    Raises InputError for fewer than 2 features, and where `most_on` is below 2 or above them.
    """
    n_features = len(connections)
    if checked_most_on(most_on) > n_features:
        raise InputError(f"{most_on} features are to be on at most; there are {n_features}")
    n_top = min(most_on - 1, n_features - 2)
    sizes, tops, totals = zip(*_counts(connections, n_top), strict=True)
    neurons, largest, total = torch.cat(sizes), torch.cat(tops), torch.cat(totals)
    empty = neurons == 0
    shares = largest / neurons.clamp(min=1)[:, None]
    both_on = shares[:, : most_on - 2].sum(dim=1).masked_fill(empty, 1.0)
    one_on = shares.sum(dim=1)
    n_thirds = int((~empty).sum()) * (n_features - 2)
    return ExactEpsilon(
        most_on=most_on,
        neurons=neurons.long().numpy(),
        both_on=both_on.numpy(),
        one_on=one_on.numpy(),
        mean_t=float((total / neurons.clamp(min=1)).sum()) / n_thirds if n_thirds else float("nan"),
    )


def pair_sizes(connections: Bool[Tensor, "feature neuron"]) -> Int[Tensor, "feature feature"]:
    """|S_i ∩ S_j| of all i and j."""
    as_numbers = connections.float()
    return (as_numbers @ as_numbers.T).long()


def _counts(
    connections: Bool[Tensor, "feature neuron"], n_top: int
) -> Iterator[tuple[Float[Tensor, " pair"], Float[Tensor, "pair top"], Float[Tensor, " pair"]]]:
    """By blocks of pairs: |S_i ∩ S_j|, the largest |S_i ∩ S_j ∩ S_x|, and their sum over x.

    Float32 holds these whole numbers exactly up to 2^24 neurons.
    """
    as_numbers = connections.float()
    n_features = len(connections)
    for i in range(n_features - 1):
        shared = as_numbers[:, connections[i]]
        for start in range(i + 1, n_features, ROWS):
            j = torch.arange(start, min(start + ROWS, n_features))
            counts = shared[j] @ shared.T
            rows = torch.arange(len(j))
            sizes = counts[:, i].clone()
            counts[:, i] = 0
            counts[rows, j] = 0
            tops = counts.topk(n_top, dim=1).values if n_top else counts[:, :0]
            yield sizes.double(), tops.double(), counts.double().sum(dim=1)
