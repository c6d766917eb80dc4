"""Objects that hold arrays, in one line: what a session shows of them when it is asked.

`Brief` gives a dataclass a `repr` with each field's value where that is short, and otherwise its
size: `Certificate(positive_weights=float64[2], negative_weights=float64[2], residual=2.8e-17)`. A
notebook shows the same as a small table.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Set
from typing import Any

LETTERS = 40
ITEMS = 4


class OneRepr:
    """Base of dataclasses that keep the `repr` of their base."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Keep `dataclass` from writing one with every field."""
        super().__init_subclass__(**given)
        if "__repr__" not in vars(cls):
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]


class Brief(OneRepr):
    """Base of dataclasses that hold arrays."""

    def __repr__(self) -> str:
        said = (f"{name}={brief(value)}" for name, value in shown_fields(self))
        return f"{type(self).__name__}({', '.join(said)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align: left">{html.escape(name)}</th>'
            f'<td style="text-align: left">{html.escape(brief(value))}</td></tr>'
            for name, value in shown_fields(self)
        )
        return f"<strong>{type(self).__name__}</strong><table>{rows}</table>"


def shown_fields(value: Any) -> list[tuple[str, Any]]:
    """Name and value of a dataclass' fields that its `repr` shows, those without a value left out.

    An attribute that is computed on first use is not a field, and not asked for.
    """
    fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr)
    return [(name, held) for name, held in fields if held is not None]


def brief(value: Any) -> str:
    """A value in a few letters: numbers and short texts as they are, arrays by type and shape."""
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        return repr(value if len(value) <= LETTERS else f"{value[: LETTERS - 1]}…")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if isinstance(value, Mapping):
        return f"{{{len(value)} entries}}"
    if isinstance(value, list | tuple | Set):
        plain = len(value) <= ITEMS and all(isinstance(v, bool | int | float | str) for v in value)
        return f"[{', '.join(map(brief, value))}]" if plain else f"[{len(value)} items]"
    return getattr(value, "__name__", None) or type(value).__name__


def _array(value: Any) -> str:
    shape = tuple(value.shape)
    if not shape:
        return brief(value.item())
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind}[{', '.join(map(str, shape))}]"
