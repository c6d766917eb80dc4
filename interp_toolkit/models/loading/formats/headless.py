"""A model without a head (`BertModel`, `GPT2Model`) as a bridge: all its layers, and no logits.

TransformerLens only has bridges to models with a head. The trunk is therefore inserted under the
name that it has in the same family's model with a head, and the bridge's head is left out. A
forward pass that reaches the end raises NoLogitsError. A pooler, which reads the last layer and
does not write to it, is left out too.
"""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

import torch
from torch import nn

from interp_toolkit.errors import InputError

_POOLER = "pooler."
_LEFT = "only its activations and layer weights can be read"


class NoLogitsError(InputError):
    """Raised at the end of a pass through a model without a head, after all layers have run."""


class Headless(nn.Module):
    """A trunk under its name in the family's model with a head.

    Args:
        trunk: a transformers model without a head.
        name: name of the trunk in the model with a head.
    """

    def __init__(self, trunk: Any, name: str):
        super().__init__()
        self.add_module(name, trunk)
        self.config = trunk.config
        self._trunk_name = name

    @property
    def device(self) -> torch.device:
        """The trunk's device."""
        return self._trunk.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the trunk."""
        return self._trunk.dtype  # type: ignore[no-any-return]

    @property
    def _trunk(self) -> Any:
        return getattr(self, self._trunk_name)

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the trunk, for its hooks; raises InputError at its end."""
        takes = inspect.signature(self._trunk.forward).parameters  # of the undecorated function
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
        self._trunk(*args, **{name: v for name, v in kwargs.items() if takes_any or name in takes})
        raise NoLogitsError(
            f"this {type(self._trunk).__name__} has no head, so it has no logits: {_LEFT}"
        )


def without_logits(model: Any) -> str | None:
    """The reason why a headless bridge has no logits; None for any other model."""
    if isinstance(getattr(model, "original_model", None), Headless):
        return f"the model has no head, so it has no logits: {_LEFT}"
    return None


def with_head(model_type: str, class_name: str) -> str | None:
    """The class of the same family with a language-model head that TransformerLens knows.

    None if `class_name` is not a trunk, or there is no such class.
    """
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES
    from transformers.models.auto import modeling_auto as auto

    if class_name != auto.MODEL_MAPPING_NAMES.get(model_type):
        return None
    named = (
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(model_type),
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type),
    )
    return next((name for name in named if name in SUPPORTED_ARCHITECTURES), None)


def options(trunk: Any) -> dict[str, Any]:
    """Arguments of a trunk's `from_pretrained` that leave out the pooler."""
    takes = inspect.signature(trunk.__init__).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def without_pooler(names: Any) -> set[Any]:
    """The names of tensors that do not belong to a pooler."""
    return {name for name in names if not str(name).startswith(_POOLER)}


def headless_bridge(trunk: Any, like: str, tokenizer: Any, name: str) -> Any:
    """The bridge to a trunk that transformers loaded, without the parts of a head.

    Args:
        trunk: the model.
        like: name of the same family's class with a head.
        tokenizer: its tokenizer, if there is one.
        name: name of the model.
    """
    import transformers
    from transformer_lens.model_bridge.sources import build_bridge_from_module
    from transformers.models.auto import modeling_auto as auto

    module = Headless(trunk, getattr(transformers, like).base_model_prefix)
    masked = like in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()

    def without_head(adapter: Any) -> None:
        for part, component in list(adapter.component_mapping.items()):
            if component.name and not _is_there(module, component.name):
                adapter.component_mapping.pop(part)
        if masked:
            adapter.cfg.attention_dir = "bidirectional"

    return build_bridge_from_module(
        module,
        like,
        hf_config=trunk.config,
        tokenizer=tokenizer,
        model_name=name,
        post_adapter_hook=without_head,
    )


def _is_there(module: nn.Module, path: str) -> bool:
    part: Any = module
    for step in path.split("."):
        part = getattr(part, step, None)
    return part is not None
