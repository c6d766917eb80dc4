"""A bare BERT encoder (`BertModel`) as a bridge: everything up to its last layer, and no logits.

TransformerLens has bridges to BERT with a head only. The encoder is put where such a model has it,
the parts of the head are left out of the bridge, and a pass that is not stopped before the end
says that there are no logits. The pooler, which reads the last layer and writes nothing into it,
is left out too.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from interp_toolkit.errors import InputError

ENCODER = "BertModel"
#: of `BertModel.from_pretrained`
OPTIONS = {"add_pooling_layer": False}
_POOLER = "pooler."
_HEAD = ("unembed", "mlm_head", "ln_final", "nsp_head")
_LIKE = "BertForMaskedLM"


class HeadlessBert(nn.Module):
    """An encoder under the name that a BERT with a head gives it.

    Args:
        encoder: a `BertModel` of transformers.
    """

    def __init__(self, encoder: Any):
        super().__init__()
        self.bert = encoder
        self.config = encoder.config

    @property
    def device(self) -> torch.device:
        """Where the encoder is."""
        return self.bert.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the encoder."""
        return self.bert.dtype  # type: ignore[no-any-return]

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the encoder, for its hooks; raises InputError at its end."""
        takes = inspect.signature(self.bert.forward).parameters  # a decorator's names are not its
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
        self.bert(*args, **{name: v for name, v in kwargs.items() if takes_any or name in takes})
        raise InputError(
            f"this {ENCODER} has no head, so it has no logits: its activations and the weights of "
            "its layers are all that can be read"
        )


def without_pooler(names: Any) -> set[Any]:
    """The names of tensors that are no pooler's."""
    return {name for name in names if not str(name).startswith(_POOLER)}


def encoder_bridge(folder: Path, encoder: Any, tokenizer: Any) -> Any:
    """The bridge to an encoder that transformers loaded, without the parts of a head."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    def without_head(adapter: Any) -> None:
        for name in _HEAD:
            adapter.component_mapping.pop(name, None)
        adapter.cfg.attention_dir = "bidirectional"

    return build_bridge_from_module(
        HeadlessBert(encoder),
        _LIKE,
        hf_config=encoder.config,
        tokenizer=tokenizer,
        model_name=str(folder),
        post_adapter_hook=without_head,
    )
