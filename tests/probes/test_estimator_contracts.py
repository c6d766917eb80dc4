"""scikit-learn's own checks of its estimator contract, of every estimator there is.

Ours but one take a table of boolean features, [n, k], where the checks hand over a column of
labels: they are given tables made from these (`Tabled`), and nothing else about them is changed.
"""

from __future__ import annotations

import numpy as np
import pytest
from jaxtyping import config
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from interp_toolkit import probes
from interp_toolkit.probes import (
    BooleanProbe,
    LogisticProbe,
    UANDReadout,
    XORProbe,
)


def table_of(labels):
    """The largest label's indicator and a second feature, true on every other row of it."""
    labels = np.asarray(labels)
    labels = labels.astype(float) if labels.dtype == object else labels
    if labels.ndim != 1 or labels.dtype.kind not in "iufb" or not np.isfinite(labels).all():
        return labels
    largest = labels == labels.max()
    return np.column_stack([largest, largest & (np.cumsum(largest) % 2 == 1)])


class Tabled:
    """Gets tables for labels."""

    def fit(self, X, y):
        return super().fit(X, table_of(y))

    def score(self, X, y):
        return super().score(X, table_of(y))


class Boolean(Tabled, BooleanProbe):
    pass


class XOR(Tabled, XORProbe):
    pass


class Readoff(Tabled, UANDReadout):
    def score(self, X, y=None):
        """Its score takes gates in place of labels."""
        return UANDReadout.score(self, X)


pytestmark = pytest.mark.filterwarnings("ignore:no row has")  # the made tables lack 01

OURS = [
    LogisticProbe(),
    LogisticProbe(C=0.1, class_weight="balanced"),
    Boolean(),
    Boolean("0111", class_weight="balanced"),
    XOR(),
    Readoff(),
]


@pytest.fixture(autouse=True)
def _wrong_types_allowed():
    """The checks hand over wrong types on purpose; scikit-learn's errors are asked for."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@parametrize_with_checks(OURS)
def test_an_estimator_meets_scikit_learns_contract(estimator, check):
    check(estimator)


def test_none_is_left_out():
    public = [getattr(probes, name) for name in probes.__all__]
    estimators = {c for c in public if isinstance(c, type) and issubclass(c, BaseEstimator)}
    assert estimators == {c for one in OURS for c in type(one).__mro__ if c in estimators}
    assert len(estimators) == 4
