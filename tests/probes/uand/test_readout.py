"""Readouts of all pairs, against the same directions worked out one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from interp_toolkit.boolean_functions import epsilon, gate_after_offset
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.probes import UANDReadout
from interp_toolkit.probes.uand import readout as readout_module
from interp_toolkit.probes.uand.readout import whiten

RIDGE = 1e-3


def layer(n_features, n_neurons, density, seed, most_on=3):
    rng = np.random.default_rng(seed)
    on = all_composites(n_features, most_on)
    connections = (rng.random((n_features, n_neurons)) < density).astype(float)
    return np.maximum(on @ connections - 1, 0), on


def truth_of(on, pairs):
    pairs = np.asarray(pairs)
    return on[:, pairs[:, 0]] & on[:, pairs[:, 1]]


def halves(X, on, seed=0):
    order = np.random.default_rng(seed).permutation(len(X))
    cut = 3 * len(X) // 4
    return (X[order[:cut]], on[order[:cut]]), (X[order[cut:]], on[order[cut:]])


def brute_readout(X, rows):
    """The direction from the normal equations, scaled on rows left out of mean and covariance."""
    centred = X - X.mean(0)
    gram = centred.T @ centred / len(X)
    gram += RIDGE * np.diag(X.var(0))
    mean = centred[rows].mean(0)
    direction = np.linalg.solve(gram, mean)
    answers = []
    for row in rows:
        if len(rows) == 1:
            answers.append(centred[row] @ direction)
            continue
        others = centred[[r for r in rows if r != row]].mean(0)
        without = gram - np.outer(centred[row], centred[row]) / len(X)
        answers.append(centred[row] @ np.linalg.solve(without, others))
    share = len(rows) / len(X)
    direction = (1 - share) * direction / np.mean(answers)
    return direction, share - direction @ X.mean(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_neuron_that_varies_by_less_than_a_normal_number_is_constant(dtype) -> None:
    """Weight decay leaves some: one over their deviation is infinite."""
    X, on = layer(8, 24, 0.5, seed=0)
    rng = np.random.default_rng(1)
    faint = (rng.random(len(X)) * 64 * np.finfo(dtype).smallest_subnormal).astype(dtype)
    without = UANDReadout(ridge=RIDGE).fit(X.astype(dtype), on)
    found = UANDReadout(ridge=RIDGE).fit(np.column_stack([X, faint]).astype(dtype), on)
    pairs = list(combinations(range(8), 2))
    np.testing.assert_allclose(
        found.readouts(pairs)[0][:, :-1], without.readouts(pairs)[0], rtol=1e-3, atol=1e-4
    )
    assert not found.readouts(pairs)[0][:, -1].any()


def test_readouts_are_those_of_the_normal_equations_and_left_out_rows():
    X, on = layer(6, 9, 0.5, seed=1)
    X = X[:, X.std(0) > 0]
    gates = [(0, 1), (2, 5), (0, 1, 3), (4,)]
    directions, intercepts = UANDReadout(ridge=RIDGE).fit(X, on).readouts(gates)
    for gate, direction, intercept in zip(gates, directions, intercepts, strict=True):
        rows = np.flatnonzero(on[:, list(gate)].all(1)).tolist()
        wanted, constant = brute_readout(X, rows)
        np.testing.assert_allclose(direction, wanted, rtol=1e-8, atol=1e-10)
        assert intercept == pytest.approx(constant, rel=1e-8)


def test_a_single_row_answers_to_itself():
    X, on = layer(5, 20, 0.4, seed=2, most_on=2)
    readout = UANDReadout(ridge=RIDGE).fit(X, on)
    pairs = list(combinations(range(5), 2))
    scores = readout.score(X, pairs)
    np.testing.assert_allclose(scores[truth_of(on, pairs)], 1.0, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparsely", [True, False])
@pytest.mark.parametrize("at_once", [2**29, 6_000])
def test_errors_of_all_pairs_are_those_of_their_scores(monkeypatch, dtype, sparsely, at_once):
    monkeypatch.setattr(UANDReadout, "_sparse_pays", lambda *_: sparsely)
    monkeypatch.setattr(readout_module, "PRODUCTS_AT_ONCE", at_once)
    X, on = layer(9, 40, 0.4, seed=3, most_on=4)
    (X, on), (held_X, held_on) = halves(X.astype(dtype), on)
    pairs = list(combinations(range(9), 2))
    readout = UANDReadout(n_jobs=2).fit(X, on)
    found = readout.errors(held_X, held_on)
    assert found.observed.sum() > 30
    pairs = [pair for pair, seen in zip(pairs, found.observed, strict=True) if seen]
    found = readout.errors(held_X, held_on, pairs)
    scores, truth = readout.score(held_X, pairs), truth_of(held_on, pairs)
    tolerance = 1e-9 if dtype == np.float64 else 2e-4
    wanted = epsilon(scores, truth)
    summary = found.epsilon()
    assert summary.worst == pytest.approx(wanted.worst, rel=tolerance)
    assert summary.rms == pytest.approx(wanted.rms, rel=tolerance)
    assert summary.worst_after_offset == pytest.approx(wanted.worst_after_offset, rel=tolerance)
    assert summary.q99 == pytest.approx(wanted.q99, rel=0.03)  # of a histogram
    np.testing.assert_allclose(found.worst, np.abs(scores - truth).max(0), rtol=tolerance)
    np.testing.assert_allclose(
        found.worst_after_offset, gate_after_offset(scores, truth), rtol=10 * tolerance
    )
    either = np.array([held_on[:, i] | held_on[:, j] for i, j in pairs]).T
    classes = {"both": truth, "one": either & ~truth, "none": ~either}
    for name, chosen in classes.items():
        errors = np.abs(scores - truth)[chosen]
        assert found.worst_by_class[name] == pytest.approx(errors.max(), rel=tolerance)
        rms = np.sqrt(np.mean(errors**2))
        assert found.rms_by_class[name] == pytest.approx(rms, rel=tolerance)
        assert found.q99_by_class[name] == pytest.approx(np.quantile(errors, 0.99), rel=0.06)
        counted = found.count[("both", "one", "none").index(name)]
        np.testing.assert_array_equal(counted, chosen.sum(0))
    on_low = np.where(truth, scores, np.inf).min(0)
    off_high = np.where(truth, -np.inf, scores).max(0)
    np.testing.assert_array_equal(found.separated, on_low > off_high)


def test_chosen_pairs_come_in_their_order():
    X, on = layer(8, 30, 0.4, seed=4)
    readout = UANDReadout().fit(X, on)
    every = readout.errors(X, on)
    place = {tuple(pair): k for k, pair in enumerate(every.pairs.tolist())}
    chosen = [(6, 7), (0, 3), (2, 4), (0, 1), (2, 3)]
    some = readout.errors(X, on, np.array(chosen))
    wanted = [place[pair] for pair in chosen]
    np.testing.assert_allclose(some.worst, every.worst[wanted], rtol=1e-10)
    np.testing.assert_array_equal(some.count, every.count[:, wanted])
    flipped = readout.errors(X, on, np.array([(j, i) for i, j in chosen]))
    np.testing.assert_allclose(flipped.worst, some.worst, rtol=1e-9)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_orders_units_and_offsets_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    X, on = layer(6, 15, 0.5, seed=seed)
    found = UANDReadout(n_jobs=1).fit(X, on).errors(X, on)
    rows, features = rng.permutation(len(X)), rng.permutation(6)
    units, axes = np.exp(rng.normal(size=15)), rng.permutation(15)
    X2, on2 = (X * units + rng.normal(size=15))[rows][:, axes], on[rows][:, features]
    pairs = np.argsort(features)[found.pairs]
    again = UANDReadout(n_jobs=1).fit(X2, on2).errors(X2, on2, pairs)
    np.testing.assert_allclose(again.worst, found.worst, rtol=1e-6, atol=1e-9)


def test_least_squares_rescaled_on_the_source_construction():
    """The guide's figures: M about 0.19, 0.12 after the best gain and bias, all inputs, l = 2."""
    worst, after = [], []
    for seed in range(3):
        X, on = layer(64, 1024, 0.2, seed, most_on=2)
        found = UANDReadout().fit(X, on).epsilon(X, on)
        worst.append(found.worst)
        after.append(found.worst_after_offset)
    assert np.median(worst) == pytest.approx(0.19, abs=0.04)
    assert np.median(after) == pytest.approx(0.12, abs=0.04)


def test_the_mean_answers_are_1_and_0_without_a_fit_to_noise():
    """So many rows that what is left out of a readout makes no difference."""
    rng = np.random.default_rng(1)
    on = rng.random((20_000, 3)) < 0.5
    X = on + 0.5 * rng.normal(size=on.shape)
    scores = UANDReadout().fit(X, on).score(X, [(0,), (0, 1), (0, 1, 2)])
    for score, truth in zip(scores.T, (on[:, 0], on[:, :2].all(1), on.all(1)), strict=True):
        assert score[truth].mean() == pytest.approx(1, abs=0.01)
        assert score[~truth].mean() == pytest.approx(0, abs=0.01)


def test_the_input_itself_has_an_epsilon_of_a_quarter_at_best():
    on = all_composites(8, 3)
    X = on.astype(float)
    found = UANDReadout().fit(X, on).errors(X, on)
    assert found.worst_after_offset.min() >= 0.25 - 1e-9


def test_few_rows_give_what_many_columns_would():
    """With fewer rows than columns the whitening comes from the rows' products."""
    X, _ = layer(7, 200, 0.4, seed=11)
    fitted, held_out = X[:50], X[50:]
    few = whiten(fitted, 1e-2)
    assert few.turn.shape[1] < 50
    unit = few.unit
    scaled = (fitted - few.mean) * unit
    gram = scaled.T @ scaled / 50 + 1e-2 * np.eye(200)
    wanted = ((held_out - few.mean) * unit) @ np.linalg.solve(gram, scaled.T)
    np.testing.assert_allclose(few(held_out) @ few(fitted).T, wanted, atol=1e-9)


@pytest.mark.parametrize("size", [1e-30, 1e20])
def test_activations_of_any_size(size):
    X, on = layer(6, 15, 0.5, seed=12)
    plain = UANDReadout().fit(X, on).errors(X, on)
    huge = (size * X).astype(np.float32)
    again = UANDReadout().fit(huge, on).errors(huge, on)
    np.testing.assert_allclose(again.worst, plain.worst, rtol=1e-3)


def test_a_large_coordinate_hides_no_small_ones():
    """The ANDs themselves are coordinates; a much larger one has nothing to do with them."""
    rng = np.random.default_rng(0)
    on = rng.random((3000, 5)) < 0.3
    ands = np.stack([on[:, i] & on[:, j] for i, j in combinations(range(5), 2)], axis=1)
    X = np.column_stack([on, ands, 1e3 * rng.normal(size=3000)])
    found = UANDReadout().fit(X[:2000], on[:2000]).epsilon(X[2000:], on[2000:])
    assert found.worst_after_offset < 0.01


def test_pairs_that_are_never_together_have_no_error(texts):
    X, on = layer(6, 20, 0.4, seed=5)
    apart = ~(on[:, 0] & on[:, 1])
    readout = UANDReadout().fit(X[apart], on[apart])
    found = readout.errors(X, on)
    assert not found.observed[0]
    assert found.observed[1:].all()
    assert np.isnan(found.worst[0])
    assert np.isnan(found.worst_after_offset[0])
    assert np.isfinite(found.epsilon().worst)
    assert readout.n_together_[0, 1] == 0
    with pytest.raises(InputError, match="0, 1", check=texts):
        readout.readouts([(0, 1)])


def test_truth_tables_are_sums_of_ands():
    X, on = layer(6, 200, 0.4, seed=6, most_on=6)
    wide = np.concatenate([X, on.astype(float)], axis=1)
    readout = UANDReadout().fit(wide, on)
    a, b, c = on[:, 1], on[:, 4], on[:, 2]
    for table, features, truth in (
        ("0110", (1, 4), a ^ b),
        ("0111", (1, 4), a | b),
        ("1001", (1, 4), ~(a ^ b)),
        ("01101001", (1, 4, 2), a ^ b ^ c),
    ):
        direction, intercept = readout.truth_table_readout(table, features)
        gate = gate_after_offset((wide @ direction + intercept)[:, None], truth[:, None])
        assert gate[0] < 0.4  # no affine function of the features is below 1/2 on XOR
    direction, intercept = readout.truth_table_readout("0110", (1, 4))
    parts, constants = readout.readouts([(1,), (4,), (1, 4)])
    np.testing.assert_allclose(direction, parts[0] + parts[1] - 2 * parts[2])
    assert intercept == pytest.approx(constants[0] + constants[1] - 2 * constants[2])


def test_activations_that_do_not_vary_read_nothing():
    _, on = layer(5, 4, 0.5, seed=7)
    found = UANDReadout().fit(np.ones((len(on), 4)), on).errors(np.ones((len(on), 4)), on)
    np.testing.assert_allclose(found.worst_after_offset, 0.5, rtol=1e-12)


def test_it_takes_tensors_and_is_an_estimator():
    X, on = layer(5, 12, 0.5, seed=8)
    plain = UANDReadout(ridge=0.01).fit(X, on).errors(X, on)
    tensors = torch.from_numpy(X), torch.from_numpy(on)
    again = clone(UANDReadout(ridge=0.01)).fit(*tensors).errors(*tensors)
    np.testing.assert_allclose(again.worst, plain.worst)
    half = UANDReadout(ridge=0.01).fit(tensors[0].bfloat16(), on).errors(X, on)
    np.testing.assert_allclose(half.worst, plain.worst, atol=0.1)


@pytest.mark.parametrize(
    ("X", "features"),
    [
        (np.ones((4, 2)), np.ones((3, 2), bool)),
        (np.array([[1.0, np.nan]] * 3), np.ones((3, 2), bool)),
        (np.ones((3, 2)), np.full((3, 2), 0.5)),
        (np.ones((3, 2)), np.ones((3, 1), bool)),
        (np.ones(3), np.ones((3, 2), bool)),
        (np.ones((0, 2)), np.ones((0, 2), bool)),
        (np.array([["a", "b"]]), np.ones((1, 2), bool)),
    ],
)
def test_bad_input_is_one_clear_line(X, features, texts):
    with pytest.raises(InputError, check=texts):
        UANDReadout().fit(X, features)


def test_what_does_not_fit_the_readouts_is_said():
    X, on = layer(5, 12, 0.5, seed=9)
    readout = UANDReadout().fit(X, on)
    for call, what in (
        (lambda: readout.errors(X[:, :5], on), "X has 5 features"),
        (lambda: readout.errors(X, on[:, :3]), "3 features"),
        (lambda: readout.errors(X, on, [[0, 0]]), "two different"),
        (lambda: readout.errors(X, on, [[0, 9]]), "0 to 4"),
        (lambda: readout.errors(X, on, [0, 1]), "pairs"),
        (lambda: readout.readouts([(0, 0)]), "different features"),
        (lambda: readout.readouts([()]), "different features"),
        (lambda: readout.score(X[:, :3], [(0, 1)]), "X has 3 features"),
        (lambda: readout.truth_table_readout("0110", (0, 1, 2)), "not the 8 of 3 features"),
        (lambda: UANDReadout(ridge=-1.0).fit(X, on), "ridge"),
        (lambda: UANDReadout(ridge=0.0).fit(X * (np.arange(12) > 0), on), "larger ridge"),
    ):
        with pytest.raises(InputError, match=what):
            call()


def test_no_gates_and_tables_of_another_length_are_one_line():
    X = np.random.default_rng(0).normal(size=(60, 5))
    readout = UANDReadout().fit(X, X[:, :2] > 0)
    with pytest.raises(InputError, match="gates is empty"):
        readout.readouts([])
    with pytest.raises(InputError, match="the table 01101001 has 8 bits, not the 4 of 2 features"):
        readout.truth_table_readout("01101001", (0, 1))
