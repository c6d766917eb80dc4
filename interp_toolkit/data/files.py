"""Data files: `.npz`, `.parquet`, `.jsonl` and `.txt`, read as data and never as code.

- `.npz`: arrays `tokens` [n pos] integers (`lengths` [n] if rows are padded at their ends), and
  maybe `features` [n k], `names` [k], `position` [n] or one number, `group` [n], `answers` [n k],
  `answer_positions` [n k] or [k], `wrong` [n k] and `corrupted` [n pos].
- `.parquet` and `.jsonl`: columns `tokens` (lists of ids) or `text` (needs a tokenizer), either of
  them called `clean` as well, maybe `position`, `group`, `answer` (an id, a list of them, or text),
  `answer_position`, `wrong` (as `answer`) and `corrupted` (text or ids); every other column is a
  feature, unless `feature_names` chooses.
- `.txt`: a prompt a line, without features and answers.

Features are booleans, or the integers 0 and 1; answers are token ids that the logits should name,
at the end of the row or at the places given, `wrong` ones those that they should not (`pairs` says
what corrupted rows are). Prompts in words get what the tokenizer puts around every text, answers
in words do not. Whatever does not fit is one InputError that names the file and the place.
"""

from __future__ import annotations

import json
import string
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.data.columns import choose, integers, matrix
from interp_toolkit.data.encoding import Tokenizer
from interp_toolkit.data.features import FeatureData
from interp_toolkit.data.pairs import EXAMPLE, EXAMPLE_OF_IDS
from interp_toolkit.data.plain_texts import data_from_texts, read_text
from interp_toolkit.data.tables import data_of_columns
from interp_toolkit.errors import InputError, suggestion

_PAIRS = ("clean", "corrupted", "wrong", "answer")
_NPZ_ARRAYS = (
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


def read_data(
    path: str | Path,
    tokenizer: Tokenizer | None = None,
    d_vocab: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> FeatureData:
    """The data in a file.

    Args:
        path: a `.npz`, `.parquet`, `.jsonl` or `.txt` file.
        tokenizer: text -> token ids (a list, an array, or a mapping with `input_ids`); needed for
            files of text.
        d_vocab: the model's vocabulary size, if token ids are to be checked against it.
        feature_names: which features to read, in this order; None: all that there are; empty:
            none, for features that come from elsewhere.

    Raises:
        InputError: anything about the file that does not fit.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("rows.jsonl").write_text('{"tokens": [5, 7, 9], "a": true, "b": false}')
        >>> data = read_data("rows.jsonl")
        >>> data.names, data.features.tolist()
        (('a', 'b'), [[True, False]])
    """
    path = Path(path)
    readers = {
        ".npz": _read_npz,
        ".parquet": _read_parquet,
        ".jsonl": _read_jsonl,
        ".txt": _read_txt,
    }
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: data files end in {', '.join(readers)}")
    if not path.is_file():
        raise InputError(
            f"{path}: this is no regular file"
            if path.exists()
            else f"{path}: there is no such file"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    data = readers[path.suffix.lower()](path, tokenizer, feature_names)
    return data if d_vocab is None else data.check_vocabulary(d_vocab)


def _read_npz(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    arrays = _load_npz(path)
    for name in arrays:
        if name not in _NPZ_ARRAYS:
            raise InputError(f"{path}: unknown array {name!r}{suggestion(name, _NPZ_ARRAYS)}")
    no_features = "features" not in arrays or (feature_names is not None and not len(feature_names))
    if "tokens" not in arrays:
        raise InputError(f"{path}: there is no array 'tokens'")
    tokens = arrays["tokens"]
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise InputError(f"{path}: tokens must be integers [row position], not {_form(tokens)}")
    columns = {} if no_features else _npz_columns(path, arrays)
    chosen = choose(path, columns, feature_names)
    position = arrays.get("position")
    if position is not None and position.ndim == 0:
        position = np.full(len(tokens), position)
    return FeatureData(
        _cut(path, tokens, arrays.get("lengths")),
        matrix(path, chosen, columns, len(tokens), "row", 0),
        tuple(chosen),
        None if position is None else integers(path, "position", position, "row", 0),
        _npz_groups(path, arrays.get("group")),
        str(path),
        _npz_ids(path, arrays, "answers"),
        _npz_ids(path, arrays, "answer_positions"),
        _npz_ids(path, arrays, "wrong"),
        _npz_corrupted(path, tokens, arrays),
    )


def _npz_ids(path: Path, arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    values = arrays.get(name)
    if values is not None and (values.dtype.kind not in "iu" or values.ndim > 2):
        raise InputError(f"{path}: {name} must be integers [row place], not {_form(values)}")
    return None if values is None else values.astype(np.int64)


def _npz_corrupted(
    path: Path, tokens: np.ndarray, arrays: Mapping[str, np.ndarray]
) -> Sequence[np.ndarray] | None:
    """The corrupted rows, padded as the clean ones are."""
    rows = arrays.get("corrupted")
    if rows is None:
        return None
    if rows.shape != tokens.shape or rows.dtype.kind not in "iu":
        raise InputError(
            f"{path}: corrupted must be integers {list(tokens.shape)} as tokens are, not "
            f"{_form(rows)}"
        )
    return _cut(path, rows, arrays.get("lengths"))


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive of arrays; save it with numpy.savez")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # numpy meets a broken archive in many ways
        if "Object arrays" in str(error):
            raise InputError(
                f"{path}: it holds pickled objects, which could run code; save plain arrays"
            ) from error
        raise InputError(f"{path}: this is no readable .npz file ({_first_line(error)})") from error


def _npz_columns(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    features = arrays["features"]
    if features.ndim != 2:
        raise InputError(f"{path}: features must be [row feature], not {_form(features)}")
    names = _npz_names(path, arrays.get("names"), features.shape[1])
    return {name: features[:, k] for k, name in enumerate(names)}


def _npz_names(path: Path, names: np.ndarray | None, n_features: int) -> list[str]:
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


def _npz_groups(path: Path, groups: np.ndarray | None) -> np.ndarray | None:
    if groups is not None and (groups.dtype.kind not in "iuUb" or groups.ndim != 1):
        raise InputError(f"{path}: group must be strings or integers [row], not {_form(groups)}")
    return groups


def _cut(path: Path, tokens: np.ndarray, lengths: np.ndarray | None) -> Sequence[np.ndarray]:
    """Rows without their padding."""
    if lengths is None:
        return list(tokens)
    if lengths.shape != (len(tokens),) or lengths.dtype.kind not in "iu":
        raise InputError(f"{path}: lengths must be {len(tokens)} integers, not {_form(lengths)}")
    bad = np.flatnonzero((lengths < 1) | (lengths > tokens.shape[1]))
    if len(bad):
        raise InputError(
            f"{path}: row {bad[0]} has length {lengths[bad[0]]}; rows hold 1 to {tokens.shape[1]}"
        )
    return [row[:length] for row, length in zip(tokens, lengths.tolist(), strict=True)]


def _read_parquet(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:  # pyarrow meets a broken file in many ways
        raise InputError(
            f"{path}: this is no readable parquet file ({_first_line(error)})"
        ) from error
    if len(columns) != len(table.column_names):
        raise InputError(f"{path}: two columns have the same name")
    return data_of_columns(path, columns, tokenizer, feature_names, "row", 0)


def _read_jsonl(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    lines = read_text(path).split("\n")  # not splitlines(): a string may hold U+2028 and its like
    while not lines[-1].strip():
        lines.pop()
    records = [_record(path, number, line) for number, line in enumerate(lines, start=1)]
    keys = list(records[0])
    for number, record in enumerate(records, start=1):
        for key in keys:
            if key not in record:
                shown = f"; a valid line: {_example(records[0])}" if key in _PAIRS else ""
                raise InputError(f"{path}: line {number} has no {key!r}{shown}")
        for key in record:
            if key not in records[0]:
                raise InputError(f"{path}: line {number} has {key!r}, which line 1 has not")
    columns = {key: [record[key] for record in records] for key in keys}
    return data_of_columns(path, columns, tokenizer, feature_names, "line", 1)


def _read_txt(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    if feature_names:
        raise InputError(f"{path}: lines of text have no columns, such as {feature_names[0]!r}")
    lines = [line for line in read_text(path).split("\n") if line.strip()]
    return data_from_texts(lines, tokenizer, str(path))


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: line {number} is no complete JSON object ({_first_line(error)})"
        ) from error
    if not isinstance(record, dict):
        raise InputError(f"{path}: line {number} is no JSON object")
    return record


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _example(record: Mapping[str, Any]) -> str:
    """A valid line in the manner of a given one: in words, or in ids."""
    return EXAMPLE_OF_IDS if any(isinstance(v, list) for v in record.values()) else EXAMPLE


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
