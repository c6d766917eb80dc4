"""Untrained models: nothing is to be named, in most of them nothing at all."""

from __future__ import annotations

import pytest
from planted_roles import D_VOCAB, N_POS, NAMES, rows

from interp_toolkit.circuits.roles.find import find_roles
from interp_toolkit.stats import LEVEL, clopper_pearson
from interp_toolkit.toys.hand_set.untrained import random_model

MODELS = 50
SHAPES = (
    {"positions": "standard", "normalization": None},
    {"positions": "rotary", "normalization": "RMS", "d_mlp": 64, "n_key_value_heads": 2},
    {"positions": "standard", "normalization": "LN", "d_mlp": 64},
    {"positions": "none", "normalization": "LN", "n_layers": 3},
)


def untrained(seed: int):
    shape = SHAPES[seed % len(SHAPES)]
    return random_model(seed, d_vocab=D_VOCAB, n_ctx=N_POS, **shape)


@pytest.mark.slow
def test_untrained_models_have_named_heads_no_more_often_than_the_level() -> None:
    wrong = 0
    for seed in range(MODELS):
        found = find_roles(untrained(seed), rows(32, seed), lists=[list(NAMES)], checked=2)
        wrong += any(head.named for head in found.heads)
    assert clopper_pearson(wrong, MODELS, 0.9)[0] <= LEVEL
    assert wrong <= 3
