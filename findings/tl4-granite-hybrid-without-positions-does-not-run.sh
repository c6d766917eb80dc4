#!/bin/sh
# transformer-lens 4.3.0 with transformers 5.23.0: bridges of GraniteMoeHybrid need rotary positions.
#
# Guess: a bridge to an architecture of the library's list runs on what transformers' model runs on.
# Seen: with the configuration's default, no positions ("position_embedding_type" not "rope"), the
# bridge is built, and its forward pass raises a RuntimeError ("Original component not set for
# model.rotary_emb"); transformers' own model runs. With "rope" the bridge runs too.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformer-lens==4.3.0" "transformers==5.23.0"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM
from transformer_lens.model_bridge.sources import build_bridge_from_module

tokens = torch.tensor([[5, 9, 12, 7]])


def outcome(**positions):
    torch.manual_seed(0)
    config = GraniteMoeHybridConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8,
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=16,
        layer_types=["mamba", "attention"], pad_token_id=0, bos_token_id=1, eos_token_id=2,
        **positions,
    )
    model = GraniteMoeHybridForCausalLM(config).eval()
    with torch.no_grad():
        truth = model(tokens).logits
        bridge = build_bridge_from_module(
            model, "GraniteMoeHybridForCausalLM", hf_config=model.config, model_name="tiny"
        )
        try:
            logits = bridge(tokens)
        except RuntimeError as error:
            return str(error).splitlines()[0]
    return float((getattr(logits, "logits", logits) - truth).abs().max())


without, rotary = outcome(), outcome(position_embedding_type="rope")
print(f"without positions: {without}; with rotary ones off by {rotary}")
assert isinstance(without, str) and "rotary_emb" in without and isinstance(rotary, float), "no longer so"
PYTHON
