"""Models that are no stack of layers over tokens are refused by name; contexts are the model's."""

import pytest
import torch
import transformers

import interp_toolkit as it
from tests.helpers.huggingface_files import save_quietly

OTHERS = {
    "T5ForConditionalGeneration": (
        "T5Config",
        {"vocab_size": 32, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4},
    ),
    "BartForConditionalGeneration": (
        "BartConfig",
        {"vocab_size": 32, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24}
        | {"decoder_ffn_dim": 24, "max_position_embeddings": 32},
    ),
    "ViTForImageClassification": (
        "ViTConfig",
        {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
        | {"intermediate_size": 24, "image_size": 8, "patch_size": 4},
    ),
}


def made(name):
    config, sizes = OTHERS[name]
    return getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_another_kind_of_model_is_refused_by_name(tmp_path, name):
    save_quietly(made(name), tmp_path / "saved")
    with pytest.raises(it.InputError, match=rf"{name}.*the toolkit supports"):
        it.load(tmp_path / "saved")


@pytest.mark.parametrize("name", OTHERS)
def test_a_bridge_to_another_kind_of_model_is_refused_by_name(name):
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    model = made(name)
    bridge = build_bridge_from_module(model, name, hf_config=model.config, model_name="tiny")
    for call in (lambda: it.analyze(bridge, "heads"), lambda: it.doctor(bridge)):
        with pytest.raises(it.InputError, match=rf"{name}.*the toolkit supports"):
            call()


def test_mpt_has_the_context_of_its_configuration(tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 40}
    model = transformers.MptForCausalLM(transformers.MptConfig(**sizes)).eval()
    save_quietly(model, tmp_path / "saved")
    bridge = it.load(tmp_path / "saved")
    assert bridge.cfg.n_ctx == 40
    tokens = torch.arange(40)[None] % 32
    with torch.no_grad():
        assert torch.allclose(bridge(tokens), model(tokens).logits, atol=1e-5)
    assert it.analyze(bridge, "collapse").headline


def test_a_live_bridge_that_overstates_its_context_is_refused_with_the_remedy():
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    sizes = {"vocab_size": 32, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 40}
    model = transformers.MptForCausalLM(transformers.MptConfig(**sizes)).eval()
    bridge = build_bridge_from_module(
        model, "MPTForCausalLM", hf_config=model.config, model_name="tiny"
    )
    if bridge.cfg.n_ctx > 40:
        with pytest.raises(it.InputError, match=r"max_seq_len is 40, .*set model\.cfg\.n_ctx = 40"):
            it.analyze(bridge, "collapse")
    bridge.cfg.n_ctx = 40
    assert it.analyze(bridge, "collapse").headline


def test_a_model_without_attention_says_so(tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1}
    model = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes, pad_token_id=0)).eval()
    save_quietly(model, tmp_path / "saved")
    bridge = it.load(tmp_path / "saved")
    with pytest.raises(it.InputError, match="attention heads"):
        it.analyze(bridge, "heads")
    circuit = it.analyze(bridge, "circuit", effort="quick")
    assert circuit.status in ("described", "undecided")
    parts = it.analyze(bridge, "logit-attribution").components
    assert [part.kind for part in parts if part.layer == 0] == ["mixer"]
