"""Planted heads: what is found against what was planted. Random heads: nothing, at the level."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from interp_toolkit.circuits.skip_bigrams.analysis import bigram_figures
from interp_toolkit.circuits.skip_bigrams.head import skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.scores import Features, Form, PairScores
from interp_toolkit.errors import InputError


def pairs_of(found) -> set[tuple[int, int]]:
    return {(int(b.query_feature[1:]), int(b.key_feature[1:])) for b in found.bigrams}


@pytest.mark.parametrize(
    ("d", "r", "n", "kind"),
    [
        (64, 16, 64, "random"),
        (128, 32, 256, "random"),
        (128, 32, 64, "random"),
        (128, 32, 128, "hub"),
        (128, 32, 256, "clique"),
    ],
)
def test_planted_bigrams_are_found_without_echoes(d, r, n, kind, planted) -> None:
    head = planted(d, r, n, seed=5, kind=kind)
    found = skip_bigrams_of((head.W_Q, head.W_K), head.features)
    pairs = pairs_of(found)
    assert len(pairs - head.bigrams) <= 0.1 * len(pairs)
    assert len(pairs & head.bigrams) >= 0.9 * len(head.bigrams)
    low, high = found.interval
    assert low <= len(head.bigrams) <= high
    assert low <= found.estimated_count <= high
    assert found.capacity == d * r


def test_scores_tell_planted_bigrams_from_other_pairs(planted) -> None:
    head = planted(128, 32, 256)
    features = Features(*(torch.from_numpy(head.features),) * 2, 128)
    form = Form(torch.from_numpy(head.W_Q), torch.from_numpy(head.W_K))
    t = PairScores(form, features, 1e-9, 0, 2**28).block(slice(None), slice(None)).numpy()
    assert roc_auc_score(head.truth.ravel(), np.abs(t).ravel()) >= 0.99


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_too_many_bigrams_get_no_number(fraction, planted) -> None:
    head = planted(64, 16, int(64 * 16 * fraction))
    found = skip_bigrams_of((head.W_Q, head.W_K), head.features)
    assert found.estimated_count is None
    assert found.interval is None
    assert found.count_note


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kind", "n"), [("random", 24), ("random", 64), ("hub", 24), ("clique", 60)]
)
def test_a_number_covers_the_truth_or_is_not_given(kind, n, seed, planted) -> None:
    head = planted(64, 16, n, seed=seed, kind=kind)
    found = skip_bigrams_of((head.W_Q, head.W_K), head.features)
    assert (found.interval is None) == bool(found.count_note)
    if found.interval is not None:
        assert found.interval[0] <= len(head.bigrams) <= found.interval[1]
    else:
        assert kind != "random"


def test_bigrams_that_hide_each_other_get_no_number() -> None:
    """A query with 30 keys beside 20 bigrams of their own: what remains is the one query."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((256, 64))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    alone = features[:20].T @ features[100:120]
    found = skip_bigrams_of(alone + np.outer(features[50], features[150:180].sum(0)), features)
    assert len(found.bigrams) >= 15
    assert found.interval is None
    assert "low rank" in found.count_note
    assert skip_bigrams_of(alone, features).interval is not None


@pytest.mark.parametrize(("d", "r", "m", "level"), [(16, 4, 30, 0.05), (32, 8, 90, 0.2)])
def test_random_heads_show_nothing_at_the_level(d, r, m, level) -> None:
    rng, n_heads = np.random.default_rng(0), 200
    any_found = 0
    for _ in range(n_heads):
        W_Q, W_K = rng.standard_normal((2, d, r))
        found = skip_bigrams_of((W_Q, W_K), rng.standard_normal((m, d)), level=level)
        any_found += bool(found.bigrams)
        assert found.estimated_count is None or found.interval[0] == 0
    assert stats.binomtest(any_found, n_heads, level, alternative="greater").pvalue > 0.01


def test_exact_bigrams_of_orthogonal_features() -> None:
    W = np.zeros((64, 64))
    planted = {(q, (q * 7 + 3) % 64) for q in range(12)}
    W[tuple(np.array(sorted(planted)).T)] = 2.0
    found = skip_bigrams_of(W, np.eye(64))
    assert pairs_of(found) == planted
    assert [b.strength for b in found.bigrams] == pytest.approx([2.0] * 12)
    assert [b.score for b in found.bigrams] == pytest.approx([2.0] * 12)
    assert all(b.z > 5 for b in found.bigrams)


def test_a_zero_matrix_and_zero_features_show_nothing() -> None:
    features = np.random.default_rng(0).standard_normal((20, 8))
    assert not skip_bigrams_of(np.zeros((8, 8)), features).bigrams
    features[:10] = 0
    assert not skip_bigrams_of(np.eye(8), features[:10]).bigrams


def test_lengths_of_features_and_the_scale_of_weights_make_no_difference(planted) -> None:
    head = planted(64, 16, 32)
    lengths = np.random.default_rng(0).random((len(head.features), 1)) + 0.5
    one = skip_bigrams_of((head.W_Q, head.W_K), head.features)
    other = skip_bigrams_of(head.W_Q @ head.W_K.T / 50, head.features * lengths)
    assert pairs_of(one) == pairs_of(other)
    z, scaled = ([b.z for b in found.bigrams] for found in (one, other))
    assert z == pytest.approx(scaled, rel=1e-3)


def test_sides_and_names(planted) -> None:
    head = planted(64, 16, 32)
    queries = [f"query {i}" for i in range(256)]
    keys = [f"key {i}" for i in range(200)]
    found = skip_bigrams_of(
        (head.W_Q, head.W_K),
        head.features,
        head.features[:200],
        query_names=queries,
        key_names=keys,
    )
    expected = {(f"query {q}", f"key {k}") for q, k in head.bigrams if k < 200}
    assert expected <= {(b.query_feature, b.key_feature) for b in found.bigrams}
    assert nx.is_bipartite(found.graph)
    assert found.graph.number_of_edges() == len(found.bigrams)
    assert sum(block.size for block in found.blocks) == len(found.bigrams)


def test_the_histogram_holds_all_pairs_and_its_null_as_many(planted) -> None:
    head = planted(64, 16, 64)
    found = skip_bigrams_of((head.W_Q, head.W_K), head.features)
    assert sum(found.histogram.pairs) == found.n_pairs == 256**2
    assert sum(found.histogram.null) == pytest.approx(found.n_pairs)
    edges = np.array(found.histogram.edges)
    bars = bigram_figures(replace(found, layer=0, head=0))[0].data[0]
    np.testing.assert_allclose(bars["x"], edges[:-1] + np.diff(edges) / 2)


def test_a_small_memory_gives_the_same(planted) -> None:
    head = planted(64, 16, 32)
    one, other = (
        skip_bigrams_of((head.W_Q, head.W_K), head.features, memory=size)
        for size in ("1GiB", "200kB")
    )
    few, many = (
        {(b.query_feature, b.key_feature): (b.score, b.strength, b.z) for b in found.bigrams}
        for found in (other, one)
    )
    assert few.keys() == many.keys()
    for pair, numbers in many.items():
        assert few[pair] == pytest.approx(numbers, rel=1e-5), pair  # float32


@pytest.mark.parametrize(
    ("W", "features", "options", "says"),
    [
        (np.eye(4), np.ones((5, 3)), {}, "directions [feature 4]"),
        (np.eye(4), np.ones((1, 4)), {}, "two or more"),
        (np.eye(4), np.full((5, 4), np.nan), {}, "finite"),
        ((np.ones((4, 2)), np.ones((4, 3))), np.ones((5, 4)), {}, "both [d_model d_head]"),
        (np.ones((4, 3)), np.ones((5, 4)), {}, "W must be [d_model d_model]"),
        (np.eye(4), np.ones((5, 4)), {"level": 1.0}, "between 0 and 1"),
        (np.eye(4), np.ones((5, 4)), {"query_names": ["a"] * 5}, "different names"),
    ],
)
def test_what_does_not_fit_is_said(W, features, options, says) -> None:
    with pytest.raises(InputError) as error:
        skip_bigrams_of(W, features, **options)
    assert says in str(error.value)
