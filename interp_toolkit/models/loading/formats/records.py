"""Inert records of objects of unknown classes: their attributes, without their class.

A record keeps the attributes of an instance in a pickle. It becomes plain data: a dictionary of the
attributes, or, for a pickled module (anything with `_parameters`, `_buffers` and `_modules`), the
tensors under the names of its state dict, and its configuration.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from torch import Tensor

#: key under which `plain` stores the class of a module that was pickled whole
PICKLED_CLASS = "pickled_class"
_CONFIGS = ("cfg", "config")
_LETTERS = 10_000_000  # characters of all names in state dicts; twice that of the largest models


class WouldCallError(Exception):
    """A pickle contains a call that is not allowed; the message names the function."""


class TooMuchError(Exception):
    """A pickle's content is larger than any model; the message says which part."""


class Record:
    """A pickle's record of one object; each class in the pickle is a subclass of this.

    Attributes:
        qualified: qualified name of the class.
        fields: the attributes, or the entries of a dictionary-like object.
        items: the entries of a list-like object.
    """

    qualified = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Record:
        """An empty record: a pickle creates instances before it sets their attributes."""
        record = super().__new__(cls)
        record.fields = {}
        record.items = []
        return record

    def __init__(self, *args: Any, **kwargs: Any):
        raise WouldCallError(self.qualified)  # only an explicit call in the pickle reaches this

    fields: dict[Any, Any]
    items: list[Any]

    def __setstate__(self, state: Any) -> None:
        """Keep the attributes, including those in slots."""
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


class HeldTensor:
    """A tensor in a form that a pickle can name but not change.

    Args:
        tensor: the tensor to keep.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __setstate__(self, state: Any) -> None:
        """Refuse: a tensor's own method could claim numbers that its storage does not have."""
        raise pickle.UnpicklingError("the state of a tensor cannot be set")


def stub(qualified: str) -> type[Record]:
    """A stub for a class or function of that name: it can be named but not called."""
    name = qualified.rpartition(".")[2]
    return type(name, (Record,), {"qualified": qualified})


def plain(value: Any) -> Any:
    """The value with records replaced by dictionaries and lists; tensors are unchanged.

    Inside an object that contains itself, the repeated occurrence is None.

    Raises:
        TooMuchError: modules share their parts so often that their names would be unbounded.
    """
    return _Conversion().plain(value)


class _Conversion:
    """One pass over a pickle's content: objects are converted once, names are counted."""

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._letters = 0

    def plain(self, value: Any) -> Any:
        if id(value) not in self._done:
            self._done[id(value)] = None
            self._done[id(value)] = self._converted(value)
        return self._done[id(value)]

    def _converted(self, value: Any) -> Any:
        if isinstance(value, Record):
            if _is_module(value):
                return self._module(value)
            return self.plain(value.fields or value.items)
        if isinstance(value, HeldTensor):
            return value.tensor
        if isinstance(value, Mapping):
            return {key: self.plain(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(entry) for entry in value]
        if isinstance(value, type) and issubclass(value, Record):
            return value.qualified  # an attribute that is a class or function: its name
        return value

    def _module(self, record: Record) -> dict[str, Any]:
        state: dict[str, Tensor] = {}
        self._add_tensors(record, "", (), state)
        module: dict[str, Any] = {PICKLED_CLASS: record.qualified, "state_dict": state}
        for name in _CONFIGS:
            config = self.plain(record.fields.get(name))
            if isinstance(config, Mapping):
                module["cfg"] = config
        return module

    def _add_tensors(
        self, record: Record, prefix: str, around: tuple[Record, ...], state: dict[str, Tensor]
    ) -> None:
        """Parameters and persistent buffers, in the order and under the names of a state dict."""
        unsaved = record.fields.get("_non_persistent_buffers_set") or ()
        for kind in ("_parameters", "_buffers"):
            for name, tensor in (record.fields.get(kind) or {}).items():
                full = self._counted(prefix, name)
                if isinstance(tensor, HeldTensor) and name not in unsaved:
                    state[full] = tensor.tensor
        for name, module in record.fields["_modules"].items():
            full = self._counted(prefix, name)
            if _is_module(module) and module not in around:
                self._add_tensors(module, f"{full}.", (*around, record), state)

    def _counted(self, prefix: str, name: Any) -> str:
        """The full name; shared parts count under each of their names."""
        self._letters += len(prefix) + len(name) + 1
        if self._letters > _LETTERS:
            raise TooMuchError("its modules share parts under too many names to list")
        return f"{prefix}{name}"


def _is_module(value: Any) -> bool:
    return isinstance(value, Record) and value.fields.keys() >= {"_parameters", "_modules"}
