"""`LogisticProbe`: one logistic regression of two classes, as a scikit-learn estimator.

The solver of `probes.estimators.logistic`, which needs torch, is imported by the first `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.arrays import check_options


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
        from interp_toolkit.probes.estimators.logistic import fit_logistic_targets  # loads torch

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
