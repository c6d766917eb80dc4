"""Composition scores against dense matrices, TransformerLens, permutations and planted pairs."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from interp_toolkit.circuits.weights.composition import MODES, composition_scores
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.models.weights.view import weights

KINDS = ("own", "own-rotary", "own-bare", "hooked", "hooked-rotary", "hooked-parallel", "native")
KINDS += ("gpt2", "gpt2-folded", "llama", "neox", "gemma2", "alibi", "bloom")


def random_model(seed: int, **options) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"n_layers": 2, "d_model": 24, "n_ctx": 8, "d_head": 6, "n_heads": 3, "d_vocab": 7}
    config = TransformerConfig(**(sizes | {"attn_only": True, "dtype": torch.float64} | options))
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 5)
    return model


def dense(norm, d_model: int) -> torch.Tensor:
    """The linear part of a norm, as a matrix that multiplies from the right."""
    centre = torch.eye(d_model) - 1 / d_model if norm.kind == "LN" else torch.eye(d_model)
    return centre.double() @ torch.diag(torch.ones(d_model) if norm.w is None else norm.w).double()


@torch.no_grad()
def brute_force(model) -> np.ndarray:
    view = weights(model)
    n, heads, d = view.n_layers, view.n_heads, view.d_model
    scores = np.full((3, n, heads, n, heads), np.nan)
    layers = [view.layer(layer) for layer in range(n)]
    for j in range(n):
        N = dense(layers[j].norm, d)
        C = torch.eye(d).double() - (1 / d if layers[j].norm.kind == "LN" else 0)
        last = torch.eye(d).double() - (1 / d if view.final_norm.kind == "LN" else 0)
        for i in range(j):
            for g in range(heads):
                w, post = layers[i], dense(layers[i].post_norm, d)
                OV = dense(w.norm, d) @ w.W_V[g].double() @ w.W_O[g].double() @ post @ C
                for h in range(heads):
                    w, post = layers[j], dense(layers[j].post_norm, d)
                    QK = N @ w.W_Q[h].double() @ w.W_K[h].double().T @ N.T
                    V = N @ w.W_V[h].double() @ w.W_O[h].double() @ post @ last
                    for mode, reader in enumerate((QK, QK.T, V)):
                        scores[mode, i, g, j, h] = (OV @ reader).norm() / (
                            OV.norm() * reader.norm()
                        )
    return scores


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_dense_matrices(kind, zoo) -> None:
    model = zoo(kind)
    np.testing.assert_allclose(composition_scores(model).score, brute_force(model), rtol=1e-4)


@pytest.mark.parametrize("kind", ["hooked", "hooked-rotary"])
def test_scores_are_transformer_lens_own_after_folding(kind, zoo) -> None:
    model = copy.deepcopy(zoo(kind))
    ours = composition_scores(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.load_and_process_state_dict(
            model.state_dict(),
            fold_ln=True,
            center_writing_weights=model.cfg.normalization_type.startswith("LN"),
            fold_value_biases=False,
            refactor_factored_attn_matrices=False,
        )
        theirs = [model.all_composition_scores(mode).detach().numpy() for mode in MODES]
    processed = composition_scores(model)
    for mode, expected in zip(MODES, theirs, strict=True):
        earlier = np.nan_to_num(ours.mode(mode))
        np.testing.assert_allclose(earlier, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.nan_to_num(processed.mode(mode)), expected, rtol=1e-4)


def test_the_scores_do_not_depend_on_the_memory_allowed(zoo) -> None:
    model = random_model(0, n_layers=3)
    whole, small = composition_scores(model), composition_scores(model, memory="4kB")
    np.testing.assert_allclose(small.score, whole.score)
    np.testing.assert_allclose(small.p_value, whole.p_value)


def test_the_readers_of_chosen_layers_alone(texts):
    model = random_model(0, n_layers=3)
    whole, chosen = composition_scores(model), composition_scores(model, reader_layers=[1])
    np.testing.assert_array_equal(chosen.score[:, :, :, 1], whole.score[:, :, :, 1])
    assert np.isnan(chosen.score[:, :, :, 2]).all()
    assert not np.isnan(whole.score[:, :, :, 2]).all()
    assert np.isnan(composition_scores(model, reader_layers=[0]).score).all()
    keys = composition_scores(model, modes=["K"], view=weights(model))
    np.testing.assert_array_equal(keys.mode("K"), whole.mode("K"))
    np.testing.assert_array_equal(keys.z[1], whole.z[1])
    assert np.isnan(keys.score[[0, 2]]).all()
    bare = composition_scores(model, null=False)
    np.testing.assert_array_equal(bare.score, whole.score)
    assert np.isnan(bare.p_value).all()
    with pytest.raises(InputError, check=texts):
        composition_scores(model, reader_layers=[1, 3])


def test_only_earlier_layers_compose_and_the_frame_holds_every_pair() -> None:
    found = composition_scores(random_model(1, n_layers=3))
    known = ~np.isnan(found.score)
    layer = np.arange(3)
    expected = layer[:, None] < layer[None, :]
    assert (known == expected[None, :, None, :, None]).all()
    frame = found.to_frame()
    assert len(frame) == 3 * 3 * 3 * 3
    assert frame.p_value.is_monotonic_increasing
    row = frame.iloc[0]
    mode = found.mode(row["mode"])
    place = (row.writer_layer, row.writer_head, row.reader_layer, row.reader_head)
    assert mode[place] == row.score


@pytest.mark.parametrize("normalization_type", [None, "LN", "RMS"])
def test_random_weights_are_at_the_baseline_and_p_values_keep_their_level(
    normalization_type,
) -> None:
    """Models are independent of each other, their pairs are not: bounds over models."""
    found = [
        composition_scores(random_model(seed, normalization_type=normalization_type))
        for seed in range(120)
    ]
    low = np.array([np.nanmean(one.p_value[:, 0, :, 1] <= 0.05) for one in found])
    error = low.std(ddof=1) / np.sqrt(len(low))
    assert 0.025 < low.mean() <= 0.05 + 3 * error
    squares = np.array([np.nanmean((one.score / one.baseline) ** 2) for one in found])
    assert squares.mean() == pytest.approx(1, abs=4 * squares.std() / np.sqrt(len(squares)))
    wrong = sum(bool(np.nanmin(one.p_adjusted) <= 0.05) for one in found)
    assert wrong <= stats.binom.ppf(0.999, len(found), 0.05)


@torch.no_grad()
def test_p_values_are_those_of_drawn_permutations_of_coordinates() -> None:
    model = random_model(8, normalization_type=None, d_model=12, d_head=4)
    view = weights(model)
    written = [view.W_E, view.W_pos, *(view.layer(n).W_O.flatten(0, 1) for n in range(2))]
    scale = torch.cat(written).square().sum(0).sqrt()
    writer, reader = view.layer(0), view.layer(1)
    L = root(writer.W_V[0] @ writer.W_O[0] / scale)
    M = root((scale[:, None] * reader.W_Q[1] @ reader.W_K[1].T).T)
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(20_000):
        order = torch.randperm(12, generator=generator)
        sign = torch.randint(0, 2, (12,), generator=generator) * 2.0 - 1
        drawn.append(float((L * sign @ M[:, order].T).square().sum()))
    overlap = float((L @ M.T).square().sum())
    found = composition_scores(model)
    assert found.z[0, 0, 0, 1, 1] == pytest.approx(
        (overlap - np.mean(drawn)) / np.std(drawn), abs=0.03
    )
    share = np.mean(np.array(drawn) >= overlap)
    assert found.p_value[0, 0, 0, 1, 1] == pytest.approx(share, abs=0.02)


def root(A: torch.Tensor) -> torch.Tensor:
    """A matrix R with R^T R = (A^T A)^1/2, by eigenvalues."""
    values, vectors = torch.linalg.eigh(A.T @ A)
    return (values.clamp(min=0) ** 0.25)[:, None] * vectors.T


@torch.no_grad()
def test_rescaled_residual_coordinates_give_the_same() -> None:
    model = random_model(3, normalization_type=None)
    model.blocks[0].attn.W_O[2] = model.blocks[1].attn.W_K[1].T
    before = composition_scores(model)
    d = torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64).exp()
    d[::3] *= -1
    for name, parameter in model.named_parameters():
        last = name.split(".")[-1]
        if last in ("W_E", "W_pos", "W_O", "b_O"):
            parameter.mul_(d)
        elif last in ("W_Q", "W_K", "W_V", "W_U"):
            parameter.div_(d[:, None])
    after = composition_scores(model)
    np.testing.assert_allclose(after.z, before.z, rtol=1e-6)
    np.testing.assert_allclose(after.p_value, before.p_value, rtol=1e-6, atol=0.05)  # draws' signs
    assert ((after.p_adjusted <= 0.05) == (before.p_adjusted <= 0.05)).all()
    assert np.nanmin(before.p_adjusted) <= 0.05


def test_sparse_weights_in_random_order_compose_no_more_often_than_the_level() -> None:
    """Hand-set models with every tensor shuffled: single entries that may coincide."""
    any_found = n_models = 0
    for name in ("induction", "induction-rotary", "decoy"):
        for seed in range(8):
            with reinitialised(load(f"toy:{name}"), seed) as model:
                p = composition_scores(model).p_adjusted
            any_found += bool((p <= 0.05).any())
            n_models += 1
    assert any_found <= stats.binom.ppf(0.999, n_models, 0.05)


@pytest.mark.parametrize("name", ["induction", "induction-rotary", "induction-gqa", "decoy"])
def test_the_previous_token_head_of_hand_set_induction_feeds_its_keys(name) -> None:
    frame = composition_scores(load(f"toy:{name}")).to_frame()
    significant = frame[frame.p_adjusted <= 0.05]
    assert set(significant["mode"]) == {"K"}


@pytest.mark.parametrize("mode", MODES)
def test_a_planted_pair_is_found_and_no_other(mode) -> None:
    model = random_model(3, n_layers=3, normalization_type="LN")
    with torch.no_grad():
        reader = getattr(model.blocks[2].attn, f"W_{mode}")[1]
        model.blocks[2].ln1.w.fill_(1)
        model.blocks[0].attn.W_O[2] = reader.T + 0.05 * torch.randn(reader.T.shape)
    frame = composition_scores(model).to_frame()
    found = frame[frame.p_adjusted <= 0.05]
    names = ["mode", "writer_layer", "writer_head", "reader_layer", "reader_head"]
    assert found[names].values.tolist() == [[mode, 0, 2, 2, 1]]
    assert found.z.iloc[0] > 5


def test_a_head_that_writes_nothing_takes_no_part() -> None:
    model = random_model(4)
    with torch.no_grad():
        model.blocks[0].attn.W_O[1] = 0
    found = composition_scores(model)
    assert np.isnan(found.score[:, 0, 1]).all()
    assert not np.isnan(found.p_adjusted[:, 0, [0, 2], 1]).any()


def test_nothing_written_leaves_no_comparison() -> None:
    model = random_model(4, normalization_type=None)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("W_E", "W_pos", "W_O")):
                parameter.zero_()
    assert np.isnan(composition_scores(model).p_value).all()


def test_a_layer_that_cannot_be_read_is_noted_and_left_out(monkeypatch) -> None:
    from interp_toolkit.models.weights import check as weights_check

    read = weights_check.read.layer

    def refuse(model, layer, *variant):
        if layer == 1:
            raise InputError("layer 1 has something else")
        return read(model, layer, *variant)

    monkeypatch.setattr(weights_check.read, "layer", refuse)
    found = composition_scores(random_model(5, n_layers=3))
    assert any("layer 1 is left out" in note for note in found.notes)
    assert np.isnan(found.score[:, 1]).all()
    assert np.isnan(found.score[:, :, :, 1]).all()
    assert not np.isnan(found.score[:, 0, :, 2]).any()


def test_what_is_approximate_is_noted(zoo) -> None:
    assert any("distance 0" in note for note in composition_scores(zoo("own-rotary")).notes)
    assert any("after attention" in note for note in composition_scores(zoo("gemma2")).notes)
    assert composition_scores(random_model(6)).notes == []


def test_what_cannot_be_asked_is_refused(texts) -> None:
    with pytest.raises(InputError, match="needs two layers"):
        composition_scores(random_model(7, n_layers=1))
    with pytest.raises(InputError, check=texts):
        composition_scores(random_model(7)).mode("O")
    with pytest.raises(InputError, match="'k'", check=texts):
        composition_scores(random_model(7), modes=["k"])


def test_norms_behind_the_addition_are_refused_by_name(zoo, texts) -> None:
    with pytest.raises(InputError, check=texts):
        composition_scores(zoo("bert"))
