#!/bin/sh
# transformer-lens 3.9.0 with transformers 5.23.0: DeepSeek-V3 bridges attend to later tokens.
#
# Guess: a bridge of a causal model computes the model's logits, whichever attention implementation
# transformers chose. Seen: with transformers' default (sdpa) a bridge of DeepSeek-V3 has no mask: up
# to 100 % of a query's attention is on later tokens, another last token changes the logits of
# earlier positions by 3, and logits differ from the model's own by more than the largest of them.
# With `attn_implementation="eager"` the same bridge is exact, and one of Llama is so with both.
# Of transformer-lens 4.3.0 it is no longer so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformer-lens==3.9.0" "transformers==5.23.0"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM
from transformer_lens.model_bridge.sources import build_bridge_from_module

SIZES = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
LATENT = dict(
    q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
    first_k_dense_replace=2, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
    moe_intermediate_size=16, n_shared_experts=1,
)
tokens = torch.tensor([[5, 9, 12, 7, 33, 21]])
other = torch.tensor([[5, 9, 12, 7, 33, 40]])


def seen(kind, config, implementation, **more):
    """Relative difference of the logits, attention on later tokens, effect of the last token."""
    torch.manual_seed(0)
    model = kind._from_config(config(**SIZES, **more), attn_implementation=implementation).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(parameter + 0.2 * noise if parameter.ndim == 1 else 0.3 * noise)
        own = model(tokens).logits
        bridge = build_bridge_from_module(
            model, kind.__name__, hf_config=model.config, model_name="tiny"
        )
        logits, cache = bridge.run_with_cache(tokens)
        logits, changed = (getattr(out, "logits", out) for out in (logits, bridge(other)))
    later = cache["blocks.0.attn.hook_pattern"].triu(1).sum(-1).max()
    return [
        round(float(value), 4)
        for value in (
            (logits - own).abs().max() / own.abs().max(),
            later,
            (changed - logits)[:, :-1].abs().max(),
        )
    ]


found = {
    "DeepSeek-V3, sdpa": seen(DeepseekV3ForCausalLM, DeepseekV3Config, "sdpa", **LATENT),
    "DeepSeek-V3, eager": seen(DeepseekV3ForCausalLM, DeepseekV3Config, "eager", **LATENT),
    "Llama, sdpa": seen(LlamaForCausalLM, LlamaConfig, "sdpa"),
}
for name, values in found.items():
    print(name, values)
assert all(value > 0.5 for value in found.pop("DeepSeek-V3, sdpa")), "no longer so"
assert all(value < 1e-3 for values in found.values() for value in values), "no longer so"
PYTHON
