"""Planted heads: they attend where they should, at places and strengths that vary."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from planted import KINDS, PlantedHead, planted

from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import ablate
from interp_toolkit.toys.hand_set.untrained import random_model

SIZES = [
    {},
    {"d_vocab": 4},
    {"d_vocab": 200},
    {"n_layers": 4, "n_heads": 8},
    {"n_key_value_heads": 2},
    {"positions": "rotary", "d_vocab": 40},
    {"positions": "rotary", "n_key_value_heads": 1, "n_layers": 3},
]


def targets(detector: str, tokens: torch.Tensor) -> torch.Tensor:
    """[row query key]: where a head of this name attends."""
    n_pos = tokens.shape[1]
    query, key = torch.arange(n_pos)[:, None], torch.arange(n_pos)
    if detector == "previous-token":
        return (query - key == 1).expand(len(tokens), -1, -1)
    if detector == "duplicate-token":
        return (tokens[:, :, None] == tokens[:, None]) & (query > key)
    before = F.pad(tokens, (1, -1), value=-1)
    return (tokens[:, :, None] == before[:, None]) & (query >= key)


def share(model, planted_head: PlantedHead, tokens: torch.Tensor) -> float:
    """Mean attention to the targets, of the queries that have any."""
    detector, layer, head = planted_head
    _, cache = model.run_with_cache(tokens)
    wanted = targets(detector, tokens)
    on_target = (cache["pattern", layer][:, head] * wanted).sum(-1)
    return on_target[wanted.any(-1)].mean().item()


def second_repeat(model, prompts) -> tuple[float, float]:
    """Loss and accuracy on the next tokens that the context tells."""
    with torch.no_grad():
        logits = model(prompts.tokens)[prompts.repeated()]
    answers = prompts.tokens.roll(-1, dims=1)[prompts.repeated()]
    right = (logits.argmax(-1) == answers).double().mean().item()
    return F.cross_entropy(logits, answers).item(), right


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_at_full_strength_every_planted_head_attends_where_it_should(kind, sizes) -> None:
    if kind == "duplicate-token" and sizes.get("positions") == "rotary":
        pytest.skip("absolute positions only")
    for seed in range(3):
        model = planted(kind, seed=seed, **sizes)
        tokens = repeated_prompts(model, rows=4, seed=seed).tokens
        for head in model.ground_truth.heads:
            assert share(model, head, tokens) > 0.9, head


@pytest.mark.parametrize("kind", KINDS)
def test_attention_grows_with_strength_from_that_of_a_random_head(kind: str) -> None:
    for seed in range(3):
        shares = []
        for strength in (0.0, 0.1, 0.2, 0.5, 1.0, 2.0):
            model = planted(kind, seed=seed, strength=strength)
            tokens = repeated_prompts(model, rows=6, seed=0).tokens
            shares.append(share(model, model.ground_truth.heads[-1], tokens))
        assert shares == sorted(shares)
        name = model.ground_truth.heads[-1].detector
        uniform = torch.ones(64, 64).tril()
        uniform = uniform / uniform.sum(-1, keepdim=True)
        wanted = targets(name, tokens)
        chance = (uniform * wanted).sum(-1)[wanted.any(-1)].mean().item()
        assert shares[0] == pytest.approx(chance, rel=0.2)


def test_at_no_strength_heads_are_those_of_an_untrained_model() -> None:
    sizes = {"d_model": 128, "d_head": 32, "n_layers": 2, "n_heads": 4}
    state = planted("induction", seed=5, strength=0.0, **sizes).state_dict()
    random = random_model(5, **sizes).state_dict()
    for name in state:
        assert torch.equal(state[name], random[name]) == ("embed" not in name or "un" in name), name


def test_only_the_planted_heads_differ_from_random_ones() -> None:
    model = planted("induction", seed=7, n_layers=4, n_heads=8)
    random = random_model(7, n_layers=4, n_heads=8, d_model=256)
    changed = {
        (layer, head)
        for layer in range(4)
        for head in range(8)
        if not torch.equal(model.blocks[layer].attn.W_Q[head], random.blocks[layer].attn.W_Q[head])
    }
    assert changed == {(layer, head) for _, layer, head in model.ground_truth.heads}


def test_no_axis_is_special_and_the_codes_are_orthonormal() -> None:
    model = planted("induction", seed=0)
    codes = torch.cat([model.W_E]).double() / 0.8
    torch.testing.assert_close(codes @ codes.T, torch.eye(16).double(), rtol=0, atol=1e-6)
    places = model.W_pos.double() / 0.8
    torch.testing.assert_close(places.norm(dim=1), torch.ones(64).double(), rtol=0, atol=1e-6)
    assert (codes @ places.T).abs().max() < 1e-6
    assert codes.abs().max() < 0.5
    assert (model.W_Q.abs().sum(-1) > 0).all()


def test_places_vary_and_the_circuit_is_in_order() -> None:
    found = {planted("induction", seed=s, n_layers=3).ground_truth.heads for s in range(30)}
    assert len(found) > 18
    assert all(previous.layer < induction.layer for previous, induction in found)
    singles = {planted("previous-token", seed=s).ground_truth.heads[0] for s in range(30)}
    assert {(h.layer, h.head) for h in singles} == {(n, h) for n in range(2) for h in range(4)}


@pytest.mark.parametrize("positions", ["standard", "rotary"])
def test_ablating_a_planted_circuit_loses_the_second_repeat_and_a_decoy_has_none(positions) -> None:
    for seed in range(3):
        sizes = {"seed": seed, "d_vocab": 32, "positions": positions}
        model, decoy = planted("induction", **sizes), planted("decoy", **sizes)
        prompts = repeated_prompts(model, rows=8, seed=seed)
        loss, accuracy = second_repeat(model, prompts)
        assert loss < 0.1
        assert accuracy > 0.97
        for _, layer, head in model.ground_truth.heads:
            with ablate(model, [(layer, head)], "mean"):
                loss, accuracy = second_repeat(model, prompts)
            assert loss > 2.5
            assert accuracy < 0.35
        _, (_, layer, head) = decoy.ground_truth.heads
        before = decoy(prompts.tokens)
        with ablate(decoy, [(layer, head)], "mean"):
            assert torch.equal(decoy(prompts.tokens), before)


@pytest.mark.parametrize("positions", ["standard", "rotary"])
def test_the_same_seed_gives_the_same_model_and_the_global_generator_is_left_alone(
    positions: str,
) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second, other = (
        planted("induction", seed=s, strength=0.7, positions=positions) for s in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert first.ground_truth == second.ground_truth
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.W_E, other.W_E)
    assert first.ground_truth.strength == 0.7


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "sink"},
        {"strength": -0.1},
        {"strength": float("nan")},
        {"n_layers": 1},
        {"d_model": 40},
        {"d_head": 16},
        {"d_head": 16, "positions": "rotary"},
        {"positions": "none"},
        {"kind": "duplicate-token", "positions": "rotary"},
    ],
)
def test_what_cannot_be_planted_is_said(options, texts) -> None:
    with pytest.raises(InputError, check=texts):
        planted(**{"kind": "induction", "seed": 0, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"d_vocab": 4, "d_model": 16},
        {"d_vocab": 200, "positions": "rotary"},
        {"positions": "none", "n_layers": 4},
        {"n_key_value_heads": 2, "normalization": "RMS"},
        {"normalization": "LN", "d_mlp": 50, "biases": True},
    ],
    ids=str,
)
def test_random_models_of_every_kind_run(options) -> None:
    model = random_model(3, **options)
    tokens = repeated_prompts(model, rows=2).tokens
    assert model(tokens).shape == (2, 64, model.cfg.d_vocab)
    assert not model.training
    assert not hasattr(model, "ground_truth")


def test_the_gain_scales_the_weights() -> None:
    plain, louder = random_model(0), random_model(0, gain=3.0)
    assert plain.W_E.std().item() == pytest.approx(0.1, rel=0.1)
    np.testing.assert_allclose(louder.W_Q.numpy(force=True), 3 * plain.W_Q.numpy(force=True), 1e-5)
    for gain in (0.0, float("inf")):
        with pytest.raises(InputError, match="positive"):
            random_model(0, gain=gain)
