"""The distance between two sets of points, which shows whether a hyperplane separates them.

It is the least distance between their convex hulls, computed by non-negative least squares over the
convex weights of both. The computation is independent of the linear program in
`probes.estimators.separability`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import nnls

CLEARLY = 0.005  # of the largest distance between two points
ROUNDS = 30


def hull_distance(some: Float[np.ndarray, "row d"], others: Float[np.ndarray, "other d"]) -> float:
    """Distance between the convex hulls of two sets of points, by non-negative least squares.

    NaN if the solver does not converge within ROUNDS times the number of points.
    """
    scale = max(float(np.abs(some).max()), float(np.abs(others).max()), 1e-300)
    weight = 1e3  # on the weights of each set adding up to 1
    n, m = len(some), len(others)
    system = np.zeros((some.shape[1] + 2, n + m))
    system[:-2, :n], system[:-2, n:] = some.T / scale, -others.T / scale
    system[-2, :n] = system[-1, n:] = weight
    wanted = np.zeros(len(system))
    wanted[-2:] = weight
    try:
        shares, _ = nnls(system, wanted, maxiter=ROUNDS * (n + m))
    except RuntimeError:
        return float("nan")
    shares[:n] /= shares[:n].sum()
    shares[n:] /= shares[n:].sum()
    return float(np.linalg.norm(shares[:n] @ some - shares[n:] @ others))


def apart(points: Float[np.ndarray, "row d"], told: Bool[np.ndarray, " row"]) -> bool:
    """Whether the convex hulls of the selected rows and of all others are CLEARLY apart."""
    steps = np.linalg.norm(points - points.mean(0), axis=1)
    return bool(hull_distance(points[told], points[~told]) >= CLEARLY * 2 * steps.max())
