"""The two witnesses of a separability verdict, each checked with two matrix products.

A hyperplane shows that two sets of points can be separated: one class scores above the other by a
gap. A pair of convex combinations that coincide shows that they cannot: whatever the direction,
the common point would have to lie on both sides. Both are plain data; `verify` recomputes in
float64 what they claim, on the points themselves, and knows nothing of how they were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief

WEIGHT_SUM_TOLERANCE = 1e-9  # weights are divided by their sum anyway; this catches wrong ones


@dataclass(frozen=True)
class Hyperplane(Brief):
    """A separating hyperplane `direction · x = threshold`, positives above it.

    Attributes:
        direction: unit normal.
        threshold: midway between the classes.
        margin: the gap between the classes along `direction`, in the units of the activations:
            the least score of a positive minus the greatest score of a negative.

    Examples:
        >>> plane = Hyperplane(np.array([1.0, 0.0]), threshold=1.0, margin=2.0)
        >>> plane.verify([[2.0, 5.0]], [[0.0, 5.0]])
        2.0
    """

    direction: Float[np.ndarray, " d"]
    threshold: float
    margin: float

    def verify(self, X_positive: Any, X_negative: Any) -> float:
        """The gap between the classes along the unit direction, on these points, in float64.

        Args:
            X_positive: [n_pos d], an array or a tensor.
            X_negative: [n_neg d].
        """
        above = as_float64("positive", X_positive) @ self.unit
        below = as_float64("negative", X_negative) @ self.unit
        return float(above.min() - below.max())

    @property
    def unit(self) -> Float[np.ndarray, " d"]:
        """The direction, normalised again, so that no verdict rests on a stored norm."""
        return np.asarray(self.direction / np.linalg.norm(self.direction))


@dataclass(frozen=True)
class Certificate(Brief):
    """A common point of the two classes' convex hulls: no hyperplane separates them.

    Attributes:
        positive_weights: convex weights on the positives (at least 0, sum 1).
        negative_weights: convex weights on the negatives.
        residual: distance between the two weighted means, in the units of the activations. No
            unit direction has a gap above it.

    Examples:
        >>> halves = np.array([0.5, 0.5])
        >>> Certificate(halves, halves, residual=0.0).verify([[0, 1], [1, 0]], [[0, 0], [1, 1]])
        0.0
    """

    positive_weights: Float[np.ndarray, " n_pos"]
    negative_weights: Float[np.ndarray, " n_neg"]
    residual: float

    def verify(self, X_positive: Any, X_negative: Any) -> float:
        """The distance between the two weighted means of these points, in float64.

        Measured from one of the points: a distance from the origin that all share would round the
        difference away. Raises InputError when the weights are not convex: a wrong certificate
        proves nothing.

        Args:
            X_positive: [n_pos d], an array or a tensor.
            X_negative: [n_neg d].
        """
        X_positive = as_float64("positive", X_positive)
        X_negative = as_float64("negative", X_negative)
        origin = X_positive[0]
        positive = _convex(self.positive_weights) @ (X_positive - origin)
        negative = _convex(self.negative_weights) @ (X_negative - origin)
        return float(np.linalg.norm(positive - negative))


def as_float64(name: str, X: Any) -> Float[np.ndarray, "..."]:
    """Activations as a float64 array; InputError, naming the class, for what is no real number."""
    if hasattr(X, "detach"):
        X = X.detach().cpu()
        X = (X if X.is_complex() else X.double()).numpy()
    try:
        return np.asarray(X).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError):
        raise InputError(f"the {name} class does not hold real numbers") from None


def _convex(weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    total = weights.sum()
    if weights.min() < 0 or abs(total - 1) > WEIGHT_SUM_TOLERANCE:
        raise InputError(
            f"not convex weights: smallest {weights.min():.3g}, sum {total:.12g} "
            "(a certificate needs weights of at least 0 that sum to 1)"
        )
    return np.asarray(weights / total)
