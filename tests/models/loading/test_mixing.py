"""Files of models with fixed mixing, gate biases or tied embeddings: read exactly, or refused."""

import pytest
import torch

from interp_toolkit import InputError, load, save
from interp_toolkit.models.about.info import describe
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SHAPE = {"n_layers": 2, "d_model": 12, "n_ctx": 7, "d_head": 6, "n_heads": 2, "d_vocab": 11}
GATED = {"d_mlp": 10, "act_fn": "silu", "gated_mlp": True, "normalization_type": "RMS"}
MIXIT = {"mixing": "1/(d_head m)", "biases": False, "seed": 1, **GATED}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def random_model(**options):
    model = Transformer(TransformerConfig(**{**SHAPE, **options}))
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (MIXIT, {}),
        ({**MIXIT, "mixing": "1/sqrt(n m)", "attention_dir": "bidirectional"}, {}),
        ({**MIXIT, "unembed_bias": True}, {}),
        ({**MIXIT, "n_ctx": 9, "positional_embedding_type": "none"}, {}),
        ({**MIXIT, "tied_embeddings": True}, {"tied_embeddings": "true"}),
        ({**GATED, "gate_biases": True}, {}),
        ({**GATED, "biases": True, "unembed_bias": False}, {"unembed_bias": "false"}),
    ],
)
def test_a_bare_state_dict_is_told_by_its_names(tmp_path, options, given, texts):
    model, path = random_model(**options), tmp_path / "bare.pt"
    torch.save(model.state_dict(), path)
    if options.get("positional_embedding_type") == "none":
        given = {**given, "positional_embedding_type": "none"}
    loaded = load(path, act_fn="silu", **given)
    assert torch.equal(loaded(TOKENS), model(TOKENS))
    assert loaded.cfg.n_ctx == model.cfg.n_ctx
    assert loaded.cfg.attention_dir == model.cfg.attention_dir
    said = "; ".join(record_of(loaded).assumptions)
    texts(said)
    assert ("attn_scale" in said) == (model.cfg.mixing is None)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (GATED, {"mixing": "1/(n m)"}),
        (GATED, {"gate_biases": "true"}),
        (GATED, {"tied_embeddings": "true"}),
        (MIXIT, {"mixing": "none"}),
        (MIXIT, {"mixing": "1/n"}),
        (MIXIT, {"attn_scale": 2.0}),
        (MIXIT, {"attention_dir": "bidirectional"}),
        ({**MIXIT, "tied_embeddings": True}, {}),
        ({**GATED, "unembed_bias": False}, {}),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, options, given, texts):
    path = tmp_path / "bare.pt"
    torch.save(random_model(**options).state_dict(), path)
    with pytest.raises(InputError, check=texts):
        load(path, act_fn="silu", **given)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("blocks.1.attn.mixing"),
        lambda t: t.update({"blocks.1.attn.W_Q": torch.ones(2)}),
        lambda t: t.update({"blocks.1.attn.mixing": torch.ones(2, 6, 6)}),
        lambda t: t["blocks.0.attn.mixing"].fill_(torch.nan),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong(tmp_path, monkeypatch, change, texts, suffix):
    model, path = random_model(**MIXIT), tmp_path / f"model{suffix}"
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    change(tensors)
    monkeypatch.setattr(model, "state_dict", lambda: tensors)
    save(model, path)
    with pytest.raises(InputError, check=texts):
        load(path)


def test_an_attention_model_with_a_mixing_matrix_is_refused(tmp_path):
    model = random_model(**GATED)
    tensors = {**model.state_dict(), "blocks.0.attn.mixing": torch.ones(2, 7, 7).tril()}
    torch.save(tensors, tmp_path / "bare.pt")
    with pytest.raises(InputError, match=r"lacks blocks.1.attn.mixing.*no use for .*W_Q"):
        load(tmp_path / "bare.pt", act_fn="silu")


def test_a_live_model_with_a_bad_mixing_matrix_is_refused(texts):
    model = random_model(**MIXIT)
    assert load(model) is model
    model.blocks[1].attn.mixing[0, 3, 1] = torch.inf
    with pytest.raises(InputError, match=r"blocks\.1\.attn\.mixing", check=texts):
        load(model)


def test_a_dictionary_with_the_configuration_beside_the_weights(tmp_path):
    model = random_model(**MIXIT)
    torch.save({"cfg": model.cfg.model_dump(), "state_dict": model.state_dict()}, tmp_path / "a.pt")
    loaded = load(tmp_path / "a.pt")
    assert loaded.cfg.mixing == "1/(d_head m)"
    assert torch.equal(loaded(TOKENS), model(TOKENS))


def test_info_says_that_matrices_are_fixed(texts):
    info = describe(random_model(**MIXIT))
    texts(info.mixing)
    weights = 11 * 12 * 2 + 7 * 12 + 2 * (2 * 12 * 12 + 3 * 12 * 10 + 2 * 12) + 12
    assert info.n_params == weights
    assert describe(random_model(**GATED)).mixing is None
