"""Readoffs of truth tables: published polynomials, every table of three features, the model."""

from __future__ import annotations

import itertools
from dataclasses import astuple

import numpy as np
import pytest
import torch

from interp_toolkit.boolean_functions import epsilon
from interp_toolkit.data.composites import all_composites, composite_tokens
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.fan_in import fan_in_and
from interp_toolkit.toys.superposition.constructions.targeted import separate_ands
from interp_toolkit.toys.superposition.layers.gates import (
    BooleanFunction,
    function_of,
    function_values,
)
from interp_toolkit.toys.superposition.layers.readouts import fitted_readoffs, function_readoffs


def test_values_are_the_formulas() -> None:
    on = all_composites(5, 5)
    formula = function_of(lambda a, b, c: (a and not b) or c, (4, 0, 2))
    expected = [(row[4] and not row[0]) or row[2] for row in on]
    np.testing.assert_array_equal(function_values([formula], on)[:, 0], expected)
    assert formula.table == "01011101"
    assert function_values([], on).shape == (32, 0)


def test_xor_is_two_features_less_twice_their_and() -> None:
    ands = separate_ands(4, 3)
    two = function_readoffs([BooleanFunction("0110", (2, 0))], ands.readoffs, ands.layer)
    assert two.features[0].tolist() == [1, 0, 1, 0]
    torch.testing.assert_close(two.neurons, -2 * ands.readoffs([(0, 2)]))
    three = function_readoffs([BooleanFunction("01101001", (0, 1, 2))], ands.readoffs, ands.layer)
    expected = 4 * ands.readoffs([(0, 1, 2)]) - 2 * ands.readoffs([(0, 1), (0, 2), (1, 2)]).sum(
        dim=0, keepdim=True
    )
    torch.testing.assert_close(three.neurons, expected)
    assert three.features[0].tolist() == [1, 1, 1, 0]
    assert three.constant.tolist() == [0]


def test_every_table_of_three_features_is_exact_with_a_neuron_for_each_and() -> None:
    ands = separate_ands(5, 3)
    tables = ["".join(bits) for bits in itertools.product("01", repeat=8)]
    functions = [BooleanFunction(table, (3, 0, 4)) for table in tables]
    on = all_composites(5, 5)
    readoffs = function_readoffs(functions, ands.readoffs, ands.layer)
    scores = readoffs.scores(ands.layer, torch.from_numpy(on)).numpy()
    np.testing.assert_allclose(scores, function_values(functions, on), atol=1e-12)


def test_errors_of_ands_add_up_to_that_of_xor() -> None:
    layer = fan_in_and(8, 600, 2, 0.25)
    on = all_composites(8, 3)
    xor = function_readoffs([BooleanFunction("0110", (1, 6))], layer.readoffs, layer.layer)
    scores = xor.scores(layer.layer, torch.from_numpy(on)).numpy()
    errors = scores - function_values([BooleanFunction("0110", (1, 6))], on)
    worst = layer.worst_errors(3, [(1, 6)]).worst[0]
    assert np.abs(errors).max() == pytest.approx(2 * worst, abs=1e-9)


@pytest.mark.parametrize(("n_features", "exact"), [(8, True), (60, False)])
def test_epsilon_is_exact_where_inputs_are_few(n_features: int, exact: bool) -> None:
    layer = fan_in_and(n_features, 900, 2, 0.25)
    functions = [BooleanFunction("0110", (1, 6)), BooleanFunction("0001", (2, 5))]
    readoffs = function_readoffs(functions, layer.readoffs, layer.layer)
    measured = readoffs.epsilon(functions, layer.layer, 3)
    worst = layer.worst_errors(3, [(1, 6), (2, 5)]).worst * [2, 1]
    assert measured.exact is exact
    assert ("every input" if exact else "20,000 random inputs") in measured.how
    if exact:
        np.testing.assert_allclose(measured.worst, worst, atol=1e-9)
        on = all_composites(8, 3)
        scores = readoffs.scores(layer.layer, torch.from_numpy(on)).numpy()
        expected = epsilon(scores, function_values(functions, on))
        assert astuple(measured.over_all) == pytest.approx(astuple(expected), abs=1e-12)
    else:
        assert (measured.worst <= worst + 1e-9).all()
        assert (measured.worst > 0.7 * worst).all()
        assert measured.over_all.worst == measured.worst.max()
    with pytest.raises(InputError, match="2 readouts but 1 functions"):
        readoffs.epsilon(functions[:1], layer.layer, 3)
    with pytest.raises(InputError, match="on at once"):
        readoffs.epsilon(functions, layer.layer, n_features + 1)


def test_the_model_writes_the_functions() -> None:
    layer = fan_in_and(6, 300, 2, 0.4)
    functions = [BooleanFunction("1001", (0, 3)), BooleanFunction("10", (2,))]
    readoffs = function_readoffs(functions, layer.readoffs, layer.layer)
    on = all_composites(6, 3)
    logits = readoffs.as_model(layer.layer, 3, "xnor")(torch.from_numpy(composite_tokens(on, 3)))[
        :, -1
    ]
    scores = readoffs.scores(layer.layer, torch.from_numpy(on))
    torch.testing.assert_close(logits, scores, atol=1e-12, rtol=0)
    np.testing.assert_allclose(logits[:, 1].detach(), ~on[:, 2], atol=1e-12)


def test_a_fitted_readoff_is_the_best_affine_one() -> None:
    """On the four inputs of two bits a layer that holds nothing leaves the known ε of 1/4."""
    layer = fan_in_and(2, 4, 2, 0.9)
    layer.layer.W_in.zero_()
    on = all_composites(2, 2)
    both = [BooleanFunction("0001", (0, 1))]
    scores = fitted_readoffs(both, layer.layer, on).scores(layer.layer, torch.from_numpy(on))
    errors = np.abs(scores.numpy() - function_values(both, on))
    assert errors.max() == pytest.approx(0.25, abs=1e-9)


def test_fitting_never_does_worse_than_the_construction() -> None:
    layer = fan_in_and(8, 80, 2, 0.4, seed=3)
    functions = [BooleanFunction("0110", (0, 1)), BooleanFunction("0001", (4, 7))]
    on = all_composites(8, 3)
    inside, truth = torch.from_numpy(on), function_values(functions, on)
    constructed = function_readoffs(functions, layer.readoffs, layer.layer)
    fitted = fitted_readoffs(functions, layer.layer, on)
    before, after = (
        np.abs(r.scores(layer.layer, inside).numpy() - truth).max(axis=0)
        for r in (constructed, fitted)
    )
    assert (after < before).all()
    assert after.max() < 0.25


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (BooleanFunction("011", (0, 1)), "zeros and ones"),
        (BooleanFunction("0210", (0, 1)), "zeros and ones"),
        (BooleanFunction("0110", (0, 1, 2)), "of 3 features is not 8"),
        (BooleanFunction("0110", (1, 1)), "must differ"),
        (BooleanFunction("0110", (0, 9)), "among 0..4"),
        (BooleanFunction("00000001", (0, 1, 2)), "no neuron computes"),
    ],
)
def test_bad_functions_are_refused(function: BooleanFunction, message: str) -> None:
    ands = separate_ands(5, 2)
    with pytest.raises(InputError, match=message):
        function_readoffs([function], ands.readoffs, ands.layer)


def test_too_many_ands_are_refused() -> None:
    with pytest.raises(InputError, match="too many"):
        separate_ands(64, 4)
    with pytest.raises(InputError, match="fan-in is 6"):
        separate_ands(5, 6)
    with pytest.raises(InputError, match="at most 16"):
        function_of(lambda *bits: any(bits), range(17))
