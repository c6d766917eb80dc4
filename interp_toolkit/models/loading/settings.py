"""Configuration fields set by the user: `load(path, act_fn="relu")`, `--set n_heads=4`.

Values may be strings, as on the command line, and are parsed by the field's type. `common_name`
knows the names that configurations of other code have for these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.models.transformer.config import TransformerConfig

#: for each field, the names that training scripts and libraries have for it, in lower case
_COMMON = {
    "n_layers": "n_layer num_layers num_hidden_layers depth layers nlayers n_blocks num_blocks "
    "decoder_layers",
    "n_heads": "n_head num_heads heads nhead nheads num_attention_heads attention_heads "
    "decoder_attention_heads encoder_attention_heads",
    "n_key_value_heads": "n_kv_heads n_kv_head num_key_value_heads num_kv_heads kv_heads",
    "d_model": "dim n_embd n_embed hidden_size embed_dim emb_dim embedding_dim d_embed d_emb "
    "model_dim width decoder_embed_dim",
    "d_head": "dim_head head_dim head_size attn_dim_head",
    "d_mlp": "d_ff dim_ff ffn_dim mlp_dim intermediate_size n_inner dim_feedforward "
    "decoder_ffn_embed_dim",
    "n_ctx": "ctx ctx_len block_size max_seq_len seq_len context_length max_position_embeddings "
    "n_positions sequence_length max_length max_len max_target_positions",
    "d_vocab": "vocab_size vocab n_vocab num_tokens n_tokens",
    "act_fn": "act_type act activation activation_fn activation_function hidden_act nonlinearity",
    "normalization_type": "norm norm_type normalization",
    "eps": "norm_eps layer_norm_eps rms_norm_eps layer_norm_epsilon ln_eps",
    "rotary_base": "rope_theta rope_base rotary_emb_base",
    "tied_embeddings": "tie_weights weight_tying tie_embeddings",
    "positional_embedding_type": "pos_emb pos_emb_type position_embedding_type pos_encoding "
    "positional_encoding",
    "parallel_attn_mlp": "use_parallel_residual parallel_residual",
    "use_qk_norm": "qk_norm",
    "attention_dir": "attention_direction",
}
_FIELDS_BY_NAME = {name: own for own, names in _COMMON.items() for name in names.split()}


def common_name(name: str) -> str | None:
    """The configuration field that other code calls so; None if there is none.

    Examples:
        >>> common_name("num_attention_heads")
        'n_heads'
    """
    return _FIELDS_BY_NAME.get(name.lower())


def parse_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with their values in the types of `TransformerConfig`'s fields.

    `"none"` means None for a field that can be None; numbers and booleans may be strings.
    Raises InputError for an unknown field, or a value of the wrong type.
    """
    return {name: _parse(name, value) for name, value in settings.items()}


def _parse(name: str, value: Any) -> Any:
    fields = {n: f for n, f in TransformerConfig.model_fields.items() if n != "dtype"}
    if name not in fields:
        own = common_name(name)
        near = f"; did you mean {own}?" if own in fields else suggestion(name, fields)
        raise InputError(f"no setting is called {name!r}{near}")
    annotation: Any = fields[name].annotation
    optional = type(None) in get_args(annotation)
    if optional and isinstance(value, str) and value.lower() in ("none", "null"):
        return None
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{name}={value} cannot be used: {_reason(error)}") from error


def build_config(fields: Mapping[str, Any], source: str) -> TransformerConfig:
    """A `TransformerConfig`; InputError that names the source if the fields are invalid."""
    try:
        return TransformerConfig(**{str(name): value for name, value in fields.items()})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        reason = f"{where}: {_reason(error)}" if where else _reason(error)
        raise InputError(f"{source} has a configuration that cannot be used: {reason}") from error


def _reason(error: ValidationError) -> str:
    message: str = error.errors()[0]["msg"]
    return message.removeprefix("Value error, ").replace("Input should be", "it must be")
