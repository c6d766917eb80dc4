#!/bin/sh
# transformers 5.23.0: a saved Youtu model loses the embedding of its padding token when it is loaded.
#
# Guess: `from_pretrained` gives the weights that `save_pretrained` wrote. Seen: every tensor is equal
# but the row of `pad_token_id` in the embedding, which is 0 afterwards, without a message. As the
# unembedding is tied to it, the padding token's logit is 0 at every position. Of Llama, with the same
# sizes and the same padding token, all rows are kept.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q "torch==2.13.0" "transformers==5.23.0"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging
import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, YoutuConfig, YoutuForCausalLM

logging.disable(logging.WARNING)
transformers.utils.logging.disable_progress_bar()
SIZES = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
    pad_token_id=3, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
)
LATENT = dict(q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)


def seen(kind, config, **more):
    """Tensors that differ after loading, rows of the embedding that do, the padding token's logits."""
    torch.manual_seed(0)
    model = kind(config(**SIZES, **more)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
        loaded = kind.from_pretrained(place).eval()
    before, after = model.state_dict(), loaded.state_dict()
    differ = [name for name in before if not torch.equal(before[name], after[name])]
    rows = (before["lm_head.weight"] != after["lm_head.weight"]).any(1).nonzero().flatten().tolist()
    tokens = torch.tensor([[5, 9, 12, 7]])
    with torch.no_grad():
        return differ, rows, [bool(m(tokens).logits[0, :, 3].any()) for m in (model, loaded)]


found = {
    "Llama": seen(LlamaForCausalLM, LlamaConfig),
    "Youtu": seen(YoutuForCausalLM, YoutuConfig, **LATENT),
}
print(found)
assert found == {
    "Llama": ([], [], [True, True]),
    "Youtu": (["model.embed_tokens.weight", "lm_head.weight"], [3], [True, False]),
}, found
PYTHON
