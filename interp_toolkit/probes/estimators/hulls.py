"""Search for a direction between two convex hulls, or for weights under which they meet.

There are three searches, cheapest first. `separability` verifies each of their proposals on the
original points:

1. Interpolation: the least-norm w with w·x + b = ±1. Separates affinely independent points.
2. Logistic regression without regularization, by Newton's method. On separable data some iterate
   separates. Otherwise the maximum-likelihood fit exists, and its stationarity says
   sum over positives of (1 - p) x = sum over negatives of p x, likewise without x: the residuals,
   normalized, are convex weights under which the hulls meet.
3. The linear program min |Σ α x+ - Σ β x-|₁ over convex weights (HiGHS): its primal solution
   are such weights, its dual solution is a direction. It decides the remaining cases: hulls that
   only touch, and gaps too small for a fit.

All run in whitened coordinates from an SVD (`Frame`): separability is invariant under invertible
affine maps, and directions of small variance would otherwise vanish in the solvers' tolerances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg, optimize, sparse

NEWTON_STEPS = 40
NEWTON_RIDGE = 1e-10  # keeps the Newton system solvable when probabilities saturate
STATIONARY = 1e-9  # gradient norm per point at which the fit has converged
POLISH_STEPS = 6
SIMPLEX_LIMIT = 2_000  # points above which HiGHS's interior point is faster than its simplex
LP_TOLERANCE = 1e-10  # the smallest that HiGHS accepts


@dataclass(frozen=True)
class Frame:
    """Whitened coordinates of a centered point set.

    Attributes:
        coordinates: the points, with unit variance along every kept axis.
        axes: kept principal axes divided by their spread: `coordinates = (X - centre) @ axes`.
    """

    coordinates: Float[np.ndarray, "n k"]
    axes: Float[np.ndarray, "d k"]

    def direction(self, w: Float[np.ndarray, " k"]) -> Float[np.ndarray, " d"]:
        """Map a direction of the coordinates to the original space (not normalized)."""
        return np.asarray(self.axes @ w)


def frame(X: Float[np.ndarray, "n d"], negligible: float) -> Frame:
    """Whitened coordinates of points, without axes in which no point moves by `negligible`.

    The smallest axes are dropped as long as, together, they account for less than `negligible` of
    every point's distance from the center.
    """
    centred = X - X.mean(axis=0)
    u, s, vt = linalg.svd(centred, full_matrices=False, lapack_driver="gesdd")
    parts = (u * s) ** 2
    dropped = np.sqrt(np.cumsum(parts[:, ::-1], axis=1).max(axis=0))[::-1]  # by the axes >= j
    keep = (dropped > negligible) & (s > 0)
    root_n = np.sqrt(len(X))
    return Frame(u[:, keep] * root_n, vt[keep].T / s[keep] * root_n)


def interpolating_direction(
    points: Float[np.ndarray, "n k"], positive: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " k"]:
    """The least-squares direction for labels ±1; exact when the points are affinely independent."""
    design = np.column_stack([points, np.ones(len(points))])
    solution, *_ = linalg.lstsq(design, np.where(positive, 1.0, -1.0))
    return np.asarray(solution[:-1])


@dataclass(frozen=True)
class Proposal:
    """A candidate direction and candidate weights.

    Attributes:
        direction: along which the classes may be separable.
        weights: over all points, each class' summing to 1, under which they may meet; or None.
    """

    direction: Float[np.ndarray, " k"]
    weights: Float[np.ndarray, " n"] | None = None


def logistic_proposals(
    points: Float[np.ndarray, "n k"], positive: Bool[np.ndarray, " n"]
) -> Iterator[Proposal]:
    """Newton iterates of the unregularized fit: the separating ones, then the stationary one."""
    n, k = points.shape
    design = np.column_stack([points, np.ones(n)])
    w = np.zeros(k + 1)
    loss = n * np.log(2.0)
    for _ in range(NEWTON_STEPS):
        p = _sigmoid(design @ w)
        residual = p - positive
        gradient = design.T @ residual
        if np.linalg.norm(gradient) < STATIONARY * n:
            yield Proposal(w[:k], _balanced(np.abs(residual), positive))
            return
        hessian = (design.T * (p * (1 - p))) @ design
        hessian[np.diag_indices(k + 1)] += NEWTON_RIDGE * max(hessian.diagonal().max(), 1e-300)
        try:
            step = linalg.solve(hessian, -gradient, assume_a="pos", check_finite=False)
        except (linalg.LinAlgError, ValueError):
            return
        if not np.isfinite(step).all():
            return
        w, loss, moved = _line_search(design, positive, w, step, loss)
        scores = design @ w
        if scores[positive].min() > scores[~positive].max():
            yield Proposal(w[:k])
            return
        if not moved:
            yield Proposal(w[:k], _balanced(np.abs(_sigmoid(scores) - positive), positive))
            return


def _line_search(
    design: Float[np.ndarray, "n k1"],
    positive: Bool[np.ndarray, " n"],
    w: Float[np.ndarray, " k1"],
    step: Float[np.ndarray, " k1"],
    loss: float,
) -> tuple[Float[np.ndarray, " k1"], float, bool]:
    sign = np.where(positive, -1.0, 1.0)
    for size in 0.5 ** np.arange(20):
        trial = w + size * step
        trial_loss = float(np.logaddexp(0, sign * (design @ trial)).sum())
        if trial_loss < loss:
            return trial, trial_loss, True
    return w, loss, False


def _sigmoid(z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


def _balanced(
    weights: Float[np.ndarray, " n"], positive: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"] | None:
    """Each class' weights divided by their sum; None if the sum of a class is 0."""
    balanced = weights.astype(float)
    for members in (positive, ~positive):
        total = balanced[members].sum()
        if not total > 0:
            return None
        balanced[members] /= total
    return balanced


def linear_programme(
    points: Float[np.ndarray, "n k"],
    positive: Bool[np.ndarray, " n"],
) -> Proposal | None:
    """The hull LP: the closest convex combinations in the 1-norm, and the dual direction.

    None if HiGHS fails (numerical trouble).
    """
    n, k = points.shape
    signed = np.where(positive, 1.0, -1.0)[:, None] * points
    unit = sparse.identity(k, format="csc")
    classes = np.vstack([positive, ~positive]).astype(float)
    constraints = sparse.vstack(
        [
            sparse.hstack([sparse.csc_matrix(signed.T), unit, -unit]),
            sparse.hstack([sparse.csc_matrix(classes), sparse.csc_matrix((2, 2 * k))]),
        ],
        format="csc",
    )
    solved = optimize.linprog(
        np.concatenate([np.zeros(n), np.ones(2 * k)]),
        A_eq=constraints,
        b_eq=np.concatenate([np.zeros(k), np.ones(2)]),
        method="highs-ds" if n <= SIMPLEX_LIMIT else "highs-ipm",
        options={
            "primal_feasibility_tolerance": LP_TOLERANCE,
            "dual_feasibility_tolerance": LP_TOLERANCE,
        },
    )
    if solved.x is None or solved.status != 0:
        return None
    weights = _balanced(np.maximum(solved.x[:n], 0), positive)
    return Proposal(-np.asarray(solved.eqlin.marginals[:k]), weights)


def polish(
    points: Float[np.ndarray, "n k"],
    positive: Bool[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Nearby weights under which the two combinations coincide to rounding, if there are any.

    Newton's correction in the metric of the weights (small weights move little), so that they stay
    positive. Solvers stop at a residual of 1e-10; a certificate should be more exact.
    """
    signed = np.where(positive, 1.0, -1.0)[:, None] * points
    rows = np.column_stack([signed, positive, ~positive]).T
    target = np.concatenate([np.zeros(points.shape[1]), np.ones(2)])
    best, best_size = weights, _size(rows, target, weights)
    for _ in range(POLISH_STEPS):
        correction, *_ = linalg.lstsq(
            rows * weights, target - rows @ weights, cond=1e-13, lapack_driver="gelsd"
        )
        balanced = _balanced(np.maximum(weights * (1 + correction), 0), positive)
        if balanced is None:
            break
        weights = balanced
        size = _size(rows, target, weights)
        if size >= best_size:
            break
        best, best_size = weights, size
    return best


def _size(
    rows: Float[np.ndarray, "k2 n"],
    target: Float[np.ndarray, " k2"],
    weights: Float[np.ndarray, " n"],
) -> float:
    return float(np.linalg.norm(rows @ weights - target))


def widest_margin(
    points: Float[np.ndarray, "n d"], positive: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " d"] | None:
    """The maximum-margin direction of separable points, by least-distance programming.

    min |w| subject to ±(w·x + b) >= 1 is dual to a non-negative least-squares problem (Lawson &
    Hanson 1974, chapter 23). The offset is given a norm a thousand times smaller than w's.
    """
    sign = np.where(positive, 1.0, -1.0)[:, None]
    offset = 1e3 * np.abs(points).max()
    G = sign * np.column_stack([points, np.full(len(points), offset)])
    G_scale = np.abs(points).max()
    E = np.vstack([G.T / G_scale, np.ones(len(points))])
    f = np.zeros(len(E))
    f[-1] = 1.0
    try:
        u, _ = optimize.nnls(E, f)
    except RuntimeError:  # the iteration limit
        return None
    r = E @ u - f
    if not r[-1] < 0:
        return None
    return np.asarray(-r[: points.shape[1]] / r[-1])
