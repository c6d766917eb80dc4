"""A checkpoint file becomes a `Transformer`: read, told by its names, configured, filled.

The file is read without running anything in it (`files`). Its configuration is its own
(`checkpoint`), a dictionary's beside the weights (`foreign_config`), or what names and shapes show
(`names`, `infer`), with what the user gives for the rest. The weights then have to fit exactly
(`strict`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import Kind, ModelRecord, set_record
from interp_toolkit.models.loading.checkpoint import read_own
from interp_toolkit.models.loading.files import read_file, sha256
from interp_toolkit.models.loading.foreign_config import read_foreign_config
from interp_toolkit.models.loading.infer import InferredConfig, read_state_dict, settle
from interp_toolkit.models.loading.names import (
    bridge_to_hooked,
    is_bridge,
    is_hooked,
    mlp_is_square,
    split_buffers,
    unwrap_names,
)
from interp_toolkit.models.loading.settings import build_config, parse_settings
from interp_toolkit.models.loading.strict import build_transformer, check_finite
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

_CONFIG_KEYS = ("cfg", "config", "model_cfg", "model_config")
_STATE_KEYS = ("state_dict", "model_state_dict", "model")


def load_file(
    path: Path, device: torch.device, dtype: torch.dtype | None, settings: Mapping[str, Any]
) -> Transformer:
    """The model in a checkpoint file, its record set.

    Raises InputError when the file cannot be read or does not fit together, its weights are not
    finite, or a setting is unknown, missing, without effect, or contradicts the file.
    """
    found = _read(path, parse_settings(settings))
    check_finite(found.tensors.items(), found.source)
    config = found.config if dtype is None else found.config.model_copy(update={"dtype": dtype})
    model = build_transformer(config, found.tensors, device, found.source)
    record = ModelRecord(
        name=path.name,
        kind=found.kind,
        path=str(path.resolve()),
        sha256=sha256(path),
        assumptions=found.assumptions,
        config=config.model_dump(mode="json"),
        task=found.task,
        training=found.training,
    )
    set_record(model, record)
    return model


@dataclass(frozen=True)
class _Found:
    """A file's weights under our names, their configuration, and what is known beside it."""

    source: str
    kind: Kind
    tensors: Mapping[str, Tensor]
    config: TransformerConfig
    assumptions: tuple[str, ...] = ()
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None


def _read(path: Path, given: Mapping[str, Any]) -> _Found:
    source = str(path)
    contents = read_file(path)
    own = read_own(contents.data, contents.metadata, source)
    if own is not None:
        return _own(own, given, source)
    cfg, tensors = _weights(contents.data, source)
    return _foreign(cfg, tensors, given, source)


def _own(own: Mapping[str, Any], given: Mapping[str, Any], source: str) -> _Found:
    config = build_config(own["config"], source)
    reading = InferredConfig(known=dict(config), assumptions=())
    settle(reading, given, source)  # whatever is given must agree
    return _Found(
        source,
        "checkpoint",
        _tensors_only(own["state_dict"], source),
        config,
        task=own.get("task"),
        training=own.get("training"),
    )


def _foreign(
    cfg: Mapping[str, Any] | None,
    tensors: Mapping[str, Tensor],
    given: Mapping[str, Any],
    source: str,
) -> _Found:
    """Weights that others saved, with the configuration beside them or the one they show."""
    said, ignored = ({}, ()) if cfg is None else read_foreign_config(cfg, source)
    for name in said.keys() & given.keys():
        if said[name] != given[name]:
            raise InputError(f"{name}={given[name]} contradicts {source}, which says {said[name]}")
    settings, given = given, {**said, **given}
    parameters, buffers = split_buffers(unwrap_names(tensors))
    kind: Kind = "state_dict"
    extra: tuple[str, ...] = tuple(f"configuration field {name} ignored" for name in ignored)
    if is_bridge(parameters):
        kind = "bridge_state_dict"
        if not cfg or not cfg.get("architecture"):
            extra += ("norms, embeddings and positions without offsets or factors",)
        if mlp_is_square(parameters):
            extra += ("square MLP matrices stored output-first, as nn.Linear does",)
        parameters = bridge_to_hooked(parameters, _bridge_heads(given, source), source)
    elif not is_hooked(parameters):
        raise InputError(_not_ours(parameters, source))
    reading = read_state_dict(parameters, buffers, source)
    if kind == "bridge_state_dict":
        _require_pairing(given, source)
    settled = settle(reading, given, source, answered=frozenset(cfg or ()))
    _refuse_without_effect(settings, settled.config, source)
    return _Found(source, kind, parameters, settled.config, (*settled.assumptions, *extra))


def _bridge_heads(given: Mapping[str, Any], source: str) -> int:
    if "n_heads" not in given:
        raise InputError(
            f"{source} is a bridge's state dict, from which the number of heads cannot be read: "
            "give n_heads (on the command line: --set n_heads=12)"
        )
    return int(given["n_heads"])


def _require_pairing(given: Mapping[str, Any], source: str) -> None:
    rotary = given.get("positional_embedding_type") == "rotary"
    if rotary and "rotary_adjacent_pairs" not in given:
        raise InputError(
            f"{source} is a bridge's state dict, from which the rotary pairing cannot be read: "
            "give rotary_adjacent_pairs=true (a native bridge) or =false (Llama and its like)"
        )


def _refuse_without_effect(
    settings: Mapping[str, Any], config: TransformerConfig, source: str
) -> None:
    """A setting that does nothing is a misunderstanding better cleared up."""
    idle = {
        "act_fn": config.attn_only,
        "d_mlp": config.attn_only,
        "eps": config.normalization_type is None,
        "final_rms": config.normalization_type is None,
        "attn_scale": not config.use_attn_scale or config.mixing is not None,
        "rotary_dim": config.positional_embedding_type != "rotary",
        "rotary_base": config.positional_embedding_type != "rotary",
        "rotary_adjacent_pairs": config.positional_embedding_type != "rotary",
    }
    for name, has_no_effect in idle.items():
        if name in settings and has_no_effect:
            raise InputError(
                f"{name}={settings[name]} would have no effect on the model in {source}"
            )


def _weights(data: Any, source: str) -> tuple[Mapping[str, Any] | None, Mapping[str, Tensor]]:
    """(configuration or None, tensors) of what someone saved."""
    if not isinstance(data, Mapping):
        raise InputError(f"{source} holds a {type(data).__name__}, not a state dict")
    state = next((data[key] for key in _STATE_KEYS if isinstance(data.get(key), Mapping)), None)
    if state is None:
        return None, _tensors_only(data, source)
    cfg = next((data[key] for key in _CONFIG_KEYS if isinstance(data.get(key), Mapping)), None)
    return cfg, _tensors_only(state, source)


def _tensors_only(state: Mapping[Any, Any], source: str) -> dict[str, Tensor]:
    wrong = [key for key, value in state.items() if not isinstance(value, Tensor)]
    if wrong or not state:
        what = f"{wrong[0]!r} is no tensor" if wrong else "it is empty"
        raise InputError(f"{source} holds no state dict: {what}")
    for name, tensor in state.items():
        kind = _unusable(tensor)
        if kind:
            raise InputError(f"{source}: {name} is {kind}: weights must be plain real numbers")
    return {str(name): tensor for name, tensor in state.items()}


def _unusable(tensor: Tensor) -> str | None:
    """What keeps a tensor from being weights as they are, if anything does."""
    if tensor.is_complex():
        return "complex"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_meta:
        return "without values (on the meta device)"
    return None if tensor.layout == torch.strided else "sparse"


def _not_ours(names: Mapping[str, Tensor], source: str) -> str:
    first = next(iter(names))
    if any(n.startswith(("transformer.", "model.", "gpt_neox.", "lm_head")) for n in names):
        return (
            f"{source} looks like a Hugging Face model's weights ({first}): "
            "give the folder with its config.json instead"
        )
    return f"{source} is no TransformerLens state dict: its first tensor is {first}"
