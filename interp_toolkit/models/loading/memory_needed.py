"""Memory that a model's weights need, estimated from its files before they are read.

Loading weights that exceed the machine's memory would end minutes later with a killed process, so
they are refused at the start.

Files that claim far more data than their size are refused as well, since a few bytes can represent
any amount of memory: a tensor whose strides are 0 repeats one number, and an entry of a compressed
archive may shrink to a thousandth. Both occur in valid files, but never to that extent.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.files import machine_memory, most_claimed, read_whole_text
from interp_toolkit.models.loading.formats.records import TooMuchError


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Raise TooMuchError if an archive's entries would be far larger than its file."""
    _check("entries", sum(entry.file_size for entry in archive.infolist()), size)


def check_tensors(data: Any, size: int) -> None:
    """Raise TooMuchError if tensors, each stored separately, would be far larger than the file.

    Args:
        data: tensors in mappings, lists and tuples.
        size: size of the file, in bytes.
    """
    _check("tensors", sum(t.numel() * t.element_size() for t in _claimed_tensors(data)), size)


def _check(what: str, claimed: int, size: int) -> None:
    if claimed > most_claimed(size):
        raise TooMuchError(f"its {what} claim {claimed / 2**30:.3g} GiB, the file has {size} bytes")


def _claimed_tensors(data: Any) -> Iterator[Tensor]:
    """Every tensor that takes memory, once for each occurrence in a container."""
    visited, open_ = {id(data)}, [data]
    while open_:
        value = open_.pop()
        if isinstance(value, Tensor):
            if value.layout == torch.strided and not value.is_meta:
                yield value
        elif isinstance(value, Mapping | list | tuple):
            for entry in value.values() if isinstance(value, Mapping) else value:
                if isinstance(entry, Tensor) or id(entry) not in visited:
                    visited.add(id(entry))
                    open_.append(entry)


COMMON = 256  # layers; a larger number must be confirmed by the files before building
LAYERS = (
    *("n_layer", "n_layers", "num_layers", "num_hidden_layers"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"),
)


def announce(
    source: str, n_params: int, dtype: torch.dtype, say: Callable[[str], None] | None
) -> None:
    """Report a model's size; raises InputError if it exceeds the machine's memory.

    Args:
        source: name of the file, for the message.
        n_params: number of parameters.
        dtype: dtype of the loaded weights.
        say: called with the line; None to skip it.

    Examples:
        >>> announce("model", 134_515_008, torch.float32, print)
        135M parameters, about 0.5 GiB in float32
    """
    size = size_in_words(n_params, dtype)
    limit = machine_memory()
    if limit is not None and n_params * dtype.itemsize > limit:
        raise InputError(f"{source} has {size}; this machine has {limit / 2**30:.1f} GiB of memory")
    if say is not None:
        say(size)


def count_parameters(folder: Path, saved: torch.dtype) -> int | None:
    """The number of parameters in a Hugging Face folder; None if the files do not show it.

    Safetensors files state it in their header, and transformers prefers them; for pickles it is
    the file's size divided by that of a number. Variants (model.fp16.safetensors) are not loaded,
    and not counted.

    Args:
        folder: a folder with files under the names that transformers gives them.
        saved: dtype of the saved weights.
    """
    try:
        if tensors := _loaded(folder, "model", "safetensors"):
            return sum(prod(shape) for file in tensors for shape in _shapes_in(file))
        pickles = _loaded(folder, "pytorch_model", "bin")
        return sum(file.stat().st_size for file in pickles) // saved.itemsize or None
    except Exception:  # a damaged or missing file is reported when it is loaded
        return None


def check_layers(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise InputError if a configuration has more layers than the weight files have tensors.

    Building that many layers could take unbounded time before any is reported missing. Numbers of
    layers that real models have are compared after loading, and so are folders whose files do not
    list their content.
    """
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, Mapping) else {}):
        for name in LAYERS:
            layers = part.get(name)
            if not isinstance(layers, int) or layers <= COMMON:
                continue
            held = _tensors(folder)
            if held is not None and layers > held:
                raise InputError(
                    f"{folder} does not match its configuration: {name} is {layers}, but the "
                    f"folder has at most {held} weight tensors"
                )


def _tensors(folder: Path) -> int | None:
    """The number of tensors in a folder's files, or its upper bound; None if unknown."""
    try:
        if files := _loaded(folder, "model", "safetensors"):
            return sum(len(_shapes_in(file)) for file in files)
        return sum(file.stat().st_size for file in _loaded(folder, "pytorch_model", "bin")) or None
    except Exception:  # as above
        return None


def _loaded(folder: Path, name: str, ending: str) -> list[Path]:
    """The files of a format that transformers loads: one, those of an index, or shards by name.

    Raises ValueError if an index names files outside the folder.
    """
    whole = folder / f"{name}.{ending}"
    if whole.is_file():
        return [whole]
    index = folder / f"{name}.{ending}.index.json"
    if index.is_file():
        names = sorted(set(json.loads(read_whole_text(index))["weight_map"].values()))
        if any(Path(part).name != part for part in names):
            raise ValueError(f"{index} names files outside its folder")
        return [folder / part for part in names]
    shards = folder.glob(f"{name}-*-of-*.{ending}")
    of = re.compile(rf"{name}-\d{{5}}-of-(\d{{5}})\.{ending}")
    matches = [(match[1], path) for path in sorted(shards) if (match := of.fullmatch(path.name))]
    return [path for count, path in matches if count == matches[0][0]]


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers would load weights from; empty for a damaged index."""
    try:
        return _loaded(folder, "model", "safetensors") or _loaded(folder, "pytorch_model", "bin")
    except Exception:  # reported when it is loaded
        return []


def stored_kinds(folder: Path) -> dict[str, str]:
    """The number format of each tensor that transformers would load from a folder.

    Names are safetensors' (`F32`, `I8`, `F8_E4M3`), or for pickles PyTorch's (`float32`, `int8`).
    """
    kinds: dict[str, str] = {}
    try:
        for path in weight_files(folder):
            if path.suffix == ".bin":
                state = torch.load(path, map_location="meta", weights_only=True)
                kinds |= {n: str(t.dtype).removeprefix("torch.") for n, t in state.items()}
                continue
            with safe_open(path, framework="pt") as file:
                kinds |= {n: file.get_slice(n).get_dtype() for n in file.keys()}  # noqa: SIM118
    except Exception:  # as above
        return {}
    return kinds


def saved_row(folder: Path, name: str, row: int) -> torch.Tensor | None:
    """A row of a tensor in a folder's weights; None if there is no tensor of this name."""
    for path in weight_files(folder):
        if path.suffix == ".bin":
            state = torch.load(path, map_location="cpu", weights_only=True)
            if name in state:
                return torch.as_tensor(state[name][row])
            continue
        with safe_open(path, framework="pt") as file:
            if name in file.keys():  # noqa: SIM118
                return torch.as_tensor(file.get_slice(name)[row])
    return None


def _shapes_in(path: Path) -> list[list[int]]:
    with safe_open(path, framework="pt") as file:
        return [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118  (not a dict)


def size_in_words(n_params: int, dtype: torch.dtype) -> str:
    """The size of a model as text, such as `135M parameters, about 0.5 GiB in float32`."""
    unit, letter = next(
        (u, n) for u, n in ((1e9, "B"), (1e6, "M"), (1, "")) if n_params >= u or u == 1
    )
    scaled = n_params / unit
    count = f"{scaled:.1f}" if letter == "B" and scaled < 100 else f"{scaled:,.0f}"
    n_bytes = n_params * dtype.itemsize
    whole = n_bytes / 2**30 >= 0.05
    memory = f"{n_bytes / 2**30:.1f} GiB" if whole else f"{n_bytes / 2**20:.1f} MiB"
    return f"{count}{letter} parameters, about {memory} in {str(dtype).removeprefix('torch.')}"
