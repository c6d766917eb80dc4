"""Cross-validation of many targets, against scikit-learn's folds one by one, and its null."""

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom, norm
from sklearn import metrics as sk
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators import heldout
from interp_toolkit.probes.estimators.heldout import (
    cross_validate_targets,
    grouped_folds,
    shuffled_labels,
    stratified_folds,
)
from interp_toolkit.probes.estimators.logistic import fit_logistic_targets
from interp_toolkit.stats import max_statistic_p_values


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 8))
    Y = X[:, :4] + rng.standard_normal((150, 4)) > np.array([0, 0, 1, -1.0])
    return X, Y


@pytest.mark.parametrize("grouped", [False, True])
def test_every_row_is_scored_by_the_probe_that_has_not_seen_it(data, grouped):
    X, Y = data
    groups = np.arange(len(X)) // 10 if grouped else None
    result = cross_validate_targets(X, Y, groups=groups, n_splits=4, seed=7, C=0.5, tol=1e-9)
    folds = grouped_folds(groups, 4, 7) if grouped else stratified_folds(Y, 4, 7)
    folds = np.broadcast_to(folds, Y.shape)
    for t in range(Y.shape[1]):
        y, scores, odds, aurocs = Y[:, t], np.empty(len(X)), np.empty(len(X)), []
        for fold in range(4):
            test = folds[:, t] == fold
            probe = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-12)
            scores[test] = probe.fit(X[~test], y[~test]).decision_function(X[test])
            odds[test] = logit(y[~test].mean())
            aurocs.append(sk.roc_auc_score(y[test], scores[test]))
        np.testing.assert_allclose(result.scores[:, t], scores, atol=1e-5)
        assert result.accuracy[t] == pytest.approx(sk.accuracy_score(y, scores > 0))
        assert result.balanced_accuracy[t] == pytest.approx(
            sk.balanced_accuracy_score(y, scores > odds)
        )
        assert result.auroc[t] == pytest.approx(np.mean(aurocs))
        assert result.log_loss[t] == pytest.approx(sk.log_loss(y, expit(scores)), abs=1e-6)
    assert result.reasons == (None,) * 4
    assert result.converged.all()


def test_each_fold_takes_the_strength_that_serves_the_other_folds_best(data):
    X, Y = data
    X = X * np.array([1, 1, 1e-2, 1e-2, 1, 1, 1, 1])  # two targets on small directions
    strengths = (1e-3, 1.0, 1e4)
    result = cross_validate_targets(X, Y, n_splits=4, seed=7, C=strengths, tol=1e-9)
    folds = stratified_folds(Y, 4, 7)
    for t in range(Y.shape[1]):
        y, of = Y[:, t], folds[:, t]
        tried = np.empty((len(strengths), len(X)))
        for i, C in enumerate(strengths):
            for fold in range(4):
                probe = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12)
                probe.fit(X[of != fold], y[of != fold])
                tried[i, of == fold] = probe.decision_function(X[of == fold])
        expected = np.empty(len(X))
        for fold in range(4):
            losses = [sk.log_loss(y[of != fold], expit(scores[of != fold])) for scores in tried]
            expected[of == fold] = tried[np.argmin(losses), of == fold]
        np.testing.assert_allclose(result.scores[:, t], expected, atol=1e-4)
        losses = [sk.log_loss(y, expit(scores)) for scores in tried]
        assert result.C[t] == strengths[int(np.argmin(losses))]
    assert len(set(result.C.tolist())) > 1  # the data tell strengths apart


def test_what_lies_on_a_small_direction_is_read_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6)) * np.array([1, 1, 1, 1, 1, 3e-3])
    y = X[:, 5:] > 0.003
    held = cross_validate_targets(X, y, C=heldout.GRID)
    assert held.balanced_accuracy[0] > 0.95
    assert held.C[0] >= 1e4
    fixed = cross_validate_targets(X, y, C=1.0)  # the penalty hides it
    assert fixed.balanced_accuracy[0] < 0.75


def test_a_rare_class_that_is_ranked_well_is_not_at_chance():
    rng = np.random.default_rng(0)
    y = rng.random((1000, 1)) < 0.08
    X = rng.standard_normal((1000, 5))
    X[:, 0] += 1.5 * y[:, 0]
    held = cross_validate_targets(X, y)
    assert held.balanced_accuracy[0] == pytest.approx(of_two_normals(1.5), abs=0.06)


def of_two_normals(distance):
    """Balanced accuracy of the midpoint between two unit normals."""
    return float(norm.cdf(distance / 2))


def test_blocks_and_repetition_give_the_same_folds_and_numbers(data, monkeypatch):
    X, Y = data
    first = cross_validate_targets(X, Y, tol=1e-9)
    again = cross_validate_targets(X, Y, tol=1e-9)
    assert np.array_equal(first.scores, again.scores)
    monkeypatch.setattr(heldout, "BLOCK_ELEMENTS", 1)
    blocks = cross_validate_targets(X, Y, tol=1e-9)
    np.testing.assert_allclose(blocks.scores, first.scores, atol=1e-5)
    np.testing.assert_allclose(blocks.auroc, first.auroc, atol=1e-3)


def test_targets_too_rare_for_the_folds_get_a_reason_and_no_numbers(data, texts):
    X, Y = data
    rows = np.arange(len(X))
    rare = np.column_stack([rows < 4, Y[:, 0], rows >= 2, rows < 0])
    result = cross_validate_targets(X, rare, n_splits=5)
    texts(result.reasons[0])
    assert result.reasons[1] is None
    texts(result.reasons[2])
    texts(result.reasons[3])
    np.testing.assert_array_equal(np.isnan(result.accuracy), [True, False, True, True])
    np.testing.assert_array_equal(np.isnan(result.auroc), [True, False, True, True])
    assert np.isnan(result.scores[:, 0]).all()
    kept_out = cross_validate_targets(X, rare[:, [0]], keep_scores=False)
    assert kept_out.scores is None
    assert np.isnan(kept_out.accuracy).all()


def test_positives_of_one_group_cannot_be_both_fitted_and_scored(data, texts):
    X, _ = data
    groups = np.arange(len(X)) // 10
    labels = np.column_stack([groups == 3, groups % 2 == 0])
    result = cross_validate_targets(X, labels, groups=groups)
    texts(result.reasons)


def test_unconverged_folds_are_warned_about(data):
    X, Y = data
    with pytest.warns(ConvergenceWarning):
        result = cross_validate_targets(X, Y, tol=1e-9, max_iter=1)
    assert not result.converged.any()


@pytest.mark.parametrize(
    "change",
    [
        {"n_splits": 1},
        {"groups": [0, 1]},
        {"groups": [0] * 149 + [1]},
        {"C": -1.0},
        {"C": (1.0, 0.0)},
        {"C": ()},
    ],
)
def test_what_cannot_be_split_is_refused(data, change, texts):
    with pytest.raises(InputError, check=texts):
        cross_validate_targets(*data, **change)


def p_values(X, features, n_draws, seed, groups=None):
    """P-values, corrected for both, of reading a and a XOR b at this site."""
    every = np.concatenate([features[None], shuffled_labels(features, n_draws, seed, groups)])
    labels = np.stack([every[..., 0], every[..., 0] ^ every[..., 1]], axis=-1)
    columns = np.moveaxis(labels, 1, 0).reshape(len(X), -1)
    scored = cross_validate_targets(
        X, columns, groups=groups, n_splits=3, C=heldout.GRID, keep_scores=False
    )
    table = scored.balanced_accuracy.reshape(len(every), 2)
    return max_statistic_p_values(table[0], table[1:])


@pytest.mark.slow
def test_pure_noise_is_called_readable_no_more_often_than_said():
    hits, n_sets = 0, 200
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        X, features = rng.standard_normal((40, 4)), rng.random((40, 2)) < 0.5
        hits += p_values(X, features, 19, seed).min() <= 0.05
    assert hits <= binom.ppf(0.999, n_sets, 0.05)


@pytest.mark.slow
def test_noise_that_comes_in_documents_needs_their_labels_moved_whole():
    """Activations and labels that are both alike within documents, and know nothing of each other.

    Permuted rows call them related far too often; labels that documents trade do not.
    """
    traded = permuted = 0
    n_sets, n_groups = 120, 12
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        length = rng.integers(4, 20, n_groups)
        groups = np.repeat(np.arange(n_groups), length)
        X = np.repeat(rng.standard_normal((n_groups, 4)), length, axis=0)
        X += 0.2 * rng.standard_normal(X.shape)
        features = np.repeat(rng.random((n_groups, 2)) < 0.5, length, axis=0)
        traded += p_values(X, features, 19, seed, groups).min() <= 0.05
        labels = shuffled_labels(features, 19, seed)
        every = np.concatenate([features[None], labels])[..., 0].T
        scored = cross_validate_targets(X, every, groups=groups, n_splits=3, keep_scores=False)
        accuracy = scored.balanced_accuracy[:, None]
        permuted += max_statistic_p_values(accuracy[0], accuracy[1:]).min() <= 0.05
    assert traded <= binom.ppf(0.999, n_sets, 0.05)
    assert permuted > binom.ppf(0.999, n_sets, 0.05)


def test_labels_of_0_and_1_are_booleans_and_nothing_else_is():
    X = np.random.default_rng(0).normal(size=(120, 3))
    Y = X[:, :2] > 0
    for labels in (Y.astype(int), Y.astype(float)):
        scores = cross_validate_targets(X, labels)
        assert scores.accuracy.tolist() == cross_validate_targets(X, Y).accuracy.tolist()
        assert scores.reasons == (None, None)
    for wrong, message in ((2 * Y, "0 or 1"), (Y[:, 0], r"\[rows, labels\], got shape \(120,\)")):
        for function in (cross_validate_targets, fit_logistic_targets):
            with pytest.raises(InputError, match=message):
                function(X, wrong)
