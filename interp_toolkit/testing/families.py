"""Tiny random models of the families that transformers and TransformerLens both know.

Each is made from its configuration, without a download: two layers of 32 dimensions, 4 query heads
and 2 key heads where the family has groups, gains of norms unlike 1. Add a family by one line.

    from interp_toolkit.testing.families import FAMILIES, tiny
    model = tiny("Qwen3")       # transformers' own
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

SIZES: Mapping[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2: Mapping[str, Any] = {
    "vocab_size": 50,
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: Mapping[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2}
_LATENT: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
}
_LINEAR: Mapping[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}

_MAMBA: Mapping[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}

#: family, as in transformers' class names without `ForCausalLM` -> sizes unlike SIZES; None removes
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "GPT2": _GPT2,
    "GPTNeo": {
        "num_key_value_heads": None,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 8,
    },
    "GPTNeoX": {"num_key_value_heads": None, "rotary_pct": 0.25},
    "GPTJ": {**_GPT2, "rotary_dim": 4},
    "GPTBigCode": _GPT2,
    "CodeGen": {**_GPT2, "rotary_dim": 4},
    "OPT": {"num_key_value_heads": None, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "XGLM": {
        "num_key_value_heads": None,
        "d_model": 32,
        "ffn_dim": 48,
        "num_layers": 2,
        "attention_heads": 4,
    },
    "Bloom": {"num_key_value_heads": None, "n_layer": 2, "n_head": 4},
    "Mpt": {
        "num_key_value_heads": None,
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 64,
        "expansion_ratio": 2,
    },
    "Falcon": {"num_key_value_heads": None, "num_kv_heads": 1, "multi_query": True},
    "Llama": {},
    "Mistral": {"sliding_window": 8, "head_dim": 8},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen2": {},
    "Qwen2Moe": {**_EXPERTS, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "Qwen3": {"head_dim": 8},
    "Qwen3Moe": {**_EXPERTS, "head_dim": 8, "moe_intermediate_size": 16},
    "Qwen3Next": {
        **_EXPERTS,
        **_LINEAR,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "Gemma": {"head_dim": 8},
    "Gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8},
    "Gemma3": {
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "num_hidden_layers": 6,
        "sliding_window": 8,
    },
    "Phi": {"num_key_value_heads": 4, "partial_rotary_factor": 0.5},
    "Phi3": {},
    "StableLm": {},
    "Olmo": {},
    "Olmo2": {},
    "Olmo3": {"num_hidden_layers": 4, "sliding_window": 8},
    "Olmoe": _EXPERTS,
    "Cohere": {"logit_scale": 0.25},
    "Granite": {
        "logits_scaling": 4.0,
        "residual_multiplier": 0.22,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.1,
    },
    "GraniteMoe": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "residual_multiplier": 0.22,
    },
    "SmolLM3": {"num_hidden_layers": 4},
    "GptOss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "head_dim": 8,
    },
    "DeepseekV2": {**_LATENT, "topk_method": "greedy"},
    "DeepseekV3": _LATENT,
    "Glm": {"head_dim": 8},
    "Glm4": {"head_dim": 8},
    "Exaone4": {"num_hidden_layers": 4, "sliding_window": 8},
    "Nemotron": {},
    "Starcoder2": {},
    "SeedOss": {"head_dim": 8},
    "Arcee": {},
    "Ernie4_5": {},
    "HunYuanDenseV1": {"head_dim": 8},
    "Apertus": {},
    "Llama4": {
        "head_dim": 8,
        "num_local_experts": 2,
        "intermediate_size_mlp": 48,
        "num_hidden_layers": 4,
        "attention_chunk_size": 8,
    },
    "Lfm2": {"block_ff_dim": 48, "layer_types": ["conv", "full_attention"]},
    "Mamba": {"state_size": 8, "num_attention_heads": None, "num_key_value_heads": None},
    "Afmoe": {
        **_EXPERTS,
        "head_dim": 8,
        "moe_intermediate_size": 16,
        "num_dense_layers": 1,
        "sliding_window": 8,
        "num_hidden_layers": 4,
    },
    "BitNet": {},
    "Cohere2": {"head_dim": 8, "sliding_window": 8, "num_hidden_layers": 4, "logit_scale": 0.25},
    "FalconH1": {
        **_MAMBA,
        "head_dim": 8,
        "mamba_d_ssm": 64,
        "attention_out_multiplier": 0.7,
        "key_multiplier": 0.5,
        "lm_head_multiplier": 0.3,
        "embedding_multiplier": 2.0,
    },
    "Glm4Moe": {
        "head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "use_qk_norm": True,
    },
    "GlmMoeDsa": {**_LATENT, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 64},
    "Jamba": {
        **_EXPERTS,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "Laguna": {
        **_EXPERTS,
        "head_dim": 8,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "MiniMaxM2": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "head_dim": 8,
        "rotary_dim": 4,
    },
    "NanoChat": {"head_dim": 8},
    "NemotronH": {
        "head_dim": 8,
        "hybrid_override_pattern": "M*-",
        "num_hidden_layers": 3,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "OlmoHybrid": {
        **_LINEAR,
        "layer_types": [*["linear_attention"] * 3, "full_attention"],
    },
    "Qwen3_5": _LINEAR,
    "Bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "Ernie4_5_Moe": {
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_intermediate_size": 16,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
    },
    "FlexOlmo": _EXPERTS,
    "Glm4MoeLite": _LATENT,
    "Jais2": {},
    "JetMoe": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "kv_channels": 8,
        "num_key_value_heads": 4,
    },
    "Lfm2Moe": {
        **_EXPERTS,
        "moe_intermediate_size": 16,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention"],
    },
    "Mamba2": {
        "num_attention_heads": None,
        "num_key_value_heads": None,
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "Ministral3": {"head_dim": 8},
    "ModernBertDecoder": {
        "num_key_value_heads": None,
        "local_attention": 8,
        "num_hidden_layers": 4,
    },
    "Qwen3_5Moe": {
        **_EXPERTS,
        **_LINEAR,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "RecurrentGemma": {
        "num_key_value_heads": 1,
        "head_dim": 8,
        "num_hidden_layers": 3,
        "lru_width": 32,
        "attention_window_size": 8,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "VaultGemma": {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8},
    "Youtu": _LATENT,
    "Gemma4": {
        "vocab_size_per_layer_input": 50,
        "hidden_size_per_layer_input": 8,
        "head_dim": 8,
        "global_head_dim": 8,
        "sliding_window": 8,
        "num_hidden_layers": 6,
    },
    "Zamba2": {
        "num_hidden_layers": 4,
        "mamba_d_state": 8,
        "n_mamba_heads": 8,
        "mamba_ngroups": 1,
        "chunk_size": 8,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_mem_blocks": 1,
        "num_key_value_heads": 4,
        "attention_head_dim": 16,
        "hybrid_layer_ids": None,
    },
}
_CONFIGS: Mapping[str, str] = {
    "Gemma3": "Gemma3TextConfig",
    "Gemma4": "Gemma4TextConfig",
    "Llama4": "Llama4TextConfig",
    "Qwen3_5": "Qwen3_5TextConfig",
    "Qwen3_5Moe": "Qwen3_5MoeTextConfig",
}
_MODELS: Mapping[str, str] = {"GPT2": "GPT2LMHeadModel"}


def tiny(family: str, seed: int = 0) -> Any:
    """A random model of a family, transformers' own, in evaluation mode.

    Raises AttributeError for a family that the installed transformers does not have.
    """
    import transformers

    own = FAMILIES[family]
    sizes = own if "n_embd" in own else {k: v for k, v in {**SIZES, **own}.items() if v is not None}
    config = getattr(transformers, _CONFIGS.get(family, f"{family}Config"))(**sizes)
    model = getattr(transformers, _MODELS.get(family, f"{family}ForCausalLM"))(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            noise = parameter + 0.2 * noise if parameter.ndim == 1 else 0.3 * noise
            parameter.copy_(noise.to(parameter))
    return model.eval()


def loaded(family: str, seed: int = 0) -> tuple[Any, Any]:
    """A tiny model of a family, and what `interp_toolkit.load` makes of its folder."""
    import interp_toolkit

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    original = tiny(family, seed)
    with tempfile.TemporaryDirectory() as folder:
        original.save_pretrained(folder)
        return original, interp_toolkit.load(folder)
