"""A third-party `cfg` dictionary saved beside a state dict, in `HookedTransformerConfig`'s fields.

Fields that the toolkit's transformer shares are copied. Fields about where and how a model was
made are ignored. Fields that change the computation are refused by name unless they are switched
off. Fields that TransformerLens does not know (a learning rate) are ignored and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.config import TransformerConfig

#: fields that change the computation and are not supported here, with their "off" values
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "parallel_attn_mlp": (False,),
    "use_qk_norm": (False,),
    "clip_qkv": (None,),
    "use_logn_attn": (False,),
    "use_dynamic_ntk_rope": (False,),
    "use_local_attn": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "post_embedding_ln": (False,),
    "rotary_base_local": (None,),
    "rotary_scaling_factor": (None, 1),
    "rope_scaling": (None,),
    "load_in_4bit": (False,),
    "num_experts": (None,),
    "experts_per_token": (None,),
    "relative_attention_max_distance": (None,),
    "relative_attention_num_buckets": (None,),
    "use_normalization_before_and_after": (False,),
    "use_NTK_by_parts_rope": (False,),
    "use_yarn_rope": (False,),
    "use_attention_sinks": (False,),
    "rmsnorm_uses_offset": (False,),
    "scale_embedding": (None, False),
    "qk_norm_after_rope": (False,),
    "rotary_interleaved_cos_sin": (False,),
    "per_layer_head_dim": (None,),
    "per_layer_num_key_value_heads": (None,),
    "is_stateful": (False,),
    "is_multimodal": (False,),
    "is_audio_model": (False,),
    "is_visual_model": (False,),
}
#: architectures whose blocks have another order or further norms
_UNSUPPORTED_ARCHITECTURES = ("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM")
#: architectures whose bridges are fully described by the shared fields
_BRIDGES = (
    "TransformerLensNative",
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
)
#: fields about where, how and from what a model was made, and options of switched-off parts
#: other names of the shared fields
_OTHER_NAMES = {"n_head": "n_heads", "num_heads": "n_heads", "act_type": "act_fn"}
_IGNORED = re.compile(
    r"device|n_devices|dtype|seed|init_mode|init_weights|n_params|.*_architecture|architecture|"
    r"use_hook_\w+|use_attn_in|use_split_qkv_input|ungroup_grouped_query_attention|"
    r"from_checkpoint|checkpoint_\w+|tokenizer_prepends_bos|tokenizer_appends_eos|"
    r"default_padding_side|trust_remote_code|quantization_method|decoder_start_token_id|"
    r"tie_word_embeddings|norm_topk_prob|layer_norm_folding|uses_rms_norm|train_seq_length|"
    r"window_size|attn_types|NTK_\w+|yarn_\w+|rope_parameters|attn_implementation|vision_\w+|"
    r"mm_tokens_per_image"
)


def read_foreign_config(
    cfg: Mapping[str, Any], source: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields that this package shares, and the names of unknown ones.

    Raises InputError if a field requires a feature that the toolkit's transformer lacks.
    """
    cfg = {_own_name(name, cfg): value for name, value in cfg.items()}
    if isinstance(cfg.get("act_fn"), str):
        cfg["act_fn"] = cfg["act_fn"].lower()  # "ReLU"
    for name, off in _UNSUPPORTED.items():
        if name in cfg and cfg[name] not in off:
            raise InputError(
                f"{source} is a model with {name}={cfg[name]}, "
                "which the toolkit's transformer does not have"
            )
    rope = cfg.get("rope_parameters")
    if isinstance(rope, Mapping) and rope.get("rope_type", "default") != "default":
        raise InputError(
            f"{source} is a model with {rope['rope_type']} rotary scaling, unsupported"
        )
    for name in ("original_architecture", "architecture"):
        if cfg.get(name) in _UNSUPPORTED_ARCHITECTURES:
            raise InputError(
                f"{source} is a {cfg[name]}, whose norms come after its layers, which is "
                "unsupported"
            )
    shared = {
        name: value.item() if hasattr(value, "item") else value
        for name, value in cfg.items()
        if name in TransformerConfig.model_fields and not _IGNORED.fullmatch(name)
    }
    field_names = TransformerConfig.model_fields.keys() | _UNSUPPORTED.keys()
    foreign = sorted(n for n in map(str, cfg) if n not in field_names and not _IGNORED.fullmatch(n))
    return _as_computed(cfg, shared, source), tuple(foreign)


def _own_name(name: Any, cfg: Mapping[str, Any]) -> Any:
    own = _OTHER_NAMES.get(name, name)
    return name if own in cfg else own


def _as_computed(cfg: Mapping[str, Any], shared: dict[str, Any], source: str) -> dict[str, Any]:
    """The fields as the model class interprets them, without sentinel values."""
    fields = {
        name: value
        for name, value in shared.items()
        if not (
            name in ("d_vocab", "d_vocab_out", "attn_scale", "initializer_range") and value == -1
        )
    }
    architecture = cfg.get("architecture")
    if architecture is None:
        return fields
    if architecture not in _BRIDGES:
        raise InputError(
            f"{source} is a bridge to {architecture}, which is not read from a state dict: "
            "load the model from its Hugging Face folder instead"
        )
    if architecture == "TransformerLensNative":  # always pairs neighbors and scales scores
        fields |= {"rotary_adjacent_pairs": True, "use_attn_scale": True}
    return fields
