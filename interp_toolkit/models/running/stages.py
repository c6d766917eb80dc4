"""Keeping the arrays that finished stages of a long analysis measured, so that it can go on.

`resuming(folder)` keeps the arrays that stages make as .npy files. A stage is named by the model's
weights, the prompts, the options, the versions of packages and what it measures, all hashed: a run
that differs in any of them measures again. Files are read as arrays of numbers, never as objects.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import replacing

if TYPE_CHECKING:
    import numpy as np

#: `store(name, measure)`: what `measure()` returns, or what it returned before it was stopped
Store = Callable[[str, Callable[[], "np.ndarray"]], "np.ndarray"]
_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


def not_stored(name: str, measure: Callable[[], np.ndarray]) -> np.ndarray:
    """A `Store` that keeps nothing."""
    return measure()


@contextmanager
def resuming(folder: str | Path | None) -> Iterator[None]:
    """Inside the block, stages are read from this folder, or kept in it; None: neither.

    Raises InputError if it cannot be made.
    """
    path = None if folder is None else Path(folder).expanduser()
    if path is not None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--resume {folder}: {reason_of(error)}; give a folder") from error
    before = _FOLDER.set(path)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def store_of(identity: Callable[[], str]) -> Store:
    """The stage of a run with this identity; `not_stored` outside `resuming`."""
    folder = _FOLDER.get()
    return not_stored if folder is None else _Folder(folder, identity())


class _Folder:
    """Stages in a folder."""

    def __init__(self, folder: Path, identity: str):
        self._folder, self._identity = folder, identity

    def __call__(self, name: str, measure: Callable[[], np.ndarray]) -> np.ndarray:
        import numpy as np

        key = hashlib.sha256(f"{self._identity}\n{name}".encode()).hexdigest()
        path = self._folder / f"{key[:32]}.npy"
        if path.is_file():
            try:
                before: np.ndarray = np.load(path, allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise InputError(f"{path}: not an array; delete this file") from error
            return before
        values = measure()
        try:
            with replacing(path) as partial, partial.open("wb") as file:
                np.save(file, values, allow_pickle=False)
        except OSError as error:
            raise InputError(f"{path}: {reason_of(error)}; give another folder") from error
        return values


def identity_of(model: Any, about: Any) -> str:
    """A hash of a model's weights and of what else a run depends on, as JSON data."""
    import torch

    total = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        if not hasattr(weight, "detach"):
            continue
        values = weight.detach().cpu().contiguous()
        total.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        if values.numel():
            total.update(values.flatten().view(torch.uint8).numpy())
    return total.hexdigest()
