"""The toys are their constructions, and models read off what is known of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit import registry
from interp_toolkit.data.composites import (
    all_composites,
    composite_data,
    sample_composites,
    task_data,
)
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.loader import load
from interp_toolkit.toys.superposition import toys
from interp_toolkit.toys.superposition.constructions.fan_in import fan_in_and
from interp_toolkit.toys.superposition.layers.gates import function_values, gate_truth
from interp_toolkit.toys.superposition.layers.readouts import exact_epsilon
from interp_toolkit.toys.superposition.skip_bigrams import presence, score_quality
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


def last_logits(model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(rows))[:, -1].numpy()


@pytest.mark.parametrize(("name", "fan_in"), [("uand-fan-in-3", 3), ("uand-quadratic", 2)])
def test_gates_are_read_from_the_inputs_that_the_record_makes(name: str, fan_in: int) -> None:
    model = load(f"toy:{name}")
    data = task_data(record_of(model).task)
    n_features = data.features.shape[1]
    gates = [tuple(range(i, i + fan_in)) for i in range(0, n_features, fan_in)]
    truth = gate_truth(data.features, gates)
    rows = np.arange(len(truth))
    logits, truth = last_logits(model, data.token_matrix()[rows]), truth[rows]
    assert logits.shape[1] == len(gates)
    assert truth.any(axis=0).all()
    errors = np.abs(logits - truth)
    if fan_in == 3:
        np.testing.assert_allclose(errors.max(axis=0), model.ground_truth.worst, atol=1e-9)
        layer = fan_in_and(15, 1_024, 3, 0.36)
        assert [layer.worst_errors(n).worst.max().round(2) for n in (3, 4)] == [0.64, 1.18]
    else:
        on = np.stack([data.features[rows][:, gate].sum(axis=1) for gate in gates], axis=1)
        rms = [np.sqrt((errors[on == n] ** 2).mean()).round(2) for n in (2, 1)]
        assert rms == [0.49, 0.35]


def test_the_stacked_circuit_computes_its_last_layer() -> None:
    model, stacked = load("toy:stacked-circuit"), toys.stacked()
    on = stacked.inputs(400, 5, seed=3)
    rows = np.full((400, 6), 64)
    rows[:, :5] = np.nonzero(on)[1].reshape(400, 5)
    rows[:, 5] = 65
    logits, truth = last_logits(model, rows), stacked.exact(on)[-1]
    np.testing.assert_allclose(logits, stacked.scores(on)[-1][0], atol=1e-10)
    assert truth[:200].any(axis=1).all()
    assert np.median(logits[truth]) > 0.7
    assert np.sqrt(((logits - truth) ** 2).mean()) < 0.08
    assert record_of(model).task["most_on"] == 5
    known = model.ground_truth
    assert (known.circuit, known.most_on) == (stacked.circuit, 5)
    assert [f.shape for f in known.features] == [(64, 64), (48, 40)]
    _, cache = model.run_with_cache(torch.from_numpy(rows))
    held = cache[known.hooks[0]][:, -1, :1024].detach()
    torch.testing.assert_close(held, stacked.layers[0].activations(torch.from_numpy(on)))


@pytest.mark.parametrize("name", ["universal-keys", "universal-keys-separate"])
def test_every_query_attends_to_the_right_keys(name: str) -> None:
    """All 176 key tokens at once, so that one token that is wrongly scored would show."""
    model = load(f"toy:{name}")
    on = all_composites(10, 3)
    truth = function_values(list(toys.KEY_FUNCTIONS), on)
    q = model.embed.W_E[176:] @ model.blocks[1].attn.W_Q[0]
    rows = torch.arange(176)[:, None]
    _, cache = model.run_with_cache(rows)
    keys = cache["blocks.1.attn.hook_k"][:, 0, 0]
    scores = (keys @ q.T).detach().numpy()
    assert scores[truth].min() > 10
    assert scores[~truth].max() < -10
    known = model.ground_truth
    assert (known.head, known.functions) == ((1, 0), toys.KEY_FUNCTIONS)
    np.testing.assert_array_equal(known.inputs, on)
    np.testing.assert_array_equal(known.truth, truth)
    errors = np.abs(scores / toys.KEY_SHARPNESS + 0.5 - truth)
    assert known.epsilon.worst == pytest.approx(errors.max(), abs=1e-9)
    assert record_of(model).task["functions"][1] == ["0001", [0, 3]]


@pytest.mark.parametrize("name", ["skip-bigrams", "skip-bigrams-rotary", "skip-bigrams-gqa"])
def test_planted_bigrams_score_above_other_pairs(name: str) -> None:
    model = load(f"toy:{name}")
    truth = model.ground_truth
    np.testing.assert_array_equal(model.embed.W_E.detach(), truth.features)
    embedded, attn = model.embed.W_E.detach(), model.blocks[0].attn
    for (layer, head), bigrams in truth.bigrams.items():
        assert layer == 0
        scores = (embedded @ attn.W_Q[head]) @ (embedded @ attn.W_K[head]).T
        quality = score_quality(scores.detach(), bigrams)
        assert presence(bigrams, 256, 256).sum() == (20 if name == "skip-bigrams-gqa" else 64)
        assert quality.auc > 0.99
        assert quality.signal > 0.7


@pytest.mark.parametrize("name", sorted(n for n in registry.names("toys") if "bigram" in n))
def test_building_twice_gives_the_same_weights(name: str) -> None:
    toy = registry.find("toys", name)
    first, second = toy.build().state_dict(), toy.build().state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
