"""Logistic probes: many targets at one site, solved together.

The objective is scikit-learn's `LogisticRegression`'s with L2: 1/2 |w|^2 + C * (sum of weighted
log-losses), the intercept unpenalized. `probes.estimators.solver` rotates the activations once and
minimizes all targets in matrix products.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.probes.estimators.arrays import as_booleans, check_options
from interp_toolkit.probes.estimators.solver import (
    Device,
    Labels,
    LogisticProblem,
    Rows,
    Site,
    Solution,
    minimise,
)

BLOCK_ELEMENTS = 1 << 22  # rows x targets solved at once: a few arrays of 32 MiB in float64
FLOAT32_TOL = 1e-4  # reached safely in float32; float64 continues from there
Weights = (
    Float[np.ndarray, " batch"]
    | Float[np.ndarray, "batch target"]
    | Bool[np.ndarray, " batch"]
    | Bool[np.ndarray, "batch target"]
)


@dataclass(frozen=True)
class LogisticTargets(ShortRepr):
    """Fitted probes, one per target.

    Attributes:
        coef: weights on the original activations, float64.
        intercept: zero if none was fitted.
        loss: the objective, penalty included.
        n_iter: L-BFGS iterations.
        converged: whether the target met the tolerance.
    """

    coef: Float[np.ndarray, "target d_model"]
    intercept: Float[np.ndarray, " target"]
    loss: Float[np.ndarray, " target"]
    n_iter: Int[np.ndarray, " target"]
    converged: Bool[np.ndarray, " target"]

    def decision_function(
        self, X: Float[np.ndarray, "batch d_model"]
    ) -> Float[np.ndarray, "batch target"]:
        """Log-odds of every target at every row."""
        return np.asarray(X @ self.coef.T + self.intercept)


def fit_logistic_targets(
    X: Rows,
    Y: Labels,
    *,
    C: float = 1.0,
    fit_intercept: bool = True,
    sample_weight: Weights | None = None,
    tol: float = 1e-4,
    max_iter: int = 500,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> LogisticTargets:
    """Fit one L2-regularized logistic regression per column of `Y`, all together.

    Args:
        X: activations at one site, [n, d], an array or a tensor.
        Y: booleans, or 0 and 1, [n, target]; both classes must occur in every column, among rows
            of positive weight.
        C: inverse strength of the penalty, as in scikit-learn.
        fit_intercept: whether to fit an unpenalized intercept.
        sample_weight: weights of the rows, shared or per target; a boolean mask leaves rows
            out, so a fold is one more target.
        tol: relative error of the solution at convergence, in the Hessian's norm; rounding sets a
            lower limit.
        max_iter: largest number of L-BFGS iterations per target and precision.
        device: where to compute; by default where `X` is.
        dtype: precision to work in. By default float64 for float64 activations; for narrower
            ones float32, finished in float64 where `tol` is below 1e-4 or was missed.

    Returns:
        The probes, in float64. Targets that missed `tol` are marked, with a ConvergenceWarning.

    Raises:
        InputError: NaN or infinity, mismatched rows, a target with one class, an invalid option.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> probes = fit_logistic_targets(X, X[:, :2] > 0)
        >>> probes.coef.shape, probes.converged.tolist()
        ((2, 3), [True, True])
    """
    check_options(C, tol, max_iter)
    site = Site(X, fit_intercept=fit_intercept, device=device)
    labels = as_booleans(Y, "labels")
    weights = None if sample_weight is None else np.asarray(sample_weight)
    fitted = fit_site(site, labels, weights, C=C, tol=tol, max_iter=max_iter, dtype=dtype)
    warn_unconverged(fitted.converged)
    return fitted


def fit_site(
    site: Site,
    Y: Bool[np.ndarray, "batch target"],
    weights: Weights | None,
    *,
    C: float,
    tol: float,
    max_iter: int,
    dtype: torch.dtype | None,
) -> LogisticTargets:
    """`fit_logistic_targets` on a prepared site, without warnings."""
    _check_targets(site, Y, weights)
    n_row, n_target = Y.shape
    step = max(1, BLOCK_ELEMENTS // n_row)
    parts = [
        _fit_block(
            site,
            Y[:, at : at + step],
            weights[:, at : at + step] if weights is not None and weights.ndim == 2 else weights,
            C=C,
            tol=tol,
            max_iter=max_iter,
            dtype=dtype,
        )
        for at in range(0, n_target, step)
    ]
    return LogisticTargets(
        coef=np.concatenate([part.coef for part in parts]),
        intercept=np.concatenate([part.intercept for part in parts]),
        loss=np.concatenate([part.loss for part in parts]),
        n_iter=np.concatenate([part.n_iter for part in parts]),
        converged=np.concatenate([part.converged for part in parts]),
    )


def warn_unconverged(converged: Bool[np.ndarray, " target"]) -> None:
    """Issue scikit-learn's ConvergenceWarning when some targets missed the tolerance."""
    if not converged.all():
        from sklearn.exceptions import ConvergenceWarning  # takes long to import

        message = (
            f"{(~converged).sum()} of {converged.size} logistic fits did not reach the tolerance; "
            "raise max_iter or tol"
        )
        warnings.warn(message, ConvergenceWarning, stacklevel=3)


def _fit_block(
    site: Site,
    Y: Bool[np.ndarray, "batch target"],
    weights: Weights | None,
    *,
    C: float,
    tol: float,
    max_iter: int,
    dtype: torch.dtype | None,
) -> LogisticTargets:
    """Fit one block: in float32 first if that is the activations' precision, then in float64."""
    mixed = dtype is None and site.natural == torch.float32
    problem = _problem(site, Y, weights, C, dtype or site.natural)
    start = _start(site, Y, weights).to(problem.rows.dtype)
    first_tol = max(tol, FLOAT32_TOL) if mixed else tol
    solution = minimise(problem, start, tol=first_tol, max_iter=max_iter)
    if mixed and (tol < first_tol or not bool(solution.converged.all())):
        solution = _finish(site, Y, weights, solution, C=C, tol=tol, max_iter=max_iter)
    coef, intercept = site.to_coefficients(solution.params)
    return LogisticTargets(
        coef=coef.cpu().numpy(),
        intercept=intercept.cpu().numpy(),
        loss=solution.loss.double().cpu().numpy(),
        n_iter=solution.n_iter.cpu().numpy(),
        converged=solution.converged.cpu().numpy(),
    )


def _finish(
    site: Site,
    Y: Bool[np.ndarray, "batch target"],
    weights: Weights | None,
    solution: Solution,
    *,
    C: float,
    tol: float,
    max_iter: int,
) -> Solution:
    """Continue in float64 from a float32 solution."""
    finished = minimise(
        _problem(site, Y, weights, C, torch.float64),
        solution.params.double(),
        tol=tol,
        max_iter=max_iter,
        start_loss=solution.start_loss.double(),
    )
    return replace(finished, n_iter=finished.n_iter + solution.n_iter)


def _problem(
    site: Site,
    Y: Bool[np.ndarray, "batch target"],
    weights: Weights | None,
    C: float,
    dtype: torch.dtype,
) -> LogisticProblem:
    signs = torch.from_numpy(np.ascontiguousarray(Y.T)).to(site.device, dtype).mul_(2).sub_(1)
    row_weights: Tensor | None = None
    if weights is not None:
        by_target = np.ascontiguousarray(np.atleast_2d(weights.T))
        row_weights = torch.from_numpy(by_target).to(site.device, dtype)
    return LogisticProblem(site.rows(dtype), site.penalty.to(dtype), signs, row_weights, C)


def _start(
    site: Site, Y: Bool[np.ndarray, "batch target"], weights: Weights | None
) -> Float[Tensor, "target param"]:
    """Zero weights, and the intercept that gives every target its own frequency."""
    params = site.penalty.new_zeros(Y.shape[1], len(site.penalty))
    if site.fit_intercept:
        positive, negative = class_weights(Y, weights)
        params[:, -1] = torch.from_numpy(np.log(positive / negative))
    return params


def class_weights(
    Y: Bool[np.ndarray, "batch target"], weights: Weights | None
) -> tuple[Float[np.ndarray, " target"], Float[np.ndarray, " target"]]:
    """The total weight of each target's positive and negative rows."""
    if weights is None:
        positive = Y.sum(0, dtype=float)
        return positive, len(Y) - positive
    by_target = weights if weights.ndim == 2 else weights[:, None]
    positive = np.where(Y, by_target, 0).sum(0, dtype=float)
    return positive, np.where(Y, 0, by_target).sum(0, dtype=float)


def _check_targets(
    site: Site, Y: Bool[np.ndarray, "batch target"], weights: Weights | None
) -> None:
    if len(Y) != site.n_rows:
        raise InputError(f"{site.n_rows} rows of activations but {len(Y)} rows of labels")
    if Y.shape[1] == 0:
        raise InputError("there are no targets: the labels have no columns")
    if weights is not None:
        if weights.shape not in ((len(Y),), Y.shape):
            raise InputError(
                f"sample_weight has shape {weights.shape}, not {(len(Y),)} or {Y.shape}"
            )
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise InputError("sample_weight has negative, NaN or infinite entries")
    positive, negative = class_weights(Y, weights)
    empty = np.flatnonzero((positive == 0) | (negative == 0))
    if empty.size:
        raise InputError(
            f"target {empty[0]} has rows of one class only ({empty.size} such targets); leave it "
            "out"
        )
