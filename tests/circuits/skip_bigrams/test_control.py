"""Copies with permuted coordinates: planted bigrams pass, sparse weights in random order do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from interp_toolkit.circuits.skip_bigrams.analysis import SKIP_BIGRAMS
from interp_toolkit.circuits.skip_bigrams.find import token_pair_score
from interp_toolkit.circuits.skip_bigrams.head import COPIES, skip_bigrams_of
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.interventions import reinitialised

TOYS = ("toy:skip-bigrams", "toy:skip-bigrams-rotary", "toy:skip-bigrams-gqa")


def test_planted_bigrams_stand_out_farther_than_any_copy(planted) -> None:
    head = planted(64, 16, 32)
    of = (head.W_Q, head.W_K)
    assert skip_bigrams_of(of, head.features).control_p == 1 / (COPIES["standard"] + 1)
    assert skip_bigrams_of(of, head.features, copies=999).control_p == 1 / 1000


def test_where_nothing_stands_out_there_is_no_control() -> None:
    rng = np.random.default_rng(0)
    found = skip_bigrams_of(rng.standard_normal((8, 8)), rng.standard_normal((20, 8)))
    assert not found.bigrams
    assert np.isnan(found.control_p)


def test_single_entries_on_single_coordinates_are_those_of_any_order() -> None:
    """Twelve entries between one-hot features stand out wherever they fall."""
    W = np.zeros((64, 64))
    W[np.arange(12), np.arange(12) * 3 + 1] = 2.0
    found = skip_bigrams_of(W, np.eye(64))
    assert len(found.bigrams) == 12
    assert found.control_p > 0.5


@pytest.mark.parametrize("name", TOYS)
def test_hand_set_bigrams_are_detected(name) -> None:
    assert SKIP_BIGRAMS(load(name)).status == "detected"


def test_without_copies_nothing_is_detected(texts) -> None:
    quick = SKIP_BIGRAMS(load(TOYS[0]), effort="quick")
    assert quick.heads[0].n_bigrams == SKIP_BIGRAMS(load(TOYS[0])).heads[0].n_bigrams > 0
    assert quick.status == "undecided"
    texts(quick.evidence.reason)
    assert quick.evidence.copies == 0
    assert quick.provenance.settings["effort"] == "quick"


def test_sparse_weights_in_random_order_show_no_more_than_the_level() -> None:
    detected = n_models = 0
    for name in ("duplicate-token", "previous-token", "induction-rotary", "sort-argmax"):
        for seed in range(4):
            with reinitialised(load(f"toy:{name}"), seed) as model:
                detected += SKIP_BIGRAMS(model).status == "detected"
            n_models += 1
    assert detected <= stats.binom.ppf(0.999, n_models, 0.05)


@torch.no_grad()
def test_rescaled_residual_coordinates_give_the_same_bigrams() -> None:
    model, again = load(TOYS[0]), load(TOYS[0])
    d = torch.randn(model.cfg.d_model, generator=torch.Generator().manual_seed(0)).exp()
    for name, parameter in again.named_parameters():
        last, scale = name.split(".")[-1], d.to(parameter)
        if last in ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out"):
            parameter.mul_(scale)
        elif last in ("W_Q", "W_K", "W_V", "W_U", "W_in"):
            parameter.div_(scale[:, None])
    before, after = SKIP_BIGRAMS(model), SKIP_BIGRAMS(again)
    assert after.status == before.status == "detected"
    pairs, pairs_again = (
        {(b.query_feature, b.key_feature): b.z for b in one.head_bigrams[0].bigrams}
        for one in (before, after)
    )
    assert pairs.keys() == pairs_again.keys()
    assert [pairs_again[pair] for pair in pairs] == pytest.approx(list(pairs.values()), rel=1e-3)
    t, t_again = (token_pair_score(one, Head(0, 0), 3, 5)[0] for one in (model, again))
    assert t_again == pytest.approx(t, rel=1e-3, abs=1e-3)
