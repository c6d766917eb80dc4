"""Skip-bigram heads as models: their scores are the heads', at the distances that are promised."""

from __future__ import annotations

import pytest
import torch

from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.layer import random_unit_features
from interp_toolkit.toys.superposition.skip_bigrams import (
    QKHead,
    bigram_matrix,
    bigram_model,
    exact_head,
    projected_head,
    random_bigrams,
    svd_head,
)

FEATURES = random_unit_features(40, 16, torch.Generator().manual_seed(1))
TOKENS = torch.randint(40, (3, 10), generator=torch.Generator().manual_seed(0))


def planted(n: int, seed: int, d_head: int = 6, kind: object = svd_head) -> QKHead:
    return kind(bigram_matrix(random_bigrams(40, n, seed=seed), FEATURES, FEATURES), d_head)


def scores_of(model: torch.nn.Module) -> torch.Tensor:
    _, cache = model.run_with_cache(TOKENS)
    return cache["blocks.0.attn.hook_attn_scores"].detach()


def expected(head: QKHead) -> torch.Tensor:
    return head.scores(FEATURES, FEATURES)[TOKENS[:, :, None], TOKENS[:, None, :]]


def assert_causal_equal(found: torch.Tensor, wanted: torch.Tensor, gap: int | None = None) -> None:
    place = torch.arange(10)
    apart = place[:, None] - place
    chosen = apart >= 0 if gap is None else apart == gap
    torch.testing.assert_close(found[..., chosen], wanted[..., chosen], atol=1e-10, rtol=0)


@pytest.mark.parametrize("rotary", [False, True])
def test_scores_are_the_heads_at_every_distance(rotary: bool) -> None:
    heads = [planted(20, 0), planted(30, 1)]
    found = scores_of(bigram_model(heads, FEATURES, rotary=rotary))
    for index, head in enumerate(heads):
        assert_causal_equal(found[:, index], expected(head))


def test_the_bigrams_of_a_turning_head_hold_at_one_distance() -> None:
    head = planted(20, 0)
    found = scores_of(bigram_model([head], FEATURES, rotary=True, distance=3))[:, 0]
    assert_causal_equal(found, expected(head), gap=3)
    with pytest.raises(AssertionError):
        assert_causal_equal(found, expected(head), gap=4)


def test_turning_heads_at_distance_zero() -> None:
    head = planted(20, 0)
    found = scores_of(bigram_model([head], FEATURES, rotary=True, distance=0))[:, 0]
    assert_causal_equal(found, expected(head), gap=0)


def test_grouped_heads_share_keys() -> None:
    heads = [planted(20, seed, 6, projected_head) for seed in range(4)]
    model = bigram_model(heads, FEATURES, n_key_value_heads=2)
    assert model.blocks[0].attn._W_K.shape == (2, 16, 6)
    found = scores_of(model)
    for index, head in enumerate(heads):
        assert_causal_equal(found[:, index], expected(head))


def test_the_circuit_reader_sees_the_same() -> None:
    head = planted(20, 0)
    circuit = qk_circuit(bigram_model([head], FEATURES), 0, 0)
    torch.testing.assert_close(circuit.W_Q @ circuit.W_K.T, head.W_Q @ head.W_K.T)


def test_a_sharp_head_copies_what_it_looks_for() -> None:
    axes = torch.eye(12, dtype=torch.float64)
    weights = exact_head([(3, 7)], axes, axes, 12)
    model = bigram_model([QKHead(60 * weights.W_Q, weights.W_K)], axes)
    logits = model(torch.tensor([[1, 3, 5, 2, 7]]))[0, -1]
    wanted = torch.zeros(12, dtype=torch.float64)
    wanted[3] = wanted[7] = 1.0  # what the head copied, and the token itself
    torch.testing.assert_close(logits, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("heads", "options", "message"),
    [
        ([], {}, "needs a head"),
        ([planted(9, 0)], {"n_ctx": 0}, "at least 1 position"),
        ([planted(9, 0), planted(9, 0, 4)], {}, "one d_head"),
        ([planted(9, 0, 5)], {"rotary": True}, "odd"),
        ([planted(9, 0)], {"distance": 2}, "needs rotary"),
        ([planted(9, 0)], {"rotary": True, "distance": 32}, "outside the context"),
        ([planted(9, 0)] * 3, {"n_key_value_heads": 2}, "cannot share"),
        ([planted(9, 0), planted(9, 1)], {"n_key_value_heads": 1}, "their group's keys"),
    ],
)
def test_what_does_not_fit_is_refused(heads: list, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bigram_model(heads, FEATURES, **options)
