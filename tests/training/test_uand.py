"""Training all pairs: its inputs, its loss, what stays fixed, and what it reaches."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import interp_toolkit as it
from interp_toolkit.data.composites import all_composites, composite_tokens
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.toys.trained import UAND_TRAINED
from interp_toolkit.training.uand import (
    RECIPE,
    TRAINED,
    UandProblem,
    UandTraining,
    draw_composites,
    p_norm,
    pair_truth,
    pairs_of,
    train,
    untrained,
)

TINY = {"n_features": 5, "n_neurons": 8, "steps": 3, "seeds": 1}


def problem_of(seed: int = 0, **settings) -> UandProblem:
    return UandProblem(UandTraining(**{**TINY, **settings}), seed)


def worst_error(model, n_features: int, most_on: int) -> float:
    """From the model's logits on every input, pair by pair, in plain Python."""
    inputs = all_composites(n_features, most_on)
    with torch.no_grad():
        logits = model(torch.from_numpy(composite_tokens(inputs, most_on)))[:, -1].double()
    pairs = list(combinations(range(n_features), 2))
    return max(
        abs(score - (on[i] and on[j]))
        for on, scores in zip(inputs.tolist(), logits.tolist(), strict=True)
        for (i, j), score in zip(pairs, scores, strict=True)
    )


@pytest.mark.parametrize("settings", [{}, {"most_on": 3}, {"d_in": 3}, {"dtype": "float64"}])
def test_the_short_way_gives_the_models_logits_and_gradients(settings) -> None:
    problem = problem_of(**settings)
    most_on = problem.config.most_on
    inputs = all_composites(5, most_on)
    readouts = problem.readouts(torch.from_numpy(inputs))
    logits = problem.model(torch.from_numpy(composite_tokens(inputs, most_on)))[:, -1]
    torch.testing.assert_close(readouts, logits, rtol=1e-4, atol=1e-6)
    short = torch.autograd.grad(readouts.square().sum(), problem.model.blocks[0].mlp.W_in)
    long = torch.autograd.grad(logits.square().sum(), problem.model.blocks[0].mlp.W_in)
    torch.testing.assert_close(short, long, rtol=1e-4, atol=1e-5)


def test_only_the_layer_and_its_readoffs_move() -> None:
    before = problem_of(seed=2).model.state_dict()
    after = train(UandTraining(**{**TINY, "seed": 2})).model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == set(TRAINED)
    assert not after["blocks.0.mlp.W_in"][5:].any()  # what the gates' directions would feed back
    assert not after["blocks.0.mlp.W_out"][:, :5].any()


def test_the_loss_is_the_p_norm_by_hand() -> None:
    errors = torch.tensor([[0.5, 0.0], [1.0, 0.25]])
    weight = torch.tensor([[1.0, 1.0], [3.0, 1.0]])
    by_hand = ((0.5**4 + 3 * 1.0 + 0.25**4) / 2) ** 0.25
    assert p_norm(errors, weight, 4).item() == pytest.approx(by_hand)
    small = (1e-9 * errors.double()).requires_grad_()
    loss = p_norm(small, weight.double(), 64)
    loss.backward()
    assert loss.item() == pytest.approx(1e-9 * (3 / 2) ** (1 / 64))
    assert small.grad.isfinite().all()
    assert p_norm(torch.zeros(2, 2), weight, 8).item() == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize("rows", [4_096, 15])
def test_balanced_pairs_weigh_alike_on_and_off(rows: int) -> None:
    problem = problem_of(balanced=True, most_on=3, rows=rows)
    generator = torch.Generator().manual_seed(0)
    batches = [problem.draw(generator) for _ in range(1 if rows == 4_096 else 4_000)]
    share = pair_truth(torch.cat(batches), problem.pairs).double().mean().item()
    weighed = problem.positive_weight * share
    assert weighed == pytest.approx(1 - share, rel=1e-9 if rows == 4_096 else 0.05)


def test_draws_have_the_sizes_and_features_alike() -> None:
    on = draw_composites(20_000, 6, 3, torch.Generator().manual_seed(0))
    sizes = torch.bincount(on.sum(1), minlength=4).double() / 20_000
    np.testing.assert_allclose(sizes, 0.25, atol=0.015)
    np.testing.assert_allclose(on.double().mean(0), 1.5 / 6, atol=0.015)


def test_pairs_are_the_logits_in_order() -> None:
    assert pairs_of(4).tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]


def test_a_high_power_gets_below_the_affine_readout_and_the_mean_square_does_not() -> None:
    config = UandTraining(seeds=2, steps=1_200)
    run = train(config)
    worst = run.training["worst"]
    assert worst == min(row[1] for row in run.rows)
    assert worst == pytest.approx(worst_error(run.model, 12, 3), abs=1e-5)
    assert worst < 0.25
    squares = train(UandTraining(seeds=1, steps=1_200, power=2))
    assert squares.training["rms"] < run.training["rms"]
    assert squares.training["worst"] > 0.35
    assert "2 of 2 seeds" in run.verdict
    assert f"{worst:.3f}" in run.verdict
    assert "0 of 1 seed " in squares.verdict


@pytest.mark.parametrize("variant", sorted(RECIPE.variants))
def test_every_variant_trains_and_loads_again(variant: str, tmp_path: Path) -> None:
    settings = {**TINY, "n_features": 9, **RECIPE.variants[variant]}
    run = train(UandTraining(**settings))
    assert run.model.cfg.d_vocab_out == 36
    save(run.model, tmp_path / "m.safetensors", task=run.task, training=run.training)
    loaded = it.load(tmp_path / "m.safetensors")
    assert record_of(loaded).task == {"function": "uand", "n_features": 9, "most_on": 3}
    assert all(torch.equal(v, loaded.state_dict()[k]) for k, v in run.model.state_dict().items())
    assert (variant == "superposed") == (settings.get("d_in") == 8)


def test_superposed_features_are_unit_vectors_of_the_seed() -> None:
    first, again, other = (problem_of(seed=s, d_in=3).features for s in (1, 1, 2))
    torch.testing.assert_close(first.norm(dim=1), torch.ones(5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_many_inputs_are_drawn_and_the_verdict_says_so() -> None:
    config = UandTraining(n_features=30, n_neurons=8, most_on=4, steps=2, seeds=1, rows=64)
    problem = UandProblem(config, 0)
    batch = problem.draw(torch.Generator().manual_seed(0))
    assert batch.shape == (64, 30)
    assert batch.sum(1).max() <= 4
    assert "on 20,000 random inputs" in train(config).verdict


def test_untrained_connections_by_brute_force() -> None:
    """Ten features, many neurons: the median worst error at the density it names."""
    found = untrained(6, 400, 2)
    inputs = all_composites(6, 2)
    pairs = list(combinations(range(6), 2))
    worst = []
    generator = np.random.default_rng(1)
    for _ in range(60):
        connections = generator.random((6, 400)) < found.density
        activations = np.maximum(inputs @ connections.astype(float) - 1, 0)
        errors = [
            np.abs(
                activations[:, connections[i] & connections[j]].mean(axis=1)
                - (inputs[:, i] & inputs[:, j])
            ).max()
            for i, j in pairs
        ]
        worst.append(max(errors))
    assert np.quantile(worst, 0.02) <= found.worst <= np.quantile(worst, 0.7)


def test_the_shipped_layer_reads_every_pair() -> None:
    model = UAND_TRAINED.build()
    record = record_of(model)
    assert record.task == UAND_TRAINED.task
    worst = worst_error(model, 12, 3)
    assert worst == pytest.approx(record.training["worst"], abs=1e-5)
    assert worst < 0.19


@pytest.mark.parametrize(
    "settings",
    [
        {"n_features": 4, "most_on": 5},
        {"d_in": 13},
        {"power": 1},
        {"n_features": 65},
        {"rows": 10**7, "n_features": 64, "most_on": 20},
        {"rows": 40_000, "n_features": 40, "n_neurons": 16_384, "most_on": 4},
        {"rows": 140_000, "n_features": 64, "most_on": 4, "dtype": "float64"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings, texts) -> None:
    with pytest.raises(ValidationError, check=texts):
        UandTraining(**settings)


def test_rows_beyond_all_inputs_take_no_more_room() -> None:
    """43,745 inputs with at most 3 of 64 on, and 140,000 rows of half the size, fit."""
    assert UandTraining(rows=10**7, n_features=64).rows == 10**7
    assert UandTraining(rows=140_000, n_features=64, most_on=4).dtype == "float32"


def test_one_neuron_and_one_pair_are_counted_as_one() -> None:
    settings = {"n_features": 2, "n_neurons": 1, "most_on": 2, "steps": 2, "seeds": 1}
    assert train(UandTraining(**settings)).verdict.startswith("1 neuron, 1 pair: ")


@pytest.mark.gpu
def test_it_trains_on_a_gpu() -> None:
    run = train(UandTraining(device="cuda", steps=20, seeds=1))
    assert run.model.W_E.device.type == "cuda"
    assert run.training["worst"] < 2
