"""Complete blocks: each bigram in one block, planted blocks found, never fewer than the rank."""

from __future__ import annotations

import numpy as np
import pytest

from interp_toolkit.circuits.skip_bigrams.pursuit import complete_blocks


def matrix(edges: set[tuple[int, int]]) -> np.ndarray:
    dense = np.zeros((20, 20))
    for q, k in edges:
        dense[q, k] = 1
    return dense


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_complete_and_hold_each_bigram_once(seed) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 80))
    edges = {(int(q), int(k)) for q, k in rng.integers(0, 20, (n, 2))}
    held = [(q, k) for queries, keys in complete_blocks(edges) for q in queries for k in keys]
    assert sorted(held) == sorted(edges)


@pytest.mark.parametrize("seed", range(20))
def test_as_many_blocks_as_the_rank_or_more(seed) -> None:
    rng = np.random.default_rng(seed)
    edges = {(int(q), int(k)) for q, k in rng.integers(0, 20, (60, 2))}
    assert len(complete_blocks(edges)) >= np.linalg.matrix_rank(matrix(edges))


def test_planted_blocks_are_found() -> None:
    blocks = [([0, 1, 2], [0, 1, 2, 3]), ([3, 4], [4, 5]), ([5], [6, 7, 8])]
    edges = [(q, k) for queries, keys in blocks for q in queries for k in keys]
    assert complete_blocks(edges) == [blocks[0], blocks[1], blocks[2]]
    assert complete_blocks(reversed(edges)) == complete_blocks(edges)


def test_a_block_beside_a_busy_feature() -> None:
    block = {(q, k) for q in range(4) for k in range(4)}
    found = complete_blocks(block | {(0, 10), (0, 11)})
    assert found == [([0, 1, 2, 3], [0, 1, 2, 3]), ([0], [10, 11])]


def test_no_bigram_no_block() -> None:
    assert complete_blocks([]) == []
