"""`Transformer` against an independent NumPy transformer and against TransformerLens's native one.

Both run under every supported TransformerLens, so that the numbers cannot drift where there is no
HookedTransformer to compare with.
"""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SHAPE = {"n_layers": 2, "d_model": 10, "n_ctx": 8, "d_head": 6, "n_heads": 4, "d_vocab": 9}
CONFIGS = {
    "GPT-2": {"d_mlp": 12, "act_fn": "gelu_new"},
    "Llama": {
        "d_mlp": 12,
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_base": 50.0,
        "n_key_value_heads": 2,
        "biases": False,
    },
    "GPT-J attention, folded": {
        "attn_only": True,
        "normalization_type": "LNPre",
        "final_rms": True,
        "positional_embedding_type": "rotary",
        "rotary_dim": 4,
        "rotary_adjacent_pairs": True,
        "attn_scores_soft_cap": 0.7,
        "output_logits_soft_cap": 1.5,
        "use_attn_result": True,
    },
    "toy": {
        "attn_only": True,
        "normalization_type": None,
        "positional_embedding_type": "none",
        "biases": False,
        "attention_dir": "bidirectional",
        "use_attn_scale": False,
    },
    "Llama with biases, tied": {
        "d_mlp": 12,
        "act_fn": "silu",
        "gated_mlp": True,
        "gate_biases": True,
        "unembed_bias": False,
        "tied_embeddings": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
    },
    "MixiT": {
        "d_mlp": 12,
        "act_fn": "silu",
        "gated_mlp": True,
        "biases": False,
        "unembed_bias": True,
        "normalization_type": "RMS",
        "mixing": "1/(d_head m)",
    },
    "MixiT, bidirectional, tied": {
        "attn_only": True,
        "mixing": "1/sqrt(n m)",
        "attention_dir": "bidirectional",
        "positional_embedding_type": "none",
        "tied_embeddings": True,
        "use_attn_result": True,
    },
}


def random_model(**options):
    """A model whose every parameter, biases and norm weights too, is random."""
    model = Transformer(TransformerConfig(**{**SHAPE, "dtype": "float64", **options}))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.4 * noise + (1 if name.endswith(".w") else 0))
    return model


class Reference:
    """One prompt, one head, one position at a time, written from the papers' equations."""

    def __init__(self, model):
        self.cfg = model.cfg
        self.weights = {k: v.numpy() for k, v in model.state_dict().items()}
        self.seen = {}

    def get(self, name, default=0.0):
        return self.weights.get(name, default)

    def norm(self, name, x, kind):
        if kind is None:
            return x
        if kind.startswith("LN"):
            x = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.cfg.eps)
        self.seen[f"{name}.hook_scale"] = scale
        self.seen[f"{name}.hook_normalized"] = x / scale
        return x / scale * self.get(f"{name}.w", 1.0) + self.get(f"{name}.b")

    def turned(self, vectors):
        """RoPE as the complex numbers it is: pair i of position p times e^(i p theta_i)."""
        cfg = self.cfg
        half = cfg.rotary_dim // 2
        first, second = (
            (np.arange(0, cfg.rotary_dim, 2), np.arange(1, cfg.rotary_dim, 2))
            if cfg.rotary_adjacent_pairs
            else (np.arange(half), np.arange(half) + half)
        )
        out = vectors.copy()
        for p, vector in enumerate(vectors):
            theta = cfg.rotary_base ** (-2 * np.arange(half) / cfg.rotary_dim)
            z = (vector[first] + 1j * vector[second]) * np.exp(1j * p * theta)
            out[p, first], out[p, second] = z.real, z.imag
        return out

    def attention(self, name, x):
        cfg, n_pos = self.cfg, len(x)
        share = cfg.n_heads // (cfg.n_key_value_heads or cfg.n_heads)
        under = "_" if cfg.n_key_value_heads else ""
        out = np.zeros((n_pos, cfg.d_model)) + self.get(f"{name}.b_O")
        patterns, results = [], []
        for h in range(cfg.n_heads):
            if cfg.mixing:
                v = x @ self.get(f"{name}.W_V")[h]
                v = v + self.get(f"{name}.b_V", np.zeros((cfg.n_heads, 1)))[h]
                pattern = self.mixed(self.get(f"{name}.mixing")[h][:n_pos, :n_pos])
                patterns.append(pattern)
                results.append(pattern @ v @ self.get(f"{name}.W_O")[h])
                continue
            parts = {}
            for letter in "QKV":
                prefix, at = ("", h) if letter == "Q" else (under, h // share)
                b = self.get(f"{name}.{prefix}b_{letter}", np.zeros((cfg.n_heads, 1)))
                parts[letter] = x @ self.get(f"{name}.{prefix}W_{letter}")[at] + b[at]
            q, k, v = parts["Q"], parts["K"], parts["V"]
            if cfg.positional_embedding_type == "rotary":
                q, k = self.turned(q), self.turned(k)
            pattern = np.zeros((n_pos, n_pos))
            for i in range(n_pos):
                keys = range(i + 1) if cfg.attention_dir == "causal" else range(n_pos)
                scores = [q[i] @ k[j] for j in keys]
                if cfg.use_attn_scale:
                    scores = [s / math.sqrt(cfg.d_head) for s in scores]
                if (cap := cfg.attn_scores_soft_cap) > 0:
                    scores = [cap * math.tanh(s / cap) for s in scores]
                total = sum(math.exp(s) for s in scores)
                for j, s in zip(keys, scores, strict=True):
                    pattern[i, j] = math.exp(s) / total
            patterns.append(pattern)
            results.append(pattern @ v @ self.get(f"{name}.W_O")[h])
        self.seen[f"{name}.hook_pattern"] = np.array(patterns)
        if cfg.use_attn_result:
            self.seen[f"{name}.hook_result"] = np.array(results).swapaxes(0, 1)
        return out + sum(results)

    def mixed(self, matrix):
        """Fixed mixing: the weights beside each token's own are those given, moved to sum to 0."""
        pattern = np.zeros_like(matrix)
        for i, row in enumerate(matrix):
            keys = range(i + 1) if self.cfg.attention_dir == "causal" else range(len(row))
            mean = (sum(row[j] for j in keys) - 1) / len(keys)
            for j in keys:
                pattern[i, j] = row[j] - mean
        return pattern

    def act(self, x):
        if self.cfg.act_fn == "silu":
            return x / (1 + np.exp(-x))
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def mlp(self, name, x):
        b_in, up = self.get(f"{name}.b_in"), x @ self.get(f"{name}.W_in")
        if self.cfg.gate_biases:
            gate = x @ self.get(f"{name}.W_gate") + self.get(f"{name}.b_gate")
            post = self.act(gate) * (up + b_in)
        elif self.cfg.gated_mlp:
            post = self.act(x @ self.get(f"{name}.W_gate")) * up + b_in
        else:
            post = self.act(up + b_in)
        self.seen[f"{name}.hook_post"] = post
        return post @ self.get(f"{name}.W_out") + self.get(f"{name}.b_out")

    def logits(self, tokens):
        cfg, kind = self.cfg, self.cfg.normalization_type
        x = self.get("embed.W_E")[tokens]
        if cfg.positional_embedding_type == "standard":
            x = x + self.get("pos_embed.W_pos")[: len(tokens)]
        for layer in range(cfg.n_layers):
            block = f"blocks.{layer}"
            self.seen[f"{block}.hook_resid_pre"] = x
            x = x + self.attention(f"{block}.attn", self.norm(f"{block}.ln1", x, kind))
            if not cfg.attn_only:
                self.seen[f"{block}.hook_resid_mid"] = x
                x = x + self.mlp(f"{block}.mlp", self.norm(f"{block}.ln2", x, kind))
            self.seen[f"{block}.hook_resid_post"] = x
        x = self.norm("ln_final", x, "RMSPre" if cfg.final_rms else kind)
        W_U = self.get("embed.W_E").T if cfg.tied_embeddings else self.get("unembed.W_U")
        logits = x @ W_U + self.get("unembed.b_U")
        cap = cfg.output_logits_soft_cap
        return cap * np.tanh(logits / cap) if cap > 0 else logits


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_logits_and_hooks_equal_an_independent_transformer(options):
    model = random_model(**options)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 8], [2, 7, 1, 8, 2, 8]])
    logits, cache = model.run_with_cache(tokens)
    for row, prompt in enumerate(tokens):
        reference = Reference(model)
        expected = reference.logits(prompt.numpy())
        np.testing.assert_allclose(logits[row].detach().numpy(), expected, atol=1e-12)
        assert len(reference.seen) >= 6
        for name, value in reference.seen.items():
            np.testing.assert_allclose(cache[name][row].numpy(), value, atol=1e-12, err_msg=name)


NATIVE = {
    "LN": {"d_mlp": 12, "act_fn": "gelu_new"},
    "LNPre, bidirectional": {
        "d_mlp": 12,
        "act_fn": "relu",
        "normalization_type": "LNPre",
        "attention_dir": "bidirectional",
    },
    "RMS, rotary, grouped, gated, capped": {
        "d_mlp": 12,
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_dim": 4,
        "rotary_adjacent_pairs": True,
        "n_key_value_heads": 2,
        "attn_scores_soft_cap": 0.7,
        "output_logits_soft_cap": 1.5,
    },
    "attention only, final RMS": {"attn_only": True, "final_rms": True},
}


def native_state(model):
    """Our weights under the native model's names and in `nn.Linear`'s orientation."""
    cfg = model.cfg
    state = {"tok_embed.weight": model.W_E, "head.weight": model.W_U.T}
    if cfg.positional_embedding_type == "standard":
        state["pos.weight"] = model.W_pos
    norms = {"ln_out": model.ln_final}
    for layer, block in enumerate(model.blocks):
        at = f"layers.{layer}"
        under = "_" if cfg.n_key_value_heads else ""
        for letter, prefix in (("Q", ""), ("K", under), ("V", under)):
            W, b = (getattr(block.attn, f"{prefix}{kind}_{letter}") for kind in "Wb")
            state[f"{at}.attn.{letter.lower()}.weight"] = W.transpose(1, 2).flatten(0, 1)
            state[f"{at}.attn.{letter.lower()}.bias"] = b.flatten()
        state[f"{at}.attn.o.weight"] = block.attn.W_O.flatten(0, 1).T
        state[f"{at}.attn.o.bias"] = block.attn.b_O
        norms[f"{at}.ln1"] = block.ln1
        if cfg.attn_only:
            continue
        norms[f"{at}.ln2"] = block.ln2
        if cfg.gated_mlp:
            for name, W in (("gate", "W_gate"), ("in", "W_in"), ("out", "W_out")):
                state[f"{at}.mlp.{name}.weight"] = getattr(block.mlp, W).T
        else:
            for name, end in (("fc_in", "in"), ("fc_out", "out")):
                state[f"{at}.mlp.{name}.weight"] = getattr(block.mlp, f"W_{end}").T
                state[f"{at}.mlp.{name}.bias"] = getattr(block.mlp, f"b_{end}")
    for name, norm in norms.items():
        state |= {f"{name}.weight": norm.w} if norm.w is not None else {}
        state |= {f"{name}.bias": norm.b} if norm.b is not None else {}
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@pytest.mark.parametrize("options", NATIVE.values(), ids=NATIVE)
def test_logits_equal_the_native_model(options):
    """What `TransformerBridge.boot_native` wraps, where its options and ours meet.

    It has no bias in its unembedding and none in gated MLPs: ours are zero there.
    """
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources.native.model import NativeModel

    model = random_model(**{**options, "dtype": "float32"})
    for name, parameter in model.named_parameters():
        if name == "unembed.b_U" or (model.cfg.gated_mlp and ".mlp.b_" in name):
            parameter.data.zero_()
    # The native model takes its MLP's shape even where it has none.
    fields = {"d_mlp": 12, "act_fn": "relu", **model.cfg.model_dump(exclude_none=True)}
    ours_only = ("biases", "dtype", "rotary_adjacent_pairs", "tokenizer_name", "model_name")
    ours_only += ("gate_biases", "final_norm", "unembed_bias", "tied_embeddings")
    given = {k: v for k, v in fields.items() if k not in ours_only}
    native = NativeModel(TransformerBridgeConfig(**given))
    native.load_state_dict(native_state(model), strict=True)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 8], [2, 7, 1, 8, 2, 8]])
    assert_close(model(tokens), native(tokens), atol=1e-5, rtol=1e-5)
