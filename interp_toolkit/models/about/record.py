"""Records of loaded models (origin, assumptions, intended task), and the provenance of results.

A record is kept beside the model, not in it, so that any TransformerLens model can have one.
Analyses build their data from its task (`TaskRecord`):
`{"name": "xor", "function": "0110", "tokens": {"0": 0, "1": 1, "query": 2}, "layout": [...]}`.
`layout` describes one prompt: `"a"`, `"b"`, ... mark the positions of the features, `"query"` that
of the query.

The provenance of a result holds the model's record, the data, the settings and the versions.
"""

from __future__ import annotations

import hashlib
import platform
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from interp_toolkit import state as preserve_state
from interp_toolkit._version import __version__
from interp_toolkit.models.model import Model
from interp_toolkit.registry import TaskRecord
from interp_toolkit.results import Provenance

Kind = Literal[
    "checkpoint", "state_dict", "bridge_state_dict", "huggingface", "gguf", "toy", "live"
]


@dataclass(frozen=True)
class ModelRecord:
    """A model's origin, the assumptions made while loading, and its task.

    Attributes:
        name: the name that the user requested (`toy:xor-2head`, a file name, a class name).
        kind: kind of its source.
        path: the file or folder, if any.
        sha256: hash of the file, if it is one.
        assumptions: properties that the file does not specify and were assumed, one phrase each.
        notes: further facts about the weights, one phrase each: that they were quantized, or
            that there is no unembedding.
        alternatives: settings that fit the file as well as the assumed ones.
        config: the model's configuration as plain data.
        task: the task it was made for, if known, as in its file (see `made_for`).
        training: how it was trained, if known.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.models.about.record import record_of
        >>> record_of(it.load("toy:xor-2head")).kind
        'toy'
    """

    name: str
    kind: Kind
    path: str | None = None
    sha256: str | None = None
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    alternatives: tuple[Mapping[str, Any], ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None

    @property
    def made_for(self) -> TaskRecord:
        """The task as a `TaskRecord`, whose fields are None if no task is known."""
        return TaskRecord.from_json(self.task)


_RECORDS: weakref.WeakKeyDictionary[Any, ModelRecord] = weakref.WeakKeyDictionary()


def set_record(model: Model, record: ModelRecord) -> None:
    """Store the record of this model."""
    _RECORDS[model] = record


def record_of(model: Model) -> ModelRecord:
    """The record of this model; for a live model, its class and configuration.

    Examples:
        >>> import interp_toolkit as it
        >>> record_of(it.load("toy:xor-2head")).task["function"]
        '0110'
    """
    if model in _RECORDS:
        return _RECORDS[model]
    return ModelRecord(
        name=type(model).__name__, kind="live", config=plain_config(getattr(model, "cfg", None))
    )


def plain_config(cfg: Any) -> dict[str, Any]:
    """A model's configuration as plain data: its numbers, strings and booleans."""
    if hasattr(cfg, "model_dump"):
        return dict(cfg.model_dump())
    fields = vars(cfg) if hasattr(cfg, "__dict__") else {}
    plain = {k: v for k, v in fields.items() if isinstance(v, int | float | str | bool | None)}
    if "dtype" in fields:
        plain["dtype"] = str(fields["dtype"]).removeprefix("torch.")
    return plain


def _from_here(path: str) -> str:
    """A path seen from the working folder; of one elsewhere the name alone."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd().resolve()))
    except (OSError, ValueError):
        return Path(path).name


def provenance(
    model: Model, data: Mapping[str, Any], settings: Mapping[str, Any], seed: int | None
) -> Provenance:
    """The provenance of a result about this model.

    Args:
        model: the analyzed model.
        data: source, number of prompts and hash of its data; empty if only weights are analyzed.
        settings: the analysis' options, as run.
        seed: seed of every random draw; None if there were none.
    """
    record = record_of(model)
    return Provenance(
        model={
            "name": record.name,
            "kind": record.kind,
            "path": None if record.path is None else _from_here(record.path),
            "sha256": record.sha256,
            "assumptions": list(record.assumptions),
            "notes": list(record.notes),
            "config": dict(record.config),
            **({"set_aside": list(preserve_state.notes())} if preserve_state.notes() else {}),
        },
        data=data,
        settings=settings,
        seed=seed,
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """The versions of packages on which numbers may depend."""
    return {
        "interp-toolkit": __version__,
        "torch": version("torch"),
        "transformer-lens": version("transformer-lens"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }


def digest_of_tokens(tokens: Tensor) -> str:
    """SHA-256 of an array of token ids, shape included."""
    return digest_of_arrays(tokens.cpu().numpy().astype("<i8"))


def digest_of_arrays(*arrays: np.ndarray) -> str:
    """SHA-256 of arrays, shapes included."""
    total = hashlib.sha256()
    for values in arrays:
        total.update(f"{values.shape}".encode() + np.ascontiguousarray(values).tobytes())
    return total.hexdigest()
