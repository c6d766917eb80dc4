#!/bin/sh
# transformer-lens 3.9.0 with transformers 5.23.0: a hook that returns a copy changes the logits.
#
# Guess: attaching a hook that returns its value unchanged leaves a bridge's logits as they are; the
# library's own warning says that they "may differ at float-rounding scale". Seen: for Nemotron,
# whose norms multiply with 1 + weight, a copy at `blocks.0.ln1.hook_normalized` moves the logits by
# more than 1 (4.46 for these weights), since the norm is then computed again with the weight alone.
# At `blocks.0.hook_resid_pre` nothing changes, and for Gemma 2, whose norms do the same, neither
# does it at `hook_normalized`. Of transformer-lens 4.3.0 it is no longer so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformer-lens==3.9.0" "transformers==5.23.0"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, NemotronConfig, NemotronForCausalLM
from transformer_lens.model_bridge.sources import build_bridge_from_module

SIZES = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
tokens = torch.tensor([[5, 9, 12, 7]])


def moved(kind, config, hook):
    torch.manual_seed(0)
    model = kind(config(**SIZES)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(parameter + 0.2 * noise if parameter.ndim == 1 else 0.3 * noise)
        bridge = build_bridge_from_module(
            model, kind.__name__, hf_config=model.config, model_name="tiny"
        )
        plain = bridge(tokens)
        hooked = bridge.run_with_hooks(tokens, fwd_hooks=[(hook, lambda x, hook: x.clone())])
        return float((getattr(plain, "logits", plain) - getattr(hooked, "logits", hooked)).abs().max())


norm, stream = "blocks.0.ln1.hook_normalized", "blocks.0.hook_resid_pre"
nemotron = moved(NemotronForCausalLM, NemotronConfig, norm)
others = [
    moved(NemotronForCausalLM, NemotronConfig, stream),
    moved(Gemma2ForCausalLM, Gemma2Config, norm),
]
print(f"Nemotron at {norm}: {nemotron:.2f}; elsewhere: {others}")
assert nemotron > 1 and max(others) < 1e-4, "no longer so"
PYTHON
