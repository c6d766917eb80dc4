"""Read a pickle as data: tensors and containers are built, everything else becomes a record.

A pickle is a program that names functions and calls them. Here a name resolves to one of the few
functions below, which build tensors, containers and numbers, or else to a stub: objects of its
class become records, and calls of it are refused. No module is imported because a pickle names it.
`torch.storage._load_from_bytes`, through which `pickle.dump` writes tensors, is replaced by
PyTorch's weights-only reader. Tensors are held where no step of a pickle can change them.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp_toolkit.models.loading.formats.records import HeldTensor, Record, stub

Storages = Callable[[torch.dtype, str, int], Tensor]

#: PyTorch's storage types by the dtype of their entries
STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
SLACK = 2**16  # objects that a pickler may have skipped in numbering
_NUMBER = re.compile(r"[fiu][1248]|b1|\?")


class InertUnpickler(pickle.Unpickler):
    """Reads one pickle; see the module.

    Args:
        file: where the pickle starts.
        storages: returns the flat tensor for a storage that the pickle only names, from its dtype,
            key and number of entries; None for a pickle that contains its storages.
    """

    def __init__(self, file: io.BufferedIOBase, storages: Storages | None = None):
        super().__init__(file, encoding="latin1")
        self._file = file
        self._storages = storages
        self._instances: dict[str, Any] = {}

    def load(self) -> Any:
        """The content of the pickle; refuses memo indices that would claim too much memory."""
        start = self._file.tell()
        _check_positions(self._file)
        self._file.seek(start)
        return super().load()

    def find_class(self, module: str, name: str) -> Any:
        """Resolve a name to a safe function or a stub, the same one each time."""
        qualified = f"{module}.{name}"
        if qualified not in self._instances:
            safe = _safe(module, name)
            if isinstance(safe, FunctionType):  # protects its attributes from the pickle
                safe = partial(safe)
            self._instances[qualified] = safe or stub(qualified)
        return self._instances[qualified]

    def persistent_load(self, pid: Any) -> Any:
        """The flat tensor behind a storage named `("storage", kind, key, place, entries, ...)`.

        PyTorch's older format names a module's class this way too: `("module", class, source...)`.
        """
        if isinstance(pid, tuple) and len(pid) > 1 and pid[0] == "module":
            return pid[1]
        if self._storages is None or not isinstance(pid, tuple) or len(pid) < 5:
            raise pickle.UnpicklingError("it refers to a missing storage")
        kind, key, entries = pid[1], str(pid[2]), pid[4]
        if not isinstance(kind, torch.dtype) or not isinstance(entries, int):
            raise pickle.UnpicklingError("it refers to a storage of unknown type")
        return HeldTensor(self._storages(kind, key, entries))


def _check_positions(file: io.BufferedIOBase) -> None:
    """Refuse memo indices higher than any pickler would assign.

    Python's unpickler allocates memory for all lower indices: seven bytes can claim gigabytes.
    """
    try:
        for steps, (opcode, position, _) in enumerate(pickletools.genops(file)):  # type: ignore[arg-type]
            if opcode.name in _PUTS and isinstance(position, int) and position > steps + SLACK:
                raise pickle.UnpicklingError(f"it numbers an object {position}")
    except (ValueError, IndexError):  # damaged; the unpickler reports how
        return


def _safe(module: str, name: str) -> Any:
    """The function or constant of that name if it is on the list of safe ones, else None."""
    if module in ("builtins", "__builtin__"):
        return _BUILTINS.get(name)
    if module == "torch":
        return _TORCH.get(name)
    module = module.replace("numpy._core", "numpy.core")
    return _FUNCTIONS.get(f"{module}.{name}")


def _tensor(
    storage: Any, offset: int, size: Iterable[int], stride: Iterable[int], *_: Any
) -> HeldTensor:
    if not isinstance(storage, HeldTensor) or storage.tensor.ndim != 1:
        raise pickle.UnpicklingError("a tensor has no storage")
    flat = storage.tensor
    return HeldTensor(torch.as_strided(flat, tuple(size), tuple(stride), offset))  # checks bounds


def _parameter(data: Any, *_: Any) -> HeldTensor:
    if not isinstance(data, HeldTensor):
        raise pickle.UnpicklingError("a parameter has no tensor")
    return data


def _storage_from_bytes(content: bytes) -> HeldTensor:
    if content.startswith(b"PK"):  # PyTorch writes no archive here, which could be compressed
        raise pickle.UnpicklingError("a storage has invalid data")
    storage = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(storage, torch.storage.TypedStorage):
        raise pickle.UnpicklingError("a storage has invalid data")
    if storage._untyped_storage.nbytes() > len(content):
        raise pickle.UnpicklingError("a storage is larger than its bytes")
    return HeldTensor(torch.empty(0, dtype=storage.dtype).set_(storage._untyped_storage))


def _bytes(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("utf-8" if encoding in ("utf8", "utf-8") else "latin1")


def _number(dtype: Any, content: Any) -> Any:
    kind = dtype.fields.get("number") if isinstance(dtype, Record) else None
    if kind is None or not isinstance(content, bytes | str):
        raise pickle.UnpicklingError("a number has an unknown type")
    raw = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(raw, kind, count=1)[0].item()


def _number_kind(name: str, *_: Any) -> Record:
    """NumPy's dtype of a number, as a record; byte order is little endian or irrelevant."""
    record = stub("numpy.dtype").__new__(stub("numpy.dtype"))
    if _NUMBER.fullmatch(name):
        record.fields["number"] = f"<{name}" if name != "?" else name
    return record


def _array(*_: Any) -> Record:
    """A record in place of a NumPy array, because weights are never arrays."""
    return stub("numpy.ndarray").__new__(stub("numpy.ndarray"))


class _Dictionary(dict[Any, Any]):
    """A dictionary without its attributes (a state dict has one)."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """Drop attributes."""


def _with_default(*_: Any) -> dict[Any, Any]:
    """A plain dictionary in place of one with a default function."""
    return _Dictionary()


def _text(*parts: Any) -> str:
    return ":".join(map(str, parts))


_BUILTINS: Mapping[str, Any] = {"set": set, "frozenset": frozenset, "complex": complex}
_TORCH: Mapping[str, Any] = {
    # `getattr` on torch can import modules, so existing attributes are looked up here once.
    **{name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
    **STORAGES,
    "Size": tuple,
    "device": _text,
}
_FUNCTIONS: Mapping[str, Any] = {
    "collections.OrderedDict": _Dictionary,
    "collections.defaultdict": _with_default,
    "collections.Counter": _Dictionary,
    "_codecs.encode": _bytes,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch.storage._load_from_bytes": _storage_from_bytes,
    "numpy.core.multiarray.scalar": _number,
    "numpy.dtype": _number_kind,
    "numpy.core.multiarray._reconstruct": _array,
    "numpy.core.numeric._frombuffer": _array,
}
