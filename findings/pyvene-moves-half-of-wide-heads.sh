#!/bin/sh
# pyvene 0.1.8 with transformers 5.23.0, torch 2.13.0: of heads wider than hidden_size / heads, a part moves.
#
# Guess: an intervention at `head_value_output`, unit "h.pos", replaces the values of that head, for
# Mistral as for Qwen 2, whatever `head_dim` says (Mistral Nemo: 128, hidden_size / heads = 160).
# Seen: with head_dim 16 where hidden_size / heads is 8, Mistral's head 1 (columns 16 to 31) is
# replaced in its first 8 columns only, without a word; Qwen 2 with the same sizes moves all 16.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformers==5.23.0" "pyvene==0.1.8"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import pyvene
import torch
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

SIZES = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=50, head_dim=16,
)  # fmt: skip
torch.manual_seed(0)
base, source = torch.randint(1, 50, (2, 1, 7))


def with_columns(model, columns):
    """Logits when these columns of the values at position 3 are those of the other prompt."""
    values, module = [], model.model.layers[1].self_attn.v_proj
    keep = module.register_forward_hook(lambda *call: values.append(call[-1].clone()))
    model(source)
    keep.remove()

    def replaced(module, inputs, output):
        output = output.clone()
        output[:, 3, columns] = values[0][:, 3, columns]
        return output

    edit = module.register_forward_hook(replaced)
    logits = model(base).logits
    edit.remove()
    return logits


for family, model in {
    "Mistral": MistralForCausalLM(MistralConfig(**SIZES)),
    "Qwen 2": Qwen2ForCausalLM(Qwen2Config(**SIZES)),
}.items():
    model.eval()
    setting = {
        "layer": 1,
        "component": "head_value_output",
        "unit": "h.pos",
        "intervention_type": pyvene.VanillaIntervention,
    }
    changed = pyvene.IntervenableModel(setting, model=model)
    place = [[[[1]], [[3]]]]  # head 1, position 3
    with torch.no_grad():
        _, out = changed({"input_ids": base}, [{"input_ids": source}], {"sources->base": (place, place)})
        whole = float((out.logits - with_columns(model, slice(16, 32))).abs().max())
        half = float((out.logits - with_columns(model, slice(16, 24))).abs().max())
    print(f"{family}: differs from the whole head by {whole:.1e}, from its first half by {half:.1e}")
    assert (half < 1e-6 < 1e-3 < whole) if family == "Mistral" else (whole < 1e-6 < 1e-3 < half)
PYTHON
