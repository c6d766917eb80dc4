"""Features in superposition: universal and targeted ANDs, against formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.data.composites import all_composites, composite_tokens, sample_composites
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.targeted import superposed_and, targeted_gates
from interp_toolkit.toys.superposition.layers.gates import gate_truth, random_gates
from interp_toolkit.toys.superposition.layers.layer import sampled_epsilon


def test_the_superposed_layer_is_written_out() -> None:
    built = superposed_and(30, 24, 400, 0.2, seed=3)
    F, C = built.layer.features.numpy(), built.connections.numpy().astype(float)
    assert F.shape == (30, 24)
    np.testing.assert_allclose(np.linalg.norm(F, axis=1), 1, atol=1e-12)
    on = sample_composites(50, 30, 4, np.random.default_rng(0))
    expected = np.maximum(0, on @ F @ F.T @ C - 1)
    found = built.layer.activations(torch.from_numpy(on))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    common = built.connections[4] & built.connections[9]
    np.testing.assert_allclose(built.readoffs([(4, 9)])[0], common / common.sum(), atol=1e-15)


def test_interference_is_the_spread_of_what_others_add() -> None:
    built = superposed_and(400, 300, 500, 0.1, allow_empty=True)
    added = built.layer.features @ built.layer.W_in
    spread = added[~built.connections].std().item()
    assert built.interference == pytest.approx(spread, rel=0.02)
    assert built.interference == pytest.approx(np.sqrt(0.1 * 400 / 300), rel=0.01)


def test_the_less_superposition_the_less_error() -> None:
    rms = [superposed_and(30, d, 900, 0.15).sampled_epsilon(2).own.rms for d in (24, 100, 2_000)]
    assert rms[0] > 1.3 * rms[1] > 1.3 * rms[2]


def test_in_superposition_there_is_no_exact_error() -> None:
    built = superposed_and(64, 256, 1_024)
    assert built.chosen == "sparsest"
    assert built.sampled_epsilon(2).own.worst < 1
    assert built.in_superposition
    with pytest.raises(InputError, match="use sampled_epsilon"):
        built.epsilon(2)
    assert built.as_model(2).ground_truth.worst is None


def test_models_in_superposition_compute_their_layer() -> None:
    gates = [(0, 5), (1, 2, 9), (3, 4)]
    for built in (superposed_and(30, 24, 400, 0.2), targeted_gates(gates, 30, 50, 4, 24)):
        model = built.as_model(4)
        on = sample_composites(100, 30, 4, np.random.default_rng(0))
        logits = model(torch.from_numpy(composite_tokens(on, 4)))[:, -1]
        truth = model.ground_truth
        held = built.layer.activations(torch.from_numpy(on))
        expected = held @ torch.from_numpy(truth.readoffs).T
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)


def test_targeted_connections_are_unions_over_gates() -> None:
    gates = random_gates(40, 30, seed=1)
    built = targeted_gates(gates, 40, 64, 5)
    assert (built.neurons.sum(dim=1) == 5).all()
    for feature in range(40):
        own = [built.neurons[g] for g, gate in enumerate(gates) if feature in gate]
        union = torch.stack(own).any(dim=0) if own else torch.zeros(64, dtype=torch.bool)
        assert torch.equal(built.connections[feature], union)
    torch.testing.assert_close(built.layer.W_in, built.connections.double())


def test_gates_that_share_no_neuron_are_exact() -> None:
    gates = [(0, 1), (2, 3, 4), (5, 6, 7, 8)]
    built = targeted_gates(gates, 9, 4_000, 6, seed=0)
    assert built.neurons.sum(dim=0).max() == 1
    on = all_composites(9, 4)
    held = built.layer.activations(torch.from_numpy(on))
    scores = (held @ built.readoffs().T).numpy()
    np.testing.assert_allclose(scores, gate_truth(on, gates), atol=1e-12)
    assert built.layer.b_in.unique().tolist() == [-3.0]


def test_shared_neurons_have_the_largest_weight() -> None:
    built = targeted_gates([(0, 1), (0, 2, 3)], 4, 1, 1)
    assert built.layer.W_in[:, 0].tolist() == [1.5, 1.5, 1.0, 1.0]


def test_measured_setting_of_targeted_pairs() -> None:
    built = targeted_gates(random_gates(8_192, 1_536), 8_192, 1_024, 4, 4_096)
    found = built.sampled_epsilon(2)
    assert found.own.worst == pytest.approx(0.36, abs=0.04)
    assert found.worst_after_common_offset == pytest.approx(0.21, abs=0.04)
    assert found.rms_of_classes == pytest.approx(0.039, abs=0.004)
    assert found.every.worst > found.own.worst


def test_sampled_errors_are_those_of_their_inputs() -> None:
    gates = [(0, 1), (2, 3, 4)]
    built = targeted_gates(gates, 8, 12, 3, 6, seed=1)
    found = sampled_epsilon(built.layer, built.readoffs(), gates, 8, rounds=2, seed=5)
    on = np.ones((1, 8), dtype=bool)
    scores = (built.layer.activations(torch.from_numpy(on)) @ built.readoffs().T).numpy()[0]
    assert found.rms_on == pytest.approx(np.sqrt(np.mean((scores - 1) ** 2)), abs=1e-12)
    off = [np.delete(np.arange(8), [i]) for i in range(5)]
    errors = [
        float(built.layer.activations(_input(rest)) @ built.readoffs()[g])
        for g, members in ((0, (0, 1)), (1, (2, 3, 4)))
        for rest in (off[i] for i in members)
    ]
    assert found.rms_one_off == pytest.approx(np.sqrt(np.mean(np.square(errors))), abs=1e-12)


def _input(features: np.ndarray) -> torch.Tensor:
    on = torch.zeros(1, 8, dtype=torch.bool)
    on[0, features] = True
    return on


@pytest.mark.parametrize(
    "build",
    [
        lambda: superposed_and(400, 50, 300, 0.3),
        lambda: superposed_and(40, 0, 300, 0.3),
        lambda: superposed_and(40, 30, 30, 0.1),
        lambda: superposed_and(40, 200, 2),
        lambda: superposed_and(40, 200, 30),
        lambda: superposed_and(48, 24, 2_048),
        lambda: targeted_gates([(0, 1)], 4, 8, 2).as_model(1),
        lambda: targeted_gates([(0, 1)], 4, 8, 2).as_model(5),
        lambda: targeted_gates([(0, 1)], 4, 8, 2).as_model(2, -1),
        lambda: targeted_gates([(0, 1)], 4, 8, 2).as_model(2, 2),
        lambda: targeted_gates([(0, 1)], 10**5, 8, 2),
        lambda: targeted_gates([(0, 1), (1, 0)], 4, 8, 2),
        lambda: targeted_gates([(0, 1)], 4, 8, 9),
        lambda: targeted_gates([(0, 7)], 4, 8, 2),
        lambda: targeted_gates(random_gates(40, 600), 40, 20, 5, 8),
        lambda: targeted_gates([(0, 1, 2)], 4, 8, 2).sampled_epsilon(2),
        lambda: targeted_gates([(0, 1)], 4, 8, 2).sampled_epsilon(2, rounds=0),
        lambda: targeted_gates([(0, 1)], 4, 8, 2).sampled_epsilon(2, rounds=10**8),
    ],
)
def test_refusals(build, texts) -> None:
    with pytest.raises(InputError, check=texts):
        build()


def test_interference_is_of_the_weights_squared() -> None:
    """One neuron that reads a pair with weight 3/2 and a triple with 1: 7.5, and not 6."""
    gates = [(0, 1), (2, 3, 4)]
    with pytest.raises(InputError, match=r"each reads 7\.5 features on 7 axes"):
        targeted_gates(gates, 5, 1, 1, 7)
    assert targeted_gates(gates, 5, 1, 1, 8).layer.W_in.shape == (8, 1)


def test_a_density_that_is_given_is_built_however_bad() -> None:
    built = superposed_and(40, 200, 30, 0.5)
    assert built.sampled_epsilon(2).own.worst > 1
