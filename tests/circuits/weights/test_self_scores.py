"""Copying and matching scores against dense token-by-token matrices and planted heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from interp_studies.challenge.families.layouts import Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.circuits.weights.self_scores import weight_scores
from interp_toolkit.circuits.weights.token_scores import token_residual
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import weights
from interp_toolkit.toys.hand_set import induction as toys

KINDS = ("own", "own-rotary", "own-bare", "hooked", "hooked-parallel", "native", "gpt2", "llama")
KINDS += ("gpt2-folded", "neox", "gemma2")


def random_model(seed: int, **options) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"n_layers": 2, "d_model": 24, "n_ctx": 8, "d_head": 6, "n_heads": 3, "d_vocab": 30}
    config = TransformerConfig(**(sizes | {"attn_only": True, "dtype": torch.float64} | options))
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = name.endswith((".ln1.w", "ln_final.w"))
            parameter.copy_(torch.randn(parameter.shape) / 5 + one)
    return model


def centred(M: np.ndarray) -> np.ndarray:
    return M - M.mean(0) - M.mean(1, keepdims=True) + M.mean()


def figures(M: np.ndarray) -> tuple[float, float]:
    M = centred(M)
    values = np.linalg.eigvals(M)
    off = ~np.eye(len(M), dtype=bool)
    difference = np.diag(M).mean() - M[off].mean()
    return values.sum().real / np.abs(values).sum(), difference / np.sqrt((M**2).mean())


def every_token(view) -> torch.Tensor:
    return token_residual(view, torch.arange(view.d_vocab))


def dense_circuits(model, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all token pairs, and logits of all sources, in the plainest way."""
    view = weights(model)
    w = view.layer(layer)
    x = view.layer(layer).norm(every_token(view)).double()
    scores = (x @ w.W_Q[head].double()) @ (x @ w.W_K[head].double()).T
    out = x @ w.W_V[head].double() @ w.W_O[head].double()
    for norm in (w.post_norm, view.final_norm):
        out = out - out.mean(-1, keepdim=True) if norm.kind == "LN" else out
        out = out if norm.w is None else out * norm.w.double()
    return scores.numpy(), (out @ view.W_U.double())[:, : view.d_vocab].numpy()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_scores_are_those_of_the_dense_matrices(kind, zoo) -> None:
    model = zoo(kind)
    frame = weight_scores(model).set_index(["layer", "head"])
    for layer, head in [(0, 0), (0, 3), (1, 2)]:
        scores, logits = dense_circuits(model, layer, head)
        row = frame.loc[layer, head]
        assert (row.qk_matching, row.qk_diagonal) == pytest.approx(figures(scores), abs=1e-4)
        assert (row.ov_copying, row.ov_diagonal) == pytest.approx(figures(logits), abs=1e-4)


@torch.no_grad()
def test_z_and_p_are_those_of_drawn_permutations_of_coordinates() -> None:
    model = random_model(0, normalization_type=None, d_model=12, positional_embedding_type="none")
    view = weights(model)
    w = view.layer(0)
    rng, n = np.random.default_rng(0), 20_000
    orders = rng.permuted(np.tile(np.arange(12), (n, 1)), axis=1)
    signs = rng.choice((-1.0, 1.0), (n, 12))
    E, U = view.W_E.numpy(), view.W_U.numpy()
    E, U = E - E.mean(0), U - U.mean(1, keepdims=True)
    scale = np.sqrt((E**2).sum(0))
    ov = w.W_V[1].numpy() @ w.W_O[1].numpy()
    qk = w.W_Q[1].numpy() @ w.W_K[1].numpy().T
    row = weight_scores(model).iloc[1]
    for A, other, z, p in ((ov, U, row.ov_z, row.ov_p), (qk, E.T, row.qk_z, row.qk_p)):
        M = (scale[:, None] * A) @ (other @ E / scale)
        drawn = (M[np.arange(12), orders] * signs).sum(1)
        assert z == pytest.approx(np.trace(M) / drawn.std(), rel=0.03)
        assert abs(drawn.mean()) < 4 * drawn.std() / np.sqrt(n)
        assert p == pytest.approx((drawn >= np.trace(M)).mean(), abs=0.02)


@torch.no_grad()
def test_rescaled_residual_coordinates_give_the_same() -> None:
    model = random_model(7, normalization_type=None)
    model.blocks[0].attn.W_O[1] = model.blocks[0].attn.W_V[1].T
    model.unembed.W_U.copy_(model.embed.W_E.T)
    before = weight_scores(model)
    d = rescale(model, 1)
    assert d.abs().max() > 5 * d.abs().min()
    after = weight_scores(model)
    for column in ("ov_copying", "ov_diagonal", "ov_z", "qk_matching", "qk_diagonal", "qk_z"):
        np.testing.assert_allclose(after[column], before[column], rtol=1e-6, atol=1e-9)
    for column in ("ov_p", "qk_p"):  # draws' signs differ where coordinates are turned
        np.testing.assert_allclose(after[column], before[column], atol=0.05)
        found, again = (frame[f"{column}_adjusted"] <= 0.05 for frame in (before, after))
        assert found.equals(again)
    assert before.ov_p_adjusted.min() <= 0.05


def rescale(model: Transformer, seed: int) -> torch.Tensor:
    """Scales what is written to each coordinate, some by negative numbers, and unscales readers."""
    generator = torch.Generator().manual_seed(seed)
    d = torch.randn(model.cfg.d_model, generator=generator, dtype=torch.float64).exp()
    d[::3] *= -1
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            last = name.split(".")[-1]
            if last in ("W_E", "W_pos", "W_O", "b_O"):
                parameter.mul_(d)
            elif last in ("W_Q", "W_K", "W_V") or last == "W_U":
                parameter.div_(d[:, None])
    return d


def test_sparse_weights_in_random_order_copy_no_more_often_than_the_level() -> None:
    """Hand-set models with every tensor shuffled: a few entries each, which may coincide."""
    any_found = n_models = 0
    for name in ("duplicate-token", "previous-token", "sort-argmax"):
        for seed in range(12):
            with reinitialised(load(f"toy:{name}"), seed) as model:
                frame = weight_scores(model)
            any_found += bool((frame[["ov_p_adjusted", "qk_p_adjusted"]] <= 0.05).any(axis=None))
            n_models += 1
    assert any_found <= stats.binom.ppf(0.999, n_models, 0.05)


@pytest.mark.parametrize("normalization_type", [None, "LN"])
def test_p_values_of_random_models_keep_their_level(normalization_type) -> None:
    frames = [
        weight_scores(random_model(seed, normalization_type=normalization_type))
        for seed in range(100)
    ]
    for name in ("ov_p", "qk_p"):
        low = np.array([(frame[name] <= 0.05).mean() for frame in frames])
        error = low.std(ddof=1) / np.sqrt(len(low))
        assert 0.02 < low.mean() <= 0.05 + 3 * error
    wrong = sum(
        frame[["ov_p_adjusted", "qk_p_adjusted"]].min(axis=None) <= 0.05 for frame in frames
    )
    assert wrong <= stats.binom.ppf(0.999, len(frames), 0.05)


def test_planted_copying_and_matching_heads_are_found() -> None:
    model = random_model(1, normalization_type="LN")
    with torch.no_grad():
        first, second = model.blocks[0].attn, model.blocks[1].attn
        for block in model.blocks:
            block.ln1.w.fill_(1)
        model.ln_final.w.fill_(1)
        model.unembed.W_U.copy_(model.embed.W_E.T)
        first.W_O[1] = first.W_V[1].T
        second.W_O[0] = -second.W_V[0].T
        second.W_K[2] = second.W_Q[2]
    frame = weight_scores(model).set_index(["layer", "head"])
    assert frame.index[frame.ov_p_adjusted <= 0.05].tolist() == [(0, 1)]
    assert frame.index[frame.qk_p_adjusted <= 0.05].tolist() == [(1, 2)]
    assert frame.ov_copying[0, 1] > 0.95
    assert frame.ov_copying[1, 0] < -0.95
    assert frame.qk_matching[1, 2] > 0.95
    assert frame.ov_diagonal[0, 1] > 1
    assert frame.ov_p[1, 0] > 0.99


def test_the_scores_do_not_depend_on_the_memory_allowed() -> None:
    model = random_model(2)
    small, whole = weight_scores(model, memory=4000), weight_scores(model)
    np.testing.assert_allclose(small.to_numpy(float), whole.to_numpy(float), rtol=1e-6)


def test_a_sample_of_tokens_stands_for_a_vocabulary() -> None:
    model = random_model(2, d_vocab=4000)
    with torch.no_grad():  # head 0 copies
        model.blocks[0].attn.W_O[0] = model.blocks[0].attn.W_V[0].T
        model.unembed.W_U.copy_(model.embed.W_E.T)
    whole, sampled = weight_scores(model), weight_scores(model, sample=2000)
    assert any("2000 of 4000 tokens" in note for note in sampled.attrs["notes"])
    for column in ("ov_copying", "qk_matching"):
        np.testing.assert_allclose(sampled[column], whole[column], atol=0.1)
        assert not np.allclose(sampled[column], whole[column], rtol=1e-6)
    assert sampled.ov_copying[0] > 0.9
    assert sampled.ov_p_adjusted[0] <= 0.05
    pd.testing.assert_frame_equal(weight_scores(model, sample=4000), whole)


def test_queries_and_keys_are_sampled_from_all_inputs() -> None:
    model = random_model(3, d_vocab=400, d_vocab_out=2, normalization_type=None)
    whole, sampled = weight_scores(model), weight_scores(model, sample=300)
    np.testing.assert_allclose(sampled.qk_matching, whole.qk_matching, atol=0.1)
    np.testing.assert_allclose(sampled.ov_copying, whole.ov_copying)


def test_fewer_outputs_than_inputs_are_compared_where_both_are() -> None:
    model = random_model(3, d_vocab_out=20, normalization_type=None)
    frame = weight_scores(model)
    assert "20 token ids" in frame.attrs["notes"][0]
    view = weights(model)
    w = view.layer(0)
    with torch.no_grad():
        x = view.layer(0).norm(every_token(view))[:20]
        expected = figures((x @ w.W_V[0] @ w.W_O[0] @ view.W_U).numpy())
    assert (frame.ov_copying[0], frame.ov_diagonal[0]) == pytest.approx(expected)
    with torch.no_grad():  # queries and keys are compared over all inputs
        x = view.layer(0).norm(every_token(view))
        w = view.layer(0)
        expected = figures(((x @ w.W_Q[0]) @ (x @ w.W_K[0]).T).numpy())
    assert (frame.qk_matching[0], frame.qk_diagonal[0]) == pytest.approx(expected)


def refuse_layer_0(monkeypatch, *parts):
    from interp_toolkit.models.weights import check as weights_check

    for part in parts:
        read = getattr(weights_check.read, part)

        def refuse(model, layer, *variant, read=read):
            if layer == 0:
                raise InputError("layer 0 has something else")
            return read(model, layer, *variant)

        monkeypatch.setattr(weights_check.read, part, refuse)


def test_what_cannot_be_read_is_missing_and_noted(monkeypatch, texts) -> None:
    refuse_layer_0(monkeypatch, "ov", "layer")
    frame = weight_scores(random_model(4))
    texts(frame.attrs["notes"])
    assert frame[frame.layer == 0].drop(columns=["layer", "head"]).isna().all(axis=None)
    assert not frame[frame.layer == 1].isna().any(axis=None)


def test_queries_and_keys_that_cannot_be_read_leave_copying_scores(monkeypatch, texts) -> None:
    whole = weight_scores(random_model(4))
    refuse_layer_0(monkeypatch, "layer")
    frame = weight_scores(random_model(4))
    texts(frame.attrs["notes"])
    at = frame.layer == 0
    assert frame.ov_copying.equals(whole.ov_copying)
    assert frame.qk_matching[at].isna().all()
    assert frame.qk_matching[~at].equals(whole.qk_matching[~at])


def test_a_head_of_zeros_has_no_score() -> None:
    model = random_model(5)
    with torch.no_grad():
        model.blocks[1].attn.W_O[2] = 0
    frame = weight_scores(model)
    assert frame.loc[5, ["ov_copying", "ov_diagonal", "ov_z", "ov_p"]].isna().all()
    assert frame.qk_p_adjusted.notna().all()


def test_embeddings_that_do_not_differ_leave_no_score() -> None:
    """After centering over tokens no coordinate is written."""
    model = random_model(5, normalization_type=None)
    with torch.no_grad():
        model.embed.W_E[:] = 1
    frame = weight_scores(model)
    assert frame[["ov_p", "qk_p"]].isna().all(axis=None)


def test_norms_behind_the_addition_leave_matching_only(zoo, texts) -> None:
    frame = weight_scores(zoo("bert"))
    assert frame.ov_copying.isna().all()
    assert frame.qk_matching.notna().all()
    texts(frame.attrs["notes"])


def test_a_head_that_reads_nothing_but_rounding_has_no_score():
    """Zero products that rounding leaves at 1e-32, on which eigenvalue solvers fail."""
    frame = weight_scores(toys.induction(d_vocab=40, n_ctx=48))
    dead = frame[(frame.layer == 1) & (frame["head"] == 1)].iloc[0]
    assert np.isnan(dead.ov_copying)


def test_a_solver_that_gives_up_is_asked_again_and_a_head_it_cannot_do_has_no_score(monkeypatch):
    model = toys.induction(8, 12)
    whole = weight_scores(model)
    solve = torch.linalg.eigvals

    def fails_on(which):
        asked = 0

        def eigvals(matrices):
            nonlocal asked
            asked += matrices.ndim == 2
            if matrices.ndim > 2 or asked in which:
                raise torch.linalg.LinAlgError("did not converge")
            return solve(matrices)

        return eigvals

    monkeypatch.setattr(torch.linalg, "eigvals", fails_on({1}))  # the first head's, once
    again = weight_scores(model)
    for column in ("ov_copying", "qk_matching", "ov_z", "qk_z"):
        np.testing.assert_allclose(again[column], whole[column], atol=1e-9, equal_nan=True)

    # a call a head for what it copies and one for what it looks for: here the copying of L1H0
    monkeypatch.setattr(torch.linalg, "eigvals", fails_on({5, 6}))
    missing = weight_scores(model)
    assert whole.ov_copying[2] > 0.9
    assert np.isnan(missing.ov_copying[2])
    np.testing.assert_allclose(missing.qk_matching, whole.qk_matching, atol=1e-9)


def test_heads_that_look_after_a_token_but_a_mark_have_scores():
    layout = Layout("induction", 26, 43)
    scores = weight_scores(shared_work(Work(layout)))  # one on which a solver was seen to give up
    assert not scores.qk_matching[scores.layer == 1].isna().all()
