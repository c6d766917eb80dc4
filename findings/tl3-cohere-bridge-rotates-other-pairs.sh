#!/bin/sh
# transformer-lens 3.9.0 with transformers 5.23.0: Cohere bridges rotate the wrong pairs.
#
# Guess: a bridge of Cohere (Command R) computes the model's logits: its documentation says that the
# rotation, which turns coordinates (0, 1), (2, 3), ..., is left to transformers. Seen: the bridge
# turns coordinates (0, d/2), (1, d/2 + 1), ... by the angles of the other order, so logits differ by
# half of the largest from position 1 on; at position 0, where nothing is turned, they agree. GLM,
# which turns the same pairs, is exact. Of transformer-lens 4.3.0 it is no longer so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformer-lens==3.9.0" "transformers==5.23.0"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from transformers import CohereConfig, CohereForCausalLM, GlmConfig, GlmForCausalLM
from transformer_lens.model_bridge.sources import build_bridge_from_module

SIZES = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
tokens = torch.tensor([[5, 9, 12, 7, 33, 21]])


def differences(kind, config, **more):
    """Of the logits at every position, relative to the largest."""
    torch.manual_seed(0)
    model = kind._from_config(config(**SIZES, **more), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(parameter + 0.2 * noise if parameter.ndim == 1 else 0.3 * noise)
        own = model(tokens).logits
        bridge = build_bridge_from_module(
            model, kind.__name__, hf_config=model.config, model_name="tiny"
        )
        out = bridge(tokens)
    gap = (getattr(out, "logits", out) - own).abs().amax(-1)[0] / own.abs().max()
    return [round(float(value), 4) for value in gap]


cohere = differences(CohereForCausalLM, CohereConfig, logit_scale=0.25)
glm = differences(GlmForCausalLM, GlmConfig, head_dim=8)
print(f"Cohere: {cohere}; GLM: {glm}")
assert cohere[0] < 1e-3 and max(cohere) > 0.2 and max(glm) < 1e-3, "no longer so"
PYTHON
