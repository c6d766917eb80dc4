"""Objects of strangers' classes as inert records: their attributes, without their class.

A record keeps what a pickle says about an instance. It becomes plain data: a dictionary of the
attributes; for a pickled module (whatever has `_parameters`, `_buffers` and `_modules`) the
tensors under the names that its state dict would have, and its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

#: where `plain` names the class of a module that was pickled whole
PICKLED_CLASS = "pickled_class"
_CONFIGS = ("cfg", "config")


class WouldCallError(Exception):
    """A pickle asks for a call that is not made; the message is what it would have called."""


class Record:
    """What a pickle says about one object; each class of the pickle is a subclass of this.

    Attributes:
        qualified: the name that the class had.
        fields: the attributes, or the entries of what was a kind of dictionary.
        items: the entries of what was a kind of list.
    """

    qualified = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Record:
        """An empty record: a pickle makes instances this way before it sets their attributes."""
        record = super().__new__(cls)
        record.fields = {}
        record.items = []
        return record

    def __init__(self, *args: Any, **kwargs: Any):
        raise WouldCallError(self.qualified)  # only a call comes here

    fields: dict[Any, Any]
    items: list[Any]

    def __setstate__(self, state: Any) -> None:
        """Keep the attributes, those in slots too."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, Mapping):
                self.fields.update(part)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep an entry."""
        self.fields[key] = value

    def append(self, value: Any) -> None:
        """Keep an entry."""
        self.items.append(value)

    def extend(self, values: Any) -> None:
        """Keep several entries."""
        self.items.extend(values)


def stub(qualified: str) -> type[Record]:
    """What stands for a class or a function of that name: it can be named, not called."""
    name = qualified.rpartition(".")[2]
    return type(name, (Record,), {"qualified": qualified})


def plain(value: Any) -> Any:
    """The value without records: what they held, as dictionaries and lists; tensors stay.

    An object that holds itself is None where it comes again.
    """
    return _plain(value, {})


def _plain(value: Any, done: dict[int, Any]) -> Any:
    if id(value) not in done:
        done[id(value)] = None
        done[id(value)] = _converted(value, done)
    return done[id(value)]


def _converted(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, Record):
        if _is_module(value):
            return _module(value, done)
        return _plain(value.fields or value.items, done)
    if isinstance(value, Mapping):
        return {key: _plain(entry, done) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, done) for entry in value]
    if isinstance(value, type) and issubclass(value, Record):
        return value.qualified  # a class or function that is an attribute: its name
    return value


def _is_module(value: Any) -> bool:
    return isinstance(value, Record) and value.fields.keys() >= {"_parameters", "_modules"}


def _module(record: Record, done: dict[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {PICKLED_CLASS: record.qualified, "state_dict": dict(_tensors(record))}
    for name in _CONFIGS:
        config = _plain(record.fields.get(name), done)
        if isinstance(config, Mapping):
            found["cfg"] = config
    return found


def _tensors(
    record: Record, prefix: str = "", around: tuple[Record, ...] = ()
) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers, in the order and under the names of a state dict."""
    unsaved = record.fields.get("_non_persistent_buffers_set") or ()
    for kind in ("_parameters", "_buffers"):
        for name, tensor in (record.fields.get(kind) or {}).items():
            if isinstance(tensor, Tensor) and name not in unsaved:
                yield prefix + name, tensor
    for name, module in record.fields["_modules"].items():
        if _is_module(module) and module not in around:
            yield from _tensors(module, f"{prefix}{name}.", (*around, record))
