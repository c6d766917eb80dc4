"""`load`: a model from a checkpoint or GGUF file, a Hugging Face folder, or a toy's or hub's name.

It detects the kind of source (`from_file`, `gguf_file`, `huggingface`), checks that the weights are
finite, and records the model's origin and the assumptions made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from interp_toolkit import registry
from interp_toolkit.errors import InputError, a_kind, check_texts
from interp_toolkit.models.about.info import find_device
from interp_toolkit.models.about.record import ModelRecord, plain_config, record_of, set_record
from interp_toolkit.models.loading.formats.files import sha256
from interp_toolkit.models.loading.formats.from_file import load_file
from interp_toolkit.models.loading.formats.gguf_file import check_no_gguf_only, is_gguf, load_gguf
from interp_toolkit.models.loading.formats.huggingface import load_folder, load_hub
from interp_toolkit.models.loading.parameters.conversion import Keys
from interp_toolkit.models.loading.parameters.strict import check_finite, model_weights
from interp_toolkit.models.loading.source_names import looks_like_path, path_of
from interp_toolkit.models.model import LoadedModel, Model, check_model
from interp_toolkit.models.transformer.config import DTYPES
from interp_toolkit.state import uncompiled

if TYPE_CHECKING:
    from torch import nn
Live = TypeVar("Live", bound="nn.Module")


@overload
def load(
    source: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    keys: Keys | None = None,
    ignore: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    **settings: Any,
) -> LoadedModel: ...
@overload
def load(source: Live, *, progress: Callable[[str], None] | None = None) -> Live: ...
def load(
    source: Any,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    keys: Keys | None = None,
    ignore: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    **settings: Any,
) -> Any:
    """Load a TransformerLens model in eval mode; its weights are complete and finite.

    Args:
        source: a checkpoint file (ours, a `{cfg, state_dict}` dictionary, or a bare state dict of a
            `HookedTransformer`, a `TransformerBridge`, GPT-2, nanoGPT or EasyTransformer; from a
            pickled object its tensors and attributes are read, never its code), a GGUF file (with
            the extra `real`), a local Hugging Face folder, `toy:NAME`, a hub name, or a live model,
            which is returned unchanged (without a wrapper of `torch.compile`).
        device: where to put it; "auto" selects a GPU if there is one.
        dtype: dtype of the weights; None keeps the saved one, but is float32 for a GGUF file and a
            hub name.
        trust_remote_code: run code that comes with a Hugging Face model.
        keys: naming scheme of a checkpoint's tensors, if it is not recognized: "gpt2", "nanogpt",
            "easytransformer", or a mapping of its names to TransformerLens's (or a JSON file with
            one, see `models.loading.parameters.key_rules`).
        ignore: names of tensors in a checkpoint to leave out; `*` matches anything.
        progress: called before loading, with a line on the size of a folder's or GGUF file's model
            or on the search for a name on the hub.
        settings: configuration fields for a file without configuration (`act_fn="relu"`,
            `n_heads=4`); strings are parsed by the field's type.

    Returns:
        A `Transformer` for files and toys, a `TransformerBridge` for GGUF and Hugging Face models;
        `record_of(model)` has its origin and the assumptions made.

    Raises:
        InputError: the source is missing, damaged, would run code, is inconsistent, is larger than
            this machine's memory, has NaN or infinite weights, or a setting is unknown, missing or
            contradicts the file.

    Examples:
        >>> import interp_toolkit as it
        >>> it.load("toy:induction").cfg.n_layers
        2
    """
    check_texts(ignore)
    if not isinstance(keys, str | Path | Mapping | None):
        raise InputError(f"keys is {a_kind(keys)}: give a layout's name, a mapping or a JSON file")
    ignore = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    only_files = {n: v for n, v in (("keys", keys), ("ignore", tuple(ignore))) if v}
    if not isinstance(source, str | Path):
        return _live(source, dtype, {**settings, **only_files})
    name, target, kind = str(source), find_device(device), _dtype(dtype)
    if not name:
        raise InputError("the model's name is empty: give a file, a folder, toy:NAME or a hub name")
    if name.startswith("toy:"):
        _refuse({**settings, **only_files}, name)
        return _toy(name, target, kind)
    path = path_of(name)
    if path.is_dir():
        _refuse({**settings, **only_files}, name)
        check_no_gguf_only(path)
        bridge, notes = load_folder(path, target, kind, trust_remote_code, progress)
        whole = str(path.resolve())
        record = ModelRecord(path.resolve().name, "huggingface", whole, notes=notes)
        return _recorded(bridge, record)
    if path.is_file() and is_gguf(path):
        _refuse({**settings, **only_files}, name)
        bridge, notes = load_gguf(path, target, kind, progress)
        whole = str(path.resolve())
        return _recorded(bridge, ModelRecord(path.name, "gguf", whole, sha256(path), notes=notes))
    if path.exists() or looks_like_path(name, path):
        return load_file(path, target, kind, settings, keys=keys, ignore=ignore)
    _refuse({**settings, **only_files}, name)
    bridge = load_hub(name, target, kind, trust_remote_code, progress)
    return _recorded(bridge, ModelRecord(name, "huggingface"))


def _live(model: Model, dtype: Any, settings: Mapping[str, Any]) -> Any:
    check_model(uncompiled(model))
    _refuse(settings, "a live model")
    if dtype is not None:
        raise InputError("a live model is not converted: use model.to(dtype) yourself")
    model = uncompiled(model)
    check_finite(model_weights(model), type(model).__name__)
    set_record(model, record_of(model))
    return model


def _toy(name: str, device: torch.device, dtype: torch.dtype | None) -> Any:
    toy = registry.find("toys", name.removeprefix("toy:"))
    model = toy.build().to(device)
    if dtype is not None:
        model = model.to(dtype)
    return _recorded(model.eval(), ModelRecord(name, "toy", task=toy.task))


def _recorded(model: Model, record: ModelRecord) -> Any:
    """The model, with its record completed and its weights checked."""
    check_model(model)
    check_finite(model_weights(model), record.name)
    about = {**vars(record), "config": plain_config(model.cfg)}
    set_record(model, ModelRecord(**about))
    return model


def _refuse(settings: Mapping[str, Any], name: str) -> None:
    if settings:
        raise InputError(
            f"{name} has its own configuration; {', '.join(sorted(settings))} "
            "can be set only for a checkpoint file"
        )


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return DTYPES[name]
