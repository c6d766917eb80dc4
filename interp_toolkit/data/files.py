"""Data files: `.npz`, `.parquet` and `.jsonl`, read as data and never as code.

- `.npz`: arrays `tokens` [n pos] integers (`lengths` [n] if rows are padded at their ends), and
  maybe `features` [n k], `names` [k], `position` [n] or one number, `group` [n], `answers` [n k],
  `answer_positions` [n k] or [k], `wrong` [n k] and `corrupted` [n pos].
- `.parquet` and `.jsonl`: columns `tokens` (lists of ids) or `text` (needs a tokenizer), either of
  them called `clean` as well, maybe `position`, `group`, `answer` (an id, a list of them, or text),
  `answer_position`, `wrong` (as `answer`) and `corrupted` (text or ids); every other column is a
  feature, unless `feature_names` chooses.

Features are booleans, or the integers 0 and 1; answers are token ids that the logits should name,
at the end of the row or at the places given, `wrong` ones those that they should not (`pairs` says
what corrupted rows are). Prompts in words get what the tokenizer puts around every text, answers
in words do not. Whatever does not fit is one InputError that names the file and the place.
"""

from __future__ import annotations

import json
import string
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.data.encoding import Tokenizer, bare_text, whole_text
from interp_toolkit.data.features import FeatureData
from interp_toolkit.data.pairs import EXAMPLE, EXAMPLE_OF_IDS, check_corrupted, check_wrong
from interp_toolkit.errors import InputError, suggestion

_PROMPTS = ("clean", "tokens", "text")  # what a column of prompts may be called
_PAIRS = ("clean", "corrupted", "wrong", "answer")
_NOT_FEATURES = (*_PROMPTS, "corrupted", "position", "group", "answer", "answer_position", "wrong")
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
        path: a `.npz`, `.parquet` or `.jsonl` file.
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
    readers = {".npz": _read_npz, ".parquet": _read_parquet, ".jsonl": _read_jsonl}
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
    chosen = _choose(path, columns, feature_names)
    position = arrays.get("position")
    if position is not None and position.ndim == 0:
        position = np.full(len(tokens), position)
    return FeatureData(
        _cut(path, tokens, arrays.get("lengths")),
        _matrix(path, chosen, columns, len(tokens), "row", 0),
        tuple(chosen),
        None if position is None else _integers(path, "position", position, "row", 0),
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
    return _from_columns(path, columns, tokenizer, feature_names, "row", 0)


def _read_jsonl(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    try:
        # not splitlines(): a string may hold U+2028 and its like; the -sig drops a BOM
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is no UTF-8 text") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    records = [_record(path, number, line) for number, line in enumerate(lines, start=1)]
    if not records:
        raise InputError(f"{path}: there are no rows")
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
    return _from_columns(path, columns, tokenizer, feature_names, "line", 1)


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


def _from_columns(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    tokenizer: Tokenizer | None,
    feature_names: Sequence[str] | None,
    unit: str,
    first: int,
) -> FeatureData:
    """Check and assemble columns; rows are called `unit` and counted from `first` in messages."""
    rows = _prompt_rows(path, columns, tokenizer, unit, first)
    if not rows:
        raise InputError(f"{path}: there are no rows")
    features = {name: values for name, values in columns.items() if name not in _NOT_FEATURES}
    chosen = _choose(path, features, feature_names)
    position, group = columns.get("position"), columns.get("group")
    corrupted, wrong = columns.get("corrupted"), columns.get("wrong")
    answers = _answers(path, "answer", columns.get("answer"), tokenizer, unit, first)
    against = _answers(path, "wrong", wrong, tokenizer, unit, first)
    counterparts = corrupted and [
        _prompt(path, "corrupted", row, tokenizer, f"{unit} {i}")
        for i, row in enumerate(corrupted, first)
    ]
    _check_pairs(path, rows, counterparts, answers, against, unit, first)
    return FeatureData(
        rows,
        _matrix(path, chosen, features, len(rows), unit, first),
        tuple(chosen),
        None if position is None else _integers(path, "position", position, unit, first),
        None if group is None else _groups(path, group, unit, first),
        str(path),
        answers,
        _id_lists(path, "answer_position", columns.get("answer_position"), unit, first),
        against,
        counterparts,
    )


def _prompt_rows(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    tokenizer: Tokenizer | None,
    unit: str,
    first: int,
) -> list[np.ndarray]:
    """The rows of tokens, from whichever column has them."""
    if "clean" in columns:
        other = next((name for name in ("tokens", "text") if name in columns), None)
        if other is not None:
            raise InputError(f"{path}: it has both 'clean' and {other!r}; give one of them")
    name = next((name for name in _PROMPTS if name in columns), None)
    if name is None:
        raise InputError(
            f"{path}: there is no column 'tokens' or 'text' (or 'clean'); a valid line: "
            f"{EXAMPLE if tokenizer is not None else EXAMPLE_OF_IDS}"
        )
    places = [(row, f"{unit} {number}") for number, row in enumerate(columns[name], first)]
    if name == "tokens":
        return [_token_row(path, row, where) for row, where in places]
    if name == "text":
        return [_encode(path, row, tokenizer, where) for row, where in places]
    return [_prompt(path, name, row, tokenizer, where) for row, where in places]


def _check_pairs(
    path: Path,
    rows: Sequence[np.ndarray],
    corrupted: Sequence[np.ndarray] | None,
    answers: np.ndarray | None,
    wrong: np.ndarray | None,
    unit: str,
    first: int,
) -> None:
    """What `FeatureData` checks of pairs, with the file's own numbers of rows."""

    def where(number: int) -> str:
        return f"{path}: {unit} {number + first}"

    for name, given in (("wrong", wrong), ("corrupted", corrupted)):
        if given is not None and answers is None:
            raise InputError(f"{where(0)} has {name!r} and no 'answer'; a valid line: {EXAMPLE}")
    if corrupted is not None:
        check_corrupted(rows, corrupted, where)
    if answers is not None and wrong is not None and answers.shape == wrong.shape:
        check_wrong(answers, wrong, where)


def _example(record: Mapping[str, Any]) -> str:
    """A valid line in the manner of a given one: in words, or in ids."""
    return EXAMPLE_OF_IDS if any(isinstance(v, list) for v in record.values()) else EXAMPLE


def _answers(
    path: Path,
    name: str,
    values: Sequence[Any] | None,
    tokenizer: Tokenizer | None,
    unit: str,
    first: int,
) -> np.ndarray | None:
    """Token ids of a column of answers; one that is text must be one token of the model's."""
    if values is None:
        return None
    ids: list[Any] = []
    for number, value in enumerate(values, first):
        if not isinstance(value, str):
            ids.append(value)
            continue
        where = f"{unit} {number}, column {name!r}"
        if tokenizer is None:
            raise InputError(f"{path}: {where} is text, and the model has no tokenizer; give ids")
        encoded = bare_text(tokenizer, value)
        if len(encoded) != 1:
            raise InputError(
                f"{path}: {where}: {_short(value)} is {len(encoded)} tokens of this model; an "
                "answer is one (a leading space may be missing)"
            )
        ids.append(encoded[0])
    return _id_lists(path, name, ids, unit, first)


def _id_lists(
    path: Path, name: str, values: Sequence[Any] | None, unit: str, first: int
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
    columns = [_integers(path, name, column, unit, first) for column in zip(*rows, strict=True)]
    return np.stack(columns, axis=1)


def _choose(
    path: Path, features: Mapping[str, Any], feature_names: Sequence[str] | None
) -> list[str]:
    chosen = list(features) if feature_names is None else list(feature_names)
    for name in chosen:
        if name not in features:
            raise InputError(f"{path}: there is no feature {name!r}{suggestion(name, features)}")
    return chosen


def _matrix(
    path: Path,
    chosen: Sequence[str],
    columns: Mapping[str, Iterable[Any]],
    n_rows: int,
    unit: str,
    first: int,
) -> np.ndarray:
    """The chosen columns side by side, [row feature]."""
    if not chosen:
        return np.zeros((n_rows, 0), dtype=bool)
    return np.stack([_booleans(path, n, columns[n], unit, first) for n in chosen], axis=1)


def _token_row(path: Path, row: Any, where: str) -> np.ndarray:
    if isinstance(row, str):
        raise InputError(f"{path}: {where}: tokens are text; call the column 'text'")
    if not isinstance(row, list) or not row:
        raise InputError(f"{path}: {where}: tokens are no list of ids, or an empty one")
    for token in row:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            raise InputError(f"{path}: {where}: {_short(token)} is no token id")
    return np.array(row, dtype=np.int64)


def _prompt(path: Path, name: str, row: Any, tokenizer: Tokenizer | None, where: str) -> np.ndarray:
    """A prompt that is text or a list of ids."""
    if isinstance(row, str):
        return _encode(path, row, tokenizer, where)
    if not isinstance(row, list):
        raise InputError(f"{path}: {where}: {name!r} is {_short(row)}; give text or a list of ids")
    return _token_row(path, row, where)


def _encode(path: Path, row: Any, tokenizer: Tokenizer | None, where: str) -> np.ndarray:
    if tokenizer is None:
        raise InputError(f"{path}: it holds text, and the model has no tokenizer; give tokens")
    if not isinstance(row, str):
        raise InputError(f"{path}: {where}: text is {_short(row)}")
    ids = whole_text(tokenizer, row)
    if not ids:
        raise InputError(f"{path}: {where}: the text has no tokens")
    return _token_row(path, ids, where)


def _booleans(path: Path, name: str, values: Iterable[Any], unit: str, first: int) -> np.ndarray:
    """A feature column; 0 and 1 count as booleans, other numbers and missing values do not."""
    column = []
    for number, value in enumerate(values, first):
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise InputError(
                f"{path}: {unit} {number}, column {name!r}: {_short(value)} is no boolean; "
                "leave the column out or choose the features to read"
            )
        column.append(bool(value))
    return np.array(column, dtype=bool)


def _integers(path: Path, name: str, values: Iterable[Any], unit: str, first: int) -> np.ndarray:
    column = []
    for number, value in enumerate(values, first):
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
            raise InputError(
                f"{path}: {unit} {number}, column {name!r}: {_short(value)} is no integer"
            )
        column.append(value)
    return np.array(column, dtype=np.int64)


def _groups(path: Path, values: Sequence[Any], unit: str, first: int) -> np.ndarray:
    for number, value in enumerate(values, first):
        if not isinstance(value, str | int):
            raise InputError(
                f"{path}: {unit} {number}, column 'group': {_short(value)} is no name or number"
            )
    return np.array([str(value) for value in values])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
