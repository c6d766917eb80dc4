"""The one factorisation behind all readoffs: activations turned so that their covariance is 1.

With mean m and covariance G = L L^T of the activations (a small ridge added to its diagonal),
y = L^-1 (x - m). In these coordinates the least-squares direction of any rare boolean target is
the mean of y over the rows on which it is true, up to a factor: nothing is left to solve for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import cholesky, solve_triangular

from interp_toolkit.errors import InputError

ROWS = 4096  # whose products are summed in the activations' precision; beyond, in float64


@dataclass(frozen=True, eq=False)
class Whitening:
    """Mean and turn of some activations.

    Attributes:
        mean: of the rows, float64.
        turn: L^-T, so that y = (x - mean) @ turn.
    """

    mean: Float[np.ndarray, " d"]
    turn: Float[np.ndarray, "d d"]

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The rows whitened, in their own precision."""
        turned = (X - self.mean.astype(X.dtype)) @ self.turn.astype(X.dtype)
        return np.asarray(turned)


def whiten(X: Float[np.ndarray, "n d"], ridge: float) -> Whitening:
    """The whitening of these rows.

    Args:
        X: activations.
        ridge: what is added to the covariance's diagonal, relative to its mean.

    Activations that do not vary at all become zeros.

    Raises:
        InputError: a covariance that needs a larger ridge.
    """
    n, d = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    gram = np.zeros((d, d))
    for start in range(0, n, ROWS):
        centred = X[start : start + ROWS] - mean.astype(X.dtype)
        gram += centred.T @ centred
    gram /= n
    scale = float(np.trace(gram)) / d
    if scale == 0:
        return Whitening(mean, np.eye(d))
    gram[np.diag_indices(d)] += ridge * scale
    try:
        factor = cholesky(gram, lower=True)
        turn = solve_triangular(factor, np.eye(d), lower=True).T
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"the activations' covariance is singular with ridge={ridge}; give a larger ridge"
        ) from error
    return Whitening(mean, turn)
