"""Cells of a table and the kinds of values in a column, the same for text files and typed ones.

A text file holds `4`, `true` and `["a", "b"]` as text where JSON and parquet hold values. Both are
read alike here, so that a table means the same in every format. A column has the kind of its cells;
one that is mostly boolean is `damaged` if other cells stand among them.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.errors import InputError, some_of

BOOLEANS = {"true": True, "false": False, "yes": True, "no": False}
BOOLEANS |= {"1": True, "0": False, "1.0": True, "0.0": False}
LOGICAL = ("bit", "boolean", "yes")  # kinds of a feature
#: cells without a value, in lower case
MISSING = frozenset(
    ("", "n/a", "na", "nan", "none", "null", "-", "?", "#n/a", "<na>", "missing", "unknown")
)
NO_ANSWER = frozenset(
    ("", "n/a", "N/A", "nan", "NaN", "#N/A", "<NA>")
)  # other words may be answers
_NUMBER = re.compile(r"[-+]?(\d[\d_,]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NO_COMMA = re.compile(r"""['"]\s+['"]""")  # between the texts of a NumPy array
_LONG = 24  # characters; no number or boolean has more
_MOSTLY = 3 / 4  # of a column's cells, from which other numbers among 0 and 1 are mistakes
_SAMPLE = 200  # cells from which the length of a text is judged
_WORDS = 3  # median number of words in a column of prompts without a name of prompts


def kind_of(value: Any) -> str:
    """The kind of a cell: missing, bit, boolean, yes, number, text, ids, texts, nested, record."""
    if isinstance(value, str):
        return _kind_of_text(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value:
        return "missing"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "bit" if value in (0, 1) else "number"
    if isinstance(value, list | tuple):
        types = set(map(type, value))
        if types == {int}:
            return "ids"
        are_texts = types <= {str, int, float} and (str in types or len(value) == 1)
        return "missing" if not value else "texts" if are_texts else "nested"
    return "record" if isinstance(value, Mapping) else "other"


def _kind_of_text(text: str) -> str:
    word = text.strip().lower()
    if word in MISSING:
        return "text" if "\n" in text or "\t" in text else "missing"
    if word in BOOLEANS:
        return "bit" if word[0] in "01" else "yes" if word in ("yes", "no") else "boolean"
    if word[0] in "[(":
        items = value_in(text)
        return "text" if items is None else kind_of(items)
    return "number" if _NUMBER.fullmatch(word) else "text"


def value_in(text: str) -> list[Any] | dict[str, Any] | None:
    """The list or record that a text spells in JSON or Python; None for any other text."""
    stripped = text.strip()
    if not stripped.endswith(("]", ")", "}")) or _NO_COMMA.search(stripped):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(stripped)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        is_list = isinstance(value, list | tuple)
        return list(value) if is_list else value if isinstance(value, dict) else None
    return None


def plain_name(name: str) -> str:
    """A column's name in lower case, with underscores for spaces."""
    return name.strip().lower().replace(" ", "_")


#: what stands for the words to fill in
BLANK = re.compile(
    r"\[(?:MASK|BLANK)\]|<(?:mask|blank)>|\bBLANK\b|_{3,}|(?<!\S)_{1,2}(?![^\s.,;:!?。，？])"
)
TOKEN_COLUMNS = ("tokens", "token_ids", "input_ids", "ids")
_SPACED_IDS = re.compile(r"\s*\d{1,9}(?:(?:\s*,\s*|\s+)\d{1,9})+\s*")


def _spaced_ids(values: Sequence[Any]) -> list[list[int]] | None:
    """The lists of integers that all cells spell without brackets; None for anything else."""
    if not len(values) or not all(isinstance(v, str) and _SPACED_IDS.fullmatch(v) for v in values):
        return None
    return [[int(number) for number in re.findall(r"\d+", value)] for value in values]


def items_of(value: Any) -> Any:
    """A list as such, also where a text spells it; any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "("):
        items = value_in(value)
        return value if items is None else items
    return list(value) if isinstance(value, tuple) else value


def truth_of(value: Any) -> bool | None:
    """The boolean that a cell holds; None for any other value."""
    if isinstance(value, str):
        return BOOLEANS.get(value.strip().lower())
    if isinstance(value, np.generic):
        value = value.item()
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def short(value: Any) -> str:
    """A value for a message, shortened if it is long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True, eq=False)
class Column:
    """A column: its name, its cells, and what they have in common.

    Attributes:
        levels: the different cells in order, where all are texts; else every cell.
        codes: [row], the index of each row's cell in `levels`.
    """

    name: str
    levels: Sequence[Any]
    codes: np.ndarray

    @classmethod
    def of(cls, name: str, values: Any) -> Column:
        """A column of these cells, or of those of an arrow column."""
        if hasattr(values, "combine_chunks"):
            if str(values.type) in ("string", "large_string") and not values.null_count:
                encoded = values.combine_chunks().dictionary_encode()
                return cls(name, encoded.dictionary.to_pylist(), encoded.indices.to_numpy())
            values = values.to_pylist()
        if set(map(type, values)) != {str}:
            return cls(name, values, np.arange(len(values)))
        index = {text: code for code, text in enumerate(dict.fromkeys(values))}
        codes = np.fromiter(map(index.__getitem__, values), np.int64, len(values))
        return cls(name, list(index), codes)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def values(self) -> Sequence[Any]:
        """The cell of each row."""
        return self.levels if len(self.levels) == len(self) else self[:]

    def __getitem__(self, rows: slice) -> list[Any]:
        return [self.levels[code] for code in self.codes[rows].tolist()]

    def select(self, rows: np.ndarray) -> Column:
        """The column of these rows."""
        from pandas import factorize

        codes, used = factorize(self.codes[rows])
        return Column(self.name, [self.levels[code] for code in used.tolist()], codes)

    def mapped(self, function: Callable[[Any], Any]) -> Column:
        """The column of what a function makes of each cell."""
        return Column(self.name, list(map(function, self.levels)), self.codes)

    def paired(self, other: Column, join: Callable[[Any, Any], Any]) -> Column:
        """The column of what `join` makes of the cells of two columns, once of equal pairs."""
        from pandas import factorize

        n = max(len(other.levels), 1)
        codes, pairs = factorize(self.codes.astype(np.int64) * n + other.codes)
        cells = [join(self.levels[pair // n], other.levels[pair % n]) for pair in pairs.tolist()]
        return Column(self.name, cells, codes)

    def array(self, dtype: type[np.generic | bool]) -> np.ndarray:
        """The cells as an array."""
        return np.asarray(np.array(self.levels, dtype)[self.codes])

    def where(self, is_so: Callable[[Any], bool]) -> list[int]:
        """The rows whose cell is so."""
        return list(
            np.flatnonzero(self.mapped(lambda cell: bool(is_so(cell))).array(bool)).tolist()
        )

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of cells of each kind."""
        kinds = [
            "text" if type(v) is str and len(v) > _LONG and v[0] not in "[(" else kind_of(v)
            for v in self.levels
        ]
        if len(kinds) == len(self):
            return Counter(kinds)
        counts: Counter[str] = Counter()
        for kind, n in zip(kinds, np.bincount(self.codes).tolist(), strict=True):
            counts[kind] += n
        return counts

    @cached_property
    def are_texts(self) -> bool:
        """Whether every cell is a text that spells no list."""
        plain = self.kind in ("text", "yes", "boolean", "bit", "number", "damaged")
        return plain and self._are_strings

    @cached_property
    def _are_strings(self) -> bool:
        return set(map(type, self.levels)) == {str}

    @property
    def n_present(self) -> int:
        """The number of cells that hold a value."""
        return len(self) - self.counts["missing"]

    @cached_property
    def kind(self) -> str:
        """The kind of the column's values; empty, damaged or mixed if they have none in common."""
        counts = {kind: n for kind, n in self.counts.items() if kind != "missing" and n}
        kinds = set(counts)
        if not kinds:
            return "empty"
        if len(kinds) == 1:
            return next(iter(kinds))
        if kinds <= set(LOGICAL):
            return "boolean"
        if kinds <= {"bit", "number"}:
            return "damaged" if counts["bit"] > _MOSTLY * self.n_present else "number"
        if 2 * sum(counts.get(kind, 0) for kind in LOGICAL) > self.n_present:
            return "damaged"
        if kinds <= {"text", "number", *LOGICAL}:
            return "text"
        lists = kinds <= {"texts", "text"} and 2 * counts["texts"] > self.n_present
        return "texts" if lists else "mixed"

    @cached_property
    def distinct(self) -> frozenset[str]:
        """The different values, as text."""
        if self._are_strings:
            return frozenset(self.levels) - {""}
        present = (v for v in self.levels if v is not None and v != "" and v == v)
        return frozenset(map(str, present))

    @cached_property
    def present_texts(self) -> list[str]:
        """The different values that are not missing, as text, in order."""
        return sorted(value for value in self.distinct if _kind_of_text(value) != "missing")

    @cached_property
    def is_wordy(self) -> bool:
        """Whether the cells are texts of several words, and mostly different ones."""
        if self.kind != "text" or 2 * len(self.distinct) < self.n_present:
            return False
        lengths = [len(str(value).split()) for value in self[:_SAMPLE] if value]
        return bool(np.median(lengths or [0]) >= _WORDS)

    @cached_property
    def is_row_number(self) -> bool:
        """Whether the cells count the rows from 0 or 1."""
        named = self.name in ("", "Unnamed: 0") or self.name.lower().endswith(
            ("id", "idx", "index")
        )
        if self.kind not in ("bit", "number") or (len(self) < 3 and not named):
            return False
        if len(self.levels) < len(self):
            return False
        return any(
            all(str(v) == str(i) for i, v in enumerate(self.levels, start)) for start in (0, 1)
        )


def _paths(name: str, value: Any) -> list[str]:
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        value = dict(enumerate(value[:2]))
    if not isinstance(value, Mapping):
        return [name]
    return [path for key, one in value.items() for path in _paths(f"{name}.{key}", one)] or [name]


def value_at(keys: Sequence[str], value: Any) -> Any:
    """The value at a path of keys and indices; None if there is none."""
    for key in keys:
        value = value_in(value) if isinstance(value, str) else value
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


@dataclass(frozen=True, eq=False)
class PromptTable:
    """The columns of a file; messages call its rows `unit` and count them from `first`.

    `numbers` are the rows' indices in the file, of a table without some of its rows.
    """

    path: str | Path
    columns: Mapping[str, Column]
    unit: str = "row"
    first: int = 1
    notes: tuple[str, ...] = ()
    numbers: Sequence[int] | None = None

    @classmethod
    def of(
        cls,
        path: str | Path,
        columns: Mapping[str, Any],
        unit: str = "row",
        first: int = 1,
        notes: tuple[str, ...] = (),
    ) -> PromptTable:
        """A table of these values by column."""
        made: dict[str, Column] = {}
        for name, values in columns.items():
            column = values if isinstance(values, Column) else Column.of(str(name), values)
            ids = _spaced_ids(column.values) if str(name).lower() in TOKEN_COLUMNS else None
            made[str(name)] = column if ids is None else Column.of(str(name), ids)
            if ids is not None:
                notes = (*notes, f"column {str(name)!r} is read as ids separated by spaces")
        return cls(path, made, unit, first, notes)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def names(self) -> str:
        """The columns' names, for messages; of records, the paths of their values."""
        paths = {name: self.paths(name) for name in self.columns}
        inside = [path for name, several in paths.items() if several != [name] for path in several]
        plain = [name or "(no name)" for name, several in paths.items() if several == [name]]
        return some_of([*plain, *inside])

    def paths(self, name: str) -> list[str]:
        """The paths of values in a column's records, such as `turns.0.text`, long texts first.

        The column's own name where its first cell is no record.
        """
        [first] = self.columns[name][:1] or [None]
        values = {
            path: value_at(path[len(name) + 1 :].split("."), first) for path in _paths(name, first)
        }
        return sorted(values, key=lambda p: -len(values[p]) if isinstance(values[p], str) else 0)

    def with_paths(self, names: Iterable[str]) -> PromptTable:
        """The table with the values at these paths as columns of their own, where there are any."""
        columns = dict(self.columns)
        for name in names:
            first, *keys = name.split(".")
            if name not in columns and keys and first in columns:
                inside = [value_at(keys, value) for value in columns[first].values]
                if any(value is not None for value in inside):
                    columns[name] = Column.of(name, inside)
        return dataclasses.replace(self, columns=columns)

    def select(self, rows: np.ndarray) -> PromptTable:
        """The table of these rows."""
        columns = {name: column.select(rows) for name, column in self.columns.items()}
        numbers = list(map(self.number, rows.tolist()))
        return PromptTable(self.path, columns, self.unit, self.first, self.notes, numbers)

    def number(self, row: int) -> int:
        """The index in the file of a row of this table."""
        return row if self.numbers is None else self.numbers[row]

    def row(self, row: int) -> str:
        """A row's name for messages, by its index."""
        return f"{self.path}: {self.unit} {self.number(row) + self.first}"

    def cell(self, row: int, name: str) -> str:
        """A cell's position and content, for messages."""
        return f"{self.row(row)}, column {name!r}: {short(self.columns[name][row : row + 1][0])}"

    def refuse(self, row: int, name: str, problem: str) -> InputError:
        """An error about one cell."""
        return InputError(f"{self.cell(row, name)} {problem}")
