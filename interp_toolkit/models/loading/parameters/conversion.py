"""Convert a state dict to TransformerLens's names, and report what it leaves undetermined.

`HookedTransformer`'s names are used unchanged. A `TransformerBridge`'s (`names`), GPT-2's and
similar ones (`layouts`) are recognized automatically; others need a mapping (`key_rules`). Unknown
names are listed in the error, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import listed
from interp_toolkit.models.about.record import Kind
from interp_toolkit.models.loading.parameters.infer import Need
from interp_toolkit.models.loading.parameters.key_rules import KeyFile
from interp_toolkit.models.loading.parameters.layouts import (
    as_named,
    could_be_turned,
    find_layout,
)
from interp_toolkit.models.loading.parameters.names import (
    bridge_to_hooked,
    is_bridge,
    is_hooked,
    mlp_is_square,
    provisional_heads,
    split_buffers,
    unwrap_names,
    with_zero_biases,
)

Keys = str | Path | Mapping[str, Any]
_HEADS = Need("how many attention heads it has", "4")
_PAIRS = Need(
    "which coordinates its rotary positions pair (true: neighbors, as in native bridges; false: "
    "halves, as in Llama)",
    "false",
)
_ATTENTION = re.compile(r"attn|attention|W_Q|W_K|q_proj|query|heads?\b", re.IGNORECASE)
#: names of adapter tensors in PEFT, and of the layers that they wrap
_ADAPTER = re.compile(
    r"(^|\.)(lora_\w+|base_layer|modules_to_save|ia3_l|oft_\w+|boft_\w+|hada_\w+|lokr_\w+|vera_\w+|"
    r"prompt_embeddings|prompt_encoder)(\.|$)"
)
_SHOWN = 3  # tensors listed in a message


@dataclass(frozen=True)
class Converted:
    """Tensors under TransformerLens' names.

    Attributes:
        kind: kind of their source.
        parameters: the weights, provisional while settings are needed.
        buffers: masks and rotary tables.
        phrases: assumptions, one phrase each.
        needed: settings without which the tensors cannot be split into heads.
    """

    kind: Kind
    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    phrases: tuple[str, ...] = ()
    needed: Mapping[str, Need] = field(default_factory=dict)


def convert(
    tensors: Mapping[str, Tensor],
    keys: str | KeyFile | None,
    settings: Mapping[str, Any],
    source: str,
) -> Converted:
    """The tensors under TransformerLens' names.

    Args:
        tensors: the tensors as saved.
        keys: a layout's name or a mapping (`layouts.read_keys`); None: detect the layout.
        settings: the user's settings; `n_heads` and `d_head` may be needed.
        source: name of the file, for messages.

    Raises:
        InputError: they are not a transformer's, or do not fit the layout.
    """
    if isinstance(keys, KeyFile):
        return _mapped(tensors, {}, keys, settings, source)
    adapters = [name for name in tensors if _ADAPTER.search(name)]
    if adapters:
        raise InputError(
            f"{source} has {len(adapters)} tensors of an adapter ({adapters[0]}): merge it first, "
            "model.merge_and_unload().save_pretrained(FOLDER), or give PEFT's own folder with its "
            "adapter_config.json"
        )
    parameters, buffers = split_buffers(unwrap_names(tensors, source))
    keys = keys or find_layout(parameters)
    if keys is not None:
        return _mapped(parameters, buffers, keys, settings, source)
    if is_bridge(parameters):
        return _from_bridge(parameters, buffers, settings, source)
    if is_hooked(parameters):
        turned = could_be_turned(parameters)
        phrases = ("square matrices multiplied from the right",) if turned else ()
        return Converted("state_dict", parameters, buffers, phrases)
    raise InputError(_not_ours(parameters, source))


def with_output(parameters: Mapping[str, Tensor], settings: Mapping[str, Any]) -> dict[str, Tensor]:
    """Add the identity as unembedding if it is missing and `tied_embeddings` is False."""
    W_E = parameters.get("embed.W_E")
    if settings.get("tied_embeddings") is not False or "unembed.W_U" in parameters or W_E is None:
        return dict(parameters)
    identity = torch.eye(W_E.shape[-1], dtype=W_E.dtype, device=W_E.device)
    return with_zero_biases({**parameters, "unembed.W_U": identity})


def _mapped(
    tensors: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    keys: str | KeyFile,
    settings: Mapping[str, Any],
    source: str,
) -> Converted:
    named = as_named(tensors, keys, settings, source)
    parameters, more = split_buffers(named.tensors)
    phrases = named.phrases
    if isinstance(keys, str):
        phrases = (f"{keys}'s names", *phrases)
    needed = {"n_heads": _HEADS} if named.unknown else {}
    return Converted("state_dict", parameters, {**buffers, **more}, phrases, needed)


def _from_bridge(
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    source: str,
) -> Converted:
    needed = {} if "n_heads" in settings else {"n_heads": _HEADS}
    if (
        settings.get("positional_embedding_type") == "rotary"
        and "rotary_adjacent_pairs" not in settings
    ):
        needed["rotary_adjacent_pairs"] = _PAIRS
    phrases: tuple[str, ...] = ()
    if not settings.get("architecture"):
        phrases += ("norms, embeddings and positions without offsets or factors",)
    if mlp_is_square(parameters):
        phrases += ("square MLP matrices stored output-first, as nn.Linear does",)
    n_heads = int(settings.get("n_heads") or provisional_heads(parameters))
    hooked = bridge_to_hooked(parameters, n_heads, source)
    return Converted("bridge_state_dict", hooked, buffers, phrases, needed)


def _not_ours(tensors: Mapping[str, Tensor], source: str) -> str:
    shapes = [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items()]
    shown = listed(shapes, _SHOWN)
    if any(n.startswith(("transformer.", "model.", "gpt_neox.", "lm_head")) for n in tensors):
        return (
            f"{source} looks like a Hugging Face model's weights ({shown}): "
            "give the folder with its config.json instead"
        )
    if any(_ATTENTION.search(name) for name in tensors):
        return (
            f"{source} has a transformer's tensors under unknown names: {shown}; write a mapping "
            "with interp info FILE --keys-template keys.json"
        )
    return (
        f"{source}: no tensors of a transformer found: {shown} (tensors under other names need a "
        "mapping: interp info FILE --keys-template keys.json)"
    )
