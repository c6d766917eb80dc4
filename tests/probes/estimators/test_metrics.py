"""Metrics of many targets at once, against scikit-learn one by one."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn import metrics as sk

from interp_toolkit.probes.estimators import metrics


@pytest.fixture(params=[False, True], ids=["continuous", "tied"])
def judged(request):
    rng = np.random.default_rng(0)
    scores = 2 * rng.standard_normal((203, 6))
    if request.param:
        scores = np.round(scores)
    return rng.random(scores.shape) < expit(scores - np.linspace(-1, 3, 6)), scores


def test_they_are_scikit_learns(judged):
    Y, scores = judged
    ours = {
        name: getattr(metrics, name)(Y, scores)
        for name in ("accuracy", "balanced_accuracy", "auroc", "log_loss")
    }
    for t in range(Y.shape[1]):
        y, score = Y[:, t], scores[:, t]
        assert ours["accuracy"][t] == pytest.approx(sk.accuracy_score(y, score > 0))
        assert ours["balanced_accuracy"][t] == pytest.approx(
            sk.balanced_accuracy_score(y, score > 0)
        )
        assert ours["auroc"][t] == pytest.approx(sk.roc_auc_score(y, score))
        assert ours["log_loss"][t] == pytest.approx(sk.log_loss(y, expit(score)))


def test_auroc_of_some_rows_is_that_of_those_rows(judged):
    Y, scores = judged
    rows = np.random.default_rng(1).random(Y.shape) < 0.5
    for t, ours in enumerate(metrics.auroc(Y, scores, rows)):
        inside = rows[:, t]
        assert ours == pytest.approx(sk.roc_auc_score(Y[inside, t], scores[inside, t]))


def test_one_class_leaves_nothing_to_rank():
    Y = np.array([[True, True], [True, False]])
    scores = np.array([[1.0, 1.0], [2.0, -1.0]])
    np.testing.assert_array_equal(metrics.auroc(Y, scores), [np.nan, 1.0])
    np.testing.assert_array_equal(metrics.balanced_accuracy(Y, scores), [np.nan, 1.0])


def test_calibration_error_is_the_mean_gap_of_equal_bins():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((100, 3))
    Y = rng.random((100, 3)) < 0.4
    for t, ours in enumerate(metrics.calibration_error(Y, scores)):
        order = np.argsort(scores[:, t])
        gaps = [
            abs(expit(scores[rows, t]).mean() - Y[rows, t].mean())
            for rows in np.array_split(order, 10)
        ]
        assert ours == pytest.approx(np.mean(gaps))


def test_calibration_error_of_ties_does_not_depend_on_the_order_of_rows():
    scores = np.zeros((40, 1))
    sorted_labels = np.arange(40)[:, None] < 20
    assert metrics.calibration_error(sorted_labels, scores)[0] == pytest.approx(0)
    mixed = np.random.default_rng(0).permutation(sorted_labels)
    assert metrics.calibration_error(mixed, scores)[0] == pytest.approx(0)


def test_fewer_rows_than_bins_are_their_own_bins():
    scores = np.array([[-1.0], [2.0], [0.5]])
    Y = np.array([[False], [True], [False]])
    expected = np.abs(expit(scores) - Y).mean()
    assert metrics.calibration_error(Y, scores)[0] == pytest.approx(expected)


def test_a_calibrated_probe_has_the_error_that_noise_alone_gives():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((4000, 50))
    Y = rng.random(scores.shape) < expit(scores)
    mean = metrics.calibration_error(Y, scores).mean()
    assert mean == pytest.approx(0.4 * np.sqrt(10 / 4000), rel=0.15)
