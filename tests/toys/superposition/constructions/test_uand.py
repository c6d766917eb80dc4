"""Universal AND against brute force over every pair and input, and the measured settings."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.boolean_functions import epsilon
from interp_toolkit.data.composites import all_composites, composite_tokens, sample_composites
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.toys.superposition.constructions.uand import universal_and
from interp_toolkit.toys.superposition.layers.gates import all_pairs, gate_truth
from interp_toolkit.toys.superposition.layers.layer import HOOK
from interp_toolkit.toys.superposition.layers.readouts import exact_epsilon

M = 12
ON = {most_on: all_composites(M, most_on) for most_on in (2, 3, 4)}


@pytest.mark.parametrize("most_on", [2, 3, 4])
@pytest.mark.parametrize(("n_neurons", "density"), [(200, 0.3), (64, 0.2), (40, 0.7), (30, 0.15)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_epsilon_is_brute_force(
    most_on: int, n_neurons: int, density: float, seed: int
) -> None:
    built = universal_and(M, n_neurons, density, allow_empty=True, seed=seed)
    on, pairs = ON[most_on], all_pairs(M)
    scores = (built.layer.activations(torch.from_numpy(on)) @ built.readoffs().T).numpy()
    truth = gate_truth(on, pairs)
    exact = built.epsilon(most_on)
    errors = np.abs(scores - truth)
    n_of_pair = np.stack([on[:, list(pair)].sum(axis=1) for pair in pairs], axis=1)
    worst = {n: np.where(n_of_pair == n, errors, 0).max(axis=0) for n in (0, 1, 2)}
    np.testing.assert_allclose(worst[2], exact.both_on, atol=1e-9, rtol=0)
    np.testing.assert_allclose(worst[1], exact.one_on, atol=1e-9, rtol=0)
    assert (worst[0] <= exact.one_on + 1e-9).all()
    np.testing.assert_allclose(errors.max(axis=0), exact.by_pair, atol=1e-9, rtol=0)
    sampled = epsilon(scores, truth)
    assert exact.worst == pytest.approx(sampled.worst, abs=1e-9)
    assert exact.worst_after_offset == pytest.approx(sampled.worst_after_offset, abs=1e-9)
    assert exact.n_empty == built.n_empty == int((scores.max(axis=0) == 0).sum())


def test_some_of_these_have_empty_pairs_and_some_do_not() -> None:
    assert universal_and(M, 30, 0.15, allow_empty=True).n_empty > 10
    assert universal_and(M, 40, 0.7, allow_empty=True).n_empty == 0


def test_mean_t_is_the_mean_over_triples() -> None:
    built = universal_and(M, 40, 0.25, allow_empty=True, seed=5)
    S = [set(np.flatnonzero(row)) for row in built.connections.numpy()]
    t = [
        len(S[i] & S[j] & S[x]) / len(S[i] & S[j])
        for i, j in combinations(range(M), 2)
        for x in set(range(M)) - {i, j}
        if S[i] & S[j]
    ]
    assert built.epsilon(2).mean_t == pytest.approx(np.mean(t), abs=1e-12)


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(1, 12), st.floats(0.1, 1.0), st.integers(0, 10**6))
def test_exact_epsilon_does_not_depend_on_the_order(
    n_features: int, n_neurons: int, density: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    connections = torch.rand(n_features, n_neurons, generator=generator) < density
    rows, columns = (torch.randperm(n, generator=generator) for n in connections.shape)
    before = exact_epsilon(connections, 2)
    after = exact_epsilon(connections[rows][:, columns], 2)
    numbers = {pair: k for k, pair in enumerate(all_pairs(n_features))}
    moved = [numbers[tuple(sorted((int(rows[i]), int(rows[j]))))] for i, j in all_pairs(n_features)]
    np.testing.assert_allclose(after.by_pair, before.by_pair[moved], atol=1e-12)
    np.testing.assert_array_equal(after.neurons, before.neurons[moved])


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(1, 12), st.floats(0.1, 1.0), st.integers(0, 10**6))
def test_the_worst_error_grows_with_what_is_on(
    n_features: int, n_neurons: int, density: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    connections = torch.rand(n_features, n_neurons, generator=generator) < density
    by_pair = [exact_epsilon(connections, n).by_pair for n in range(2, n_features + 1)]
    assert all((b >= a - 1e-12).all() for a, b in pairwise(by_pair))


@pytest.mark.parametrize(
    ("n_features", "n_neurons", "density", "low", "high"),
    [(64, 1024, 0.2, 0.50, 0.54), (128, 4096, 0.125, 0.364, 0.395)],
)
def test_measured_settings(
    n_features: int, n_neurons: int, density: float, low: float, high: float
) -> None:
    worst = []
    for seed in range(5):
        exact = universal_and(n_features, n_neurons, density, seed=seed).epsilon(2)
        worst.append(exact.worst)
        assert low - 0.04 < exact.worst < high + 0.04
        assert exact.mean_t == pytest.approx(density, abs=0.005)
        assert exact.worst_after_offset == pytest.approx(exact.worst / 2)
    assert low - 0.02 < np.mean(worst) < high + 0.02


def test_measured_setting_of_512_features() -> None:
    built = universal_and(512, 4096, 0.15)
    exact = built.epsilon(3)
    assert 0.69 - 0.04 < exact.worst < 0.75 + 0.04
    at_two = exact.both_on.max()  # l - 2 = 1 other, which is l = 2's one-on case
    assert 0.391 - 0.04 < at_two < 0.411 + 0.04
    assert at_two / 2 < 0.25
    assert built.pairs_per_neuron == pytest.approx(31.94, abs=0.01)


def test_measured_setting_of_16384_neurons() -> None:
    exact = universal_and(256, 16_384, 0.1).epsilon(2)
    assert 0.237 - 0.04 < exact.worst < 0.252 + 0.04


def test_triples_counted_another_way() -> None:
    built = universal_and(200, 1000, 0.2, seed=2)
    counts = np.einsum("in,jn,xn->ijx", *[built.connections.double().numpy()[:60]] * 3)
    sizes = np.einsum("iij->ij", counts)
    t = counts / np.maximum(sizes[:, :, None], 1)
    some = exact_epsilon(built.connections[:60], 2)
    for k, (i, j) in enumerate(all_pairs(60)):
        t[i, j, [i, j]] = 0
        assert some.one_on[k] == pytest.approx(t[i, j].max(), abs=1e-12)


def test_readoffs_are_means_over_intersections() -> None:
    built = universal_and(M, 60, 0.4)
    S = built.connections.numpy()
    for (i, j), row in zip(all_pairs(M), built.readoffs(), strict=True):
        common = S[i] & S[j]
        np.testing.assert_allclose(row, common / common.sum(), atol=1e-15)
    torch.testing.assert_close(
        built.readoffs([(3, 1)])[0], built.readoffs()[all_pairs(M).index((1, 3))]
    )


def test_the_model_computes_the_layer() -> None:
    built = universal_and(20, 300, 0.3, seed=1)
    gates = [(0, 1), (4, 2), (7, 19)]
    model = built.as_model(4, gates)
    on = sample_composites(300, 20, 4, np.random.default_rng(0))
    logits, cache = model.run_with_cache(torch.from_numpy(composite_tokens(on, 4)))
    held = built.layer.activations(torch.from_numpy(on))
    torch.testing.assert_close(cache[HOOK][:, -1], held, rtol=0, atol=1e-12)
    expected = held @ built.readoffs(gates).T
    torch.testing.assert_close(logits[:, -1], expected, rtol=0, atol=1e-12)
    assert logits.dtype == torch.float64
    truth = model.ground_truth
    assert truth.gates == ((0, 1), (2, 4), (7, 19))
    numbers = [all_pairs(20).index(gate) for gate in truth.gates]
    np.testing.assert_allclose(truth.worst, built.epsilon(4).by_pair[numbers], atol=1e-12)
    task = record_of(model).task
    assert (task["n_features"], task["most_on"]) == (20, 4)


def test_without_gates_a_model_writes_disjoint_pairs() -> None:
    built = universal_and(20, 300, 0.3)
    assert built.as_model(2).ground_truth.gates == tuple((i, i + 1) for i in range(0, 16, 2))
    assert universal_and(5, 90).as_model(2).ground_truth.gates == ((0, 1), (2, 3))


def test_sampling_finds_no_more_than_there_is() -> None:
    built = universal_and(M, 200, 0.3)
    for most_on in (2, 4):
        exact, found = built.epsilon(most_on), built.sampled_epsilon(most_on, rounds=4)
        assert 0.7 * exact.worst < found.own.worst <= found.every.worst <= exact.worst + 1e-12
        assert found.own.worst_after_offset <= exact.worst_after_offset + 1e-12
    assert "66 gates" in found.how
    assert "4 rounds" in found.how


@pytest.mark.parametrize(
    "arguments",
    [
        (12, 0, 0.2),
        (1, 50, 0.2),
        (12, 50, 0.0),
        (12, 50, 1.2),
        (12, 30, 0.1),
        (64, 100, "source"),
        (512, 64),
        (100_000, 100_000, 0.1),
        (100_000, 10, 0.5),
        (60, 2, "sparsest"),
        (8, 64, "foo"),
        (3, 1, 0.1),
        (2, 1, 0.1),
    ],
)
def test_what_cannot_be_built(arguments: tuple, texts) -> None:
    with pytest.raises(InputError, check=texts):
        universal_and(*arguments)


def test_what_cannot_be_measured(texts) -> None:
    built = universal_and(M, 200, 0.3)
    for most_on, complaint in ((1, "an AND needs 2 features on"), (13, "there are 12")):
        with pytest.raises(InputError, match=complaint):
            built.epsilon(most_on)
    with pytest.raises(InputError, check=texts):
        built.sampled_epsilon(1)
    with pytest.raises(InputError, match="set of 2"):
        built.readoffs([(0, 1, 2)])
    with pytest.raises(InputError, match=r"readouts of 499,500 x 4,000 take"):
        universal_and(1_000, 4_000, 0.2).readoffs()


def test_the_source_s_density_where_there_is_one() -> None:
    built = universal_and(4, 400, "source")
    assert built.chosen == "source"
    assert built.density == pytest.approx(np.log(4) ** 2 / 20)


@pytest.mark.parametrize(("n_features", "n_neurons"), [(12, 300), (40, 600), (64, 1024)])
def test_the_sparsest_layer_can_be_read(n_features: int, n_neurons: int, texts) -> None:
    built, best = (universal_and(n_features, n_neurons, how) for how in ("sparsest", "search"))
    assert built.density < best.density
    assert best.epsilon(2).worst < built.epsilon(2).worst < 1
    with pytest.raises(InputError, match="ANDs", check=texts):
        universal_and(n_features, n_neurons, "sparsest", most_on=n_features)


def test_the_only_pair_may_have_every_neuron() -> None:
    assert universal_and(2, 1, "sparsest").epsilon(2).worst == 0
