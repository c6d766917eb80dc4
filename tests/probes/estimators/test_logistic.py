"""Many logistic regressions at once, against scikit-learn one by one and against calculus."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from interp_toolkit.errors import InputError
from interp_toolkit.probes import LogisticProbe, fit_logistic_targets
from interp_toolkit.probes.estimators import logistic


def make(n, d, n_target=5, seed=0, spread=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * spread + offset
    logits = (X - offset) @ rng.standard_normal((d, n_target)) / np.sqrt(d) / spread
    return X, logits + rng.standard_normal((n, n_target)) > np.linspace(-1, 1, n_target)


def reference(X, y, weight=None, **options):
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1000, **options)
    return exact.fit(X, y, sample_weight=weight)


def assert_same(fitted, exact, target, rtol=1e-6):
    scale = np.abs(exact.coef_).max()
    np.testing.assert_allclose(fitted.coef[target], exact.coef_[0], atol=rtol * scale)
    np.testing.assert_allclose(
        fitted.intercept[target], exact.intercept_[0], rtol=rtol, atol=rtol * max(scale, 1)
    )


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("n", "d", "C", "spread", "offset"),
    [
        (200, 10, 1.0, 1.0, 0.0),
        (200, 10, 1e3, 1.0, 0.0),
        (200, 10, 1e-3, 1.0, 0.0),
        (300, 20, 1.0, 5.0, 30.0),
        (60, 60, 1.0, 1.0, 1.0),
        (40, 120, 1.0, 1.0, 0.0),  # fewer rows than dimensions
        (50, 1, 1.0, 1.0, 0.0),
    ],
)
def test_every_target_is_scikit_learns_minimum(n, d, C, spread, offset, fit_intercept):
    X, Y = make(n, d, spread=spread, offset=offset)
    fitted = fit_logistic_targets(X, Y, C=C, fit_intercept=fit_intercept, tol=1e-9)
    assert fitted.converged.all()
    for target in range(Y.shape[1]):
        exact = reference(X, Y[:, target], C=C, fit_intercept=fit_intercept)
        assert_same(fitted, exact, target)


def test_the_loss_is_the_objective():
    X, Y = make(100, 5)
    fitted = fit_logistic_targets(X, Y, C=0.7)
    margins = np.where(Y, 1, -1) * fitted.decision_function(X)
    objective = 0.5 * (fitted.coef**2).sum(1) + 0.7 * np.logaddexp(0, -margins).sum(0)
    np.testing.assert_allclose(fitted.loss, objective, rtol=1e-12)


def test_two_points_have_the_weight_that_calculus_gives():
    X, y = np.array([[-1.0], [1.0]]), np.array([[False], [True]])
    fitted = fit_logistic_targets(X, y, C=3.0, tol=1e-10)
    weight = brentq(lambda w: w - 2 * 3.0 * expit(-w), 0, 10, xtol=1e-14)
    assert fitted.coef[0, 0] == pytest.approx(weight, rel=1e-9)
    assert fitted.intercept[0] == pytest.approx(0, abs=1e-9)


def test_xor_of_the_inputs_themselves_has_no_weights():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    fitted = fit_logistic_targets(X, np.array([[False], [True], [True], [False]]), C=1e4)
    np.testing.assert_allclose(fitted.coef, 0, atol=1e-12)
    assert fitted.converged.all()


def test_a_copied_or_constant_column_changes_no_prediction_beyond_the_penalty():
    X, Y = make(150, 4)
    X = np.column_stack([X, X[:, 0], np.full(len(X), 7.0)])
    fitted = fit_logistic_targets(X, Y, tol=1e-9)
    for target in range(Y.shape[1]):
        assert_same(fitted, reference(X, Y[:, target]), target)
    np.testing.assert_allclose(fitted.coef[:, 0], fitted.coef[:, 4], rtol=1e-6)


def test_a_dimension_ten_thousand_times_larger_than_the_rest_is_no_obstacle():
    X, Y = make(400, 30)
    X[:, 3] *= 1e4
    fitted = fit_logistic_targets(X.astype(np.float32), Y, tol=1e-4)
    assert fitted.converged.all()
    for target in range(Y.shape[1]):
        exact = reference(X.astype(np.float32).astype(float), Y[:, target])
        agree = (fitted.decision_function(X)[:, target] > 0) == exact.predict(X)
        assert agree.mean() >= 0.995


def test_weights_are_scikit_learns_and_a_mask_is_the_rows_left():
    X, Y = make(120, 6)
    rng = np.random.default_rng(1)
    shared = rng.random(120) * 3
    fitted = fit_logistic_targets(X, Y, sample_weight=shared, tol=1e-9)
    assert_same(fitted, reference(X, Y[:, 2], shared), 2)
    masks = rng.random(Y.shape) < 0.7
    fitted = fit_logistic_targets(X, Y, sample_weight=masks, tol=1e-9)
    for target in range(Y.shape[1]):
        rows = masks[:, target]
        assert_same(fitted, reference(X[rows], Y[rows, target]), target)


def test_float32_goes_on_in_float64_when_the_tolerance_asks_for_it():
    X, Y = make(300, 12)
    narrow = X.astype(np.float32)
    fitted = fit_logistic_targets(narrow, Y, tol=1e-9)
    for target in range(Y.shape[1]):
        assert_same(fitted, reference(narrow.astype(float), Y[:, target]), target)


def test_tensors_of_any_float_type_are_taken():
    X, Y = make(200, 8)
    tensor = torch.from_numpy(X).to(torch.bfloat16)
    fitted = fit_logistic_targets(tensor, torch.from_numpy(Y), tol=1e-9)
    assert_same(fitted, reference(tensor.double().numpy(), Y[:, 1]), 1)


@pytest.mark.gpu
def test_cuda_gives_the_cpus_answer():
    X, Y = make(300, 12)
    here = fit_logistic_targets(X, Y, tol=1e-9)
    there = fit_logistic_targets(X, Y, tol=1e-9, device="cuda")
    np.testing.assert_allclose(there.coef, here.coef, atol=1e-7)


def test_the_error_is_about_the_tolerance_in_the_hessians_norm():
    X, Y = make(500, 40, n_target=20)
    exact = fit_logistic_targets(X, Y, tol=1e-10)
    rough = fit_logistic_targets(X, Y, tol=1e-3)
    p = expit(exact.decision_function(X))
    error = rough.decision_function(X) - exact.decision_function(X)
    relative = np.sqrt(
        ((p * (1 - p) * error**2).sum(0) + ((rough.coef - exact.coef) ** 2).sum(1))
        / ((p * (1 - p) * exact.decision_function(X) ** 2).sum(0) + (exact.coef**2).sum(1))
    )
    assert relative.max() < 1e-2
    assert relative.max() > 1e-9  # it did stop early


def test_the_same_input_gives_the_same_bits_and_blocks_change_nothing_that_matters(monkeypatch):
    X, Y = make(200, 15, n_target=30)
    first, second = fit_logistic_targets(X, Y, tol=1e-8), fit_logistic_targets(X, Y, tol=1e-8)
    assert np.array_equal(first.coef, second.coef)
    assert np.array_equal(first.intercept, second.intercept)
    monkeypatch.setattr(logistic, "BLOCK_ELEMENTS", 200 * 7)
    blocks = fit_logistic_targets(X, Y, tol=1e-8)
    np.testing.assert_allclose(blocks.coef, first.coef, atol=1e-6)


def test_targets_that_ran_out_of_iterations_are_named_so():
    X, Y = make(200, 15)
    with pytest.warns(ConvergenceWarning, match="5 of 5 logistic fits"):
        fitted = fit_logistic_targets(X, Y, tol=1e-9, max_iter=1)
    assert not fitted.converged.any()


def test_a_tolerance_below_rounding_ends_at_rounding():
    X, Y = make(300, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # steps may cease to descend first
        fitted = fit_logistic_targets(X, Y, tol=1e-12, dtype=torch.float32, max_iter=100)
    exact = fit_logistic_targets(X, Y, tol=1e-10)
    assert (fitted.n_iter < 100).all()
    np.testing.assert_allclose(fitted.coef, exact.coef, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"C": 0.0},
        {"C": np.inf},
        {"tol": 0.0},
        {"max_iter": 0},
        {"Y": np.ones((10, 2), dtype=bool)},
        {"X": np.full((10, 3), np.nan)},
        {"sample_weight": -np.ones(10)},
        {"sample_weight": np.arange(10) < 5},
    ],
)
def test_what_cannot_be_fitted_is_refused(change, texts):
    rng = np.random.default_rng(0)
    labels = np.repeat([[True], [False]], 5, axis=0)
    arguments = {"X": rng.standard_normal((10, 3)), "Y": np.hstack([labels, labels]), **change}
    with pytest.raises(InputError, check=texts):
        fit_logistic_targets(arguments.pop("X"), arguments.pop("Y"), **arguments)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [1e-2, 1.0, 100.0])
def test_the_probe_has_scikit_learns_coefficients(C, fit_intercept, class_weight):
    X, Y = make(150, 12, offset=0.5)
    y = np.where(Y[:, 0], "yes", "no")
    options = {"C": C, "fit_intercept": fit_intercept, "class_weight": class_weight}
    probe, exact = LogisticProbe(**options).fit(X, y), reference(X, y, **options)
    np.testing.assert_allclose(probe.coef_, exact.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probe.intercept_, exact.intercept_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probe.predict_proba(X), exact.predict_proba(X), atol=1e-6)
    assert (probe.predict(X) == exact.predict(X)).all()
    assert probe.score(X, y) == exact.score(X, y)
