"""Scaled rotary positions of GGUF files, against transformers with the same weights and scaling."""

import numpy as np
import pytest
import torch

import interp_toolkit as it

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def original(rope):
    config = transformers.LlamaConfig(**SIZES, rope_parameters={"rope_theta": 10000.0, **rope})
    model = transformers.LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def written(model, path, settings):
    """The model as a GGUF file, with the pairs of queries and keys side by side."""
    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(64)
    file.add_embedding_length(32)
    file.add_block_count(1)
    file.add_feed_forward_length(48)
    file.add_head_count(4)
    file.add_head_count_kv(2)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_freq_base(10000.0)
    file.add_vocab_size(50)
    file.add_rope_dimension_count(8)
    settings(file)
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            values = values.reshape(-1, 2, 4, 32).swapaxes(1, 2).reshape(-1, 32)
        for ours, theirs in NAMES.items():
            name = name.replace(f"model.layers.0.{ours}", f"blk.0.{theirs}")
        name = name.replace("model.embed_tokens", "token_embd").replace("lm_head", "output")
        name = name.replace("model.norm", "output_norm")
        file.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def linear(file):
    file.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    file.add_rope_scaling_factor(4.0)


def factors(file):
    """Llama 3's: a factor for every frequency, as a tensor."""
    plain = 10000.0 ** -(np.arange(0, 8, 2) / 8)
    scaled = original(LLAMA3).model.rotary_emb.inv_freq.numpy()
    file.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))


@pytest.mark.parametrize(
    ("rope", "settings"),
    [({"rope_type": "linear", "factor": 4.0}, linear), (LLAMA3, factors)],
    ids=["linear", "llama3"],
)
def test_scaled_positions_are_those_of_the_model(tmp_path, rope, settings):
    model, tokens = original(rope), torch.arange(40)[None] % 50
    loaded = it.load(written(model, tmp_path / "model.gguf", settings))
    with torch.no_grad():
        truth, plain = (m(tokens).logits for m in (model, original({"rope_type": "default"})))
        ours = loaded(tokens)
    assert (truth - plain).abs().max() > 1e-2
    torch.testing.assert_close(ours, truth, atol=1e-4, rtol=1e-4)


def test_a_scaling_that_is_not_read_is_refused(tmp_path):
    def yarn(file):
        file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        file.add_rope_scaling_factor(4.0)

    path = written(original({"rope_type": "default"}), tmp_path / "model.gguf", yarn)
    with pytest.raises(it.InputError, match="yarn"):
        it.load(path)
