"""Keeping the arrays that finished stages of a long analysis measured, so that it can go on.

`resuming(folder)` keeps the arrays that stages make as .npy files. A stage is named by the model's
weights and settings, the prompts, the options, the versions of packages and what it measures, all
hashed: a run that differs in any of them measures again. Files are read as arrays of numbers, never
as objects. `structured` keeps records of named classes, their fields as JSON in an array of bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp_toolkit.errors import InputError, one_line, reason_of
from interp_toolkit.files import replacing

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

#: `store(name, measure)`: what `measure()` returns, or what it returned before it was stopped
Store = Callable[[str, Callable[[], "np.ndarray"]], "np.ndarray"]
CHECKED = 16  # prompts on which a model is compared with that of stored stages
_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


def not_stored(name: str, measure: Callable[[], np.ndarray]) -> np.ndarray:
    """A `Store` that keeps nothing."""
    return measure()


def structured(
    store: Store, name: Callable[[], str], measure: Callable[[], Any], *kinds: type
) -> Any:
    """What `measure()` returns, or what it returned before the run was stopped.

    Args:
        store: the run's store.
        name: returns the name of the stage; called only where stages are stored.
        measure: returns numbers, texts, arrays and dataclasses of these kinds, in lists, tuples and
            mappings of texts. Floats and arrays are stored exactly.
        kinds: the dataclasses, and named tuples that are to be read back as such.
    """
    if store is not_stored:
        return measure()
    import numpy as np

    measured: list[Any] = []

    def as_bytes() -> np.ndarray:
        measured.append(measure())
        return np.frombuffer(json.dumps(_plain(measured[0], kinds)).encode(), dtype=np.uint8)

    stored = store(name(), as_bytes)
    if measured:
        return measured[0]
    try:
        return _read(json.loads(stored.tobytes()), {kind.__name__: kind for kind in kinds})
    except Exception as error:  # whatever damaged JSON leads to; no code is run
        raise InputError(
            f"a stage of --resume is damaged ({one_line(error)[:60]}); give another folder"
        ) from error


def _plain(value: Any, kinds: Sequence[type] = ()) -> Any:
    """JSON data for a value: all but lists and single values as {kind: parts}."""
    import numpy as np

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"an array of {value.dtype} is not stored")
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": [value.dtype.str, list(value.shape), content]}
    if isinstance(value, tuple) and type(value) in kinds:
        names: Sequence[str] = getattr(value, "_fields", ())
        named = {name: _plain(getattr(value, name), kinds) for name in names}
        return {"record": [type(value).__name__, named]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, kinds) for item in value]}
    if isinstance(value, list):
        return [_plain(item, kinds) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _plain(item, kinds) for key, item in value.items()}}
    if dataclasses.is_dataclass(value):
        fields = {
            f.name: _plain(getattr(value, f.name), kinds)
            for f in dataclasses.fields(value)
            if f.init
        }
        return {"record": [type(value).__name__, fields]}
    raise TypeError(f"a {type(value).__name__} is not stored")


def _read(written: Any, kinds: Mapping[str, type]) -> Any:
    """The value of `_plain`'s data; records only of these kinds."""
    import numpy as np

    if isinstance(written, list):
        return [_read(item, kinds) for item in written]
    if not isinstance(written, dict):
        return written
    ((form, parts),) = written.items()
    if form == "array":
        dtype, shape, content = parts
        kind = np.dtype(dtype)
        if kind.kind not in "biuf":
            raise ValueError(f"an array of {kind}")
        return np.frombuffer(base64.b64decode(content), dtype=kind).reshape(shape).copy()
    if form == "tuple":
        return tuple(_read(item, kinds) for item in parts)
    if form == "mapping":
        return {key: _read(item, kinds) for key, item in parts.items()}
    name, fields = parts
    return kinds[name](**{key: _read(item, kinds) for key, item in fields.items()})


@contextmanager
def resuming(folder: str | Path | None) -> Iterator[None]:
    """Inside the block, stages are read from this folder, or kept in it; None: neither.

    Raises InputError if it cannot be made.
    """
    path = None
    if folder is not None:
        try:
            path = Path(folder).expanduser()
            path.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError, ValueError) as error:
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
                before = np.load(path, allow_pickle=False)
            except Exception as error:  # whatever a damaged header leads to
                raise InputError(f"{path}: not an array; delete this file") from error
            if not isinstance(before, np.ndarray):
                raise InputError(f"{path}: not an array; delete this file")
            return before
        values = measure()
        try:
            with replacing(path) as partial, partial.open("wb") as file:
                np.save(file, values, allow_pickle=False)
        except OSError as error:
            raise InputError(f"{path}: {reason_of(error)}; give another folder") from error
        return values


def about_data(data: Any) -> Any:
    """What of a `FeatureData` (or None) results depend on, as JSON data."""
    if data is None:
        return None
    groups = None if data.groups is None else [str(group) for group in data.groups]
    return [data.digest(), list(data.names), groups]


def checked_tokens(model: Any, data: Any) -> Tensor:
    """Prompts on which the model is compared with that of the stored stages."""
    import numpy as np
    import torch

    from interp_toolkit.models.running.forward import probe_tokens

    if data is None:
        return probe_tokens(model)
    tokens = [np.asarray(row) for row in data.tokens]
    alike = [row for row in tokens if len(row) == len(tokens[0])]
    chosen = np.linspace(0, len(alike) - 1, min(len(alike), CHECKED)).astype(int)
    return torch.as_tensor(np.stack([alike[i] for i in chosen]))


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
