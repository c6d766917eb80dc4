"""Truth tables and the probes that take one."""

import itertools
import operator

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.boolean import BooleanProbe, XORProbe
from interp_toolkit.probes.estimators.truth_tables import TABLES, truth_values

PAIRS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=bool)
FUNCTIONS = {
    "xor": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "nand": lambda a, b: not (a and b),
    "nor": lambda a, b: not (a or b),
    "xnor": operator.eq,
}


def noisy_activations(features, d=20, seed=0):
    """Every product of features along its own direction, and a little noise."""
    rng = np.random.default_rng(seed)
    signs = 1 - 2 * features.astype(float)
    subsets = [
        s
        for size in range(1, features.shape[1] + 1)
        for s in itertools.combinations(range(features.shape[1]), size)
    ]
    products = np.stack([signs[:, list(s)].prod(1) for s in subsets], axis=1)
    noise = 0.1 * rng.standard_normal((len(features), d))
    return products @ rng.standard_normal((products.shape[1], d)) + noise


def test_named_tables_are_pythons_operators():
    assert set(TABLES) == set(FUNCTIONS)
    for name, function in FUNCTIONS.items():
        expected = [bool(function(bool(a), bool(b))) for a, b in PAIRS]
        assert truth_values(TABLES[name], PAIRS).tolist() == expected


def test_the_first_feature_is_the_most_significant_digit():
    assert truth_values("0010", PAIRS).tolist() == [False, False, True, False]  # a and not b
    assert truth_values("01", [[0], [1], [1.0]]).tolist() == [False, True, True]
    every = np.array(list(itertools.product([0, 1], repeat=3)))
    assert truth_values("00000001", every).tolist() == [False] * 7 + [True]
    assert truth_values("00001111", every).tolist() == every[:, 0].astype(bool).tolist()


@pytest.mark.parametrize(
    "table",
    [
        "011",
        "",
        "1",
        "0a10",
        "0000",
        "11",
        "01101001",
    ],
)
def test_bad_tables_are_refused(table, texts):
    with pytest.raises(InputError, check=texts):
        truth_values(table, PAIRS)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.array([0, 1, 1, 0]), "must be"),
        (np.array([[0, 2], [1, 1]]), "0 or 1"),
        (np.array([[0, np.nan], [1, 1]]), "0 or 1"),
        (np.array([["0", "1"]]), "0 or 1"),
    ],
)
def test_features_that_are_not_booleans_are_refused(features, message):
    with pytest.raises(InputError, match=message):
        truth_values("0110", features)


@pytest.mark.parametrize(
    ("make", "table"),
    [(XORProbe, "0110")]
    + [(lambda t=t: BooleanProbe(t), t) for t in ("0001", "0111", "1101", "10010110")],
)
def test_a_probe_is_the_logistic_regression_of_its_function(make, table):
    k = len(table).bit_length() - 1
    features = np.random.default_rng(0).random((300, k)) < 0.5
    X = noisy_activations(features)
    probe = make().fit(X, features)
    truth = truth_values(table, features)
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(X, truth)
    np.testing.assert_allclose(probe.coef_, exact.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probe.intercept_, exact.intercept_, atol=1e-5)
    assert probe.predict(X).dtype == bool
    assert probe.score(X, features) == exact.score(X, truth) == 1.0
    assert ((probe.decision_function(X) > 0) == probe.predict(X)).all()
    np.testing.assert_allclose(probe.predict_proba(X).sum(1), 1)


def test_xor_of_linearly_written_features_is_not_read():
    features = np.tile(PAIRS, (25, 1))
    X = features @ np.random.default_rng(0).standard_normal((2, 6))
    assert XORProbe().fit(X, features).score(X, features) <= 0.75
    assert BooleanProbe("0001").fit(X, features).score(X, features) == 1.0


def test_torch_tensors_are_taken_in_any_precision():
    features = np.tile(PAIRS, (25, 1))
    X = noisy_activations(features)
    narrow = torch.from_numpy(X).to(torch.bfloat16)
    probe = XORProbe().fit(narrow, torch.from_numpy(features))
    assert probe.score(narrow, features) == 1.0


def test_probes_clone_and_know_their_parameters():
    probe = clone(BooleanProbe("0111", C=3.0, class_weight="balanced"))
    assert (probe.table, probe.C, probe.class_weight) == ("0111", 3.0, "balanced")
    named = clone(XORProbe(C=2.0))
    assert named.table == "0110"
    assert named.get_params() == {
        "C": 2.0,
        "class_weight": None,
        "fit_intercept": True,
        "max_iter": 1000,
        "tol": 1e-10,
    }
    assert named.set_params(C=5.0).C == 5.0


@pytest.mark.parametrize(
    ("X", "features"),
    [
        (np.ones((4, 3)), PAIRS[:3]),
        (np.full((4, 3), np.nan), PAIRS),
        (np.ones(4), PAIRS),
        (np.ones((4, 3)), np.tile(PAIRS[:1], (4, 1))),
        (np.ones((2, 3)), PAIRS[1:3]),
        (np.array([["a"] * 3] * 4), PAIRS),
    ],
)
def test_what_cannot_be_probed_is_refused(X, features, texts):
    with pytest.raises(InputError, check=texts):
        XORProbe().fit(X, features)


def test_scoring_on_other_rows_needs_as_many_features(texts):
    probe = XORProbe().fit(noisy_activations(PAIRS), PAIRS)
    with pytest.raises(InputError, check=texts):
        probe.score(noisy_activations(PAIRS), PAIRS[:3])


@pytest.mark.parametrize(
    ("rows", "absent"),
    [([0, 1, 2, 3], []), ([0, 1, 2], ["11"]), ([1, 2, 2, 3], ["00"]), ([0, 1], ["10", "11"])],
)
def test_combinations_that_no_row_has_are_warned_of(rows, absent, recwarn):
    AB = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[rows]
    XORProbe().fit(AB, AB)
    warned = [str(w.message) for w in recwarn]
    assert len(warned) == bool(absent)
    assert all(name in text for name in absent for text in warned)
