"""The one factorisation behind all readoffs: activations turned so that their covariance is 1.

Columns are first brought to a standard deviation of 1, so that a ridge weighs on all alike. With
mean m and covariance G = V Λ V^T of what that gives, y = (Λ + ridge)^(-1/2) V^T (x - m): in these
coordinates the least-squares direction of any rare boolean target is the mean of y over the rows on
which it is true, up to a factor: nothing is left to solve for. Of n rows there are at most n
directions; with fewer rows than columns they come from the rows' products with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import cholesky, eigh, lapack

from interp_toolkit.errors import InputError

ROWS = 4096  # whose products are summed in the activations' precision; beyond, in float64
CONSTANT = 1e-6  # a column that varies less, relative to its mean, does so by rounding


@dataclass(frozen=True, eq=False)
class Whitening:
    """How some activations are turned: y = ((x - mean) * unit) @ turn.

    Attributes:
        mean: of the rows.
        unit: one over the columns' standard deviations; 0 for columns that do not vary.
        turn: of the scaled columns.
    """

    mean: Float[np.ndarray, " d"]
    unit: Float[np.ndarray, " d"]
    turn: Float[np.ndarray, "d k"]

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """The rows whitened, in their own precision."""
        return np.asarray(_scaled(X, self.mean, self.unit) @ self.turn.astype(X.dtype))

    def directions(self, whitened: Float[np.ndarray, "gate k"]) -> Float[np.ndarray, "gate d"]:
        """Directions among the activations, from those among whitened ones."""
        return np.asarray((whitened.astype(np.float64) @ self.turn.T) * self.unit)


def whiten(X: Float[np.ndarray, "n d"], ridge: float) -> Whitening:
    """The whitening of these rows.

    Args:
        X: activations.
        ridge: what is added to the covariance of the columns, scaled to a variance of 1.

    Activations that do not vary at all become zeros.

    Raises:
        InputError: a covariance that needs a larger ridge.
    """
    n, d = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    deviation = X.std(axis=0, dtype=np.float64)
    least = np.finfo(X.dtype).tiny  # one over a smaller number can be infinite
    varies = deviation > np.maximum(CONSTANT * np.abs(mean), least)
    if not varies.any():
        return Whitening(mean, np.zeros(d), np.eye(d))
    unit = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
    turn = _from_rows(X, mean, unit, ridge) if n < d else _from_columns(X, mean, unit, ridge)
    return Whitening(mean, unit, turn)


def _from_columns(
    X: Float[np.ndarray, "n d"], mean: np.ndarray, unit: np.ndarray, ridge: float
) -> Float[np.ndarray, "d d"]:
    """L^-T of G + ridge = L L^T."""
    n, d = X.shape
    gram = np.zeros((d, d))
    for start in range(0, n, ROWS):
        scaled = _scaled(X[start : start + ROWS], mean, unit)
        gram += scaled.T @ scaled
    gram /= n
    gram[np.diag_indices(d)] += np.where(unit > 0, ridge, 1.0)  # constant columns: a pivot
    try:
        factor = cholesky(gram, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"the activations' covariance is singular with ridge={ridge}; give a larger ridge"
        ) from error
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return np.asarray(inverse.T)


def _from_rows(
    X: Float[np.ndarray, "n d"], mean: np.ndarray, unit: np.ndarray, ridge: float
) -> Float[np.ndarray, "d k"]:
    """V (Λ + ridge)^(-1/2), from the rows' products; directions without any variance left out."""
    scaled = _scaled(X, mean, unit).astype(np.float64)
    sizes, U = eigh(scaled @ scaled.T / len(X))
    kept = sizes > len(X) * np.finfo(X.dtype).eps * sizes[-1]
    V = scaled.T @ U[:, kept] / np.sqrt(len(X) * sizes[kept])
    return np.asarray(V / np.sqrt(sizes[kept] + ridge))


def _scaled(X: Float[np.ndarray, "n d"], mean: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return np.asarray((X - mean.astype(X.dtype)) * unit.astype(X.dtype))
