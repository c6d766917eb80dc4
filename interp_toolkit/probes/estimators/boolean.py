"""Probes for boolean functions of features (any truth table), as scikit-learn estimators.

`truth_tables` describes a table. Invalid activations raise InputError, mostly
with scikit-learn's message.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import listed
from interp_toolkit.probes.estimators.arrays import checked_rows
from interp_toolkit.probes.estimators.logistic_probe import LogisticProbe
from interp_toolkit.probes.estimators.truth_tables import TABLES, combinations, truth_values


class BooleanProbe(BaseEstimator):
    """A logistic probe for one boolean function of features.

    `fit(X, features)` takes activations [n, d] and the features themselves, [n, k] booleans or 0
    and 1, so that the truth table is stated once and the same features serve every function. So
    does `score`; `predict(X)` returns [n] booleans. Labels [n] are for `LogisticProbe`. See
    `cross_validate_targets` for held-out scores.

    Args:
        table: the function: a 0 or 1 for each combination of the features in counting order, the
            first feature most significant, such as "0110" for XOR.
        C: inverse strength of the penalty, as in `LogisticProbe` (so are the following options).
        fit_intercept: whether to fit an unpenalized intercept.
        tol: relative error of the solution.
        max_iter: largest number of iterations.
        class_weight: None or "balanced".

    Attributes:
        coef_: [1, d] weights; positive ones raise the log-odds that the function is true.
        intercept_: [1].
        n_features_in_: d.
        n_iter_: [1] iterations run.
        probe_: the fitted `LogisticProbe`.

    Examples:
        >>> ab = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> BooleanProbe("0111", C=100.0).fit(ab, ab).score(ab, ab)
        1.0
    """

    def __init__(
        self,
        table: str = TABLES["xor"],
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-10,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | None = None,
    ) -> None:
        self.table = table
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight

    def fit(self, X: Any, features: Any) -> BooleanProbe:
        """Fit the probe to activations [n, d] and features [n, k].

        Raises InputError for an invalid table or option, features that do not fit the table (such
        as the function's values in their place), a different number of rows, NaN or infinity in X,
        and data in which the function takes one value only. Warns of combinations of the features
        that no row has, since a probe of simpler functions fits the others.
        """
        activations = checked_rows(X).astype(np.float64, copy=False)
        truth = truth_values(self.table, features)
        if len(activations) != len(truth):
            raise InputError(
                f"{len(activations)} rows of activations but {len(truth)} rows of features"
            )
        if truth.all() or not truth.any():
            raise InputError(
                f"the function {self.table!r} is {bool(truth[0])} on every row: the labels hold "
                "one class only; give data in which it takes both values"
            )
        absent = np.setdiff1d(np.arange(len(self.table)), combinations(self.table, features))
        if len(absent):
            names = [f"{number:0{len(self.table).bit_length() - 1}b}" for number in absent.tolist()]
            warnings.warn(
                f"no row has {listed(names)}: the rows do not tell {self.table} from functions "
                "that differ there only",
                stacklevel=2,
            )
        self.probe_ = LogisticProbe(
            C=self.C,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
            class_weight=self.class_weight,
        ).fit(activations, truth)
        self.coef_, self.intercept_ = self.probe_.coef_, self.probe_.intercept_
        self.n_features_in_ = self.probe_.n_features_in_
        self.n_iter_ = self.probe_.n_iter_
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " batch"]:
        """Log-odds that the function is true."""
        check_is_fitted(self)
        return self.probe_.decision_function(checked_rows(X))

    def predict(self, X: Any) -> Bool[np.ndarray, " batch"]:
        """Whether the function is more likely true than false."""
        return self.decision_function(X) > 0

    def predict_proba(self, X: Any) -> Float[np.ndarray, "batch 2"]:
        """The probabilities of false and of true."""
        check_is_fitted(self)
        return self.probe_.predict_proba(checked_rows(X))

    def score(self, X: Any, features: Any) -> float:
        """The fraction of rows predicted correctly."""
        predicted, truth = self.predict(X), truth_values(self.table, features)
        if len(predicted) != len(truth):
            raise InputError(
                f"{len(predicted)} rows of activations but {len(truth)} rows of features"
            )
        return float((predicted == truth).mean())


class XORProbe(BooleanProbe):
    """A logistic probe for the XOR of two features: true if exactly one of them is.

    It is `BooleanProbe("0110")`, with the same methods. `fit(X, ab)` takes activations [n, d] and
    the two features themselves, [n, 2] booleans or 0 and 1, and so does `score(X, ab)`, the
    fraction of rows predicted correctly; `predict(X)` returns [n] booleans. Labels [n] are for
    `LogisticProbe`.

    `fit` and `score` raise InputError for features of another shape or with other values, and for
    different numbers of rows; `fit` also for invalid options, NaN or infinity in X, and an XOR
    that is the same on every row. Methods that need a fitted probe raise scikit-learn's
    NotFittedError before `fit`.

    Args:
        C: inverse strength of the penalty, as in `LogisticProbe` (so are the following options).
        fit_intercept: whether to fit an unpenalized intercept.
        tol: relative error of the solution.
        max_iter: largest number of iterations.
        class_weight: None or "balanced".

    Attributes:
        coef_: [1, d] weights; positive ones raise the log-odds that the features differ.
        intercept_: [1].
        n_features_in_: d.
        n_iter_: [1] iterations run.
        probe_: the fitted `LogisticProbe`.

    Examples:
        >>> ab = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> X = np.column_stack([ab, ab[:, 0] * ab[:, 1]])  # XOR is a + b - 2 ab
        >>> probe = XORProbe(C=100.0).fit(X, ab)
        >>> probe.predict(X).tolist(), probe.score(X, ab), probe.coef_.shape
        ([False, True, True, False], 1.0, (1, 3))
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-10,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | None = None,
    ) -> None:
        super().__init__(
            TABLES["xor"],
            C=C,
            fit_intercept=fit_intercept,
            tol=tol,
            max_iter=max_iter,
            class_weight=class_weight,
        )
