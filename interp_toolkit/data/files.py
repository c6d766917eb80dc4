"""Data files: `.npz`, `.parquet`, `.jsonl`, `.json`, `.csv`, `.tsv` and `.txt`, read as data only.

- `.npz`: arrays `tokens` [n pos] integers (`lengths` [n] if rows are padded at their ends), and
  optionally `features` [n k], `names` [k], `position` [n] or one number, `group` [n], `answers`
  [n m], `answer_positions` [n m] or [m], `wrong` [n m] and `corrupted` [n pos]; booleans [n] under
  any other name are a feature.
- `.parquet`, `.jsonl`, `.json` (a list of records, or a record of lists), `.csv` and `.tsv` (with
  a header; ids as `[5, 7, 9]`): columns `tokens` (lists of ids) or `text` (needs a tokenizer),
  or `clean` for either, and optionally `position`, `group`, `answer` (an id, a list of them,
  or text), `answer_position`, `wrong` (as `answer`) and `corrupted` (text or ids). Every other
  column is a feature, unless `feature_names` selects the features or the column holds words.
  `tables` lists the names of known data sets.
- `.txt`: one prompt per line, without features and answers.

Features are booleans, or the integers 0 and 1. Answers are token ids that the logits should
predict, at the end of the row or at `answer_position`; `wrong` ones are those that they should not
(`features` describes corrupted rows). The tokenizer's tokens around every text (BOS) are added to
prompts in words but not to answers; of an answer of several tokens the first counts. Pairs that do
not fit are left out, unless they are more than half; `source` reports all of it. Any other problem
is one InputError that names the file and the row.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp_toolkit.data.arrays import data_of_arrays
from interp_toolkit.data.features import EXAMPLE, EXAMPLE_OF_IDS, FeatureData
from interp_toolkit.data.tables import as_read, cell_values, check_columns, data_of_columns
from interp_toolkit.data.text.tokenization import (
    Tokenizer,
    check_tokenizer,
    data_from_texts,
    read_text,
)
from interp_toolkit.errors import PATH, InputError, first_line, takes
from interp_toolkit.files import check_claim, read_npz

VALUE = 16  # bytes of a table's value as a Python object, before any copy
ROWS_AT_ONCE = 1024  # of a table
_RECORDS = ("prompts", "data", "examples")  # keys under which a record may hold the records
_PAIRS = ("clean", "corrupted", "wrong", "answer")


@takes(path=PATH, tokenizer=check_tokenizer)
def read_data(
    path: str | Path,
    tokenizer: Tokenizer | None = None,
    d_vocab: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> FeatureData:
    """The prompts in a file, with their features and answers; `data.files` describes the formats.

    Args:
        path: a `.npz`, `.parquet`, `.jsonl`, `.json`, `.csv`, `.tsv` or `.txt` file.
        tokenizer: text -> token ids (a list, an array, or a mapping with `input_ids`); needed for
            files of text.
        d_vocab: the model's vocabulary size, to check token ids.
        feature_names: the features to read, in this order; None: all; empty: none, for features
            from another source.

    Raises:
        InputError: any problem with the file.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("rows.jsonl").write_text('{"tokens": [5, 7, 9], "a": true, "b": false}')
        >>> data = read_data("rows.jsonl")
        >>> data.names, data.features.tolist()
        (('a', 'b'), [[True, False]])
    """
    path = _checked(Path(path))
    data = _READERS[path.suffix.lower()](path, tokenizer, feature_names)
    return data if d_vocab is None else data.check_vocabulary(d_vocab)


def check_header(path: str | Path, feature_names: Sequence[str] | None = None) -> None:
    """Raise InputError if a file's columns cannot be read, before any model is loaded.

    Args:
        path: as `read_data` takes it.
        feature_names: features that the file must have; None: no requirement.
    """
    path = _checked(Path(path))
    columns = _COLUMNS.get(path.suffix.lower())
    if columns is not None:
        check_columns(path, as_read(columns(path)[0])[0], feature_names)


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in _READERS:
        raise InputError(f"{path}: unknown kind of data file; give {', '.join(_READERS)}")
    if not path.is_file():
        raise InputError(
            f"{path}: this is not a regular file"
            if path.exists()
            else f"{path}: there is no such file"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    return path


def _read_npz(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    return data_of_arrays(path, read_npz(path), feature_names)


def _read_parquet(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = _unpacked(file, path.stat().st_size)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:  # pyarrow raises many types on a broken file
        raise InputError(
            f"{path}: this cannot be read as a parquet file ({first_line(error)})"
        ) from error
    if len(columns) != len(table.column_names):
        raise InputError(f"{path}: two columns have the same name")
    return data_of_columns(path, columns, tokenizer, feature_names, "row index", 0)


def _unpacked(file: Any, size: int) -> Any:
    """The table of a parquet file, unless it has too many values or bytes."""
    from pyarrow import Table

    metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    values = sum(group.column(n).num_values for group in groups for n in range(group.num_columns))
    check_claim(VALUE * values, size)
    batches, held = [], 0
    for batch in file.iter_batches(ROWS_AT_ONCE):
        held += batch.nbytes
        check_claim(held, size)
        batches.append(batch)
    return Table.from_batches(batches, file.schema_arrow)


def _read_table(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    columns, unit, first = _COLUMNS[path.suffix.lower()](path)
    return data_of_columns(path, columns, tokenizer, feature_names, unit, first)


def _jsonl(path: Path) -> tuple[Mapping[str, Sequence[Any]], str, int]:
    lines = read_text(path).split("\n")  # not splitlines(): a string may hold U+2028
    while not lines[-1].strip():
        lines.pop()
    records = [_record(path, number, line) for number, line in enumerate(lines, start=1)]
    return _columns_of(path, records, "line"), "line", 1


def _json(path: Path) -> tuple[Mapping[str, Sequence[Any]], str, int]:
    text = read_text(path)
    try:
        content = _parsed(path, text, "it is not JSON")
    except InputError:
        if not text.lstrip().startswith("{") or "}\n{" not in text.replace(" ", ""):
            raise
        return _jsonl(path)
    if isinstance(content, dict):  # records inside a record, as in auto-circuit
        inside = next((content[name] for name in _RECORDS if name in content), None)
        content = inside if isinstance(inside, list) and _are_records(inside) else content
    if isinstance(content, list) and content and _are_records(content):
        return _columns_of(path, content, "record"), "record", 1
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise InputError(
            f"{path}: give a list of objects (one per row) or an object of lists (one per column)"
        )
    _check_lengths(path, content)
    return content, "record", 1


def _are_records(values: Sequence[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _check_lengths(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    first, *others = columns
    for name in others:
        if len(columns[name]) != len(columns[first]):
            raise InputError(
                f"{path}: {name!r} has {len(columns[name])} values, {first!r} has "
                f"{len(columns[first])}"
            )


def _separated(path: Path) -> tuple[Mapping[str, Sequence[Any]], str, int]:
    import csv

    text = io.StringIO(read_text(path).removeprefix("\ufeff"), newline="")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        header, *rows = list(csv.reader(text, delimiter=delimiter, strict=True))
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path}: this cannot be read as a table ({first_line(error)})") from error
    rows = [row for row in rows if row]
    if len(set(header)) != len(header):
        raise InputError(f"{path}: two columns have the same name")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(
                f"{path}: row {number} has {len(row)} cells, the header has {len(header)}"
            )
    if not rows:
        raise InputError(f"{path}: there are no rows below the header")
    return cell_values(dict(zip(header, zip(*rows, strict=True), strict=True))), "row", 1


def _columns_of(path: Path, records: Sequence[Any], unit: str) -> dict[str, list[Any]]:
    keys = list(records[0])
    for number, record in enumerate(records, start=1):
        for key in keys:
            if key not in record:
                shown = f"; a valid line: {_example(records[0])}" if key in _PAIRS else ""
                raise InputError(f"{path}: {unit} {number} has no {key!r}{shown}")
        for key in record:
            if key not in records[0]:
                raise InputError(
                    f"{path}: {unit} {number} has {key!r}, which {unit} 1 does not have"
                )
    return {key: [record[key] for record in records] for key in keys}


def _read_txt(
    path: Path, tokenizer: Tokenizer | None, feature_names: Sequence[str] | None
) -> FeatureData:
    if feature_names:
        raise InputError(f"{path}: lines of text have no columns, such as {feature_names[0]!r}")
    lines = [line for line in read_text(path).split("\n") if line.strip()]
    return data_from_texts(lines, tokenizer, str(path))


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    record = _parsed(path, line, f"line {number} is not a complete JSON object")
    if not isinstance(record, dict):
        raise InputError(f"{path}: line {number} is not a JSON object")
    return record


def _parsed(path: Path, text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {what} ({first_line(error)})") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _example(record: Mapping[str, Any]) -> str:
    """A valid line in the form of the given record: in words, or in ids."""
    return EXAMPLE_OF_IDS if any(isinstance(v, list) for v in record.values()) else EXAMPLE


_COLUMNS = {".jsonl": _jsonl, ".json": _json, ".csv": _separated, ".tsv": _separated}
_READERS = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    **dict.fromkeys(_COLUMNS, _read_table),
    ".txt": _read_txt,
}
