"""A fresh copy of a model: a new object of the same class and configuration, weights put back.

What a fresh copy does as well is the class's doing; what only the live model does is its own. The
copy's tensors are NaN before the state dict is loaded, so that a tensor that loading leaves unset
shows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.models.loading.quietly import quiet
from interp_toolkit.models.model import Model
from interp_toolkit.models.running import hooks
from interp_toolkit.models.transformer.transformer import Transformer


@dataclass
class Fresh:
    """A fresh copy.

    Attributes:
        model: the copy.
        unset: tensors that loading left unset.
        unused: names in the state dict that the copy has no use for.
        absent: names that the copy asks for and the state dict lacks.
    """

    model: Any
    unset: tuple[str, ...]
    unused: tuple[str, ...]
    absent: tuple[str, ...]


def fresh_copy(model: Model) -> Fresh:
    """The copy; raises whatever the class raises where it cannot be made again."""
    with quiet():
        new = again(model)
        like = next(iter(model.parameters()))
        move(new, like.device)
        move(new, like.dtype)
        new.eval()
        for gate in set(hooks.GATES.values()):
            if getattr(model.cfg, gate, False) and hasattr(new, f"set_{gate}"):
                getattr(new, f"set_{gate}")(True)
        poison(new)
        weights = {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in model.state_dict().items()
        }
        names = set(new.state_dict())
        new.load_state_dict(weights, strict=False)
    return Fresh(
        new,
        unset=tuple(unset(new)),
        unused=tuple(sorted(set(weights) - names)),
        absent=tuple(sorted(names - set(weights))),
    )


def again(model: Any) -> Any:
    """A new object of this class and configuration, its weights of no account."""
    if isinstance(model, Transformer):
        return type(model)(model.cfg, init_weights=False)
    original = getattr(model, "original_model", None)
    if original is not None:
        return _bridge_again(model, original)
    cfg = copy.deepcopy(model.cfg)
    if type(model).__name__ == "HookedTransformer":
        cfg.tokenizer_name = None  # or the constructor asks a hub for it
    return type(model)(cfg)


def _bridge_again(model: Any, original: Any) -> Any:
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    config = getattr(original, "config", None)
    if config is None:
        return TransformerBridge.boot_native(copy.deepcopy(model.cfg))
    name = type(original).__name__
    bridge = build_bridge_from_module(
        type(original)(copy.deepcopy(config)), name, hf_config=copy.deepcopy(config)
    )
    if getattr(model, "compatibility_mode", False):
        bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge


def move(model: Any, target: torch.device | torch.dtype) -> None:
    """Put a copy on a device, or into a dtype.

    Not by a bridge's own `to`, whose time grows with the square of the number of parameters.
    """
    if not hasattr(model, "original_model"):
        model.to(target)
        return
    torch.nn.Module.to(model, target)
    if isinstance(target, torch.dtype):
        model.cfg.dtype = target
    else:
        model.cfg.device = str(target)


def poison(model: Any) -> None:
    """NaN in every parameter, and in every buffer that the state dict holds."""
    saved = {tensor.data_ptr() for tensor in model.state_dict().values() if tensor.numel()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.fill_(torch.nan)
        for _, buffer in model.named_buffers():
            if buffer.is_floating_point() and buffer.data_ptr() in saved:
                buffer.fill_(torch.nan)


def unset(model: Any) -> list[str]:
    """The entries of the state dict that are still NaN.

    Not all parameters: bridges keep fused and split projections side by side and save one of them.
    """
    return [
        name
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point() and bool(tensor.isnan().any())
    ]


def never_set(model: Any) -> list[str]:
    """Parameters that are still NaN, although no state dict speaks of them."""
    return [
        name.replace("._original_component", "")
        for name, parameter in model.named_parameters()
        if bool(parameter.isnan().any())
    ]
