"""Heads with planted skip-bigrams beside random heads, as `toy:skip-bigrams` and its like.

256 features on 64 axes, 64 random bigrams a planted head of 16 dimensions: one for every 16 numbers
of d_model x d_head. Each has `.ground_truth`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.formatting import Brief
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.superposition.layers.gate_model import random_unit_features
from interp_toolkit.toys.superposition.skip_bigrams.bigrams import (
    Bigram,
    QKHead,
    bigram_matrix,
    grouped_heads,
    random_bigrams,
    svd_head,
)
from interp_toolkit.toys.superposition.skip_bigrams.model import bigram_model

N_FEATURES, D_MODEL, D_HEAD, N_BIGRAMS = 256, 64, 16, 64
N_SHARED_KEYS = 20
SOURCE = "Computation in superposition, section 3"


@dataclass(frozen=True, eq=False)
class BigramGroundTruth(Brief):
    """The ground truth of a model of skip-bigram heads.

    Attributes:
        features: the f-vectors; feature i is token i.
        bigrams: by (layer, head), pairs (key feature, query feature); a head that is not there has
            random weights.
    """

    features: Float[np.ndarray, "feature d_model"]
    bigrams: Mapping[tuple[int, int], Sequence[Bigram]]


def skip_bigrams(*, rotary: bool = False) -> Transformer:
    """Head (0, 0) has 64 bigrams (`svd_head`), head (0, 1) random weights of about its size.

    Rotary: 16 further dimensions of each head turn and carry nothing.
    """
    features = _features()
    bigrams = random_bigrams(N_FEATURES, N_BIGRAMS)
    planted = svd_head(bigram_matrix(bigrams, features, features), D_HEAD)
    name = "skip-bigrams-rotary" if rotary else "skip-bigrams"
    model = bigram_model([planted, _random_like(planted)], features, rotary=rotary, name=name)
    model.ground_truth = BigramGroundTruth(features.numpy(), {(0, 0): bigrams})
    return model


def skip_bigrams_gqa() -> Transformer:
    """Four heads on two sets of keys, 20 bigrams each.

    The two heads of a set look for the same 20 key features, each from queries of its own.
    """
    features = _features()
    bigrams: dict[tuple[int, int], list[Bigram]] = {}
    heads: list[QKHead] = []
    for group in range(2):
        rng = np.random.default_rng(group)
        keys = rng.permutation(N_FEATURES)[:N_SHARED_KEYS].tolist()
        for head in (2 * group, 2 * group + 1):
            queries = rng.permutation(N_FEATURES)[:N_SHARED_KEYS].tolist()
            bigrams[0, head] = list(zip(keys, queries, strict=True))
        both = [bigrams[0, 2 * group], bigrams[0, 2 * group + 1]]
        heads += grouped_heads([bigram_matrix(b, features, features) for b in both], D_HEAD)
    model = bigram_model(heads, features, n_key_value_heads=2, name="skip-bigrams-gqa")
    model.ground_truth = BigramGroundTruth(features.numpy(), bigrams)
    return model


def _features() -> Float[Tensor, "feature d_model"]:
    return random_unit_features(N_FEATURES, D_MODEL, torch.Generator().manual_seed(0))


def _random_like(head: QKHead) -> QKHead:
    """Normal weights with the same root mean square."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(2, D_MODEL, D_HEAD, generator=generator, dtype=torch.float64)
    W_Q, W_K = (w * like.square().mean().sqrt() for w, like in zip(weights, head, strict=True))
    return QKHead(W_Q, W_K)


def _task(name: str) -> dict[str, Any]:
    return {"function": "skip-bigrams", "name": name, "n_features": N_FEATURES}


SKIP_BIGRAMS = Toy(
    "skip-bigrams",
    "a head that scores 64 planted skip-bigrams of 256 features on 64 axes, and a random head",
    skip_bigrams,
    _task("skip-bigrams"),
    SOURCE,
)
SKIP_BIGRAMS_ROTARY = Toy(
    "skip-bigrams-rotary",
    "the same with rotary positions, which only other dimensions of the heads turn with",
    partial(skip_bigrams, rotary=True),
    _task("skip-bigrams-rotary"),
    SOURCE,
)
SKIP_BIGRAMS_GQA = Toy(
    "skip-bigrams-gqa",
    "four heads on two sets of keys, each with 20 planted skip-bigrams",
    skip_bigrams_gqa,
    _task("skip-bigrams-gqa"),
    SOURCE,
)
