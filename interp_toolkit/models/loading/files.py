"""Reading a model file without running anything in it.

The first bytes, not the suffix, say what a file is: a PyTorch archive (zip), an older PyTorch file
or a plain pickle, or safetensors. Pickles go through PyTorch's weights-only reader, which builds
tensors and plain data and refuses everything else. When it refuses, the pickle's instructions are
listed, still without running them, to tell a whole pickled model from an object from any other
code, so that the message can say what to do.
"""

from __future__ import annotations

import hashlib
import json
import pickletools
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interp_toolkit.errors import InputError

SAVE_PROPERLY = (
    "in a session that can load it, run `state = model.state_dict()` and "
    '`torch.save(state, "weights.pt")`, then give weights.pt'
)
#: what PyTorch's own files name: containers of tensors and plain data
_PLAIN_MODULES = ("_codecs", "collections", "torch", "torch._utils", "torch.nn.parameter")
_PLAIN_STORAGES = ("torch.storage.TypedStorage", "torch.storage.UntypedStorage")
#: what a config with numpy numbers in it names; numbers only, checked by PyTorch's reader
_NUMPY_NUMBERS: list[Any] = [
    (np.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (np.float64(0).__reduce__()[0], "numpy._core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64", "int32", "bool")),
]
_HEADER_LIMIT = 100_000_000  # bytes; safetensors' own limit on its header


@dataclass(frozen=True)
class FileContents:
    """What a file holds, as plain data.

    Attributes:
        data: the unpickled object, or the tensors of a safetensors file.
        metadata: a safetensors file's own strings; empty for the others.
    """

    data: Any
    metadata: Mapping[str, str]


def read_file(path: Path) -> FileContents:
    """Read a model file of any supported format, on the CPU.

    Raises InputError, in one line, when the file is missing, empty, truncated, something else
    than a model, or a pickle that needs more than tensors and plain data.
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
            state = "is a link that leads nowhere"
        raise InputError(f"{path} {state}")
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise InputError(f"{path} is empty (0 bytes)")
    return head


def _describe(head: bytes) -> str:
    if head.startswith(b"version https://git-lfs"):
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
    except Exception as error:  # zipfile raises nearly every kind on damaged archives
        raise InputError(f"{path} is truncated or damaged: its archive cannot be listed") from error
    if any(name.endswith(".npy") for name in names):
        raise InputError(
            f"{path} is a NumPy archive (.npz), not a model: "
            "give a .pt or .safetensors file (an .npz can be data, without pickled objects)"
        )
    if not any(name.endswith("data.pkl") for name in names):
        raise InputError(f"{path} is a zip archive but no PyTorch file")
    return _read_pickle(path, mmap=True)


def _read_pickle(path: Path, mmap: bool = False) -> Any:
    try:
        with torch.serialization.safe_globals(_NUMPY_NUMBERS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how the file was pickled: nothing to act on
            if path.suffix == ".safetensors":  # PyTorch would believe the name
                with path.open("rb") as file:
                    return torch.load(file, map_location="cpu", weights_only=True)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # torch raises nearly every kind on damaged files
        raise _refusal(path, error) from error


def _refusal(path: Path, error: Exception) -> InputError:
    """The one line for a pickle that was not read: code (of which kind), or damage."""
    needed = sorted(set(_code_in(path)))
    if any(_is_model_class(name) for name in needed):
        return InputError(
            f"{path} holds a whole pickled model, which is code and is not run: {SAVE_PROPERLY}"
        )
    if any(name.endswith("Config") for name in needed):
        config = next(name for name in needed if name.endswith("Config"))
        return InputError(
            f"{path} holds a pickled {config.rpartition('.')[2]} object, which is code and is not "
            "run: save the configuration as a dictionary (cfg.to_dict()) or the state dict alone"
        )
    if needed:
        listed = ", ".join(needed[:3]) + (f" and {len(needed) - 3} more" if needed[3:] else "")
        return InputError(
            f"{path} is a pickle that would run code ({listed}); it was not run: "
            "save tensors and plain data only, with torch.save"
        )
    reason = str(error).strip().splitlines()
    return InputError(
        f"{path} is truncated or damaged: {reason[0].rstrip('.') if reason else 'no data'}"
    )


def _is_model_class(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return module.startswith("torch.nn.modules") or attribute.endswith(
        ("Transformer", "TransformerBridge", "ForCausalLM", "LMHeadModel")
    )


def _code_in(path: Path) -> list[str]:
    """The names a pickle would import beyond tensors and plain data; nothing is run."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                entry = next(name for name in archive.namelist() if name.endswith("data.pkl"))
                with archive.open(entry) as file:
                    names = list(_imports(file))
        else:
            with path.open("rb") as file:
                names = list(_imports(file))
    except Exception:  # damaged beyond listing
        return []
    return [
        name
        for name in names
        if name.rpartition(".")[0] not in _PLAIN_MODULES and name not in _PLAIN_STORAGES
    ]


def _imports(file: Any) -> Iterator[str]:
    """The names imported by the pickles in a file, one after the other, until it is no pickle."""
    strings: list[str] = []
    memo: dict[Any, str] = {}
    try:
        while True:
            for opcode, argument, _ in pickletools.genops(file):
                last = strings[-1] if strings else ""
                if opcode.name in ("GLOBAL", "INST"):
                    yield str(argument).replace(" ", ".")
                elif opcode.name == "STACK_GLOBAL":
                    yield ".".join(strings[-2:])
                elif opcode.name == "MEMOIZE":
                    memo[len(memo)] = last
                elif opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
                    memo[argument] = last
                elif opcode.name in ("GET", "BINGET", "LONG_BINGET"):
                    strings.append(memo.get(argument, ""))
                elif isinstance(argument, str):
                    strings.append(argument)
    except Exception:  # the end of the pickles: what follows is tensor data, damage or nothing
        return


def _read_safetensors(path: Path) -> FileContents:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = file.keys()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
            return FileContents(tensors, file.metadata() or {})
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise InputError(f"{path} is truncated or damaged: {error}") from error
