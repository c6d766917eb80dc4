"""A third-party `cfg` dictionary saved beside a state dict, in `HookedTransformerConfig`'s fields.

Fields that the toolkit's transformer shares are copied, also under the common names that other code
has for them (`settings.common_name`); values of such names that the weights contradict are left
aside (`from_file`), since other code may mean something else by them. Fields about where and how a
model was made are ignored. Fields that change the computation are refused by name unless they are
switched off. Fields that TransformerLens does not know (a learning rate) are ignored and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.settings import common_name
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
#: values of activations and norms in other code
_ACTIVATIONS = {
    "swish": "silu",
    "swiglu": "silu",
    "geglu": "gelu",
    "reglu": "relu",
    "newgelu": "gelu_new",
    "gelu_tanh": "gelu_new",
    "gelu(approximate='tanh')": "gelu_new",
    "gelu(approximate='none')": "gelu",
}
_NORMS: dict[str, str | None] = {
    "rms": "RMS",
    "rmsnorm": "RMS",
    "layernorm": "LN",
    "ln": "LN",
    "none": None,
}
_POSITIONS: dict[str, str | None] = {
    "learned": "standard",
    "absolute": "standard",
    "rope": "rotary",
    "rotary": "rotary",
    "none": "none",
}
#: switches of other code: the field that each sets, and its values for true and false
_SWITCHES = {
    "causal": ("attention_dir", "causal", "bidirectional"),
    "is_causal": ("attention_dir", "causal", "bidirectional"),
    "bidirectional": ("attention_dir", "bidirectional", "causal"),
    "use_rope": ("positional_embedding_type", "rotary", None),
    "rope": ("positional_embedding_type", "rotary", None),
    "use_rotary": ("positional_embedding_type", "rotary", None),
    "rotary_pos_emb": ("positional_embedding_type", "rotary", None),
}
#: switches whose false means norms after the layers, which is unsupported
_NORM_FIRST = ("norm_first", "pre_norm", "normalize_before", "decoder_normalize_before")
_ROTARY_FRACTIONS = ("rotary_pct", "partial_rotary_factor")
_IGNORED = re.compile(
    r"device|n_devices|dtype|seed|init_mode|init_weights|n_params|.*_architecture|architecture|"
    r"use_hook_\w+|use_attn_in|use_split_qkv_input|ungroup_grouped_query_attention|"
    r"from_checkpoint|checkpoint_\w+|tokenizer_prepends_bos|tokenizer_appends_eos|"
    r"default_padding_side|trust_remote_code|quantization_method|decoder_start_token_id|"
    r"tie_word_embeddings|norm_topk_prob|layer_norm_folding|uses_rms_norm|train_seq_length|"
    r"window_size|attn_types|NTK_\w+|yarn_\w+|rope_parameters|attn_implementation|vision_\w+|"
    r"mm_tokens_per_image"
)


@dataclass(frozen=True)
class ForeignConfig:
    """A third-party configuration in this package's fields.

    Attributes:
        fields: the fields that this package shares.
        names: for each field under another name, the name that the file has for it.
        ignored: names of unknown fields.
    """

    fields: Mapping[str, Any]
    names: Mapping[str, str]
    ignored: tuple[str, ...]


def read_foreign_config(cfg: Mapping[str, Any], source: str) -> ForeignConfig:
    """The fields that this package shares, and the names of unknown ones.

    Raises InputError if a field requires a feature that the toolkit's transformer lacks.
    """
    cfg, names = _with_own_names(cfg, source)
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
    return ForeignConfig(_as_computed(cfg, shared, source), names, tuple(foreign))


def _with_own_names(cfg: Mapping[str, Any], source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration under our names, and for each renamed field its name in the file."""
    renamed: dict[str, Any] = dict(cfg)
    names: dict[str, str] = {}
    for name, value in cfg.items():
        low = str(name).lower()
        if low in _NORM_FIRST and value is False:
            raise InputError(
                f"{source} is a model with {name}=False (norms after the layers), which the "
                "toolkit's transformer does not have"
            )
        own, new = common_name(low), value
        if low in _SWITCHES and isinstance(value, bool):
            own, *values = _SWITCHES[low]
            new = values[0] if value else values[1]
            own = own if new is not None else None
        elif low in _ROTARY_FRACTIONS:
            own, new = "rotary_dim", _rotary_dim(value, renamed)
        if own is None or own in cfg or not _has_type(own, new):
            continue
        if own not in names:
            names[own] = str(name)
            renamed[own] = new
        renamed.pop(name)
    for own, spelled in (("normalization_type", _NORMS), ("positional_embedding_type", _POSITIONS)):
        text = str(renamed.get(own)).lower()
        if own in names and text in spelled:
            renamed[own] = spelled[text]
        elif own in names:  # of no value that is understood here: reported as ignored
            renamed[names.pop(own)] = renamed.pop(own)
    if isinstance(renamed.get("act_fn"), str):
        act_fn = re.sub(r"^(torch\.)?(nn|F)(\.\w+)*\.(?=\w)|\(\)$", "", renamed["act_fn"]).lower()
        renamed["act_fn"] = _ACTIVATIONS.get(act_fn, act_fn)  # "ReLU"
    return renamed, names


def _has_type(own: str, value: Any) -> bool:
    """Whether a value of a common name can be meant for the field."""
    if own in ("act_fn", "normalization_type", "positional_embedding_type", "attention_dir"):
        return isinstance(value, str)
    if own in ("eps", "rotary_base"):
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if own in ("tied_embeddings", "parallel_attn_mlp", "use_qk_norm"):
        return isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _rotary_dim(fraction: Any, cfg: Mapping[str, Any]) -> int | None:
    sizes = {common_name(str(name)) or name: size for name, size in cfg.items()}
    try:
        d_head = sizes.get("d_head") or sizes["d_model"] // sizes["n_heads"]
        return int(fraction * d_head)
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError):
        return None


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
