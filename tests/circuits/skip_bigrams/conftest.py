"""Planted heads: bigrams of random unit features, cut down to the head's rank by SVD."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest


class Planted(NamedTuple):
    features: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    bigrams: set[tuple[int, int]]  # query, key

    @property
    def truth(self) -> np.ndarray:
        dense = np.zeros((len(self.features),) * 2, bool)
        dense[tuple(np.array(sorted(self.bigrams)).T)] = True
        return dense


def _pairs(kind: str, m: int, n: int, rng: np.random.Generator) -> set[tuple[int, int]]:
    if kind == "random":
        return {(int(i) // m, int(i) % m) for i in rng.choice(m * m, n, replace=False)}
    pairs: set[tuple[int, int]] = set()
    n_queries, n_keys = {"hub": (1, 4), "clique": (3, 3)}[kind]
    while len(pairs) < n:
        queries, keys = (rng.choice(m, k, replace=False) for k in (n_queries, n_keys))
        pairs |= {(int(q), int(k)) for q in queries for k in keys}
    return pairs


def plant(
    d: int, r: int, n: int, seed: int = 0, kind: str = "random", signs: bool = False, m: int = 0
) -> Planted:
    rng = np.random.default_rng(seed)
    m = m or 4 * d
    features = rng.standard_normal((m, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    bigrams = _pairs(kind, m, n, rng)
    query, key = np.array(sorted(bigrams)).T
    strength = np.where(np.arange(len(query)) % 4, 1.0, -1.0 if signs else 1.0)
    U, sizes, Vt = np.linalg.svd((features[query] * strength[:, None]).T @ features[key])
    return Planted(features, U[:, :r] * sizes[:r], Vt[:r].T, bigrams)


@pytest.fixture(scope="session")
def planted():
    return plant
