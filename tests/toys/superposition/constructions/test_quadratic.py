"""Squares as neurons: the readout is the product of readoffs, their span, the published errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.data.composites import all_composites, composite_tokens, sample_composites
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.fan_in import QuadraticAND, quadratic_and
from interp_toolkit.toys.superposition.layers.layer import random_unit_features


def drawn(n_features: int, dim: int, seed: int = 0) -> QuadraticAND:
    """Of any dimensions: what is exact does not depend on how many they are."""
    generator = torch.Generator().manual_seed(seed)
    return QuadraticAND(random_unit_features(n_features, dim, generator))


def test_the_squares_read_out_the_products() -> None:
    ands = drawn(40, 12, seed=1)
    on = sample_composites(200, 40, 3, np.random.default_rng(0))
    gates = [(0, 1), (5, 39), (17, 20)]
    layer = ands.layer()
    read = layer.activations(torch.from_numpy(on)) @ ands.readoffs(gates).T
    vectors = on.astype(float) @ ands.features.numpy()
    for column, (i, j) in enumerate(gates):
        expected = (vectors @ ands.features[i].numpy()) * (vectors @ ands.features[j].numpy())
        np.testing.assert_allclose(read[:, column], expected, atol=1e-12)
    products = ands.scores(torch.from_numpy(on), gates)
    torch.testing.assert_close(products, read, atol=1e-12, rtol=0)


def test_exact_with_an_axis_for_each_feature() -> None:
    ands = QuadraticAND(torch.eye(5, dtype=torch.float64))
    on = all_composites(5, 5)
    scores = ands.layer().activations(torch.from_numpy(on)) @ ands.readoffs([(0, 3), (1, 2)]).T
    expected = np.stack([on[:, 0] & on[:, 3], on[:, 1] & on[:, 2]], axis=1)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_the_sources_squares_span_no_more() -> None:
    """Its r^2 squares, of v_a, v_a + v_b and v_a - v_b, against the r(r+1)/2 of the layer."""
    r = 6
    layer = drawn(8, r).layer()
    v = torch.randn(200, r, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = layer.neurons(v)
    pairs = torch.triu_indices(r, r, offset=1)
    theirs = torch.cat(
        [v, v[:, pairs[0]] + v[:, pairs[1]], v[:, pairs[0]] - v[:, pairs[1]]], dim=1
    ).square()
    assert theirs.shape[1] == r * r
    assert ours.shape[1] == r * (r + 1) // 2
    together = [torch.linalg.matrix_rank(x) for x in (ours, theirs, torch.cat([ours, theirs], 1))]
    assert together == [r * (r + 1) // 2] * 3


def test_the_model_gives_the_readouts() -> None:
    ands = drawn(10, 8)
    gates = [(0, 1), (2, 9)]
    on = all_composites(10, 3)
    model = ands.as_model(gates, 3)
    logits = model(torch.from_numpy(composite_tokens(on, 3)))[:, -1]
    torch.testing.assert_close(logits, ands.scores(torch.from_numpy(on), gates), atol=1e-12, rtol=0)
    truth = model.ground_truth
    assert (truth.gates, truth.most_on, truth.connections) == (tuple(gates), 3, None)
    np.testing.assert_array_equal(truth.readoffs, ands.readoffs(gates))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_published_errors(seed: int) -> None:
    errors = quadratic_and(4096, 1024, seed=seed).sampled_errors(2, 4000, seed=seed)
    assert errors["one"].rms == pytest.approx(0.045, abs=0.004)
    assert errors["both"].rms == pytest.approx(0.064, abs=0.004)
    assert errors["none"].rms == pytest.approx(2 / 1024, rel=0.15)
    assert all(error.worst >= error.rms for error in errors.values())


def test_sampled_errors_are_those_of_the_scores() -> None:
    """Three features: every sample of a class is one of the few possible inputs."""
    ands = drawn(4, 3, seed=5)
    errors = ands.sampled_errors(2, 3000)
    on = all_composites(4, 2)[5:]  # exactly two on
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    scores = ands.scores(torch.from_numpy(on), pairs).numpy()
    n_on = np.stack([on[:, list(pair)].sum(axis=1) for pair in pairs], axis=1)
    for name, number in (("both", 2), ("one", 1), ("none", 0)):
        off = (scores - (number == 2))[n_on == number]
        assert errors[name].worst == pytest.approx(np.abs(off).max(), abs=1e-12)
        assert errors[name].rms == pytest.approx(np.sqrt(np.mean(off**2)), rel=0.05)


def test_sizes_that_cannot_work_are_refused(texts) -> None:
    with pytest.raises(InputError, match="524,800 neurons"):
        quadratic_and(8, 1024).layer()
    with pytest.raises(InputError, match="most_on is 7"):
        drawn(8, 4).sampled_errors(7, 10)
    with pytest.raises(InputError, match="set of 2"):
        drawn(8, 4).readoffs([(0, 1, 2)])
    with pytest.raises(InputError, match="f-vectors"):
        quadratic_and(8, 0)
    with pytest.raises(InputError, match="0 pairs to sample"):
        drawn(8, 4).sampled_errors(2, 0)
    with pytest.raises(InputError, match=r"0.5\)", check=texts):
        quadratic_and(20, 5)
    with pytest.raises(InputError, match="15", check=texts):
        quadratic_and(20, 15)
    assert quadratic_and(20, 16).features.shape == (20, 16)
