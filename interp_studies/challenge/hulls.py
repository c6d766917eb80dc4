"""How far apart two sets of points are: whether a hyperplane tells them apart, with room.

The least distance between their convex hulls, by non-negative least squares over the weights of
both. It shares nothing with the linear program of `probes.estimators.separability`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import nnls

CLEARLY = 0.005  # of the largest distance between two points
ROUNDS = 30


def hull_distance(some: Float[np.ndarray, "row d"], others: Float[np.ndarray, "other d"]) -> float:
    """Between the convex hulls of two sets of points, by non-negative least squares.

    NaN where that does not come to an end in ROUNDS times as many steps as there are points.
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
    """Whether the hulls of the rows told and of the others are known to be CLEARLY apart."""
    steps = np.linalg.norm(points - points.mean(0), axis=1)
    return bool(hull_distance(points[told], points[~told]) >= CLEARLY * 2 * steps.max())
