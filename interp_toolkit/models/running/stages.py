"""Keeping the arrays that finished stages of a long analysis measured, so that it can go on.

`resuming(folder)` keeps the arrays that stages make as .npy files. A stage is named by the model's
weights and settings, the prompts, the options, the versions of packages and what it measures, all
hashed: a run that differs in any of them measures again. Files are read as arrays of numbers, never
as objects.
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
    from torch import Tensor

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


def store_of(model: Any, about: Callable[[], Any], tokens: Callable[[], Tensor]) -> Store:
    """The store of a run on this model; `not_stored` outside `resuming`.

    Weights and settings do not say all that a model computes (hooks, say): its logits on some
    prompts are stored too.

    Args:
        model: any TransformerLens model.
        about: returns what else the run depends on, as JSON data.
        tokens: returns the prompts of the check.

    Raises:
        InputError: the folder has stages of a run in which the same weights gave other logits.
    """
    folder = _FOLDER.get()
    if folder is None:
        return not_stored
    import torch

    from interp_toolkit.models.running.forward import run
    from interp_toolkit.models.weights.precision import agrees

    store = _Folder(folder, identity_of(model, about()))
    logits = run(model, tokens())
    assert logits is not None
    if not agrees(torch.from_numpy(store("logits", lambda: logits.float().cpu().numpy())), logits):
        raise InputError(
            f"--resume {folder}: with these weights and settings the model computes other logits "
            "than when its stages were stored (hooks?); give another folder"
        )
    return store


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
    """A hash of a model's weights and settings, and of what else a run depends on, as JSON data."""
    import torch

    from interp_toolkit.models.about.record import plain_config

    settings = plain_config(getattr(model, "cfg", None))
    total = hashlib.sha256(json.dumps([about, settings], sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        if isinstance(weight, torch.Tensor):
            values = weight.detach().cpu().contiguous()
            total.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
            if values.numel():
                total.update(values.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
