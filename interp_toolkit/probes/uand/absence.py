"""Whether any affine function of a layer's input comes as near to an AND as the layer does.

A readout that fails on held-out rows does not show that its input lacks the AND: with few rows for
its width it would fail anyway. The null of "computed here" is therefore the best affine function of
the *whole* input, fitted to the very rows on which it is judged. It must come within `LIMIT` of the
AND on the rows where the layer's own readout is within `NEAR` of it. If no affine function does,
which two convex combinations that coincide prove (`check_separability`), the input lacks the AND at
any number of rows. If one does, nothing is shown: with about as many rows as columns one always
does, and so it is for every layer that copies an AND by an affine map, whatever its width.

The points (x, AND - LIMIT) and (x, AND + LIMIT) of all rows x are separable by a hyperplane exactly
if such a function exists: its graph is the hyperplane. The rows are taken in small sets, to which
those that a hyperplane violates are added, until the points are inseparable or none is violated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.probes.estimators.separability import check_separability

ROUNDING = 1e-3  # relative: an affine readout's 1/4 must not fall below 1/4 by float32 rounding
LIMIT = AFFINE * (1 - ROUNDING)
NEAR = 0.8 * LIMIT  # so that a copy may be affine up to a fifth of the limit
ROWS_A_COLUMN = 3  # from two on, signs of residuals can no longer all be fitted (Cover 1965)
MOST_PRODUCTS = 1e11  # of numbers in one pass over all pairs; some minutes
LEAST_VARIANCE = 1e-12  # of a principal component, relative to the largest; less is rounding

Pair = Int[np.ndarray, "2"]


@dataclass(frozen=True, eq=False)
class SiteRows:
    """Activations at one site on all rows, fitted and held out.

    Attributes:
        X: the activations.
        labels: the features that are on.
        readout: the `UANDReadout` that was fitted to them; None if only its input is asked for.
    """

    X: Float[np.ndarray, "n d"]
    labels: Bool[np.ndarray, "n m"]
    readout: Any = None

    @cached_property
    def components(self) -> Float[np.ndarray, "n k"]:
        """The principal components that vary, with a variance of 1 each."""
        X = self.X.astype(np.float64)
        X = X - X.mean(axis=0)
        deviation = X.std(axis=0)
        X = X[:, deviation > 0] / deviation[deviation > 0]
        if not X.shape[1]:
            return np.zeros((len(X), 0))
        sizes, axes = np.linalg.eigh(X.T @ X / len(X))
        large = sizes > LEAST_VARIANCE * sizes[-1]
        return np.asarray(X @ (axes[:, large] / np.sqrt(sizes[large])))

    @property
    def rows_needed(self) -> int:
        """Number of distinct rows from which the lack of an AND can be shown, about."""
        return ROWS_A_COLUMN * (1 + int(np.ptp(self.X, axis=0).astype(bool).sum()))

    @property
    def most_pairs(self) -> int:
        """Number of pairs whose lack can be looked for in some minutes."""
        return max(1, int(MOST_PRODUCTS / (self.rows_needed * self.components.shape[1] ** 2 + 1)))

    @property
    def enough(self) -> bool:
        """Whether there were rows enough to find a readout: twice as many as columns that vary."""
        whitening = self.readout._whitening
        return len(self.readout._rows) > 2 * (1 + int((whitening.unit > 0).sum()))

    def near(self, pair: Pair, gain: float, bias: float) -> Bool[np.ndarray, " n"]:
        """Rows on which the readout, after gain and bias, is within `NEAR` of the AND."""
        directions, intercepts = self.readout.readouts([pair.tolist()])
        scores = gain * (self.X @ directions[0] + intercepts[0]) + bias
        return np.asarray(np.abs(scores - self.labels[:, pair].all(axis=1)) <= NEAR)

    def lacks(self, pair: Pair, rows: Bool[np.ndarray, " n"]) -> bool:
        """Whether no affine function of X is within `LIMIT` of the AND on these rows."""
        truth = self.labels[rows][:, pair].all(axis=1)
        if not truth.any() or truth.all() or truth.size <= self.components.shape[1] + 1:
            return False
        return not_affine(self.components[rows], truth)


def not_affine(X: Float[np.ndarray, "n k"], truth: Bool[np.ndarray, " n"]) -> bool:
    """Whether it is proved that no affine function of X is within `LIMIT` of `truth` on all rows.

    False if one is, or if that is undecided by rounding.
    """
    n, k = X.shape
    step = ROWS_A_COLUMN * (k + 2)
    chosen = np.zeros(n, dtype=bool)
    for side in (truth, ~truth):
        chosen[np.flatnonzero(side)[: step // 2]] = True
    while True:
        points = np.column_stack([X[chosen], truth[chosen]])
        edge = np.append(np.zeros(k), LIMIT)
        separability = check_separability(points - edge, points + edge, precision="float32")
        if separability.hyperplane is None:
            return separability.status == "not_separable"
        scores = np.column_stack([X, truth]) @ separability.direction - separability.threshold
        beyond = np.where(chosen, 0, np.abs(scores) + LIMIT * separability.direction[-1])
        if not (beyond > 0).any():
            return False
        worst = np.argsort(-beyond, kind="stable")[:step]
        chosen[worst[beyond[worst] > 0]] = True
