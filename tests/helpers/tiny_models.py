"""A zoo of tiny models of every kind that the toolkit claims to read, made on the spot."""

import functools
import importlib.util
import tempfile
import warnings

import pytest
import torch

N_CTX, D_VOCAB = 12, 11
_SIZES = {
    "n_layers": 2,
    "d_model": 16,
    "d_head": 4,
    "n_heads": 4,
    "n_ctx": N_CTX,
    "d_vocab": D_VOCAB,
}
_MLP = {"d_mlp": 20, "act_fn": "relu"}
ROTARY = {"positional_embedding_type": "rotary", "normalization_type": "RMS", "gated_mlp": True}
ROTARY |= {"act_fn": "silu", "n_key_value_heads": 2}

HAS_HOOKED_TRANSFORMER = importlib.util.find_spec("transformer_lens.HookedTransformer") is not None


def _scramble(model):
    """Random biases and norm weights too, so that no term can hide behind a zero or a one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def own(**options):
    from interp_toolkit.models.transformer.config import TransformerConfig
    from interp_toolkit.models.transformer.transformer import Transformer

    model = Transformer(TransformerConfig(**(_SIZES | _MLP | options)))
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return _scramble(_scramble(model))


def hooked(**options):
    if not HAS_HOOKED_TRANSFORMER:
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    return _scramble(
        HookedTransformer(
            HookedTransformerConfig(**(_SIZES | _MLP | options), seed=0, device="cpu")
        )
    )


def as_hooked_transformer(model):
    """One of our models without MLPs, as a `HookedTransformer` of the same weights."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    names = "n_layers d_model n_ctx d_head n_heads d_vocab d_vocab_out attn_only attention_dir"
    names += " normalization_type positional_embedding_type rotary_dim rotary_base dtype"
    options = {name: getattr(model.cfg, name) for name in names.split()}
    theirs = HookedTransformer(HookedTransformerConfig(**options, device="cpu"))
    missing, unexpected = theirs.load_state_dict(model.state_dict(), strict=False)
    buffers = ("mask", "IGNORE", "rotary_sin", "rotary_cos")
    given = [name for name in missing if not name.endswith(buffers)]
    assert not unexpected
    assert all(".b_" in name for name in given)
    assert not given or not model.cfg.biases  # which it starts at zero
    return theirs


def _native(**options):
    from transformer_lens.model_bridge import TransformerBridge

    cfg = _SIZES | _MLP | {"normalization_type": "LN", "attn_scale": -1, "seed": 0} | options
    cfg["architecture"] = "TransformerLensNative"
    return _scramble(TransformerBridge.boot_native(cfg))


def as_native_bridge(model):
    """One of our models without MLPs, norms and biases, as a native bridge of the same weights."""
    from transformer_lens.model_bridge import TransformerBridge

    assert model.cfg.attn_only
    assert model.cfg.normalization_type is None
    assert not model.cfg.biases
    names = "n_layers d_model n_ctx d_head n_heads d_vocab attn_only positional_embedding_type"
    cfg = {name: getattr(model.cfg, name) for name in names.split()}
    cfg |= {"normalization_type": None, "act_fn": "relu", "attn_scale": -1, "seed": 0}
    bridge = TransformerBridge.boot_native(cfg | {"architecture": "TransformerLensNative"})
    state = {"tok_embed.weight": model.W_E, "head.weight": model.W_U.T}
    if model.cfg.positional_embedding_type == "standard":
        state["pos.weight"] = model.W_pos
    for layer, block in enumerate(model.blocks):
        at = f"layers.{layer}.attn"
        for part in "qkv":
            W = getattr(block.attn, f"W_{part.upper()}")
            state[f"{at}.{part}.weight"] = W.transpose(1, 2).flatten(0, 1)
        state[f"{at}.o.weight"] = block.attn.W_O.flatten(0, 1).T
    theirs = {n.replace("._original_component", ""): p for n, p in bridge.named_parameters()}
    assert state.keys() <= theirs.keys()
    with torch.no_grad():
        for name, parameter in theirs.items():
            parameter.copy_(state[name]) if name in state else parameter.zero_()
    return bridge


def hf_model(architecture, config_class, auto="AutoModelForCausalLM", **options):
    import transformers

    config = getattr(transformers, config_class)(
        vocab_size=D_VOCAB, initializer_range=0.3, bos_token_id=0, eos_token_id=0, **options
    )
    config.architectures = [architecture]
    torch.manual_seed(0)
    return _scramble(getattr(transformers, auto).from_config(config)).eval()


def wrapped(architecture, config_class, *, compatible=False, **options):
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    inner = hf_model(architecture, config_class, **options)
    bridge = build_bridge_from_module(inner, architecture, hf_config=inner.config)
    if compatible:
        bridge.enable_compatibility_mode()
    return bridge


def _booted(architecture, config_class, **options):
    from transformer_lens.model_bridge import TransformerBridge

    with tempfile.TemporaryDirectory() as folder:
        hf_model(architecture, config_class, **options).save_pretrained(folder)
        return TransformerBridge.boot_transformers(folder, device="cpu")


_GPT2 = {"n_positions": N_CTX, "n_embd": 16, "n_layer": 2, "n_head": 4}
LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
LLAMA |= {"max_position_embeddings": N_CTX, "num_key_value_heads": 2}
_NEOX = {
    "hidden_size": 32,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_NEOX |= {"max_position_embeddings": N_CTX, "rotary_pct": 0.5}
_GEMMA = {
    "head_dim": 8,
    "query_pre_attn_scalar": 6,
    "attn_logit_softcapping": 1.5,
    "sliding_window": 4,
}
_GEMMA |= dict(LLAMA, pad_token_id=0)
_BLOOM = {"hidden_size": 16, "n_layer": 2, "n_head": 4, "seq_length": N_CTX}
_BERT = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": N_CTX,
    "attn_implementation": "eager",  # the other kinds of attention fire no hook_pattern
}

KINDS = {
    "own": functools.partial(own),
    "own-rotary": functools.partial(own, **ROTARY, attn_scores_soft_cap=2.0),
    "own-bare": functools.partial(
        own, attn_only=True, biases=False, normalization_type=None, attention_dir="bidirectional"
    ),
    "hooked": functools.partial(hooked, normalization_type="LN"),
    "hooked-rotary": functools.partial(hooked, **ROTARY, rotary_dim=4),
    "hooked-parallel": functools.partial(
        hooked,
        positional_embedding_type="rotary",
        rotary_dim=2,
        rotary_adjacent_pairs=True,
        parallel_attn_mlp=True,
        normalization_type="LNPre",
    ),
    "native": functools.partial(_native),
    "native-rotary": functools.partial(_native, **ROTARY, attn_scores_soft_cap=2.0),
    "gpt2": functools.partial(wrapped, "GPT2LMHeadModel", "GPT2Config", **_GPT2),
    "gpt2-folded": functools.partial(
        wrapped, "GPT2LMHeadModel", "GPT2Config", **_GPT2, compatible=True
    ),
    "gpt2-folder": functools.partial(_booted, "GPT2LMHeadModel", "GPT2Config", **_GPT2),
    "llama": functools.partial(wrapped, "LlamaForCausalLM", "LlamaConfig", **LLAMA),
    "mistral": functools.partial(
        wrapped, "MistralForCausalLM", "MistralConfig", **LLAMA, sliding_window=4
    ),
    "neox": functools.partial(wrapped, "GPTNeoXForCausalLM", "GPTNeoXConfig", **_NEOX),
    "alibi": functools.partial(
        hooked, positional_embedding_type="alibi", normalization_type="LN", post_embedding_ln=True
    ),
    "bloom": functools.partial(wrapped, "BloomForCausalLM", "BloomConfig", **_BLOOM),
    "bert": functools.partial(
        wrapped, "BertForMaskedLM", "BertConfig", auto="AutoModelForMaskedLM", **_BERT
    ),
    "gemma2": functools.partial(wrapped, "Gemma2ForCausalLM", "Gemma2Config", **_GEMMA),
}
#: models with something that no weights view can give
ODD = {
    "experts": functools.partial(
        hooked, num_experts=2, experts_per_token=1, normalization_type="LN"
    ),
    "qwen3": functools.partial(
        wrapped, "Qwen3ForCausalLM", "Qwen3Config", **LLAMA, head_dim=4, pad_token_id=0
    ),
    "shortformer": functools.partial(
        hooked, positional_embedding_type="shortformer", normalization_type="LN"
    ),
    "mla": functools.partial(
        wrapped,
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        **LLAMA,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=4,
        n_routed_experts=2,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=2,
        moe_intermediate_size=8,
    ),
}


#: hooks that a bridge puts on its own hook points (BERT's in 4.x), by model
OWN_HOOKS = {}


@functools.cache
def build(kind):
    """The model of a kind, made once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what TransformerLens says while building
        model = (KINDS | ODD)[kind]()
    OWN_HOOKS[id(model)] = hooks_on(model)
    return model


def hooks_on(model):
    """How many hooks there are on all hook points."""
    points = {id(point): point for point in model.hook_dict.values()}
    return sum(len(p.fwd_hooks) + len(p._forward_hooks) for p in points.values())
