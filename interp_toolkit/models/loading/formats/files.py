"""Read a model file without running anything in it.

The first bytes, not the suffix, determine the format: a PyTorch archive (zip), an older PyTorch
file or a plain pickle, or safetensors. Pickles go through PyTorch's weights-only reader, which
builds tensors and plain data and refuses everything else. Refused files (plain `pickle.dump`s,
pickled configurations, whole pickled models) are read by `pickled_files`, which builds the same
types and keeps objects as records of their attributes. Pickles that would call anything else are
refused.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interp_toolkit.errors import InputError, first_line, reason_of
from interp_toolkit.models.loading.formats.pickled_files import read_as_data
from interp_toolkit.models.loading.formats.records import TooMuchError, WouldCallError
from interp_toolkit.models.loading.memory_needed import check_archive, check_tensors

#: names in a configuration with numpy numbers; only numbers, which PyTorch's reader checks
_NUMPY_NUMBERS: list[Any] = [
    (np.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (np.float64(0).__reduce__()[0], "numpy._core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64", "int32", "bool")),
]
_POINTER = b"version https://git-lfs"
_NAMED = 3  # models in a folder that a message lists
_HEADER_LIMIT = 100_000_000  # bytes; safetensors' own limit on its header


@dataclass(frozen=True)
class FileContents:
    """The content of a file, as plain data.

    Attributes:
        data: the unpickled object, or the tensors of a safetensors file.
        metadata: a safetensors file's own strings; empty for other formats.
    """

    data: Any
    metadata: Mapping[str, str]


def read_file(path: Path) -> FileContents:
    """Read a model file of any supported format, on the CPU.

    Raises InputError, with a one-line message, if the file is missing, empty, truncated, not a
    model, or a pickle with calls other than those that build tensors and plain data.
    """
    head = _first_bytes(path)
    if head.startswith(b"PK\x03\x04"):
        return FileContents(_read_archive(path), {})
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= _HEADER_LIMIT:
        return _read_safetensors(path)
    if head.startswith(b"\x80"):
        return FileContents(_read_pickle(path), {})
    raise InputError(f"{path} is {_describe(head)}, not a model: give a .pt or .safetensors file")


def sha256(path: Path) -> str:
    """The file's SHA-256, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _first_bytes(path: Path) -> bytes:
    if not path.is_file():
        state = "is not a regular file" if path.exists() else "does not exist"
        if path.is_symlink() and not path.exists():
            state = "is a broken link"
        raise InputError(f"{path} {state}")
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
    if not head:
        raise InputError(f"{path} is empty (0 bytes)")
    return head


def check_no_pointer(path: Path) -> None:
    """Raise InputError if the file is a Git LFS pointer."""
    if (head := _first_bytes(path)).startswith(_POINTER):
        raise InputError(f"{path} is {_describe(head)}")


def options_inside(names: Sequence[str]) -> str:
    """A hint that lists the last few loadable entries of a folder, or ""."""
    names = sorted(names, key=lambda name: (len(name), name))  # checkpoint-1000 is last
    last = names if len(names) == _NAMED + 1 else names[-_NAMED:]
    more = [f"{len(names) - len(last)} more"] if len(names) > len(last) else []
    return f"; give one of those in it: {', '.join([*last, *more])}" if names else ""


def _describe(head: bytes) -> str:
    if head.startswith(_POINTER):
        return "a Git LFS pointer (run `git lfs pull` to get the file it stands for)"
    if head.startswith(b"\x93NUMPY"):
        return "a NumPy array"
    try:
        head.decode("utf-8")
    except UnicodeDecodeError:
        return "of no known format"
    return "a text file"


def _read_archive(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            stored = all(one.compress_type == zipfile.ZIP_STORED for one in archive.infolist())
            check_archive(archive, path.stat().st_size)
    except TooMuchError as error:
        raise InputError(f"{path} is not a model: {error}") from error
    except Exception as error:  # zipfile raises many types on damaged archives
        raise InputError(f"{path} is truncated or damaged: its archive cannot be listed") from error
    if any(name.endswith(".npy") for name in names):
        raise InputError(
            f"{path} is a NumPy archive (.npz), not a model: "
            "give a .pt or .safetensors file (an .npz can be data, without pickled objects)"
        )
    if not any(name.endswith("data.pkl") for name in names):
        raise InputError(f"{path} is a zip archive but not a PyTorch file")
    # Memory-mapping works only for uncompressed archives.
    return _read_pickle(path, mmap=stored)


def _read_pickle(path: Path, mmap: bool = False) -> Any:
    data = _unpickled(path, mmap)
    try:
        check_tensors(data, path.stat().st_size)
    except TooMuchError as error:
        raise InputError(f"{path} is not a model: {error}") from error
    return data


def _unpickled(path: Path, mmap: bool) -> Any:
    try:
        with torch.serialization.safe_globals(_NUMPY_NUMBERS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how the file was pickled, which is irrelevant
            if path.suffix == ".safetensors":  # PyTorch goes by the suffix
                with path.open("rb") as file:
                    return torch.load(file, map_location="cpu", weights_only=True)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # torch raises many types on damaged files
        return _read_older_pickle(path, error)


def _read_older_pickle(path: Path, refused: Exception) -> Any:
    """Read a pickle that PyTorch refused; report PyTorch's error if the file is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read_as_data(path)
    except WouldCallError as error:
        raise InputError(
            f"{path} is a pickle that would run code ({error}); it was not run: "
            "save tensors and plain data only, with torch.save(model.state_dict(), path)"
        ) from error
    except TooMuchError as error:
        raise InputError(f"{path} is not a model: {error}") from error
    except Exception as error:  # damaged pickles raise many types
        reason = first_line(error if str(error).strip() else refused)
        raise InputError(f"{path} is truncated or damaged: {reason}") from error


def _read_safetensors(path: Path) -> FileContents:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = file.keys()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
            return FileContents(tensors, file.metadata() or {})
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise InputError(f"{path} is truncated or damaged: {first_line(error)}") from error
