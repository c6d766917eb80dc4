#!/bin/sh
# x-transformers 2.31.10 with torch 2.13.0: a norm's stored gain is less by 1, and positions are scaled.
#
# Guess: in a decoder's state dict `....gamma` is the gain of a layer norm, as in torch.nn.LayerNorm,
# and `pos_emb.emb.weight` is what is added to the tokens' embedding.
# Seen: a fresh model stores gamma = 0 and multiplies by gamma + 1; what is added at a position is the
# stored row times dim ** -0.5. A checkpoint read under the usual names has norms of gain 0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "x-transformers==2.31.10"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
model = TransformerWrapper(
    num_tokens=20, max_seq_len=8, attn_layers=Decoder(dim=32, depth=1, heads=4)
).eval()
state = model.state_dict()
gammas = {name: value for name, value in state.items() if name.endswith("gamma")}
print({name: (float(value.min()), float(value.max())) for name, value in gammas.items()})
assert gammas and all(bool((value == 0).all()) for value in gammas.values()), "gains are no longer 0"

norms = [m for m in model.modules() if type(m).__name__ == "LayerNorm" and hasattr(m, "gamma")]
x = torch.randn(2, 3, 32)
plain = torch.nn.functional.layer_norm(x, (32,))
with torch.no_grad():
    norms[0].gamma.fill_(0.5)
    ratio = norms[0](x) / plain
print("a norm with gamma 0.5 multiplies by", float(ratio.median()))
torch.testing.assert_close(norms[0](x), 1.5 * plain, rtol=1e-4, atol=1e-5)

with torch.no_grad():
    added = model.pos_emb(torch.zeros(1, 8, dtype=torch.long))
    stored = state["pos_emb.emb.weight"]
    factor = float((added.reshape(8, 32) / stored).median())
print("added / stored position:", factor, "= dim ** -0.5 =", 32**-0.5)
assert abs(factor - 32**-0.5) < 1e-4, "positions are no longer scaled"
PYTHON
