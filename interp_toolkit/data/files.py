"""Data files: `.npz`, `.parquet`, `.arrow`, `.jsonl`, `.json`, `.csv`, `.tsv` and `.txt`, as data.

- `.npz`: arrays `tokens` [n pos] integers (`lengths` [n] if rows are padded at their ends), and
  optionally `features` [n k], `names` [k], `position` [n] or one number, `group` [n], `answers`
  [n m], `answer_positions` [n m] or [m], `wrong` [n m] and `corrupted` [n pos]; booleans [n] under
  any other name are a feature.
- Tables: `.parquet`, `.arrow`, `.jsonl`, `.json` (a list of records, a record of lists, or one of
  these inside a record), `.csv` and `.tsv` (with a header), text files also with `.gz`, `.bz2` or
  `.zst` behind, and folders of parquet shards or of `datasets`' `save_to_disk`. `schema` decides
  what a column is, from names and values or as the user says: `tokens` (lists of ids) or `text`
  (needs a tokenizer), or `clean` for either, and optionally `position`, `group`, `answer`,
  `answer_position`, `wrong` (as `answer`) and `corrupted` (as the prompt); other booleans are
  features. `published` has the data sets with rules of their own.
- `.txt`: one prompt per line, without features and answers.

Features are booleans, or 0 and 1. Answers are tokens that the logits should predict, at the end of
the row or at `answer_position`; `wrong` ones are those that they should not (`features` describes
corrupted rows). Of an answer of several tokens the first counts. `source` and `reading` report what
was decided and left out. Any other problem is one InputError that names the file and the row.
"""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.data.arrays import data_of_arrays
from interp_toolkit.data.cells import PromptTable, value_at
from interp_toolkit.data.features import FeatureData
from interp_toolkit.data.preview import described
from interp_toolkit.data.schema import Schema, as_schema, plan_of
from interp_toolkit.data.tables import data_of_table, untokenized
from interp_toolkit.data.templates import is_template
from interp_toolkit.data.text.tokenization import (
    Tokenizer,
    check_tokenizer,
    data_from_texts,
    read_text,
)
from interp_toolkit.errors import PATH, InputError, first_line, some_of, suggestion, takes
from interp_toolkit.files import check_claim, most_text, read_npz

VALUE = 16  # bytes of a table's value as a Python object, before any copy
ROWS_AT_ONCE = 1024  # of a table
_RECORDS = ("prompts", "data", "examples", "pairs")  # keys of a record that may hold the records
_SPLITS = {"train", "test", "validation", "valid", "val", "dev"}
_PACKED = (".gz", ".bz2", ".zst")
_CHUNK = 2**20


@takes(path=PATH, tokenizer=check_tokenizer)
def read_data(
    path: str | Path,
    tokenizer: Tokenizer | None = None,
    d_vocab: int | None = None,
    feature_names: Sequence[str] | None = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
) -> FeatureData:
    """The prompts in a file, with their features and answers; `data.files` describes the formats.

    Args:
        path: a file or folder of one of these formats.
        tokenizer: text -> token ids (a list, an array, or a mapping with `input_ids`); needed for
            files of text.
        d_vocab: the model's vocabulary size, to check token ids.
        feature_names: the features to read, in this order; None: all; empty: none, for features
            from another source.
        schema: the columns of a table as the user names them (`prompt_column`, `answer_space`, ...;
            see `Schema`), or a YAML file of these; None: decided by names and values.

    Raises:
        InputError: any problem with the file.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("rows.jsonl").write_text('{"tokens": [5, 7, 9], "a": true, "b": false}')
        >>> data = read_data("rows.jsonl")
        >>> data.names, data.features.tolist()
        (('a', 'b'), [[True, False]])
    """
    path, chosen = _checked(Path(path)), as_schema(schema)
    if _ending(path) in _TABLES:
        with _without_collection():
            data = data_of_table(_table(path, chosen), tokenizer, chosen, feature_names)
    else:
        _check_no_columns(path, chosen)
        data = _OTHERS[_ending(path)](path, tokenizer, feature_names)
    return data if d_vocab is None else data.check_vocabulary(d_vocab)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the search for cycles, of which cells have none: it takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check_header(
    path: str | Path,
    feature_names: Sequence[str] | None = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
) -> None:
    """Raise InputError if a file's columns cannot be read, before any model is loaded.

    Args:
        path: as `read_data` takes it.
        feature_names: features that the file must have; None: no requirement.
        schema: as `read_data` takes it.
    """
    path, chosen = _checked(Path(path)), as_schema(schema)
    if _ending(path) not in _TABLES:
        _check_no_columns(path, chosen)
    elif _ending(path) not in (".parquet", ".arrow", ""):  # large ones are read once
        plan_of(_table(path, chosen), chosen, feature_names)


def read_table(
    path: str | Path, schema: Schema | Mapping[str, Any] | str | Path | None = None
) -> PromptTable | None:
    """The columns of a file as they are; None for files without columns.

    The arguments are those of `read_data`; raises InputError as it does.
    """
    path = _checked(Path(path))
    return _table(path, as_schema(schema)) if _ending(path) in _TABLES else None


def _table(path: Path, schema: Schema) -> PromptTable:
    if _ending(path) == ".json":
        return _json(path, schema.records)
    if schema.records is not None:
        raise InputError(f"{path}: --records is the key of records in a .json file")
    return _TABLES[_ending(path)](path)


def preview(
    path: str | Path,
    tokenizer: Tokenizer | None = None,
    d_vocab: int | None = None,
    feature_names: Sequence[str] | None = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
) -> Sequence[str]:
    """What is read of a file, as `FeatureData.reading`; texts as they are without a tokenizer.

    The arguments are those of `read_data`; raises InputError as it does.
    """
    table = read_table(path, schema)
    if tokenizer is None and table is not None:
        return untokenized(table, as_schema(schema), feature_names)
    data = read_data(path, tokenizer, d_vocab, feature_names, schema)
    return data.reading or (data.source,)


def is_data(path: str | Path) -> bool:
    """Whether a path names a file of data by its ending, or a folder of tables."""
    path = Path(path)
    if path.is_dir():
        is_model = (path / "config.json").is_file()
        return not is_model and bool(_saved_by_datasets(path) or _shards(path))
    return bool(_ending(path)) and _ending(path) in (*_TABLES, *_OTHERS)


def _check_no_columns(path: Path, schema: Schema) -> None:
    if schema != Schema():
        raise InputError(f"{path}: options of columns are for tables, and this is another file")


def _ending(path: Path) -> str:
    """A file's ending without that of its compression; "" for a folder."""
    if path.is_dir():
        return ""
    packed = path.suffix.lower() in _PACKED
    return (path.with_suffix("") if packed else path).suffix.lower()


def _checked(path: Path) -> Path:
    if path.is_dir():
        if is_data(path):
            return path
        raise InputError(
            f"{path}: this is a folder without .parquet or .arrow files; name a file of data"
        )
    if _ending(path) not in (*_TABLES, *_OTHERS) or not _ending(path):
        endings = ", ".join(ending for ending in (*_OTHERS, *_TABLES) if ending)
        raise InputError(f"{path}: unknown kind of data file; give {endings}")
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
    data = data_of_arrays(path, read_npz(path), feature_names)
    return described(data, [], [], tokenizer, [f"row index {i}" for i in range(len(data))])


def _parquet(path: Path) -> PromptTable:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = _unpacked(file, path.stat().st_size)
    except Exception as error:  # pyarrow raises many types on a broken file
        raise InputError(
            f"{path}: this cannot be read as a parquet file ({first_line(error)})"
        ) from error
    return _of_arrow(path, table)


def _arrow(path: Path) -> PromptTable:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                table = pa.ipc.open_stream(source).read_all()
            except pa.ArrowInvalid:
                source.seek(0)
                table = pa.ipc.open_file(source).read_all()
            return _of_arrow(path, table)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: this cannot be read as an arrow file ({first_line(error)})"
        ) from error


def _of_arrow(path: Path, table: Any) -> PromptTable:
    names = table.column_names
    if len(set(names)) != len(names):
        raise InputError(f"{path}: two columns have the same name")
    return PromptTable.of(path, dict(zip(names, table.columns, strict=True)), "row index", 0)


def _saved_by_datasets(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def _shards(folder: Path) -> list[Path]:
    """The tables in a folder, in the order of their names."""
    shards = sorted(folder.glob("*.parquet")) or sorted(folder.glob("*.arrow"))
    return shards or sorted((folder / "data").glob("*.parquet"))


def _folder(path: Path) -> PromptTable:
    """A folder of `save_to_disk`, or of shards, as one table."""
    if not _saved_by_datasets(path):
        return _joined(path, _shards(path))
    try:
        from datasets import Dataset, load_from_disk
    except ImportError as error:
        raise InputError(f"{path} was written by datasets: pip install datasets") from error
    try:
        data = load_from_disk(str(path))
        if not isinstance(data, Dataset):
            if len(data) > 1:
                first = next(iter(data))
                raise InputError(
                    f"{path} has the splits {some_of(list(data))}; name one, {path}/{first}"
                )
            data = next(iter(data.values()))
        return _of_arrow(path, data.with_format("arrow")[:])
    except InputError:
        raise
    except Exception as error:  # as many types as pyarrow's
        raise InputError(
            f"{path}: datasets cannot read this folder ({first_line(error)})"
        ) from error


def _joined(path: Path, shards: Sequence[Path]) -> PromptTable:
    splits = {shard.name.partition("-")[0] for shard in shards}
    if len(splits) > 1:
        first = ", ".join(shard.name for shard in shards[:2])
        raise InputError(f"{path} has several splits ({first}, ...); name one file")
    tables = [_TABLES[shard.suffix](shard) for shard in shards]
    for table in tables[1:]:
        if list(table.columns) != list(tables[0].columns):
            raise InputError(f"{table.path} has other columns ({table.names}) than its neighbors")
    columns: dict[str, list[Any]] = {
        name: [value for table in tables for value in table.columns[name].values]
        for name in tables[0].columns
    }
    return PromptTable.of(path, columns, "row index", 0)


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


def _text_of(path: Path) -> str:
    """The text of a file, unpacked if it is compressed."""
    if path.suffix.lower() not in _PACKED:
        return read_text(path)
    import pyarrow as pa

    most, text = most_text(), bytearray()
    compression = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[path.suffix.lower()]
    try:
        with pa.input_stream(str(path), compression=compression) as stream:
            while chunk := stream.read(_CHUNK):
                text += chunk
                if len(text) > most:
                    raise InputError(f"{path}: its content is larger than memory allows")
        content = io.StringIO(text.decode("utf-8-sig"), newline=None).read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is not UTF-8 text; save it as UTF-8") from error
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be unpacked ({first_line(error)})") from error
    if not content.strip():
        raise InputError(f"{path}: there is no text in it")
    return content


def _jsonl(path: Path) -> PromptTable:
    lines = _text_of(path).split("\n")  # not splitlines(): a string may hold U+2028
    while not lines[-1].strip():
        lines.pop()
    records = [_record(path, number, line) for number, line in enumerate(lines, start=1)]
    return _of_records(path, records, "line")


def _json(path: Path, key: str | None = None) -> PromptTable:
    text = _text_of(path)
    try:
        content = _parsed(path, text, "it is not JSON")
    except InputError:
        if key or not text.lstrip().startswith("{") or "}\n{" not in text.replace(" ", ""):
            raise
        return _jsonl(path)
    content, notes = _rows_inside(path, content, key)
    if isinstance(content, list) and content and _are_records(content):
        return _of_records(path, content, "record", notes)
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise InputError(
            f"{path}: give a list of objects (one per row) or an object of lists (one per column)"
        )
    _check_lengths(path, content)
    return PromptTable.of(path, content, "record", 1, notes)


def _rows_inside(path: Path, content: Any, key: str | None) -> tuple[Any, tuple[str, ...]]:
    """The rows in a record that holds them under a key or by their ids, and a note of it."""
    if key is not None:
        if (inside := value_at(key.split("."), content)) is None:
            keys = list(content) if isinstance(content, dict) else []
            raise InputError(f"{path}: there are no records under {key!r}{suggestion(key, keys)}")
        rows, notes = _rows_inside(path, inside, None)
        return _with_templates(rows, content), (f"records under {key!r}", *notes)
    if isinstance(content, list) and content and all(isinstance(one, str) for one in content):
        return {"text": content}, ("a list of texts",)
    if isinstance(content, list) and content and all(map(_is_pair, content)):
        firsts, seconds = map(list, zip(*content, strict=True))
        return {"input": firsts, "output": seconds}, ("pairs as input and output",)
    if not isinstance(content, dict):
        return content, ()
    lists = [n for n, v in content.items() if isinstance(v, list) and v and _are_records(v)]
    named = [name for name in _RECORDS if name in lists] if len(lists) > 1 else lists
    if len(named) > 1 or (lists and not named):
        raise InputError(
            f"{path}: it holds {len(lists)} lists of records ({some_of(lists)}); name one, such as "
            f"--records {lists[0]}"
        )
    if named:
        others = [name for name in lists if name not in named]
        beside = f", not those under {some_of([repr(name) for name in others])}" if others else ""
        rows = _with_templates(content[named[0]], content)
        return rows, (f"records under {named[0]!r}{beside}",)
    values = list(content.values())
    if values and all(isinstance(value, str) for value in values) and len(values) > 1:
        return {"input": list(content), "output": values}, ("keys as input, values as output",)
    if not values or not _are_records(values):
        return content, ()
    if len(values) > 1 and content.keys() <= _SPLITS:
        splits = list(content)
        raise InputError(
            f"{path}: it holds splits ({some_of(splits)}); name one, such as --records {splits[0]}"
        )
    keys = list(values[0])
    if all(key.isdigit() for key in keys):  # columns by row number, as pandas writes them
        if any(list(value) != keys for value in values):
            raise InputError(f"{path}: its columns have different rows")
        return {name: list(value.values()) for name, value in content.items()}, ()
    return values, (f"records under {len(values)} keys",)


def _with_templates(rows: Any, content: Any) -> Any:
    """Records with the templates of prompts that stand beside them."""
    if not isinstance(content, dict) or not isinstance(rows, list) or not _are_records(rows):
        return rows
    beside = {name: value for name, value in content.items() if is_template(value)}
    return [{**beside, **row} for row in rows] if beside else rows


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and [type(one) for one in value] == [str, str]


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


def _separated(path: Path) -> PromptTable:
    import csv

    text = _text_of(path).removeprefix("\ufeff")
    delimiter = "\t" if _ending(path) == ".tsv" else ","
    if (read := _by_arrow(text, delimiter)) is not None:
        return PromptTable.of(path, read)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header, *rows = list(reader)
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path}: this cannot be read as a table ({first_line(error)})") from error
    rows = [row for row in rows if row]
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(
            f"{path}: two columns have the same name, {twice!r}; the first line must be a header"
        )
    uneven = set(map(len, rows)) - {len(header)}
    for number, row in enumerate(rows if uneven else (), 1):
        if len(row) != len(header):
            raise InputError(
                f"{path}: row {number} has {len(row)} cells, the header has {len(header)}"
            )
    if not rows:
        raise InputError(f"{path}: there are no rows below the header")
    others = [mark for mark in ("\t", ";") if len(header) == 1 and mark in header[0]]
    if others:
        raise InputError(
            f"{path}: its columns are separated by {others[0]!r}; separate them by commas, or by "
            "tabs in a .tsv file"
        )
    return PromptTable.of(path, dict(zip(header, zip(*rows, strict=True), strict=True)))


def _by_arrow(text: str, delimiter: str) -> dict[str, Any] | None:
    """The columns of a table of two columns or more; None where `csv` must decide or refuse."""
    import csv

    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    content = text.encode()
    marks = np.frombuffer(content, np.uint8)
    quotes = np.flatnonzero(marks == ord('"'))
    if len(quotes):  # quotes in cells without quotes, and text behind quotes, are for `csv`
        around = np.pad(marks, 1, constant_values=ord("\n"))
        around = around[np.concatenate([quotes[::2], quotes[1::2] + 2])]
        if len(quotes) % 2 or not np.isin(around, list(f'\n"{delimiter}'.encode())).all():
            return None
    try:
        first = text[: text.find("\n") + 1]
        header = next(csv.reader([first], delimiter=delimiter, strict=True))
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            arrow_csv.ReadOptions(block_size=min(max(len(content), 1), 2**31 - 1)),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string())),
        )
    except (pa.ArrowException, csv.Error):
        return None
    names = table.column_names
    is_whole = names == header and len(set(names)) == len(names) > 1 and len(table)
    columns = table.columns
    return dict(zip(names, columns, strict=True)) if is_whole else None


def _of_records(
    path: Path, records: Sequence[Any], unit: str, notes: tuple[str, ...] = ()
) -> PromptTable:
    """Records as columns; a key that a record lacks is a missing value."""
    keys = dict.fromkeys(key for record in records for key in record)
    columns = {key: [record.get(key) for record in records] for key in keys}
    return PromptTable.of(path, columns, unit, 1, notes)


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


_TABLES: dict[str, Callable[[Path], PromptTable]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _separated,
    ".tsv": _separated,
    "": _folder,
}
_OTHERS: dict[str, Callable[..., FeatureData]] = {".npz": _read_npz, ".txt": _read_txt}
