"""Prompts as arrays: those of an `.npz` file, or arrays in memory.

`tokens` [n pos] integers (`lengths` [n] if rows are padded at their ends), and optionally
`features` [n k], `names` [k], `position` [n] or one number, `group` [n], `answers` [n m],
`answer_positions` [n m] or [m], `wrong` [n m] and `corrupted` [n pos]. An array under any other
name is a feature if it holds booleans [n]. In memory, tensors and lists are accepted too; rows may
differ in length, and features may be a mapping from names to columns, such as a data frame.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.data.cells import PromptTable
from interp_toolkit.data.features import FeatureData
from interp_toolkit.data.preview import feature_notes
from interp_toolkit.data.tables import choose, integers, matrix
from interp_toolkit.errors import InputError, one_line, suggestion

ARRAYS = (
    "tokens",
    "lengths",
    "features",
    "names",
    "position",
    "group",
    "answers",
    "answer_positions",
    "wrong",
    "corrupted",
)


def data_from_arrays(source: Any, feature_names: Sequence[str] | None = None) -> FeatureData:
    """Prompts from arrays in memory.

    Args:
        source: rows of token ids (an integer array or tensor [n pos], or a list of rows, which may
            differ in length), or a mapping of arrays by name, such as `tokens` and `features`
            (`data.arrays` lists the names).
        feature_names: the features to take, in this order; None: all; empty: none.

    Raises:
        InputError: an array that does not fit, by name.

    Examples:
        >>> data_from_arrays([[5, 7, 9], [7, 9]]).lengths.tolist()
        [3, 2]
        >>> rows = {"tokens": np.array([[5, 7], [7, 9]]), "features": {"odd": [True, False]}}
        >>> data_from_arrays(rows).column("odd").tolist()
        [True, False]
    """
    arrays = source if isinstance(source, Mapping) else {"tokens": source}
    read = {
        str(name): _columns(value) if name == "features" else _rows(str(name), value)
        for name, value in arrays.items()
        if value is not None
    }
    data = data_of_arrays("data", read, feature_names)
    return dataclasses.replace(data, reading=tuple(feature_notes(data)))


def data_of_arrays(
    path: str | Path, arrays: Mapping[str, Any], feature_names: Sequence[str] | None
) -> FeatureData:
    """Check arrays by name and convert them to data; `path` is their source, for messages."""
    own_names = _columns_by_own_name(path, arrays)
    if "tokens" not in arrays:
        raise InputError(f"{path}: there is no array 'tokens'")
    tokens = arrays["tokens"]
    if isinstance(tokens, list):
        if "lengths" in arrays:
            raise InputError(
                f"{path}: lengths are only for padded rows, and these tokens are not padded: "
                "remove lengths"
            )
    elif tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise InputError(f"{path}: tokens must be integers [row position], not {_form(tokens)}")
    none_asked = feature_names is not None and not len(feature_names)
    columns = {} if none_asked else _named_columns(path, arrays)
    if twice := [name for name in own_names if name in columns]:
        raise InputError(f"{path}: two features are called {twice[0]!r}")
    columns = columns if none_asked else {**columns, **own_names}
    chosen = choose(path, columns, feature_names)
    position = arrays.get("position")
    if position is not None and position.ndim == 0:
        position = np.full(len(tokens), position)
    return FeatureData(
        _cut(path, tokens, arrays.get("lengths")),
        matrix(path, chosen, columns, len(tokens)),
        tuple(chosen),
        None if position is None else integers(_column(path, "position", position), "position"),
        _groups(path, arrays.get("group")),
        str(path),
        _ids(path, arrays, "answers"),
        _ids(path, arrays, "answer_positions"),
        _ids(path, arrays, "wrong"),
        _corrupted(path, tokens, arrays),
    )


def _column(path: str | Path, name: str, values: np.ndarray) -> PromptTable:
    return PromptTable.of(path, {name: values.tolist()}, "row index", 0)


def _ids(path: str | Path, arrays: Mapping[str, Any], name: str) -> np.ndarray | None:
    values = arrays.get(name)
    if values is not None and (values.dtype.kind not in "iu" or values.ndim > 2):
        raise InputError(
            f"{path}: {name} must be an integer array of one or two axes, not {_form(values)}"
        )
    return None if values is None else values.astype(np.int64)


def _corrupted(
    path: str | Path, tokens: Any, arrays: Mapping[str, Any]
) -> Sequence[np.ndarray] | None:
    """The corrupted rows, padded like the clean ones."""
    rows = arrays.get("corrupted")
    if rows is None:
        return None
    if isinstance(rows, list) or isinstance(tokens, list):
        return list(rows)  # `FeatureData` compares each with its clean row
    if rows.shape != tokens.shape or rows.dtype.kind not in "iu":
        raise InputError(
            f"{path}: corrupted must be integers {list(tokens.shape)} as tokens are, not "
            f"{_form(rows)}"
        )
    return _cut(path, rows, arrays.get("lengths"))


def _columns_by_own_name(path: str | Path, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Boolean arrays under other names than `ARRAYS`; raises InputError for other arrays."""
    columns = {name: array for name, array in arrays.items() if name not in ARRAYS}
    for name, array in columns.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "b" or array.ndim != 1:
            form = _form(array) if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(
                f"{path}: unknown array {name!r}{suggestion(name, ARRAYS)}; a feature must be "
                f"booleans [row], not {form}"
            )
    return columns


def _named_columns(path: str | Path, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if "features" not in arrays:
        return {}
    features = arrays["features"]
    if isinstance(features, dict):
        return features
    if features.ndim != 2:
        raise InputError(f"{path}: features must be [row feature], not {_form(features)}")
    names = _names(path, arrays.get("names"), features.shape[1])
    return {name: features[:, k] for k, name in enumerate(names)}


def _names(path: str | Path, names: np.ndarray | None, n_features: int) -> list[str]:
    if names is None:
        letters = string.ascii_lowercase
        return (
            list(letters[:n_features])
            if n_features <= len(letters)
            else [f"feature{k}" for k in range(n_features)]
        )
    if names.dtype.kind != "U" or names.shape != (n_features,):
        raise InputError(f"{path}: names must be {n_features} strings, not {_form(names)}")
    if len(set(names.tolist())) < n_features:
        raise InputError(f"{path}: two features have the same name")
    return [str(name) for name in names]


def _groups(path: str | Path, groups: np.ndarray | None) -> np.ndarray | None:
    if groups is not None and (groups.dtype.kind not in "iuUb" or groups.ndim != 1):
        raise InputError(f"{path}: group must be strings or integers [row], not {_form(groups)}")
    return groups


def _cut(path: str | Path, tokens: Any, lengths: np.ndarray | None) -> Sequence[np.ndarray]:
    """Rows without their padding."""
    if lengths is None:
        return list(tokens)
    if lengths.shape != (len(tokens),) or lengths.dtype.kind not in "iu":
        raise InputError(f"{path}: lengths must be {len(tokens)} integers, not {_form(lengths)}")
    bad = np.flatnonzero((lengths < 1) | (lengths > tokens.shape[1]))
    if len(bad):
        raise InputError(
            f"{path}: row index {bad[0]} has length {lengths[bad[0]]}; rows hold 1 to "
            f"{tokens.shape[1]}"
        )
    return [row[:length] for row, length in zip(tokens, lengths.tolist(), strict=True)]


def _rows(name: str, value: Any) -> Any:
    """A value as one array; rows of different lengths as a list of arrays."""
    if name in ("tokens", "corrupted") and isinstance(value, list | tuple):
        rows = [_array(name, row) for row in value]
        return np.stack(rows) if rows and len({row.shape for row in rows}) == 1 else rows
    return _array(name, value)


def _columns(value: Any) -> Any:
    """Features as an array, or as columns by name if they are a mapping or a data frame."""
    if isinstance(value, Mapping) or hasattr(value, "columns"):
        return {str(name): _array(f"feature {name!r}", value[name]) for name in value}
    return _array("features", value)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        if hasattr(value, "detach"):  # a tensor, on any device
            value = value.detach().cpu()
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"data: {name} is not an array ({one_line(error)})") from None


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"
