#!/bin/sh
# transformer-lens 4.3.0 with transformers 5.23.0: hook_attn_out of Falcon-H1 is not what is added.
#
# Guess: `hook_attn_out` is what attention adds to the residual stream, as in the library's other
# bridges, so that resid_mid = resid_pre + attn_out + the state-space mixer's output. Seen: the block
# multiplies it with `attention_out_multiplier` (0.7 here) behind the hook point, and the mixer's
# with `ssm_out_multiplier` (1 here), so the sum is off by 0.3 of attention's output, 0.055 of the
# stream's largest number; with the factor it is exact. Direct effects read at the hook are 1 / 0.7 times
# too large.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformer-lens==4.3.0" "transformers==5.23.0"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from transformers import FalconH1Config, FalconH1ForCausalLM
from transformer_lens.model_bridge.sources import build_bridge_from_module

torch.manual_seed(0)
config = FalconH1Config(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
    mamba_d_ssm=64, mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1,
    mamba_chunk_size=8, attention_out_multiplier=0.7, ssm_out_multiplier=1.0,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
model = FalconH1ForCausalLM(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        noise = torch.randn_like(parameter)
        parameter.copy_(parameter + 0.2 * noise if parameter.ndim == 1 else 0.3 * noise)
bridge = build_bridge_from_module(
    model, "FalconH1ForCausalLM", hf_config=model.config, model_name="tiny"
)
names = ["hook_resid_pre", "hook_attn_out", "mamba.hook_out", "hook_resid_mid"]
values = {}


def keep(name):
    def hook(value, hook):
        values[name] = value.detach().clone()

    return hook


with torch.no_grad():
    bridge.run_with_hooks(
        torch.tensor([[5, 9, 12, 7]]), fwd_hooks=[(f"blocks.0.{n}", keep(n)) for n in names]
    )
before, attn, mixer, after = (values[n] for n in names)
size = after.abs().max()
as_named = float((before + attn + mixer - after).abs().max() / size)
with_factor = float((before + 0.7 * attn + mixer - after).abs().max() / size)
print(f"off by {as_named:.3f} of the largest; with the multiplier {with_factor:.1e}")
assert as_named > 0.02 and with_factor < 1e-5, "no longer so"
PYTHON
