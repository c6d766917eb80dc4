"""The construction in weights: found where it is, not elsewhere, its readout the source's."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from interp_toolkit.boolean_functions import epsilon
from interp_toolkit.data.composites import all_composites, sample_composites
from interp_toolkit.probes.uand import intersections
from interp_toolkit.probes.uand.intersections import (
    feature_weights,
    find_higher,
    find_intersections,
)
from interp_toolkit.probes.uand.result import higher_words


def pairs_of(m):
    return np.array(list(combinations(range(m), 2)))


def found_in(weights, bias, on, pairs, level=0.05):
    activations = np.maximum(on @ weights + bias, 0)
    return find_intersections(weights, bias, activations, on, pairs, level)


def bernoulli(m, d, density, seed):
    return (np.random.default_rng(seed).random((m, d)) < density).astype(float)


def test_feature_weights_are_what_each_feature_adds():
    rng = np.random.default_rng(0)
    on = sample_composites(500, 9, 4, rng)
    weights, bias = rng.normal(size=(9, 14)), rng.normal(size=14)
    fitted, constant = feature_weights((on @ weights + bias).astype(np.float32), on)
    np.testing.assert_allclose(fitted, weights, atol=1e-5)
    np.testing.assert_allclose(constant, bias, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 0.03])
def test_the_construction_is_found_and_read_along_shared_neurons(scale):
    connections, on, pairs = bernoulli(8, 200, 0.3, 1), all_composites(8, 3), pairs_of(8)
    found = found_in(scale * connections, np.full(200, -scale), on, pairs)
    assert found.level == pytest.approx(scale)
    assert found.scatter == pytest.approx(0, abs=1e-12)
    np.testing.assert_array_equal(found.connections, connections > 0)
    both = (connections[pairs[:, 0]] * connections[pairs[:, 1]]) > 0
    np.testing.assert_array_equal(found.shared, both.sum(1))
    scores = np.maximum(on @ connections - 1, 0) @ (both / both.sum(1, keepdims=True)).T
    wanted = epsilon(scores, on[:, pairs[:, 0]] & on[:, pairs[:, 1]])
    assert found.errors.epsilon().worst == pytest.approx(wanted.worst, rel=1e-6)
    assert found.errors.epsilon().rms == pytest.approx(wanted.rms, rel=1e-6)
    assert not found.targeted.any()
    assert found.named.all()


def test_targeted_pairs_are_named():
    rng = np.random.default_rng(2)
    m, d = 40, 400
    gates = [(2 * k, 2 * k + 1) for k in range(20)]
    connections = np.zeros((m, d))
    for gate in gates:
        connections[np.array(gate)[:, None], rng.permutation(d)[:8]] = 1
    pairs = pairs_of(m)
    found = found_in(connections, -np.ones(d), sample_composites(300, m, 3, rng), pairs)
    assert {tuple(pair) for pair in pairs[found.named].tolist()} == set(gates)


OTHERS = {
    "normal": lambda rng, size, width: width * rng.normal(size=size),
    "uniform": lambda rng, size, width: rng.uniform(-width, 2 * width, size),
    "laplace": lambda rng, size, width: rng.laplace(scale=width, size=size),
    "sparse": lambda rng, size, width: rng.normal(size=size) * (rng.random(size) < 0.2),
    "cauchy": lambda rng, size, width: width * rng.standard_cauchy(size),
}


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_other_weights_are_not_the_construction(kind):
    on, pairs = all_composites(8, 2), pairs_of(8)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        weights = OTHERS[kind](rng, (8, 200), rng.choice([0.1, 0.3, 0.5, 1.0]))
        assert found_in(weights, -np.ones(200), on, pairs) is None


def test_without_a_negative_bias_nothing_is_intersected():
    on, pairs = all_composites(8, 2), pairs_of(8)
    assert found_in(bernoulli(8, 200, 0.3, 0), np.zeros(200), on, pairs) is None


def test_noise_on_the_weights_is_borne():
    connections, on, pairs = bernoulli(8, 300, 0.3, 3), all_composites(8, 2), pairs_of(8)
    rng = np.random.default_rng(3)
    noisy = connections + 0.1 * rng.normal(size=connections.shape)
    found = found_in(noisy, -np.ones(300) + 0.05 * rng.normal(size=300), on, pairs)
    assert (found.connections == (connections > 0)).mean() > 0.999
    assert found.scatter == pytest.approx(0.1, abs=0.01)


def test_named_targets_are_false_at_the_stated_rate():
    """Independent sets of neurons have no targeted pair in 95 of 100 layers, at least."""
    on, pairs = all_composites(10, 1), pairs_of(10)
    flagged = [
        found_in(bernoulli(10, 60, 0.4, seed), -np.ones(60), on, pairs).targeted.any()
        for seed in range(200)
    ]
    assert np.mean(flagged) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_a_universal_layer_is_named_so_though_some_pairs_share_more_than_chance():
    """Features that are alike share neurons in any layer; nearly all pairs share some."""
    connections, on, pairs = bernoulli(8, 200, 0.3, 1), all_composites(8, 3), pairs_of(8)
    connections[1] = connections[0]
    found = found_in(connections, -np.ones(200), on, pairs)
    assert found.targeted.any()
    assert found.universal
    assert found.named.all()


@pytest.mark.parametrize("fan_in", [3, 4])
def test_higher_fan_ins_are_found_and_read_along_shared_neurons(fan_in):
    connections, on = bernoulli(7, 400, 0.5, 2), all_composites(7, fan_in + 1)
    weights, bias = 0.1 * connections, np.full(400, -0.1 * (fan_in - 1))
    activations = np.maximum(on @ weights + bias, 0)
    assert find_intersections(weights, bias, activations, on, pairs_of(7), 0.05) is None
    found = find_higher(weights, bias, activations, on, seed=0)
    assert (found.fan_in, found.gates) == (fan_in, math.comb(7, fan_in))
    assert found.sampled is None
    gates = list(combinations(range(7), fan_in))
    shared = np.stack([connections[list(gate)].all(axis=0) for gate in gates])
    scores = np.maximum(on @ connections - fan_in + 1, 0) @ (shared / shared.sum(1)[:, None]).T
    truth = np.stack([on[:, list(gate)].all(axis=1) for gate in gates], axis=1)
    wanted = epsilon(scores, truth)
    assert found.worst == pytest.approx(wanted.worst, rel=1e-9)
    assert found.worst_after_offset == pytest.approx(wanted.worst_after_offset, rel=1e-9)


def test_sets_that_were_only_sampled_are_counted_about(monkeypatch, texts):
    connections, on = bernoulli(9, 60, 0.3, 2), all_composites(9, 4)
    weights, bias = 0.1 * connections, np.full(60, -0.2)
    activations = np.maximum(on @ weights + bias, 0)
    whole = find_higher(weights, bias, activations, on, seed=0)
    assert 0 < whole.gates < math.comb(9, 3)
    monkeypatch.setattr(intersections, "MOST_GATES", 40)
    some = find_higher(weights, bias, activations, on, seed=0)
    assert (whole.sampled, some.sampled) == (None, 40)
    assert some.gates == pytest.approx(whole.gates, abs=4 * 84 * (0.25 / 40) ** 0.5)
    assert "about" not in higher_words(vars(whole))
    texts(higher_words(vars(some)))


def test_pairs_are_no_higher_fan_in():
    connections, on = bernoulli(8, 200, 0.3, 1), all_composites(8, 3)
    activations = np.maximum(on @ connections - 1, 0)
    assert find_higher(connections, -np.ones(200), activations, on, seed=0) is None
