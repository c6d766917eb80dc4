"""Claims about skip-bigrams, on a hand-set head whose scores are known."""

import math

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.auditing.pair import MAD, standardised
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.toys.zeros import zeros

V = 40  # tokens, each an axis


def head_with(scores):
    """One head whose query for token q scores the key of token k as `scores[q, k]`."""
    model = zeros(
        TransformerConfig(
            n_layers=1,
            d_model=V,
            d_head=V,
            n_heads=1,
            n_ctx=12,
            d_vocab=V,
            attn_only=True,
            normalization_type=None,
            positional_embedding_type="none",
            dtype=torch.float64,
        )
    ).eval()
    with torch.no_grad():
        model.embed.W_E[:] = torch.eye(V, dtype=torch.float64)
        model.blocks[0].attn.W_Q[0] = torch.from_numpy(scores) * math.sqrt(V)
        model.blocks[0].attn.W_K[0] = torch.eye(V, dtype=torch.float64)
        model.unembed.W_U[:] = torch.eye(V, dtype=torch.float64)
    return model


@pytest.fixture(scope="module")
def scores():
    found = 0.5 * np.random.default_rng(0).standard_normal((V, V))
    found[7, 12] = 3.0
    return found


def asked(model, key, query, **more):
    pair = {"head": "L0H0", "key": key, "query": query}
    claim = it.audit(model, [{"pair": pair, **more}]).claims[0]
    return claim, {part.question: part for part in claim.parts}


def test_the_score_of_the_live_model_is_that_of_the_weights(scores):
    """Softmax leaves nothing but the difference of scores, whose median is known."""
    _, parts = asked(head_with(scores), 12, 7)
    others = np.delete(scores[7], [7, 12])
    middle, spread = np.median(3.0 - others), MAD * np.median(np.abs(others - np.median(others)))
    assert parts["matters"].value == pytest.approx(middle / spread, rel=0.35)
    assert parts["matters"].low < middle / spread < parts["matters"].high


def test_what_stands_out_is_confirmed_and_what_does_not_refuted(scores):
    model = head_with(scores)
    assert asked(model, 12, 7)[0].answer == "confirmed"
    assert asked(model, 7, 12)[0].answer == "refuted"
    weak = int(np.argsort(scores[3])[V // 2])
    assert asked(model, weak, 3)[0].answer == "refuted"


def test_a_head_that_scores_nothing_has_no_bigram():
    found, parts = asked(head_with(np.zeros((V, V))), 12, 7)
    assert found.answer in ("refuted", "undecided")
    assert parts["there"].answer != "confirmed"


@pytest.mark.parametrize("coverage", [0.9, 0.99])
def test_the_interval_holds_what_it_should(coverage):
    rng, runs, n, z = np.random.default_rng(1), 1500, 256, 2.5
    held = 0
    for _ in range(runs):
        found = standardised(z + rng.standard_normal(n), coverage)
        held += found.low <= z <= found.high
    slack = 4 * math.sqrt(coverage * (1 - coverage) / runs)
    assert abs(held / runs - coverage) <= slack + 0.01  # asymptotic


def test_equal_scores_say_nothing():
    assert math.isnan(standardised(np.ones(20), 0.9).low)


def test_tokens_and_heads_that_are_not_there(scores, texts):
    model = head_with(scores)
    with pytest.raises(InputError, match="99", check=texts):
        asked(model, 99, 7)
    with pytest.raises(InputError, match="no head L3H0"):
        it.audit(model, [{"pair": {"head": "L3H0", "key": 1, "query": 2}}])
