"""What is known about a loaded model: where it came from, what was assumed, what it was made for.

Kept beside the model, not in it, so that any TransformerLens model can have one.
A task record (`TaskRecord`) is the part an analysis uses to make its data:
`{"name": "xor", "function": "0110", "tokens": {"0": 0, "1": 1, "query": 2}, "layout": [...]}`,
where `layout` lists one prompt: `"a"`, `"b"`, ... for the features' places, `"query"` for the
query's.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from interp_toolkit.models.model import Model
from interp_toolkit.task_record import TaskRecord

Kind = Literal[
    "checkpoint", "state_dict", "bridge_state_dict", "huggingface", "gguf", "toy", "live"
]


@dataclass(frozen=True)
class ModelRecord:
    """Where a model came from and what is known about it.

    Attributes:
        name: what the user asked for (`toy:xor-2head`, a file name, a class name).
        kind: what it was loaded from.
        path: the file or folder, if any.
        sha256: of the file, if it is one.
        assumptions: what the file did not say and was assumed, one phrase each.
        notes: what else to know of the weights, one phrase each: that they were quantised, or
            that there is no head.
        alternatives: what else the file allows in place of what was assumed, as settings.
        config: the model's configuration as plain data.
        task: the task it was made for, if known, as its file says it (see `made_for`).
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
        """The task, read; one that says nothing where none is known."""
        return TaskRecord.from_json(self.task)


_RECORDS: weakref.WeakKeyDictionary[Any, ModelRecord] = weakref.WeakKeyDictionary()


def set_record(model: Model, record: ModelRecord) -> None:
    """Remember what is known about this model."""
    _RECORDS[model] = record


def record_of(model: Model) -> ModelRecord:
    """What is known about this model; for a live model handed over, its class and configuration.

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
    """A model's configuration as plain data: what is a number, a string or a boolean in it."""
    if hasattr(cfg, "model_dump"):
        return dict(cfg.model_dump())
    fields = vars(cfg) if hasattr(cfg, "__dict__") else {}
    plain = {k: v for k, v in fields.items() if isinstance(v, int | float | str | bool | None)}
    if "dtype" in fields:
        plain["dtype"] = str(fields["dtype"]).removeprefix("torch.")
    return plain
