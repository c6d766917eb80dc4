"""Model summaries, as `interp info MODEL` prints them; devices by name, and token ids as text.

A summary runs nothing: kind, sizes, options and origin are read from the model's configuration, its
weights and its record (see `record`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, takes
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.model import Model


@takes(name=(str, torch.device))
def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" selects a GPU if there is one.

    Raises InputError if there is no such device, or if it cannot compute.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"{name!r} is not a device: give auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("this machine has no usable CUDA device: give --device cpu or auto")
    try:
        torch.zeros(1, device=device).item()  # fails on `meta` and on devices that are missing
    except Exception as error:  # the exception type depends on the backend
        raise InputError(f"the device {name} cannot be used here: give auto or cpu") from error
    return device


def token_words(model: Model) -> Callable[[int], str]:
    """A function that formats token ids as quoted text, by the model's tokenizer.

    It returns the id itself if the model has no tokenizer, or one that does not know the id.
    """
    tokenizer = getattr(model, "tokenizer", None)

    def word(token: int) -> str:
        try:
            return str(token) if tokenizer is None else repr(str(tokenizer.decode([token])))
        except Exception:  # arbitrary tokenizers, ids outside their vocabulary
            return str(token)

    return word


_SHAPE = (
    "n_layers",
    "n_heads",
    "n_key_value_heads",
    "d_model",
    "d_head",
    "d_mlp",
    "d_vocab",
    "d_vocab_out",
    "n_ctx",
)


@dataclass(frozen=True)
class ModelInfo:
    """A model's kind, size, options and origin.

    Attributes:
        name: the requested name.
        kind: kind of its source (see `models.about.record`).
        class_name: class name of the Python object.
        path: the file or folder, if any.
        sha256: hash of the file, if it is one.
        n_params: number of parameters, shared ones counted once.
        dtype: dtype of the weights.
        device: device of the weights.
        shape: sizes by `cfg`'s names; None for those that the model does not have.
        normalization: "LN", "LNPre", "RMS", "RMSPre" or "none".
        positions: "standard" (learned, absolute), "shortformer" (the same, for queries and keys
            only), "rotary", "none", or another name in `cfg`.
        attention: "causal" or "bidirectional".
        mixing: the fixed mixing that replaces attention patterns, if any; None for a model with
            queries and keys.
        act_fn: the MLPs' activation; None without MLPs.
        n_hooks: number of hook points.
        assumptions: properties that the file does not specify and were assumed, one phrase each.
        notes: further facts about the weights, one phrase each.
        task: the task that the model was trained or built for, if known.
        training: how it was trained, if known.
    """

    name: str
    kind: str
    class_name: str
    path: str | None
    sha256: str | None
    n_params: int
    dtype: str
    device: str
    shape: Mapping[str, int | None]
    normalization: str
    positions: str
    attention: str
    mixing: str | None
    act_fn: str | None
    n_hooks: int
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    task: Mapping[str, Any] | None
    training: Mapping[str, Any] | None


def describe(model: Model) -> ModelInfo:
    """A summary of any TransformerLens model; runs nothing."""
    record, cfg = record_of(model), model.cfg
    attn_only = bool(getattr(cfg, "attn_only", False))
    shape = {name: getattr(cfg, name, None) for name in _SHAPE}
    if attn_only:
        shape["d_mlp"] = None
    first = next(model.parameters())
    return ModelInfo(
        name=record.name,
        kind=record.kind,
        class_name=type(model).__name__,
        path=record.path,
        sha256=record.sha256,
        n_params=_count(model),
        dtype=str(first.dtype).removeprefix("torch."),
        device=str(first.device),
        shape=shape,
        normalization=getattr(cfg, "normalization_type", None) or "none",
        positions=str(getattr(cfg, "positional_embedding_type", "unknown")),
        attention=str(getattr(cfg, "attention_dir", "causal")),
        mixing=_mixing(cfg),
        act_fn=None if attn_only else getattr(cfg, "act_fn", None),
        n_hooks=len(model.hook_dict),
        assumptions=record.assumptions,
        notes=record.notes,
        task=record.task,
        training=record.training,
    )


def _mixing(cfg: Any) -> str | None:
    variance = getattr(cfg, "mixing", None)
    return variance and f"fixed random matrices of entry variance {variance}, never trained"


def _count(model: Model) -> int:
    """The number of parameters, with each storage counted once.

    A bridge stores fused and split projections side by side; its state dict lists only the split
    ones, and adds a zero unembedding bias that many models do not have.
    """
    weights: dict[str, Tensor] = dict(model.named_parameters())
    if hasattr(model, "original_model"):
        weights = dict(model.state_dict())
        if not bool(weights.get("unembed.bias", torch.ones(1)).any()):
            weights.pop("unembed.bias")
    return sum({t.data_ptr(): t.numel() for t in weights.values() if t.numel()}.values())
