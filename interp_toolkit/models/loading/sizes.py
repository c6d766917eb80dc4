"""What a file claims to hold, against its size: a few bytes can stand for any amount of memory.

A tensor whose strides are 0 repeats one number, and a compressed entry of an archive may shrink to
a thousandth. Both are in honest files, but never so much of them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.bounded import most_claimed
from interp_toolkit.models.loading.formats.records import TooMuchError


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive whose entries would be far larger than its file; TooMuchError."""
    _check("entries", sum(entry.file_size for entry in archive.infolist()), size)


def check_tensors(data: Any, size: int) -> None:
    """Refuse data whose tensors, each written out, are far larger than the file; TooMuchError.

    Args:
        data: tensors in mappings, lists and tuples.
        size: of the file, in bytes.
    """
    _check("tensors", sum(t.numel() * t.element_size() for t in _tensors(data)), size)


def _check(what: str, claimed: int, size: int) -> None:
    if claimed > most_claimed(size):
        raise TooMuchError(f"its {what} claim {claimed / 2**30:.3g} GiB, the file has {size} bytes")


def _tensors(data: Any) -> Iterator[Tensor]:
    """Every tensor that takes memory, as often as it is named in a container."""
    seen, open_ = {id(data)}, [data]
    while open_:
        value = open_.pop()
        if isinstance(value, Tensor):
            if value.layout == torch.strided and not value.is_meta:
                yield value
        elif isinstance(value, Mapping | list | tuple):
            for entry in value.values() if isinstance(value, Mapping) else value:
                if isinstance(entry, Tensor) or id(entry) not in seen:
                    seen.add(id(entry))
                    open_.append(entry)
