"""The registered toys: loaded by name, with ground truth and a task that makes their inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit import registry
from interp_toolkit.data.composites import composite_data, sample_composites
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.loader import load
from interp_toolkit.toys.superposition.layers.gates import gate_truth
from interp_toolkit.toys.superposition.layers.readouts import exact_epsilon
from interp_toolkit.toys.superposition.toys import pairs_and_triples

NAMES = ["uand", "uand-superposed", "uand-targeted"]


@pytest.mark.parametrize("name", NAMES)
def test_a_toy_s_record_makes_its_inputs(name: str) -> None:
    model = load(f"toy:{name}")
    task, truth = record_of(model).task, model.ground_truth
    assert task == record_of(registry.find("toys", name).build()).task
    assert (task["n_features"], task["most_on"]) == (truth.n_features, truth.most_on)
    on = sample_composites(400, task["n_features"], task["most_on"], np.random.default_rng(0))
    pairs = np.array(truth.gates)
    on = np.concatenate([on, np.zeros((len(pairs), on.shape[1]), dtype=bool)])
    on[400 + np.arange(len(pairs))[:, None], pairs] = True
    data = composite_data(on, task["most_on"])
    logits, cache = model.run_with_cache(torch.from_numpy(np.stack(list(data.tokens))))
    read = cache[truth.hook][:, -1].numpy() @ truth.readoffs.T
    np.testing.assert_allclose(logits[:, -1].detach(), read, atol=1e-10)
    true = gate_truth(on, truth.gates)
    assert np.median(read[true]) > read[~true].mean() + 0.5
    if truth.worst is not None:
        assert (np.abs(read - true).max(axis=0) <= truth.worst + 1e-9).all()


@pytest.mark.parametrize(("n_features", "most_on"), [(5, 2), (6, 3), (8, 4)])
def test_pairs_and_triples_have_the_errors_that_are_derived(n_features: int, most_on: int) -> None:
    exact = pairs_and_triples(n_features).epsilon(most_on)
    worst = (most_on - 1) / (n_features - 1)
    np.testing.assert_allclose(exact.one_on, worst, atol=1e-12)
    np.testing.assert_allclose(exact.both_on, (most_on - 2) / (n_features - 1), atol=1e-12)
    np.testing.assert_allclose(exact.by_pair_after_offset, worst / 2, atol=1e-12)
    assert (exact.neurons == n_features - 1).all()


def test_the_small_toy_is_better_than_an_affine_readout_with_two_on() -> None:
    connections = torch.from_numpy(load("toy:uand").ground_truth.connections)
    assert exact_epsilon(connections, 2).worst_after_offset < 0.25
    assert exact_epsilon(connections, 3).worst_after_offset > 0.25
