"""Skip-bigram heads: planted pairs are what their scores count, in matrices and in models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.layer import random_unit_features
from interp_toolkit.toys.superposition.skip_bigrams import (
    QKHead,
    bigram_matrix,
    bigram_model,
    cliques,
    exact_head,
    grouped_heads,
    presence,
    projected_head,
    projection_noise,
    random_bigrams,
    score_quality,
    svd_head,
)


def unit(m: int, d: int, seed: int = 0) -> torch.Tensor:
    return random_unit_features(m, d, torch.Generator().manual_seed(seed))


def orthogonal(d: int, seed: int = 0) -> torch.Tensor:
    drawn = np.random.default_rng(seed).standard_normal((d, d))
    return torch.linalg.qr(torch.from_numpy(drawn)).Q


def test_the_matrix_counts_bigrams_query_first() -> None:
    features = orthogonal(6)
    W = bigram_matrix([(0, 1), (2, 1), (4, 5)], features, features)
    x_query = features[1] + features[5]
    x_key = features[0] + features[2] + features[3]
    assert float(x_query @ W @ x_key) == pytest.approx(2, abs=1e-12)
    assert float(x_key @ W @ x_query) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n_bigrams", [1, 20, 32])
def test_up_to_d_head_bigrams_are_exact(n_bigrams: int) -> None:
    queries, keys = orthogonal(128, 1), orthogonal(128, 2)
    bigrams = random_bigrams(128, n_bigrams, seed=n_bigrams)
    wanted = presence(bigrams, 128, 128).double()
    for head in (
        exact_head(bigrams, queries, keys, 32),
        svd_head(bigram_matrix(bigrams, queries, keys), 32),
    ):
        assert head.W_Q.shape == head.W_K.shape == (128, 32)
        assert float((head.scores(queries, keys) - wanted).abs().max()) < 1e-13


def test_cliques_are_exact_beyond_d_head(texts) -> None:
    features = orthogonal(32)
    sets = [(range(4), range(8)), (range(4, 9), range(8, 16)), (range(9, 12), (20, 30))]
    bigrams = [(k, q) for keys, queries in sets for k in keys for q in queries]
    head = exact_head(bigrams, features, features, 3)
    wanted = presence(bigrams, 32, 32).double()
    assert len(bigrams) == 78
    assert float((head.scores(features, features) - wanted).abs().max()) < 1e-12
    assert [len(c.keys) * len(c.queries) for c in cliques(bigrams)] == [32, 40, 6]
    with pytest.raises(InputError, match="d_head", check=texts):
        exact_head(bigrams, features, features, 2)


def test_cliques_hold_every_bigram_once_and_take_the_fewer() -> None:
    star = [(0, q) for q in range(5)] + [(1, q) for q in range(3)]
    found = cliques(star)
    assert sorted((k, q) for c in found for k in c.keys for q in c.queries) == sorted(star)
    assert len(found) == 2
    assert len(cliques([(k, q) for q, k in star])) == 2


def test_svd_keeps_the_largest_singular_values() -> None:
    features, bigrams = unit(80, 24), random_bigrams(80, 60, seed=2)
    W = bigram_matrix(bigrams, features, features)
    sizes = torch.linalg.svdvals(W)
    scores = svd_head(W, 8).scores(features, features)
    signal = score_quality(scores, bigrams).signal
    assert signal == pytest.approx(float(sizes[:8].square().sum()) / 60, abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_published_setting_of_svd(seed: int) -> None:
    features = unit(512, 128, seed)
    bigrams = random_bigrams(512, 128 * 32 // 4, seed=seed)
    scores = svd_head(bigram_matrix(bigrams, features, features), 32).scores(features, features)
    quality = score_quality(scores, bigrams)
    assert quality.auc == pytest.approx(0.96, abs=0.01)
    assert quality.signal / quality.noise == pytest.approx(2.6, abs=0.1)


@pytest.mark.parametrize(("d", "r", "m"), [(128, 32, 512), (96, 24, 384), (128, 64, 256)])
def test_the_noise_of_a_projection(d: int, r: int, m: int) -> None:
    measured = []
    for seed in range(4):
        features, bigrams = unit(m, d, seed), random_bigrams(m, d * r // 8, seed=seed)
        W = bigram_matrix(bigrams, features, features)
        quality = score_quality(projected_head(W, r, seed).scores(features, features), bigrams)
        assert quality.signal == pytest.approx(1, abs=0.15)
        measured.append(quality.noise**2)
    assert np.mean(measured) == pytest.approx(projection_noise(d * r // 8, d, r, m), rel=0.1)


def test_quality_against_scikit_learn_and_by_hand() -> None:
    scores = torch.tensor([[3.0, 1.0, 1.0], [0.0, 2.0, 1.0]], dtype=torch.float64)
    bigrams = [(0, 0), (1, 0), (2, 1)]
    quality = score_quality(scores, bigrams)
    labels = presence(bigrams, 2, 3).numpy().ravel()
    assert quality.auc == pytest.approx(roc_auc_score(labels, scores.numpy().ravel()))
    assert quality.signal == pytest.approx(5 / 3)
    assert quality.noise == pytest.approx(np.std([1, 0, 2]))
    assert quality.worst == 2
    assert quality.rms == pytest.approx(np.sqrt((4 + 0 + 1 + 0 + 4 + 0) / 6))


def test_random_bigrams_are_distinct_and_of_the_seed() -> None:
    drawn = random_bigrams(10, 60, seed=3)
    assert len(set(drawn)) == 60
    assert drawn == random_bigrams(10, 60, seed=3) != random_bigrams(10, 60, seed=4)
    assert len(random_bigrams(4, 16)) == 16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_bigrams(3, 10), "between 1 and 9"),
        (lambda: bigram_matrix([], unit(4, 4), unit(4, 4)), "no bigrams"),
        (lambda: bigram_matrix([(0, 1), (0, 1)], unit(4, 4), unit(4, 4)), "twice"),
        (lambda: bigram_matrix([(4, 1)], unit(4, 4), unit(4, 4)), "key feature"),
        (lambda: bigram_matrix([(1, 4)], unit(4, 4), unit(4, 4)), "query feature"),
        (lambda: svd_head(torch.eye(4), 5), "d_head"),
        (lambda: score_quality(torch.ones(1, 1), [(0, 0)]), "every pair"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_grouped_heads_are_the_nearest_with_the_same_keys() -> None:
    generator = torch.Generator().manual_seed(0)
    Ws = [torch.randn(9, 9, generator=generator).double() for _ in range(2)]
    heads = grouped_heads(Ws, 4)
    assert torch.equal(heads[0].W_K, heads[1].W_K)
    missed = sum((W - h.W_Q @ h.W_K.T).square().sum() for W, h in zip(Ws, heads, strict=True))
    dropped = torch.linalg.svdvals(torch.cat(Ws))[4:].square().sum()
    assert missed.item() == pytest.approx(dropped.item())
    alone = svd_head(Ws[0], 4)
    one = grouped_heads(Ws[:1], 4)[0]
    torch.testing.assert_close(one.W_Q @ one.W_K.T, alone.W_Q @ alone.W_K.T)


def test_a_projection_is_of_its_seed(texts) -> None:
    W = torch.eye(12, dtype=torch.float64)
    first, again, other = (projected_head(W, 3, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.W_K, again.W_K)
    assert not torch.allclose(first.W_K, other.W_K)
    assert not torch.allclose(first.W_K, projected_head(W, 3).W_K)
    with pytest.raises(InputError, check=texts):
        grouped_heads([], 3)


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
        ([planted(9, 0), planted(9, 1)], {"n_key_value_heads": 1}, "share their keys"),
    ],
)
def test_what_does_not_fit_is_refused(heads: list, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bigram_model(heads, FEATURES, **options)


@pytest.mark.parametrize(
    ("bigram", "side"), [((-1, 1), "key"), ((4, 1), "key"), ((1, -1), "query"), ((1, 4), "query")]
)
def test_the_side_of_a_feature_that_there_is_not_is_named(bigram, side, texts) -> None:
    with pytest.raises(InputError, check=texts):
        presence([bigram], 4, 4)
