"""Skip-bigram heads: pairs of tokens that were planted in a head, and pairs that were not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from interp_studies.challenge.case import Case, KnownPair, Truth
from interp_toolkit.models.model import Head
from interp_toolkit.toys.superposition.layers.layer import random_unit_features
from interp_toolkit.toys.superposition.skip_bigrams import (
    QKHead,
    bigram_matrix,
    bigram_model,
    projected_head,
    random_bigrams,
    svd_head,
)

#: how far pairs must be on their side to be asked, in standard deviations of other pairs' scores
PRESENT, ABSENT = 4.0, 2.0
ASKED = 8  # of each kind, a head
SHARES = {"few": 0.02, "some": 0.04, "many": 0.08}  # of d_model x d_head, how many bigrams


def bigram_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` models, with few to many planted bigrams in turn."""
    rng = np.random.default_rng([seed, 31])
    names = list(SHARES)
    for number in range(count):
        yield bigram_case(names[number % len(names)], int(rng.integers(2**31)))


def bigram_case(amount: str, seed: int) -> Case:
    """One layer with a head that has bigrams and a random head of equal size, in random order.

    Args:
        amount: number of bigrams, a key of SHARES.
        seed: random seed of features, pairs and weights.
    """
    rng = np.random.default_rng([seed, 32])
    d_model, d_head = int(rng.choice([32, 48, 64])), int(rng.choice([8, 12, 16]))
    n_features = int(d_model * rng.uniform(1.5, 3.0))
    generator = torch.Generator().manual_seed(seed)
    features = random_unit_features(n_features, d_model, generator)
    pairs = random_bigrams(n_features, max(6, int(SHARES[amount] * d_model * d_head)), seed)
    W = bigram_matrix(pairs, features, features)
    projected = bool(rng.random() < 1 / 4)
    made = projected_head(W, d_head, seed) if projected else svd_head(W, d_head)
    other = _random_like(made, generator)
    at = int(rng.integers(2))
    heads = [made, other] if at == 0 else [other, made]
    scores = made.scores(features, features).numpy()
    present = np.zeros(scores.shape, dtype=bool)
    present[[q for _, q in pairs], [k for k, _ in pairs]] = True
    noise = float(scores[~present].std())
    model = bigram_model(heads, features, name="bigrams")
    truth = Truth(
        pairs=(
            *_some(Head(0, at), present & (scores > PRESENT * noise), True, rng),
            *_some(Head(0, at), ~present & (scores < ABSENT * noise), False, rng),
            *_some(Head(0, 1 - at), present, False, rng),
        )
    )
    strength = float(scores[present].mean() / noise)
    variant = f"{amount} pairs, {'random projection' if projected else 'nearest of its rank'}"
    return Case("bigrams", variant, strength, seed, model, None, truth)


def _some(
    head: Head, where: np.ndarray, present: bool, rng: np.random.Generator
) -> list[KnownPair]:
    found = np.argwhere(where)
    chosen = found[rng.permutation(len(found))[:ASKED]]
    return [KnownPair(head, int(k), int(q), present) for q, k in chosen.tolist()]


def _random_like(head: QKHead, generator: torch.Generator) -> QKHead:
    """A head with normal weights and attention scores of the same size as the given head's."""
    shape = head.W_Q.shape
    W_Q, W_K = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    size = float((head.W_Q @ head.W_K.T).norm() / (W_Q @ W_K.T).norm())
    return QKHead(size**0.5 * W_Q, size**0.5 * W_K)
