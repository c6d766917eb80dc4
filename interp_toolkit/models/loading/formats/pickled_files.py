"""Read pickles as data if PyTorch's weights-only reader refuses them.

Three kinds: PyTorch's archive (a zip of one pickle and a file per storage), PyTorch's older format
(five pickles, then the storages in the order of the last), and a plain `pickle.dump`.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.models.loading.formats.records import plain
from interp_toolkit.models.loading.formats.unpickler import InertUnpickler

_ARCHIVE = b"PK\x03\x04"  # first bytes of a zip file
_OLDER_MAGIC = 0x1950A86A20F9469CFC6C


def read_as_data(path: Path) -> Any:
    """The content of a pickle as plain data: tensors, containers, the attributes of objects.

    Raises:
        WouldCallError: the pickle would call other functions than those that build such data.
        TooMuchError: its content is larger than any model.
        Exception: many types, if the file is damaged.
    """
    with path.open("rb") as file:
        if file.read(len(_ARCHIVE)) == _ARCHIVE:  # at its start; a pickle may contain one
            with zipfile.ZipFile(file) as archive:
                return plain(_from_archive(archive))
        file.seek(0)
        first = InertUnpickler(file).load()
        if first == _OLDER_MAGIC:
            return plain(_from_older(file, path.stat().st_size))
        return plain(first)


def _from_archive(archive: zipfile.ZipFile) -> Any:
    entry = next(name for name in archive.namelist() if name.endswith("data.pkl"))
    root = entry.removesuffix("data.pkl")
    if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
        raise pickle.UnpicklingError("its numbers are big-endian")
    read: dict[str, Tensor] = {}

    def storage(dtype: torch.dtype, key: str, entries: int) -> Tensor:
        if key not in read:
            read[key] = _flat(archive.read(f"{root}data/{key}"), torch.uint8)
        return read[key].view(dtype)

    return InertUnpickler(io.BytesIO(archive.read(entry)), storage).load()


def _from_older(file: io.BufferedIOBase, size: int) -> Any:
    InertUnpickler(file).load()  # the version of the format
    InertUnpickler(file).load()  # sizes of numbers on the machine that wrote it
    made: dict[str, Tensor] = {}
    left = size  # bytes that storages may still take

    def storage(dtype: torch.dtype, key: str, entries: int) -> Tensor:
        nonlocal left
        if key not in made:
            left -= entries * dtype.itemsize
            if entries < 0 or left < 0:
                raise pickle.UnpicklingError("storages are larger than the file")
            made[key] = torch.zeros(entries, dtype=dtype)
        return made[key]

    content = InertUnpickler(file, storage).load()
    for key in InertUnpickler(file).load():
        _fill(made[str(key)], file)
    return content


def _fill(storage: Tensor, file: io.BufferedIOBase) -> None:
    """Read a storage's numbers into it; tensors that view it see them."""
    entries = int.from_bytes(file.read(8), "little")
    content = file.read(len(storage) * storage.dtype.itemsize)
    if entries != len(storage) or len(content) != entries * storage.dtype.itemsize:
        raise pickle.UnpicklingError("a storage is truncated")
    storage.copy_(_flat(content, storage.dtype))


def _flat(content: bytes, dtype: torch.dtype) -> Tensor:
    if not content:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype)
