"""Inclusion-exclusion: the identity for every fan-in, its limit, the mean at finite density."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from interp_studies.superposition.inclusion_exclusion import (
    coefficients,
    inclusion_exclusion,
    inclusion_exclusion_and,
)
from interp_toolkit.data.composites import all_composites, composite_tokens
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.constructions.fan_in import connected, fan_in_and


def subsets(items: tuple[int, ...], least: int = 0) -> list[tuple[int, ...]]:
    return [s for size in range(least, len(items) + 1) for s in combinations(items, size)]


@pytest.mark.parametrize("fan_in", [2, 3, 4, 5, 6])
def test_right_on_every_subset_in_the_limit_of_no_interference(fan_in: int) -> None:
    gate, signs = tuple(range(fan_in)), coefficients(fan_in)
    for on in subsets(gate):
        answered = sum(
            signs[len(part) - 2] * max(0, len(set(part) & set(on)) - 1)
            for part in subsets(gate, least=2)
        )
        assert answered == (len(on) == fan_in)
        printed = (-1) ** (fan_in + 1) * answered  # with the source's sign (-1)^(|I| - |I'| + 1)
        assert printed == (on == gate) * (1 if fan_in % 2 else -1)


@pytest.mark.parametrize("fan_in", [2, 3, 4, 5, 6])
def test_the_readoff_is_the_signed_sum_of_intersections(fan_in: int) -> None:
    connections = fan_in_and(7, 400, fan_in, 0.7).connections
    gate = (6, 0, 3, 5, 1, 2)[:fan_in]
    expected = np.zeros(400)
    for part in subsets(gate, least=2):
        shared = connections.numpy()[list(part)].all(axis=0)
        expected += (-1) ** len(part) * shared / shared.sum()
    found = inclusion_exclusion(connections, [gate])[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("fan_in", "many"), [(2, 40), (3, 30), (4, 12)])
def test_the_layer_reaches_that_limit(fan_in: int, many: int) -> None:
    """With ever more neurons for the smaller sets, those who share a set read little else.

    The errors are of the order of 1/many, so that twice as many neurons halve them: what a line
    through both says of none is the truth, features beside the gate among the inputs.
    """
    few, more = (limit_errors(fan_in, factor * many) for factor in (1, 2))
    assert np.abs(few).max() > 0.9 / many
    assert np.abs(2 * more - few).max() < 0.35 * np.abs(more).max()


def limit_errors(fan_in: int, many: int) -> np.ndarray:
    """Errors of a layer with `many` times more neurons for each set than for those one larger."""
    n_features = fan_in + 1
    every = subsets(tuple(range(n_features)), least=2)
    kinds = np.array([np.isin(np.arange(n_features), part) for part in every])
    copies = [many ** (n_features - len(part)) for part in every]
    connections = torch.from_numpy(np.repeat(kinds, copies, axis=0).T.copy())
    gates = [gate for gate in every if len(gate) == fan_in]
    on = all_composites(n_features, n_features)
    held = connected(connections, 2).layer.activations(torch.from_numpy(on))
    truth = np.stack([on[:, list(gate)].all(axis=1) for gate in gates], axis=1)
    return (held @ inclusion_exclusion(connections, gates).T).numpy() - truth


@pytest.mark.parametrize("fan_in", [2, 3, 4, 5, 6])
def test_density_nearing_zero_gives_the_signs(fan_in: int) -> None:
    expected = [(-1) ** size for size in range(2, fan_in + 1)]
    np.testing.assert_array_equal(coefficients(fan_in), expected)
    np.testing.assert_allclose(coefficients(fan_in, 1e-7), expected, atol=1e-4)


@pytest.mark.parametrize("density", [0.1, 0.3])
@pytest.mark.parametrize("fan_in", [3, 4])
def test_coefficients_at_a_density_are_right_in_the_mean(fan_in: int, density: float) -> None:
    """Against the mean over every pattern of connections, weighed by its probability."""
    gate = tuple(range(fan_in))
    for on in subsets(gate):
        total = 0.0
        for part in subsets(gate, least=2):
            rest = tuple(set(gate) - set(part))
            mean = 0.0
            for also in subsets(rest):
                chance = density ** len(also) * (1 - density) ** (len(rest) - len(also))
                mean += chance * max(0, len({*part, *also} & set(on)) - 1)
            total += coefficients(fan_in, density)[len(part) - 2] * mean
        assert total == pytest.approx(float(len(on) == fan_in), abs=1e-9)


def test_at_finite_density_the_correction_helps() -> None:
    layer = fan_in_and(12, 20_000, 2, 0.3, seed=2)
    gate = (1, 4, 6, 9)
    on = np.zeros((16, 12), dtype=bool)
    for row, chosen in enumerate(subsets(gate)):
        on[row, list(chosen)] = True
    truth = on[:, list(gate)].all(axis=1)
    held = layer.layer.activations(torch.from_numpy(on))

    def worst(density: float) -> float:
        readoff = inclusion_exclusion(layer.connections, [gate], density)[0]
        return float(np.abs((held @ readoff).numpy() - truth).max())

    assert worst(0.0) > 1  # the source's readoff, at a density that a machine can hold
    assert worst(0.3) < 0.25


def test_pairs_are_read_as_they_were() -> None:
    layer = fan_in_and(6, 100, 2, 0.5)
    expected = layer.readoffs([(0, 1), (2, 5)])
    torch.testing.assert_close(
        inclusion_exclusion(layer.connections, [(0, 1), (2, 5)], 0.5), expected
    )


@pytest.mark.parametrize("corrected", [True, False])
def test_the_object_measures_what_its_model_writes(corrected: bool) -> None:
    ands = inclusion_exclusion_and(9, 2_000, 0.3, corrected=corrected, seed=1)
    gates = [(0, 1), (2, 5, 8), (1, 3, 4, 6)]
    on = all_composites(9, 4)
    expected = inclusion_exclusion(ands.connections, gates, 0.3 * corrected)
    torch.testing.assert_close(ands.readoffs(gates), expected)
    model = ands.as_model(gates, 4)
    logits = model(torch.from_numpy(composite_tokens(on, 4)))[:, -1].detach().numpy()
    errors = np.abs(logits - np.stack([on[:, list(gate)].all(axis=1) for gate in gates], axis=1))
    measured = ands.epsilon(4, gates)
    assert measured.exact
    np.testing.assert_allclose(measured.worst, errors.max(axis=0), atol=1e-9)
    np.testing.assert_allclose(model.ground_truth.worst, measured.worst)
    assert measured.over_all.rms == pytest.approx(np.sqrt(np.mean(errors**2)), abs=1e-9)


def test_a_sample_of_many_inputs_is_said_to_be_one() -> None:
    ands = inclusion_exclusion_and(60, 2_000, 0.2)
    gates = [(0, 1), (2, 5, 8)]
    measured = ands.epsilon(3, gates)
    assert not measured.exact
    assert ands.as_model(gates, 3).ground_truth.worst is None
    exact = fan_in_and(60, 2_000, 2, 0.2).worst_errors(3, [(0, 1)]).worst[0]
    assert 0.7 * exact < measured.worst[0] <= exact + 1e-9
    with pytest.raises(InputError, match="a gate of 3 is never true"):
        ands.epsilon(2, gates)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1,), "fan_in must be 2"), ((11,), "fan_in must be 2"), ((3, 1.0), "probability")],
)
def test_what_has_no_coefficients_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        coefficients(*arguments)
