"""Stacked layers: the exact circuit, execution without interference, errors by layer, the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from interp_toolkit.boolean_functions import Epsilon, epsilon
from interp_toolkit.data.composites import composite_tokens
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.stacked import (
    StackedCircuit,
    random_circuit,
    stacked_circuit,
)
from interp_toolkit.toys.superposition.layers.gates import BooleanFunction

HALF_ADDERS = [
    [BooleanFunction("0110", (0, 1)), BooleanFunction("0001", (0, 1)), BooleanFunction("01", (2,))],
    [BooleanFunction("0110", (0, 2)), BooleanFunction("0001", (0, 2)), BooleanFunction("01", (1,))],
    [BooleanFunction("01", (0,)), BooleanFunction("0111", (1, 2))],
]


def small(dims: Sequence[int | None], seed: int = 0) -> StackedCircuit:
    circuit = random_circuit(24, [12, 8, 5], xor_share=0.3, seed=1)
    return stacked_circuit(circuit, 24, 96, 4, dims, seed=seed)


def alike(found: Epsilon, expected: Epsilon) -> bool:
    """Of errors that are differences of numbers of about 1."""
    return dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(expected), abs=1e-12)


def two_deep() -> StackedCircuit:
    """ANDs of ANDs."""
    return stacked_circuit(random_circuit(24, [12, 4]), 24, 96, 4, [None, None])


def all_bits(n: int) -> np.ndarray:
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)


def test_a_full_adder_without_shared_neurons_is_exact() -> None:
    adder = stacked_circuit(HALF_ADDERS, 3, 64, 1, [None, None, None])
    on = all_bits(3)
    total = on.sum(axis=1)
    expected = np.stack([total % 2, total // 2], axis=1)
    np.testing.assert_array_equal(adder.exact(on)[-1], expected)
    np.testing.assert_allclose(adder.scores(on)[-1][0], expected, atol=1e-12)
    assert [e.written.worst < 1e-12 for e in adder.errors(on)] == [True] * 3


def test_scores_follow_the_layers_one_after_another() -> None:
    """Neuron by neuron in NumPy, with f-vectors of fewer dimensions than features."""
    stacked = small([None, 10, 7])
    on = stacked.inputs(40, 5)
    x = on.astype(float)
    for place, (written, read) in enumerate(stacked.scores(on)):
        layer, readoffs = stacked.layers[place], stacked.readoffs[place]
        neurons = np.maximum(x @ layer.W_in.numpy() + layer.b_in.numpy(), 0)
        own = x @ layer.features.numpy().T
        expected = neurons @ readoffs.neurons.numpy().T + own @ readoffs.features.numpy().T
        np.testing.assert_allclose(written, expected, atol=1e-12)
        if place < 2:
            vectors = stacked.layers[place + 1].features.numpy()
            x = expected @ vectors
            expected = x @ vectors.T
        np.testing.assert_allclose(read, expected, atol=1e-12)


def test_errors_are_those_against_the_exact_circuit() -> None:
    stacked = small([None, 10, 7])
    on = stacked.inputs(60, 5)
    for found, (written, read), truth in zip(
        stacked.errors(on), stacked.scores(on), stacked.exact(on), strict=True
    ):
        assert alike(found.written, epsilon(written, truth))
        assert alike(found.read, epsilon(read, truth))


def test_rounding_stops_what_came_before() -> None:
    """Where no readoff is on the wrong side of 1/2, the next layer starts from the truth."""
    circuit = random_circuit(64, [16, 8], seed=0)
    stacked = stacked_circuit(circuit, 64, 1024, 8, [None, None])
    on = stacked.inputs(300, 4)
    plain, rounded = stacked.errors(on), stacked.errors(on, rounded=True)
    assert 0 < plain[0].written.worst < 0.5
    assert alike(rounded[0].written, plain[0].written)
    assert rounded[0].read.worst == 0
    clean = stacked.readoffs[1].scores_at(
        stacked.layers[1], torch.from_numpy(stacked.exact(on)[0]).double()
    )
    assert alike(rounded[1].written, epsilon(clean.numpy(), stacked.exact(on)[1]))
    assert rounded[1].written.rms <= plain[1].written.rms


def test_inputs_have_a_chance_to_turn_the_last_layer_on() -> None:
    stacked = stacked_circuit(random_circuit(200, [60, 20], seed=2), 200, 512, 4, [None, None])
    on = stacked.inputs(400, 5)
    assert (on.sum(axis=1) == 5).all()
    assert stacked.exact(on)[-1][:200].any(axis=1).all()
    assert stacked.exact(on)[-1][200:].mean() < 0.01
    first, second = stacked.circuit[1][0].features
    leaves = {*stacked.circuit[0][first].features, *stacked.circuit[0][second].features}
    assert stacked.supports()[0] == tuple(sorted(leaves))


@pytest.mark.parametrize("dims", [(None, None, None), (20, 10, 7)])
def test_the_model_gives_the_last_scores(dims: tuple) -> None:
    stacked = small(dims)
    on = stacked.inputs(40, 5)
    model = stacked.as_model(5)
    logits = model(torch.from_numpy(composite_tokens(on, 5)))[:, -1].detach()
    np.testing.assert_allclose(logits, stacked.scores(on)[-1][0], atol=1e-10)
    assert model.cfg.n_layers == 3
    assert model.ground_truth.circuit == stacked.circuit
    for vectors, layer in zip(model.ground_truth.features, stacked.layers, strict=True):
        np.testing.assert_array_equal(vectors, layer.features)


@pytest.mark.parametrize("xor_share", [0.0, 1.0])
def test_random_circuits_are_of_distinct_pairs(xor_share: float) -> None:
    circuit = random_circuit(6, [15, 4], xor_share=xor_share, seed=5)
    assert {f.features for f in circuit[0]} == {(i, j) for j in range(6) for i in range(j)}
    assert {f.table for layer in circuit for f in layer} == {"0110" if xor_share else "0001"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: stacked_circuit([], 3, 8, 1, []),
        lambda: stacked_circuit(HALF_ADDERS, 3, 8, 1, [None]),
        lambda: stacked_circuit([[BooleanFunction("01", (0,))]], 3, 8, 1, [None]),
        lambda: stacked_circuit([[BooleanFunction("01101001", (0, 1, 2))]], 3, 8, 1, [None]),
        lambda: random_circuit(4, [7]),
        lambda: random_circuit(4, [3], xor_share=1.5),
        lambda: small([None, 10, 7]).inputs(5, 25),
        lambda: small([None, 10, 7]).inputs(-1, 5),
        lambda: small([None, 10, 7]).as_model(-1),
        lambda: small([None, 10, 7]).as_model(0),
        lambda: small([None, 10, 7]).as_model(25),
        lambda: two_deep().as_model(1),
        lambda: stacked_circuit(HALF_ADDERS, 3, 64, 1, [None] * 3).as_model(0),
        lambda: stacked_circuit(random_circuit(24, [60]), 24, 16, 4, [9]),
    ],
)
def test_circuits_that_cannot_be_executed_are_refused(make: object, texts) -> None:
    with pytest.raises(InputError, check=texts):
        make()
