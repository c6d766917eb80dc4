"""A head's OV circuit against what the model itself writes, dense matrices and planted copying."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.weights.ov import ov_circuit
from interp_toolkit.circuits.weights.self_scores import own_rank, weight_scores
from interp_toolkit.circuits.weights.token_scores import token_residual
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import weights

KINDS = ("own", "own-rotary", "own-bare", "hooked", "hooked-parallel", "native", "gpt2", "llama")
KINDS += ("gpt2-folded", "neox", "gemma2")


def copier() -> Transformer:
    """Head 1 copies, head 0 writes the negative of its token, on an orthonormal vocabulary."""
    sizes = {"n_layers": 1, "d_model": 8, "n_ctx": 4, "d_head": 8, "n_heads": 2, "d_vocab": 5}
    options = {"attn_only": True, "normalization_type": None, "positional_embedding_type": "none"}
    model = Transformer(TransformerConfig(**sizes, **options, dtype=torch.float64))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for token in range(5):
            model.embed.W_E[token, token] = 1
            model.unembed.W_U[token, token] = 2
        for head, sign in enumerate((-1.0, 1.0)):
            model.blocks[0].attn.W_V[head] = sign * torch.eye(8)
            model.blocks[0].attn.W_O[head] = torch.eye(8)
    return model


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_source_and_constant_are_what_the_models_values_write(kind, zoo) -> None:
    """At layer 0: the model's own value vectors, times W_O, through the linear part of norms."""
    model = zoo(kind)
    view, head = weights(model), 2
    w = view.layer(0)
    seen = {}
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    run(
        model,
        tokens,
        [(hook_points(model)["blocks.0.attn.hook_v"], lambda v, hook: seen.update(v=v))],
    )
    value = seen["v"][0]
    value = value[:, head // (view.n_heads // value.shape[1])]
    circuit = ov_circuit(model, 0, head)
    for place, token in enumerate(tokens[0].tolist()):
        scores = circuit.tokens(place)
        logits = readout(view, value[place] @ circuit.W_O)
        constant = readout(view, circuit.constant)
        torch.testing.assert_close(scores.row(token) + constant, logits, rtol=1e-4, atol=1e-4)
    post = value[0] @ w.W_O[head]
    post = post - post.mean() if w.post_norm.kind == "LN" else post
    post = post if w.post_norm.w is None else post * w.post_norm.w
    torch.testing.assert_close(value[0] @ circuit.W_O, post, rtol=1e-4, atol=1e-5)


def readout(view, written: torch.Tensor) -> torch.Tensor:
    norm = view.final_norm
    written = written - written.mean() if norm.kind == "LN" else written
    written = written if norm.w is None else written * norm.w
    logits = written @ view.W_U
    return logits - logits.mean()


@pytest.mark.parametrize("kind", ["own", "llama", "gpt2"])
@torch.no_grad()
def test_the_singular_components_add_up_to_the_circuit(kind, zoo) -> None:
    circuit = ov_circuit(zoo(kind), 1, 1)
    parts = circuit.svd()
    whole = circuit.W_V @ circuit.W_O
    again = parts.reads.T @ torch.diag(parts.singular_values) @ parts.writes
    torch.testing.assert_close(again, whole, rtol=1e-4, atol=1e-5)
    expected = torch.linalg.svdvals(whole)[: len(parts.singular_values)]
    torch.testing.assert_close(parts.singular_values, expected, rtol=1e-4, atol=1e-5)
    identity = torch.eye(len(parts.reads))
    torch.testing.assert_close(parts.reads @ parts.reads.T, identity, rtol=0, atol=1e-5)
    scores = circuit.tokens().matrix()
    summed = parts.source_readout.T @ torch.diag(parts.singular_values) @ parts.logit_readout
    torch.testing.assert_close(summed, scores, rtol=1e-3, atol=1e-4)


def test_a_copying_head_copies_and_its_negative_does_the_opposite() -> None:
    model = copier()
    copies, negates = ov_circuit(model, 0, 1), ov_circuit(model, 0, 0)
    torch.testing.assert_close(
        copies.tokens().matrix(), 2 * torch.eye(5).double() - 0.4, rtol=0, atol=1e-12
    )
    found, opposite = copies.copying(), negates.copying()
    assert found.eigenvalue == pytest.approx(1)
    assert (found.rank.first, found.rank.above) == (1, 1)
    assert found.p_value < 0.05
    assert opposite.eigenvalue == pytest.approx(-1)
    assert (opposite.rank.first, opposite.rank.above) == (0, 0)
    assert opposite.p_value > 0.95
    assert copies.svd().effective_rank() == pytest.approx(8)
    assert {(pair.row, pair.column) for pair in copies.top(5)} == {(t, t) for t in range(5)}
    assert copies.tokens().exact


def test_copying_agrees_with_the_table_of_all_heads(zoo) -> None:
    model = zoo("llama")
    frame = weight_scores(model).set_index(["layer", "head"])
    found, row = ov_circuit(model, 1, 3).copying(), frame.loc[1, 3]
    assert (found.eigenvalue, found.diagonal) == pytest.approx((row.ov_copying, row.ov_diagonal))
    assert (found.z, found.p_value) == pytest.approx((row.ov_z, row.ov_p))


def test_own_ranks_are_those_counted_one_by_one_whatever_the_tile() -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(23, 4, generator=generator)
    right = torch.randn(23, 4, generator=generator)
    M = (left @ right.T).numpy()
    own = np.diag(M)[:, None]
    others = ~np.eye(23, dtype=bool)
    above = ((own > M)[others]).mean()
    first = (M.argmax(1) == np.arange(23)).mean()
    for memory in (1, 3000, 2**30):
        found = own_rank(left, right, memory)
        assert (found.first, found.above) == pytest.approx((first, above))
    flat = own_rank(torch.zeros(4, 1), torch.zeros(4, 1), 1000)
    assert (flat.first, flat.above) == (0, 0.5)


def test_what_is_approximate_is_said(zoo) -> None:
    assert ov_circuit(copier(), 0, 0).notes == []
    deep = ov_circuit(zoo("gemma2"), 1, 0)
    assert len(deep.notes) == 4 or any("soft cap" in note for note in deep.notes)
    assert any("earlier layers" in note for note in deep.notes)
    learned = ov_circuit(zoo("gpt2"), 0, 0)
    assert "mean position embedding" in learned.tokens().note
    assert "mean position embedding" not in learned.tokens(3).note


@torch.no_grad()
def test_without_a_position_learned_ones_enter_as_their_mean(zoo) -> None:
    model = zoo("gpt2")
    circuit, view = ov_circuit(model, 0, 1), weights(model)
    x = view.layer(0).norm(token_residual(view, torch.arange(view.d_vocab)))
    x = x - view.layer(0).norm.b
    expected = readout(view, x[7] @ view.layer(0).W_V[1] @ view.layer(0).W_O[1])
    torch.testing.assert_close(circuit.tokens().row(7), expected, rtol=1e-4, atol=1e-5)


def test_heads_that_are_not_there_are_refused(zoo) -> None:
    with pytest.raises(InputError, match="no head 4"):
        ov_circuit(zoo("own"), 0, 4)
    with pytest.raises(InputError, match="no layer 9"):
        ov_circuit(zoo("own"), 9, 0)
