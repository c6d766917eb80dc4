"""Shared directions and features that are alike, against what was planted and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from interp_toolkit.circuits.skip_bigrams.analysis import SKIP_BIGRAMS
from interp_toolkit.circuits.skip_bigrams.directions import side
from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of
from interp_toolkit.toys.hand_set.untrained import random_model

D, M, N = 96, 384, 40


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def with_mean(rng: np.random.Generator, m: int, d: int, length: float) -> np.ndarray:
    mean = unit(rng.standard_normal((1, d)))
    return unit(rng.standard_normal((m, d)) / np.sqrt(d) + length * mean)


def pairs_of(found) -> set[tuple[int, int]]:
    return {(int(b.query_feature[1:]), int(b.key_feature[1:])) for b in found.bigrams}


def planted_among(rng: np.random.Generator, features: np.ndarray, rank: int):
    """N bigrams between the features as they are, cut to a rank: (W_Q, W_K), pairs."""
    flat = rng.choice(len(features) ** 2, N, replace=False)
    query, key = np.divmod(np.sort(flat), len(features))
    U, sizes, Vt = np.linalg.svd(features[query].T @ features[key])
    factors = U[:, :rank] * sizes[:rank], Vt[:rank].T
    return factors, set(zip(query.tolist(), key.tolist(), strict=True))


@pytest.mark.parametrize("length", [0.4, 1.5])
def test_features_with_a_mean_show_their_bigrams(length) -> None:
    rng = np.random.default_rng(5)
    features = with_mean(rng, M, D, length)
    W, bigrams = planted_among(rng, features, 32)
    found = skip_bigrams_of(W, features)
    assert len(pairs_of(found) & bigrams) >= 0.95 * N
    assert len(pairs_of(found) - bigrams) <= 2
    assert found.tail == "exact"
    cosines = features @ features.T
    mean_cosine = (cosines.sum() - M) / (M * (M - 1))
    assert found.shared == pytest.approx((mean_cosine, mean_cosine))


def test_strengths_are_those_of_the_features_as_given() -> None:
    rng = np.random.default_rng(6)
    features = with_mean(rng, M, D, 0.8)
    query, key = rng.permutation(M)[:12], rng.permutation(M)[:12]
    strength = rng.uniform(1, 2, 12)
    found = skip_bigrams_of((features[query] * strength[:, None]).T @ features[key], features)
    true = {(q, k): c for q, k, c in zip(query.tolist(), key.tolist(), strength, strict=True)}
    assert pairs_of(found) == set(true)
    for b in found.bigrams:
        pair = int(b.query_feature[1:]), int(b.key_feature[1:])
        assert b.strength == pytest.approx(true[pair], rel=1e-6)


@pytest.mark.parametrize(("share", "length"), [(1.0, 0.4), (1.0, 3.0), (0.8, 2.0)])
def test_random_heads_show_nothing_on_features_with_a_mean(share, length) -> None:
    rng, n_heads, any_found = np.random.default_rng(0), 100, 0
    for _ in range(n_heads):
        features = with_mean(rng, 90, 32, length)
        features[: round(90 * (1 - share))] = unit(
            rng.standard_normal((round(90 * (1 - share)), 32))
        )
        W = tuple(rng.standard_normal((2, 32, 8)))
        any_found += bool(skip_bigrams_of(W, features, level=0.2).bigrams)
    assert stats.binomtest(any_found, n_heads, 0.2, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize(("m", "d"), [(2, 16), (5, 8), (200, 40)])
def test_random_features_share_no_direction(m, d) -> None:
    rng, shared = torch.Generator().manual_seed(m), 0
    for _ in range(200):
        rows = torch.randn((m, d), generator=rng, dtype=torch.float64)
        shared += side(torch.nn.functional.normalize(rows, dim=1), d).shared is not None
    assert shared <= 4


def test_what_random_features_leave_is_uniform_over_one_dimension_fewer() -> None:
    rng = np.random.default_rng(3)
    one = side(torch.from_numpy(with_mean(rng, 4000, 12, 1.0)), 12)
    assert one.d == 11
    assert float((one.scored @ one.shared).abs().max()) < 1e-12
    along = (
        one.scored
        @ torch.linalg.qr(torch.eye(12).double() - torch.outer(one.shared, one.shared)).Q[:, 0]
    ).numpy()
    assert stats.kstest(along**2, stats.beta(0.5, 5).cdf).pvalue > 1e-3
    random = one.random(3, torch.Generator().manual_seed(0))
    assert float((random @ one.shared).abs().max()) < 1e-12


def test_a_form_on_the_shared_direction_alone_shows_nothing() -> None:
    rng = np.random.default_rng(4)
    features = with_mean(rng, M, 32, 1.0)
    mean = features.sum(0)
    assert not skip_bigrams_of(np.outer(mean, mean), features).bigrams


def families(rng: np.random.Generator) -> np.ndarray:
    """64 families of 4 directions in 64 dimensions, at cosines of about .95."""
    middle = rng.standard_normal((64, 64))
    middle = np.repeat(middle - middle.mean(0), 4, axis=0)
    return unit(middle + 0.23 * rng.standard_normal((256, 64)))


def test_features_that_are_alike_are_named_as_alternatives() -> None:
    rng = np.random.default_rng(0)
    features = families(rng)
    query, key = rng.choice(256, 20, False), rng.choice(256, 20, False)
    found = skip_bigrams_of(features[query].T @ features[key], features)
    assert found.shared == (None, None)
    cosines = features @ features.T
    for b in found.bigrams:
        for name, what in ((b.key_feature, "key"), (b.query_feature, "query")):
            own = cosines[int(name[1:])]
            near = [i for i in np.argsort(-own) if own[i] > 0.9 and f"f{i}" != name]
            given = [a for a in b.alternatives if a.side == what]
            assert [a.feature for a in given] == [f"f{i}" for i in near]
            assert [a.cosine for a in given] == pytest.approx(own[near])
    planted = {(q // 4, k // 4) for q, k in zip(query.tolist(), key.tolist(), strict=True)}
    assert {(q // 4, k // 4) for q, k in pairs_of(found)} == planted


def test_alternatives_are_said(planted, texts) -> None:
    model = random_model(
        0, d_model=64, d_head=16, d_vocab=256, positions="none", normalization=None
    )
    rng = np.random.default_rng(0)
    features = families(rng)
    query, key = rng.choice(256, 12, False), rng.choice(256, 12, False)
    attn = model.blocks[0].attn
    with torch.no_grad():
        U, sizes, Vt = np.linalg.svd(features[query].T @ features[key])
        attn.W_Q[0] = torch.from_numpy(U[:, :16] * sizes[:16])
        attn.W_K[0] = torch.from_numpy(Vt[:16].T)
    result = SKIP_BIGRAMS(model, layer=0, head=0, features=features)
    [head] = result.heads
    assert {"side", "feature", "cosine"} == set(vars(head.bigrams[0].alternatives[0]))
    texts(result.verdict)
    assert result.evidence.alike
    table = result.tables()[1]
    assert table.columns[-1] == "or"
    assert "(cos 0.9" in table.rows[0][-1]
    assert "(cos 0.9" in result.to_frame().alternatives[0]


def test_the_sentence_does_not_say_more_than_an_empirical_tail_shows(texts) -> None:
    rng = np.random.default_rng(1)
    clustered = np.repeat(rng.standard_normal((10, 32)), 20, axis=0)
    clustered += 0.3 * rng.standard_normal((200, 32))
    result = SKIP_BIGRAMS(
        random_model(0, d_model=32, d_head=8, d_vocab=20, positions="none"),
        layer=0, head=0, features=clustered,
    )  # fmt: skip
    assert result.head_bigrams[0].tail == "empirical"
    texts(result.verdict)
    texts(result.headline)
    texts(result.findings[0])
