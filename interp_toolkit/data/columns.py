"""Columns of a data file, checked value by value; what does not fit is named with its place.

Rows are called `unit` ("row" or "line") and counted from `first` in messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.errors import InputError, suggestion


def choose(
    path: str | Path, features: Mapping[str, Any], feature_names: Sequence[str] | None
) -> list[str]:
    """The features to read, in their order; raises InputError for one that is not there."""
    chosen = list(features) if feature_names is None else list(feature_names)
    for name in chosen:
        if name not in features:
            raise InputError(f"{path}: there is no feature {name!r}{suggestion(name, features)}")
    return chosen


def matrix(
    path: str | Path,
    chosen: Sequence[str],
    columns: Mapping[str, Iterable[Any]],
    n_rows: int,
    unit: str,
    first: int,
) -> np.ndarray:
    """The chosen columns side by side, [row feature]."""
    if not chosen:
        return np.zeros((n_rows, 0), dtype=bool)
    checked = {name: _booleans(path, name, columns[name], unit, first) for name in chosen}
    for name, column in checked.items():
        if len(column) != n_rows:
            raise InputError(f"{path}: {len(column)} feature rows for {n_rows} rows ({name!r})")
    return np.stack(list(checked.values()), axis=1)


def id_lists(
    path: str | Path, name: str, values: Sequence[Any] | None, unit: str, first: int
) -> np.ndarray | None:
    """A column of integers, or of lists of integers of one length."""
    if values is None:
        return None
    rows = [value if isinstance(value, list) else [value] for value in values]
    for number, row in enumerate(rows, first):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{path}: {unit} {number} has {len(row)} values of {name!r}, {unit} {first} has "
                f"{len(rows[0])}; rows ask at equally many places"
            )
    if not rows[0]:
        raise InputError(f"{path}: column {name!r} is empty")
    columns = [integers(path, name, column, unit, first) for column in zip(*rows, strict=True)]
    return np.stack(columns, axis=1)


def _booleans(
    path: str | Path, name: str, values: Iterable[Any], unit: str, first: int
) -> np.ndarray:
    """A feature column; 0 and 1 count as booleans, other numbers and missing values do not."""
    column = []
    for number, value in enumerate(values, first):
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise InputError(
                f"{path}: {unit} {number}, column {name!r}: {short(value)} is no boolean; "
                "leave the column out or choose the features to read"
            )
        column.append(bool(value))
    return np.array(column, dtype=bool)


def integers(
    path: str | Path, name: str, values: Iterable[Any], unit: str, first: int
) -> np.ndarray:
    """A column of integers; raises InputError for what is none."""
    column = []
    for number, value in enumerate(values, first):
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
            raise InputError(
                f"{path}: {unit} {number}, column {name!r}: {short(value)} is no integer"
            )
        column.append(value)
    return np.array(column, dtype=np.int64)


def group_names(path: str | Path, values: Sequence[Any], unit: str, first: int) -> np.ndarray:
    """A column of names or numbers, as names; raises InputError for what is neither."""
    for number, value in enumerate(values, first):
        if not isinstance(value, str | int):
            raise InputError(
                f"{path}: {unit} {number}, column 'group': {short(value)} is no name or number"
            )
    return np.array([str(value) for value in values])


def short(value: Any) -> str:
    """A value in a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
