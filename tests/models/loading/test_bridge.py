"""Bare `TransformerBridge` state dicts, against the bridge they came from."""

import pytest
import torch
import transformers
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of

SHAPE = {"n_layers": 2, "d_model": 16, "n_ctx": 9, "d_head": 4, "n_heads": 4, "d_vocab": 7}
ROTARY = {"positional_embedding_type": "rotary"}
NATIVE = {
    "MLP": ({"act_fn": "gelu", "d_mlp": 24}, {"act_fn": "gelu"}),
    "square MLP": ({"act_fn": "relu", "d_mlp": 16}, {"act_fn": "relu"}),
    "attention-only": ({"attn_only": True, "normalization_type": None}, {}),
    "LNPre": (
        {"attn_only": True, "normalization_type": "LNPre"},
        {"normalization_type": "LNPre"},
    ),
    "gated, RMS, grouped, rotary": (
        ROTARY
        | {"normalization_type": "RMS", "gated_mlp": True, "act_fn": "silu", "d_mlp": 24}
        | {"n_key_value_heads": 2},
        ROTARY | {"act_fn": "silu", "rotary_adjacent_pairs": "true"},
    ),
    "heads narrower than the model": ({"attn_only": True, "d_head": 3}, {}),
    "own outputs": ({"attn_only": True, "d_vocab_out": 3}, {}),
}


def tokens():
    return torch.randint(0, 7, (5, 9), generator=torch.Generator().manual_seed(1))


def relative_error(ours, theirs) -> float:
    with torch.no_grad():
        expected = theirs(tokens())
        return float((ours(tokens()) - expected).abs().max() / expected.abs().max())


def randomise(model):
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def native(options):
    cfg = TransformerBridgeConfig(**{**SHAPE, **options}, seed=0)
    return randomise(TransformerBridge.boot_native(cfg))


@pytest.mark.parametrize("name", NATIVE)
def test_native_bridges(tmp_path, name):
    options, given = NATIVE[name]
    bridge = native(options)
    torch.save(bridge.state_dict(), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", n_heads="4", **given)
    assert relative_error(loaded, bridge) < 1e-5
    assert record_of(loaded).kind == "bridge_state_dict"


@pytest.mark.parametrize("name", NATIVE)
def test_native_bridges_with_their_configuration(tmp_path, name):
    options, _ = NATIVE[name]
    bridge = native(options)
    plain = {
        k: v
        for k, v in bridge.cfg.to_dict().items()
        if isinstance(v, int | float | str | bool | None)
    }
    torch.save({"cfg": plain, "state_dict": bridge.state_dict()}, tmp_path / "model.pt")
    assert relative_error(load(tmp_path / "model.pt"), bridge) < 1e-5


HUGGING_FACE = {
    "GPT-2": (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=7,
            n_positions=9,
            n_embd=16,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        ),
        {"act_fn": "gelu_new"},
    ),
    "Llama": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            vocab_size=7,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=9,
        ),
        ROTARY | {"act_fn": "silu", "rotary_adjacent_pairs": False, "eps": 1e-6},
    ),
    "Qwen 2": (  # query, key and value biases only
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config(
            vocab_size=7,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=9,
        ),
        ROTARY | {"act_fn": "silu", "rotary_adjacent_pairs": False, "eps": 1e-6},
    ),
}


def hugging_face(kind, config):
    config._attn_implementation = "eager"
    model = randomise(kind(config))
    return build_bridge_from_module(model, kind.__name__, hf_config=config), model


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_bridges_to_hugging_face_models(tmp_path, name):
    kind, config, given = HUGGING_FACE[name]
    bridge, model = hugging_face(kind, config)
    torch.save(bridge.state_dict(), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", n_heads=4, **given)
    assert relative_error(loaded, lambda ids: model(ids).logits) < 1e-5


def test_norms_that_the_transformer_lacks_are_refused(tmp_path, texts):
    config = transformers.Gemma2Config(
        vocab_size=7,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        max_position_embeddings=9,
    )
    bridge, _ = hugging_face(transformers.Gemma2ForCausalLM, config)
    torch.save(bridge.state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="ln1_post", check=texts):
        load(tmp_path / "model.pt", n_heads=4, act_fn="gelu", **ROTARY)


def test_what_a_bridge_does_not_say_must_be_given(tmp_path, texts):
    torch.save(native({"attn_only": True}).state_dict(), tmp_path / "absolute.pt")
    with pytest.raises(InputError, match="--set n_heads=4", check=texts):
        load(tmp_path / "absolute.pt")
    with pytest.raises(InputError, match="n_heads=5", check=texts):
        load(tmp_path / "absolute.pt", n_heads=5)
    torch.save(native(ROTARY | {"attn_only": True}).state_dict(), tmp_path / "rotary.pt")
    with pytest.raises(InputError, match=r"pos_embed\.W_pos", check=texts):
        load(tmp_path / "rotary.pt", n_heads=4)
    with pytest.raises(InputError, match="rotary_adjacent_pairs=false"):
        load(tmp_path / "rotary.pt", n_heads=4, **ROTARY)


@pytest.mark.parametrize("missing", ["blocks.1.attn.q.bias", "blocks.0.attn.o.weight"])
def test_a_missing_tensor_is_not_taken_for_an_architecture(tmp_path, missing):
    state = native({"attn_only": True}).state_dict()
    torch.save({n: t for n, t in state.items() if n != missing}, tmp_path / "model.pt")
    with pytest.raises(InputError, match="lacks"):
        load(tmp_path / "model.pt", n_heads=4)


def test_a_configuration_of_an_architecture_that_is_not_read(tmp_path):
    saved = {
        "cfg": {"architecture": "GPTNeoXForCausalLM", "n_heads": 4},
        "state_dict": native({"attn_only": True}).state_dict(),
    }
    torch.save(saved, tmp_path / "model.pt")
    with pytest.raises(InputError, match="bridge to GPTNeoXForCausalLM"):
        load(tmp_path / "model.pt")
