"""Universal keys: the attention of the model against g worked out by hand, token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.fan_in import fan_in_and, quadratic_and
from interp_toolkit.toys.superposition.constructions.targeted import separate_ands
from interp_toolkit.toys.superposition.constructions.universal_keys import (
    UniversalKeys,
    universal_keys,
)
from interp_toolkit.toys.superposition.layers.gates import function_of
from interp_toolkit.toys.superposition.layers.readouts import fitted_readoffs, function_readoffs

#: the source's (f1 and f4 and not f9) or (f2 xor f8), and the AND of two others
FUNCTIONS = [
    function_of(lambda f1, f4, f9, f2, f8: (f1 and f4 and not f9) or (f2 != f8), (1, 4, 9, 2, 8)),
    function_of(lambda a, b: a and b, (0, 3)),
]


def separate(sharpness: float = 12.0) -> UniversalKeys:
    ands = separate_ands(10, 5)
    readoffs = function_readoffs(FUNCTIONS, ands.readoffs, ands.layer)
    return universal_keys(FUNCTIONS, ands.layer, readoffs, 3, sharpness)


def pattern(model: torch.nn.Module, row: list[int]) -> torch.Tensor:
    _, cache = model.run_with_cache(torch.tensor([row]))
    return cache["blocks.1.attn.hook_pattern"][0, 0, -1].detach()


def test_the_head_attends_where_the_sources_formula_holds() -> None:
    keys = separate()
    model = keys.as_model()
    sets = [(1, 4), (1, 4, 9), (2,), (2, 8), (2, 5), (1,), ()]
    holds = [True, False, True, False, True, False, False]
    row = [*(keys.key_token(s) for s in sets), keys.query_token(0)]
    right, wrong = math.exp(6.0), math.exp(-6.0)
    weights = [right if h else wrong for h in holds] + [1.0]
    expected = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    torch.testing.assert_close(pattern(model, row), expected, atol=1e-12, rtol=0)


def test_the_same_keys_serve_another_query() -> None:
    keys = separate()
    sets = [(1, 4), (0, 3), (0, 3, 9), (0,), (2,)]
    row = [*(keys.key_token(s) for s in sets), keys.query_token(1)]
    found = pattern(keys.as_model(), row)
    assert float(found[1] + found[2]) > 0.99
    assert float(found[1]) == pytest.approx(float(found[2]))


def test_a_query_that_nothing_answers_attends_to_itself() -> None:
    keys = separate(sharpness=30.0)
    row = [keys.key_token((0,)), keys.key_token((2, 8)), keys.query_token(1)]
    found = pattern(keys.as_model(), row)
    assert float(found[-1]) > 0.999


def test_the_logits_are_the_features_of_what_was_attended_to() -> None:
    keys = separate(sharpness=60.0)
    row = [keys.key_token((5,)), keys.key_token((0, 3, 7)), keys.query_token(1)]
    logits = keys.as_model()(torch.tensor([row]))[0, -1].detach()
    np.testing.assert_allclose(logits, np.isin(np.arange(10), (0, 3, 7)), atol=1e-9)


def test_a_neuron_for_each_and_makes_no_error() -> None:
    keys = separate()
    assert keys.epsilon().worst < 1e-12
    assert keys.inputs.shape == (176, 10)
    expected = [
        ((r[1] and r[4] and not r[9]) or (r[2] != r[8]), r[0] and r[3]) for r in keys.inputs
    ]
    np.testing.assert_array_equal(keys.truth(), expected)


def test_fewer_neurons_than_ands_still_serve() -> None:
    """165 ANDs of two or three of ten features, 96 neurons of a universal AND layer."""
    layer = fan_in_and(10, 96, 2, 0.4).layer
    readoffs = fitted_readoffs(FUNCTIONS, layer, all_composites(10, 3))
    keys = universal_keys(FUNCTIONS, layer, readoffs, 3, sharpness=60.0)
    errors = keys.epsilon()
    assert 0.01 < errors.worst < 0.25
    shares = keys.attention_on_right(60, 6)
    assert shares.min() > 0.999
    blunt = universal_keys(FUNCTIONS, layer, readoffs, 3, sharpness=2.0)
    assert blunt.attention_on_right(60, 6).mean() < 0.9


def test_attention_is_measured_where_it_should_go() -> None:
    keys = separate(sharpness=3.0)
    tokens, right = keys.rows(20, 5, seed=1)
    shares = keys.attention_on_right(20, 5, seed=1)
    model = keys.as_model()
    truth = keys.truth()
    for row, where, share in zip(tokens.tolist(), right, shares, strict=True):
        holds = [bool(truth[token, row[-1] - 176]) for token in row[:-1]]
        assert where[:-1].tolist() == holds
        assert where[-1] == (not any(holds))
        assert share == pytest.approx(float(pattern(model, row)[torch.from_numpy(where)].sum()))


def test_rows_of_functions_that_hold_nowhere_or_everywhere() -> None:
    ands = separate_ands(4, 2)
    functions = [
        function_of(lambda a, b: False, (0, 1)),
        function_of(lambda a, b: True, (0, 1)),
    ]
    readoffs = function_readoffs(functions, ands.readoffs, ands.layer)
    keys = universal_keys(functions, ands.layer, readoffs, 2, sharpness=40.0)
    tokens, right = keys.rows(30, 3)
    nowhere = tokens[:, -1] == keys.query_token(0)
    assert right[nowhere, -1].all()
    assert right[~nowhere, :-1].all()
    assert keys.attention_on_right(30, 3).min() > 0.999


def test_parts_that_do_not_fit_are_refused(texts) -> None:
    ands = separate_ands(10, 2)
    both = [function_of(lambda a, b: a and b, (0, 3))]
    readoffs = function_readoffs(both, ands.readoffs, ands.layer)
    with pytest.raises(InputError, check=texts):
        universal_keys([], ands.layer, readoffs, 3)
    with pytest.raises(InputError, match="readouts but 2"):
        universal_keys(FUNCTIONS, ands.layer, readoffs, 3)
    with pytest.raises(InputError, check=texts):
        universal_keys(both, quadratic_and(10, 16).layer(), readoffs, 3)
    big = separate_ands(60, 2)
    with pytest.raises(InputError, match="too many tokens"):
        universal_keys(both, big.layer, function_readoffs(both, big.readoffs, big.layer), 4)
    keys = universal_keys(both, ands.layer, readoffs, 2)
    with pytest.raises(InputError, match="more than 2"):
        keys.key_token((0, 1, 2))
    for outside in (-1, 99):
        with pytest.raises(InputError, match=r"must be among 0\.\.9"):
            keys.key_token([outside])
        with pytest.raises(InputError, match=r"not in 0 to 0"):
            keys.query_token(outside)
    with pytest.raises(InputError, match="at least 1 position"):
        keys.as_model(n_ctx=0)
    with pytest.raises(InputError, check=texts):
        keys.rows(3, 0)
