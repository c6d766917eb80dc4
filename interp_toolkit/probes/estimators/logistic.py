"""Logistic probes: many targets at one site, solved together.

The objective is scikit-learn's `LogisticRegression`'s with L2: 1/2 |w|^2 + C * (sum of weighted
log-losses), the intercept unpenalized. `probes.estimators.solver` rotates the activations once and
minimizes all targets in matrix products. `LogisticProbe` is a single probe as a scikit-learn
estimator.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
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


def as_booleans(columns: Any, what: str = "features") -> Bool[np.ndarray, "batch column"]:
    """Features or labels as booleans; InputError unless they are 2-dimensional, of 0s and 1s."""
    if isinstance(columns, Tensor):  # numpy has no bfloat16
        columns = columns.detach().cpu()
        columns = columns.float() if columns.is_floating_point() else columns
    values = np.asarray(columns)
    if values.ndim != 2:
        raise InputError(f"the {what} must be [rows, {what}], got shape {values.shape}")
    if values.dtype != bool:
        if values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all():
            raise InputError(f"the {what} must be booleans, or numbers that are 0 or 1")
        values = values.astype(bool)
    return values


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


def check_options(C: float, tol: float, max_iter: int) -> None:
    """Raise InputError for an invalid option of the fit."""
    if not 0 < C < np.inf:
        raise InputError(f"C must be positive and finite, got {C}")
    if not 0 < tol < 1:
        raise InputError(f"tol must lie between 0 and 1, got {tol}")
    if max_iter < 1:
        raise InputError(f"max_iter must be at least 1, got {max_iter}")


class LogisticProbe(ClassifierMixin, BaseEstimator):
    """One L2-regularized logistic regression of two classes, as a scikit-learn estimator.

    Always computed in float64. The objective is `sklearn.linear_model.LogisticRegression`'s.

    Args:
        C: inverse strength of the penalty.
        fit_intercept: whether to fit an unpenalized intercept.
        tol: relative error of the solution, in the Hessian's norm.
        max_iter: largest number of L-BFGS iterations.
        class_weight: None, "balanced", or a weight per class.

    Attributes:
        coef_: [1, n_features] weights; positive ones raise the log-odds of `classes_[1]`.
        intercept_: [1].
        classes_: [2] the labels.
        n_features_in_: number of columns seen in `fit`.
        n_iter_: [1] iterations run.

    Examples:
        >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
        >>> LogisticProbe().fit(X, ["no", "no", "yes", "yes"]).predict([[3.0]]).tolist()
        ['yes']
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-10,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LogisticProbe:
        """Fit the probe to X [n, d] and y [n] of two classes, optionally with row weights.

        Raises ValueError where scikit-learn's estimators do: NaN, one class, three classes.
        """
        check_options(self.C, self.tol, self.max_iter)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass."
            )
        if len(self.classes_) < 2:
            raise InputError(f"the labels hold one class only, {self.classes_[0]}; two are needed")
        fitted = fit_logistic_targets(
            X,
            codes[:, None] == 1,
            C=self.C,
            fit_intercept=self.fit_intercept,
            sample_weight=self._row_weights(X, y, sample_weight),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.coef_, self.intercept_ = fitted.coef, fitted.intercept
        self.n_iter_ = np.maximum(fitted.n_iter, 1)
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " batch"]:
        """Log-odds of `classes_[1]`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: Any) -> np.ndarray:
        """The likelier class of every row."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive.astype(int)])

    def predict_proba(self, X: Any) -> Float[np.ndarray, "batch 2"]:
        """The probabilities of `classes_`."""
        margin = self.decision_function(X)
        return np.stack([expit(-margin), expit(margin)], axis=1)

    def _row_weights(
        self, X: np.ndarray, y: np.ndarray, sample_weight: Any
    ) -> Float[np.ndarray, " batch"] | None:
        if sample_weight is None and self.class_weight is None:
            return None
        weights: np.ndarray = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if self.class_weight == "balanced":
            positive = y == self.classes_[1]
            totals = np.array([weights[~positive].sum(), weights[positive].sum()])
            totals[totals == 0] = 1  # a single class, which is refused later
            weights = weights * (weights.sum() / (2 * totals))[positive.astype(int)]
        elif self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        return weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
