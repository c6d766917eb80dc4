"""Prompts with placeholders (`[X]`, `{}`, `{subject}`, `$CITY`), filled from columns.

`[X]` and `{}` stand for the subject, `[Y]` and the name of the answer's column for a blank to fill;
any other name for the column of this name. A placeholder that no column fills, or of which several
may, is an error unless the user names the prompts: then they are read as written, which a note
tells. Braces and dollars in few prompts, or of many names, are code, formulas and amounts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from interp_toolkit.data.cells import Column, PromptTable, items_of, kind_of, plain_name
from interp_toolkit.errors import InputError, some_of

_SLOT = re.compile(
    r"\[([XY])\]|(?<![\w\\^$}])\{\{?\s*([A-Za-z]\w+)?\s*\}\}?|(?<!\S)\$([A-Z]{3,})\b"
)
_SUBJECTS = ("x", "subject", "sub_label", "subj", "sub", "entity")
_OBJECTS = ("y", "object", "obj_label", "obj", "answer", "target", "target_true", "attribute")
FILLING = frozenset((*_SUBJECTS, *_OBJECTS))  # names of columns for placeholders
_SAMPLE = 200  # prompts in which placeholders are looked for
_MOST = 0.9  # of these prompts
_MOST_NAMES = 10  # of placeholders


def is_template(value: Any) -> bool:
    """Whether a text, or every text in a list or column, holds a placeholder."""
    texts = [value] if isinstance(value, str) else value
    texts = [text for text in texts[:_SAMPLE] if text] if isinstance(texts, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        return False
    slots = list(map(_slots, texts))
    names = {name for several in slots for name in several}
    return 0 < len(names) <= _MOST_NAMES and sum(map(bool, slots)) >= _MOST * len(slots)


def first_text(value: Any) -> Any:
    """The first of several texts in a cell; any other value unchanged."""
    value = items_of(value)
    return value[0] if isinstance(value, list) and value else value


def filled(
    table: PromptTable, roles: Mapping[str, str], used: Collection[str | None], is_chosen: bool
) -> tuple[PromptTable, str | None] | None:
    """The table with its prompts filled, and the column of answers; None if they are no templates.

    Columns of words that fill them are left out, except those `used` for something else. Raises
    InputError for a placeholder without one column, unless the user chose these prompts.
    """
    prompt, answer = roles["prompt"], roles.get("answer")
    column = table.columns[prompt]
    if not is_template(column[:_SAMPLE]):
        return None
    plain = {plain_name(n): n for n, c in table.columns.items() if n != prompt and _fits(c)}
    objects = [answer] if answer else [plain[name] for name in _OBJECTS if name in plain]
    sources: dict[str, str | None] = {}
    for name in dict.fromkeys(name for text in column.levels for name in _slots(text)):
        several = _columns(name, plain)
        twice = name == "" and any(_slots(str(text)).count("") > 1 for text in column.levels)
        is_blank = name == "y" or (len(several) == 1 and several == objects)
        if is_blank:
            sources[name] = None
        elif len(several) == 1 and not twice:
            sources[name] = several[0]
        else:
            return _unfilled(table, prompt, column, name, several, is_chosen), answer
    cells = {n: table.columns[n].values for n in sources.values() if n is not None}
    rows = [_fill(text, sources, cells, row) for row, text in enumerate(column.values)]
    how = [f"from {n!r}" for n in cells] or ["by the answer"]
    note = f"placeholders in {prompt!r} are filled {' and '.join(how)}"
    others = {*used, *roles.values()}
    left = {n for n in cells if n not in others and table.columns[n].kind == "text"}
    columns = {n: c for n, c in table.columns.items() if n not in left}
    columns[prompt] = Column.of(prompt, rows)
    read = dataclasses.replace(table, columns=columns, notes=(*table.notes, note))
    return read, objects[0] if len(objects) == 1 else None


def _slots(text: Any) -> list[str]:
    """The names of placeholders in a text, in lower case; "" of one without a name."""
    groups = _SLOT.findall(text) if isinstance(text, str) else []
    return ["".join(names).lower() for names in groups]


def _fits(column: Column) -> bool:
    return column.kind not in ("texts", "ids", "nested", "record", "mixed", "other", "empty")


def _columns(name: str, plain: Mapping[str, str]) -> list[str]:
    """The columns that may fill a placeholder."""
    if name in plain:
        return [plain[name]]
    names = _SUBJECTS if name in ("", "x") else _OBJECTS if name == "y" else ()
    return [plain[one] for one in names if one in plain]


def _fill(
    text: Any, sources: Mapping[str, str | None], cells: Mapping[str, Sequence[Any]], row: int
) -> str | None:
    """A prompt with the row's words, and a blank for its answer; None where a word is missing."""
    if not isinstance(text, str):
        return None
    words = {n: "[MASK]" if c is None else cells[c][row] for n, c in sources.items()}
    if any(kind_of(words[name]) == "missing" for name in _slots(text)):
        return None
    return _SLOT.sub(lambda match: str(words["".join(filter(None, match.groups())).lower()]), text)


def _unfilled(
    table: PromptTable,
    prompt: str,
    column: Column,
    name: str,
    several: Sequence[str],
    is_chosen: bool,
) -> PromptTable:
    every = (match[0] for text in column.levels for match in _SLOT.finditer(str(text)))
    slot = next(one for one in every if _slots(one) == [name])
    if is_chosen:
        note = f"{slot!r} in {prompt!r} is not filled: read as written"
        return dataclasses.replace(table, notes=(*table.notes, note))
    subject = name if name not in ("", "x") else "subject"
    mend = f"no column fills it: put the words in, or in one column {subject!r}"
    if len(several) > 1:
        mend = f"{some_of(several)} may fill it: keep one of them"
    raise InputError(
        f"{table.path}: {prompt!r} holds {slot!r}, and {mend}; --prompt-column {prompt} reads "
        f"it as written (columns: {table.names})"
    )
