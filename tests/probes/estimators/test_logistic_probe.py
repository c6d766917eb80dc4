"""scikit-learn's own checks of its estimator contract."""

import pytest
from jaxtyping import config
from sklearn.utils.estimator_checks import parametrize_with_checks

from interp_toolkit.probes.estimators.logistic_probe import LogisticProbe


@pytest.fixture(autouse=True)
def _wrong_types_allowed():
    """The checks hand over wrong types on purpose; scikit-learn's errors are asked for."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@parametrize_with_checks([LogisticProbe(), LogisticProbe(C=0.1, class_weight="balanced")])
def test_logistic_probe_meets_scikit_learns_contract(estimator, check):
    check(estimator)
