"""What follows from the density alone, against simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.uand import universal_and
from interp_toolkit.toys.superposition.layers.gates import inputs_about, random_gates
from interp_toolkit.toys.superposition.layers.layer import (
    choose_density,
    class_means,
    empty_probability,
    expected_worst,
    source_density,
    sparsest_density,
)


@pytest.mark.parametrize(("density", "n_neurons"), [(0.1, 100), (0.2, 40), (0.05, 900)])
def test_how_often_a_pair_has_no_neuron(density: float, n_neurons: int) -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    empty = 0
    for _ in range(20):
        first, second = rng.random((2, n // 20, n_neurons)) < density
        empty += int((~(first & second).any(axis=1)).sum())
    p = empty_probability(density, n_neurons)
    assert abs(empty / n - p) < 4 * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("most_on", [2, 3, 5])
def test_the_mean_errors_of_the_classes(most_on: int) -> None:
    density, m = 0.2, 150
    gates = random_gates(m, 800, seed=1)
    found = np.zeros((3, 3))
    for seed in range(3):
        built = universal_and(m, 2_000, density, seed=seed)
        rng = np.random.default_rng(seed)
        on = [
            inputs_about(gates, np.full(800, -1), m, most_on, rng),
            inputs_about(gates, rng.integers(0, 2, 800), m, most_on, rng),
        ]
        own = built.readoffs(gates)
        for k in range(2):
            held = built.layer.activations(torch.from_numpy(on[k]))
            found[seed, k] = (held * own).sum(1).mean() - [1, 0][k]
        held = built.layer.activations(torch.from_numpy(on[0])) @ own.T
        apart = np.stack([~on[0][:, list(gate)].any(axis=1) for gate in gates], axis=1)
        found[seed, 2] = held.numpy()[apart].mean()
    means = class_means(density, most_on)
    expected = [means.both_on, means.one_on, means.none_on]
    np.testing.assert_allclose(found.mean(axis=0), expected, atol=0.012)


def test_the_class_means_by_hand() -> None:
    means = class_means(0.5, 3)
    assert (means.both_on, means.one_on) == (0.5, 1.0)
    # three fair coins: E max(0, heads - 1) = (3 * 1 + 1 * 2) / 8
    assert means.none_on == pytest.approx(5 / 8)


@pytest.mark.parametrize(
    ("n_features", "n_neurons", "density", "most_on"),
    [(64, 1024, 0.2, 2), (64, 1024, 0.2, 3), (128, 4096, 0.125, 3), (32, 512, 0.3, 4)],
)
def test_the_expected_worst_error_is_near_the_measured(
    n_features: int, n_neurons: int, density: float, most_on: int
) -> None:
    worst = [
        universal_and(n_features, n_neurons, density, seed=seed).epsilon(most_on).worst
        for seed in range(8)
    ]
    expected = expected_worst(n_features, n_neurons, density, most_on)
    assert expected == pytest.approx(np.mean(worst), rel=0.08)


def test_empty_pairs_are_expected_where_they_come() -> None:
    assert expected_worst(64, 100, 0.1) == 1
    assert universal_and(64, 100, 0.1, allow_empty=True).epsilon(2).worst == 1


@pytest.mark.parametrize(("n_features", "n_neurons"), [(64, 1024), (24, 500)])
def test_the_search_finds_the_best_density(n_features: int, n_neurons: int) -> None:
    def mean_worst(density: float) -> float:
        drawn = [
            universal_and(n_features, n_neurons, density, allow_empty=True, seed=seed)
            for seed in range(6)
        ]
        return float(np.mean([built.epsilon(2).worst for built in drawn]))

    chosen = choose_density(n_features, n_neurons)
    others = [mean_worst(float(p)) for p in np.linspace(0.05, 0.8, 16)]
    assert mean_worst(chosen) < min(others) + 0.03


@pytest.mark.parametrize("how", ["search", "sparsest"])
@pytest.mark.parametrize("seed", range(6))
def test_a_chosen_density_leaves_no_pair_empty(how: str, seed: int) -> None:
    built = universal_and(40, 600, how, seed=seed)
    assert built.n_empty == 0
    assert built.chosen == how
    assert built.connections.double().mean().item() == pytest.approx(built.density, abs=0.02)


def test_the_sparsest_density_leaves_one_pair_on_average() -> None:
    p = sparsest_density(40, 600)
    assert 780 * empty_probability(p, 600) == pytest.approx(1, rel=1e-9)
    assert built_empty(p) == pytest.approx(1, abs=0.35)


def built_empty(density: float) -> float:
    drawn = [universal_and(40, 600, density, allow_empty=True, seed=s) for s in range(200)]
    return float(np.mean([built.n_empty for built in drawn]))


def test_the_source_s_density_is_none_at_sizes_that_fit() -> None:
    assert source_density(512, 1_024) == pytest.approx(np.log(512) ** 2 / 32)
    assert source_density(512, 1_024) > 1


def test_refusals(texts) -> None:
    with pytest.raises(InputError, match="ANDs", check=texts):
        choose_density(64, 16)
    with pytest.raises(InputError, match="an AND needs 2 features on"):
        class_means(0.2, 1)
    with pytest.raises(InputError, match="probability"):
        empty_probability(1.5, 10)
