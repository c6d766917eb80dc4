"""Multiple choice: the right one of the options that a key names is the answer, another is wrong.

Published files hold the options as a list (`choices`), as a record of lists or of scores
(`{"text": [...], "label": [...]}`, `{"Rome": 1, "Oslo": 0}`) or in columns of their own (`A` to
`D`, `option1`, `answerA`), and the right one as a letter, an index or a label. A number is a label
where the options have numbers that fit, else an index from 0 or 1, which the note says: the one
that names an option in every row, or as the user chooses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from interp_toolkit.data.cells import (
    LOGICAL,
    Column,
    PromptTable,
    items_of,
    plain_name,
    short,
    value_in,
)
from interp_toolkit.errors import InputError, some_of

Options = tuple[list[str], list[Any]]  # the labels and texts of one row

_KEYS = (
    *("answer", "answerkey", "answer_key", "correct_answer", "correct", "correct_option", "target"),
    *("correct_index", "correct_idx", "answer_index", "answer_idx", "gold", "label", "cop"),
    "answerrightending",
)
_LISTS = ("choices", "options", "endings", "candidates", "answer_choices", "answers")
_SCORES = ("mc1_targets", "target_scores")  # options with the right one marked
_COLUMN = re.compile(
    r"(|choice|option|ending|sol|solution|opt?|ans|answer|randomfifthsentencequiz)_?([0-9]|[a-h])"
)
_LETTERS = "abcdefgh"
_LABELED = re.compile(r"\(?[A-H][).]\s*")  # "(A) Rome"


def as_answers(
    table: PromptTable, used: Collection[str | None], chosen: str | None, start: int | None
) -> PromptTable | None:
    """The table with the right options as column `answer`, and others as `wrong` if all rows have.

    None where there are no options, or a row's key names none of them. `used` are columns of other
    roles, `chosen` the column that the user calls the answer, `start` the first option's number.
    Raises InputError where numbers may count from 0 or 1.
    """
    plain = {plain_name(name): name for name in table.columns if name not in used}
    names = plain if chosen is None else {plain_name(chosen): chosen}
    for scored in (names[name] for name in _SCORES if name in names and start is None):
        rows = list(map(_scored, table.columns[scored].values))
        if all(rows):
            return _replaced(table, rows, [scored], f"the right one of {scored!r}")
    for key in (names[name] for name in (_KEYS if chosen is None else names) if name in names):
        column = table.columns[key].mapped(lambda v: re.sub(r"[().\s]", "", str(v)).lower())
        if not all(re.fullmatch(r"\d|[a-h]", cell) for cell in column.levels):
            continue
        by_letter = any(cell in _LETTERS for cell in column.levels)
        for several, options in _options(table, plain, key, by_letter):
            starts: tuple[int | None, ...] = (0, 1) if start is None else (start,)
            if start is None and (by_letter or _are_labels(column.values, options)):
                starts = (None,)
            every = {s: list(map(partial(_picked, s), column.values, options)) for s in starts}
            fits = [s for s, rows in every.items() if all(rows)]
            if len(fits) > 1:
                raise InputError(
                    f"{table.path}: {key!r} may count the options in {some_of(several)} from 0 or "
                    f"from 1: {_read(every, 0)} or {_read(every, 1)} in the first row; give "
                    "--answer-index-from 0 or --answer-index-from 1"
                )
            for counted in fits:
                how = "" if counted is None else f" (counted from {counted})"
                what = f"the option in {some_of(several)} that {key!r} names{how}"
                return _replaced(table, every[counted], [*several, key], what)
    if start is not None:
        raise InputError(
            f"{table.path}: there is no column of numbers that name an option in every row, counted"
            f" from {start}; leave out --answer-index-from {start}, or name the column with "
            "--answer-column"
        )
    return None


def _read(every: Mapping[Any, Sequence[Any]], start: int) -> str:
    return short(every[start][0][0])


def _replaced(
    table: PromptTable, rows: Sequence[Any], names: Sequence[str], what: str
) -> PromptTable:
    columns: dict[str, Any] = {n: c for n, c in table.columns.items() if n not in names}
    columns["answer"] = [right for right, _ in rows]
    others = [next((t for t in some if _first(t) != _first(right)), None) for right, some in rows]
    if None not in others:
        columns["wrong"] = others
    notes = (*table.notes, f"the answer is {what}")
    return PromptTable.of(table.path, columns, table.unit, table.first, notes)


def _first(text: str) -> str:
    return (text.split() or [""])[0]


def _options(
    table: PromptTable, plain: Mapping[str, str], key: str, by_letter: bool
) -> Iterator[tuple[list[str], list[Options]]]:
    """Columns of options, with the labels and texts of each row."""
    for name in _LISTS:
        if name in plain and (name, plain_name(key)) != ("answers", "answer"):
            rows = list(map(_listed, table.columns[plain[name]].values))
            if all(rows):
                yield [plain[name]], [row for row in rows if row is not None]
    stems: dict[str, dict[str, Column]] = {}
    for name, own in plain.items():
        if (match := _COLUMN.fullmatch(name)) and own != key:
            stems.setdefault(match[1], {})[match[2]] = table.columns[own]
    for stem, columns in stems.items():
        kinds = ("text", "number", "yes") if not stem else ("text", "number", *LOGICAL)
        is_whole = len(columns) > 1 and all(c.kind in kinds for c in columns.values())
        if is_whole and (stem or by_letter):
            cells = zip(*(column.values for column in columns.values()), strict=True)
            labels = [] if "1" in columns and "0" not in columns else list(columns)
            yield [c.name for c in columns.values()], [(labels, [*row]) for row in cells]


def _listed(cell: Any) -> Options | None:
    """The labels and texts of options in one cell; labels are empty where it has none."""
    cell = value_in(cell) if isinstance(cell, str) else cell
    labels: Any = []
    if isinstance(cell, Mapping):
        text = cell.get("text", cell.get("choices"))
        labels = cell.get("label", []) if text is not None else list(cell)
        cell = list(cell.values()) if text is None else text
    cell = items_of(cell)
    if isinstance(cell, list) and cell and all(isinstance(one, Mapping) for one in cell):
        labels = [one.get("label", one.get("key")) for one in cell]
        cell = [one.get("text") for one in cell]
    if not isinstance(cell, list) or not all(isinstance(one, str | int | float) for one in cell):
        return None
    if all(_LABELED.match(str(one)) for one in cell):
        cell = [_LABELED.sub("", str(one)) for one in cell]
    return [str(one).lower() for one in labels], [str(one) for one in cell]


def _scored(cell: Any) -> tuple[str, list[str]] | None:
    """The option with the one 1 among zeros, and the others."""
    cell = value_in(cell) if isinstance(cell, str) else cell
    if not isinstance(cell, Mapping):
        return None
    if set(cell) == {"choices", "labels"}:
        cell = dict(zip(cell["choices"], cell["labels"], strict=False))
    values = list(cell.values())
    if values.count(1) != 1 or not all(value in (0, 1) for value in values):
        return None
    right = next(text for text, value in cell.items() if value == 1)
    return right, [text for text in cell if text != right]


def _are_labels(keys: Sequence[str], options: Sequence[Options]) -> bool:
    return all(key in labels for key, (labels, _) in zip(keys, options, strict=True))


def _picked(start: int | None, key: str, options: Options) -> tuple[str, list[str]] | None:
    """The option that a key names, and the others; None if it names none."""
    labels, texts = options
    if start is not None:
        at = int(key) - start if key.isdecimal() else -1
    else:
        at = labels.index(key) if key in labels else _LETTERS.find(key)
    if not 0 <= at < len(texts) or texts[at] in (None, ""):
        return None
    return str(texts[at]), [str(t) for t in texts[:at] + texts[at + 1 :] if t not in (None, "")]
