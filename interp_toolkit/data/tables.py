"""Tables of prompts: prompts in text or ids, answers, features (see `files`).

Columns of published data sets are converted to the names that `files` reads: IOI (`text` with the
indirect object at its end, `IO`, `S`), BLiMP (`sentence_good`, `sentence_bad`: the words that they
share are the prompt, the first that differs is the answer), CounterFact (`requested_rewrite`, or
`prompt`, `target_true`, `target_false`), TruthfulQA (`question`, `best_answer`,
`incorrect_answers`), EAP-IG's token ids (`correct_idx` with `incorrect_idx`; alone it may be a
year), feature-circuits (`clean_prefix`, `patch_prefix`, ...), auto-circuit (`answers`,
`wrong_answers`), MIB (`choices`, `answerKey`), and other common names for prompts and answers. The
names of `files` take precedence. Values are checked one by one; errors name the row and column.
Rows are called `unit` ("row", "row index" or "line") and counted from `first` in messages.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.data.features import (
    EXAMPLE,
    EXAMPLE_OF_IDS,
    FeatureData,
    check_corrupted,
    check_wrong,
)
from interp_toolkit.data.text.tokenization import Tokenizer, added_behind, bare_text, whole_text
from interp_toolkit.errors import InputError, suggestion

Columns = dict[str, list[Any]]

#: other common names of our columns, in lower case, spaces as underscores; the first match counts
_NAMES = {
    "clean": ("clean_prompt", "prompt_clean", "clean_prefix"),
    "corrupted": (
        *("corrupt", "corrupted_prompt", "counterfactual_prompt", "corrupted_hard"),
        "patch_prefix",
    ),
    "text": ("prompt", "question", "sentence", "input", "prefix"),
    "answer": (
        *("target_true", "correct_answer", "best_answer", "clean_answer", "answers", "correct"),
        *("target", "output", "io"),
    ),
    "wrong": (
        *("target_false", "target_new", "wrong_answer", "incorrect_answer"),
        *("best_incorrect_answer", "incorrect_answers", "wrong_answers", "patch_answer"),
        *("incorrect", "s"),
    ),
}
_TOKEN_IDS = {"answer": "correct_idx", "wrong": "incorrect_idx"}
_IDS = ("tokens", "clean", "corrupted", "position", "answer_position", "answer", "wrong")
_WORDS = ("text", "clean", "corrupted", "answer", "wrong")
_INDEX = ("", "Unnamed: 0")  # pandas' names for its row numbers
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def as_read(columns: Mapping[str, Sequence[Any]]) -> tuple[Columns, str]:
    """The columns under our names, and a description of what was renamed or cut; "" if nothing.

    Answers of renamed columns are words that follow a prompt, so they begin with a space.
    """
    read = {str(name): list(values) for name, values in columns.items()}
    read = _choices(_pairs_of_sentences(_counterfact(read)))
    plain = {name.strip().lower().replace(" ", "_"): name for name in read}
    prompts = {"tokens", "text", "clean"} & read.keys()
    renamed: dict[str, str] = {}
    for ours, others in _NAMES.items():
        texts = (plain[name] for name in others if name in plain and _are_texts(read[plain[name]]))
        original = next(texts, None)
        taken = ours in read or (ours in ("text", "clean") and bool(prompts))
        if original is not None and not taken and original not in renamed.values():
            renamed[ours] = original
            prompts |= {ours} & {"text", "clean"}
    if "answer" not in {*read, *renamed}:
        renamed.pop("wrong", None)  # such as an unrelated column "s"
    for ours, original in renamed.items():
        read[ours] = read.pop(original)
    several = _first_of_several(read, renamed)
    if "answer" in renamed:
        _as_words(read)
    if not {"answer", "wrong"} & read.keys() and set(_TOKEN_IDS.values()) <= read.keys():
        for ours, original in _TOKEN_IDS.items():
            read[ours] = [_parsed(str(cell)) for cell in read.pop(original)]
            renamed[ours] = f"{original} (token ids)"
    renames = ", ".join(f"{original} as {ours}" for ours, original in renamed.items())
    notes = [f"read {renames}" if renames else "", several]
    return read, "; ".join(note for note in notes if note)


def cell_values(columns: Mapping[str, Sequence[str]]) -> Columns:
    """Parse the cells of a text table as ids, integers and booleans where possible.

    The row numbers that pandas writes are left out.
    """
    of_ids = any(
        name in columns and all(cell.lstrip().startswith("[") for cell in columns[name])
        for name in ("tokens", "clean", "text")
    )
    read: Columns = {}
    for name, cells in columns.items():
        if name.strip() in _INDEX:
            continue
        numbers = name in ("tokens", "position", "answer_position") or (of_ids and name in _IDS)
        if numbers:
            read[name] = [_parsed(cell) for cell in cells]
        elif name not in _WORDS and all(cell.strip().lower() in _BOOLEANS for cell in cells):
            read[name] = [_BOOLEANS[cell.strip().lower()] for cell in cells]
        else:
            read[name] = list(cells)
    return read


def _parsed(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:  # not JSON: the reader of the column reports it
        return cell


def _counterfact(columns: Columns) -> Columns:
    """Flatten CounterFact's nested records: prompt with subject, true word, new word."""
    records = columns.get("requested_rewrite")
    if not records or not all(isinstance(one, Mapping) for one in records):
        return columns
    flat: Columns = {"prompt": [], "target_true": [], "target_new": []}
    for one in records:
        flat["prompt"].append(str(one.get("prompt")).replace("{}", str(one.get("subject"))))
        for name in ("target_true", "target_new"):
            word = one.get(name)
            flat[name].append(word.get("str") if isinstance(word, Mapping) else word)
    return flat


def _pairs_of_sentences(columns: Columns) -> Columns:
    """BLiMP's pairs as prompts: the shared words from the start, then one word each."""
    if not {"sentence_good", "sentence_bad"} <= columns.keys():
        return columns
    rest = {n: v for n, v in columns.items() if n not in ("sentence_good", "sentence_bad")}
    rest |= {"prompt": [], "target_true": [], "target_false": []}
    pairs = zip(columns["sentence_good"], columns["sentence_bad"], strict=True)
    for good, bad in ((str(one).split(), str(other).split()) for one, other in pairs):
        same = [a == b for a, b in zip(good, bad, strict=False)]
        n = same.index(False) if False in same else min(len(good), len(bad))
        rest["prompt"].append(" ".join(good[:n]))
        rest["target_true"].append((good[n:] or [""])[0])
        rest["target_false"].append((bad[n:] or [""])[0])
    return rest


def _choices(columns: Columns) -> Columns:
    """MIB's choices as words: the one at the key's index, and the others."""
    choices, keys = columns.get("choices", []), columns.get("answerKey", [])
    if not choices or not all(
        isinstance(some, list) and _are_texts(some) and type(key) is int and 0 <= key < len(some)
        for some, key in itertools.zip_longest(choices, keys)
    ):
        return columns
    rest = {name: v for name, v in columns.items() if name not in ("choices", "answerKey")}
    pairs = list(zip(choices, keys, strict=True))
    rest["target_true"] = [some[key] for some, key in pairs]
    if all(len(some) > 1 for some in choices):
        rest["target_false"] = [some[:key] + some[key + 1 :] for some, key in pairs]
    return rest


def _first_of_several(columns: Columns, renamed: Iterable[str]) -> str:
    """Keep the first of several answers in words, and report how often this happened."""
    count = 0
    for name in {"answer", "wrong"} & columns.keys():
        values = columns[name]
        firsts = [
            _first(value) if name in renamed or isinstance(value, list) else value
            for value in values
        ]
        count += sum(
            value not in (first, [first]) for value, first in zip(values, firsts, strict=True)
        )
        columns[name] = firsts
    return f"the first of several answers counts, {count} times" if count else ""


def _as_words(columns: Columns) -> None:
    """Convert answers to the words that follow: without the prompt, with a leading space."""
    prompt = "clean" if "clean" in columns else "text"
    for row, text in enumerate(columns.get(prompt, ())):
        answer = columns["answer"][row]
        if not isinstance(text, str) or not isinstance(answer, str):
            continue
        if answer.strip() and text.rstrip(" .").endswith(f" {answer.strip()}"):
            text = columns[prompt][row] = text.rstrip(" .").removesuffix(f" {answer.strip()}")
        for name in ("answer", "wrong"):
            word = columns[name][row] if name in columns else None
            if isinstance(word, str) and not text.endswith(" ") and word[:1].strip():
                columns[name][row] = f" {word}"


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(_first(value), str) for value in values)


def _first(value: Any) -> Any:
    """The first of a list of texts, or of texts between semicolons."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return value[0]
    return value.split(";")[0].strip() if isinstance(value, str) and ";" in value else value


def choose(
    path: str | Path, features: Mapping[str, Any], feature_names: Sequence[str] | None
) -> list[str]:
    """The features to read, in order; raises InputError for an unknown one."""
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
    """The chosen columns as one array, [row feature]."""
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
                f"{len(rows[0])}; all rows need the same number"
            )
    if not rows[0]:
        raise InputError(f"{path}: column {name!r} is empty")
    columns = [integers(path, name, column, unit, first) for column in zip(*rows, strict=True)]
    return np.stack(columns, axis=1)


def _booleans(
    path: str | Path, name: str, values: Iterable[Any], unit: str, first: int
) -> np.ndarray:
    """A feature column; 0 and 1 count as booleans, other numbers and missing values are errors."""
    column = []
    for number, value in enumerate(values, first):
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise InputError(
                f"{path}: {unit} {number}, column {name!r}: {short(value)} is not a boolean "
                "(true, false, 0 or 1); correct it, drop the column, or name the features to read"
            )
        column.append(bool(value))
    return np.array(column, dtype=bool)


def integers(
    path: str | Path, name: str, values: Iterable[Any], unit: str, first: int
) -> np.ndarray:
    """A column of integers; raises InputError for other values."""
    column = []
    for number, value in enumerate(values, first):
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
            raise InputError(
                f"{path}: {unit} {number}, column {name!r}: {short(value)} is not an integer"
            )
        column.append(value)
    return np.array(column, dtype=np.int64)


def group_names(path: str | Path, values: Sequence[Any], unit: str, first: int) -> np.ndarray:
    """A column of names or numbers, as names; raises InputError for other values."""
    for number, value in enumerate(values, first):
        if not isinstance(value, str | int):
            raise InputError(
                f"{path}: {unit} {number}, column 'group': {short(value)} is neither a name nor "
                "a number"
            )
    return np.array([str(value) for value in values])


def short(value: Any) -> str:
    """A value for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


_PROMPTS = ("clean", "tokens", "text")  # possible names of the column of prompts
_NOT_FEATURES = (*_PROMPTS, "corrupted", "position", "group", "answer", "answer_position", "wrong")


def data_of_columns(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    tokenizer: Tokenizer | None,
    feature_names: Sequence[str] | None,
    unit: str,
    first: int,
) -> FeatureData:
    """Check and assemble columns; rows are called `unit` and counted from `first` in messages."""
    columns, renamed = as_read(columns)
    _check_options(path, columns)
    rows = _prompt_rows(path, columns, tokenizer, unit, first)
    if not rows:
        raise InputError(f"{path}: there are no rows")
    chosen, features, words = _features(path, columns, feature_names)
    position, group = columns.get("position"), columns.get("group")
    corrupted, wrong = columns.get("corrupted"), columns.get("wrong")
    misfits: dict[int, str] = {}  # row indices, and the reasons for leaving them out
    answers, cut = _answers(path, "answer", columns.get("answer"), tokenizer, unit, first, misfits)
    against, more = _answers(path, "wrong", wrong, tokenizer, unit, first, misfits)
    counterparts = corrupted and [
        _prompt(path, "corrupted", row, tokenizer, f"{unit} {i}")
        for i, row in enumerate(corrupted, first)
    ]
    answer_positions = id_lists(
        path, "answer_position", columns.get("answer_position"), unit, first
    )
    if answer_positions is None and answers is not None and answers.shape[1] == 1:
        answer_positions = _ends(columns, tokenizer)
    misfits = _misfits(path, rows, counterparts, answers, against, unit, first) | misfits
    notes = [renamed, words]
    if cut or more:
        notes.append(f"{cut + more} answers of several tokens count by their first")
    row_numbers = [number for number in range(len(rows)) if number not in misfits]
    if misfits:
        reason = next(iter(misfits.values()))
        if len(row_numbers) < len(misfits):
            several = f" ({len(misfits)} of {len(rows)} prompts do not fit)" if rows[1:] else ""
            raise InputError(reason + several)
        left = f"{len(misfits)} of {len(rows)} prompts left out"
        notes.append(f"{left}: {reason.removeprefix(f'{path}: ')}")
    note_text = "; ".join(note for note in notes if note)

    def of_rows(column: Any) -> Any:
        if column is None or not misfits:
            return column
        return (
            column[row_numbers]
            if isinstance(column, np.ndarray)
            else [column[i] for i in row_numbers]
        )

    return FeatureData(
        of_rows(rows),
        of_rows(matrix(path, chosen, features, len(rows), unit, first)),
        tuple(chosen),
        of_rows(None if position is None else integers(path, "position", position, unit, first)),
        of_rows(None if group is None else group_names(path, group, unit, first)),
        f"{path} ({note_text})" if note_text else str(path),
        of_rows(answers),
        of_rows(answer_positions),
        of_rows(against),
        of_rows(counterparts),
    )


def check_columns(
    path: Path, columns: Mapping[str, Sequence[Any]], feature_names: Sequence[str] | None
) -> None:
    """Raise InputError for columns without prompts, pairs without answers, missing features."""
    if _prompt_column(columns) is None:
        raise InputError(
            f"{path}: there is no column 'tokens' or 'text' (or 'clean'); it has "
            f"{', '.join(list(columns)[:8])}; a valid line: {EXAMPLE}"
        )
    _check_answered(path, columns)
    _check_options(path, columns)
    _features(path, columns, feature_names)


def _features(
    path: Path, columns: Mapping[str, Sequence[Any]], feature_names: Sequence[str] | None
) -> tuple[list[str], dict[str, Sequence[Any]], str]:
    """The features to read, all features, and a note on columns of words, which are left out."""
    features = {name: values for name, values in columns.items() if name not in _NOT_FEATURES}
    chosen = choose(path, features, feature_names)
    if feature_names is not None:
        return chosen, features, ""
    words = [name for name in chosen if all(map(_is_description, features[name]))]
    note = f"columns not read: {', '.join(words)}" if words else ""
    return [name for name in chosen if name not in words], features, note


def _is_description(value: Any) -> bool:
    """Whether a value is a text, a list or a record that is not a boolean."""
    if isinstance(value, str):
        return value.strip().lower() not in ("true", "false", "yes", "no", "0", "1", "")
    return isinstance(value, list | dict)


def _check_options(path: Path, columns: Mapping[str, Any]) -> None:
    if "option1" in columns and columns.get("answer") is not None:
        raise InputError(
            f"{path}: its answers are option numbers; give the word itself as 'answer' and the "
            "other as 'wrong'"
        )


def _check_answered(where: Any, columns: Mapping[str, Any]) -> None:
    for name in ("wrong", "corrupted"):
        if columns.get(name) is not None and columns.get("answer") is None:
            raise InputError(f"{where} has {name!r} and no 'answer'; a valid line: {EXAMPLE}")


def _prompt_rows(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    tokenizer: Tokenizer | None,
    unit: str,
    first: int,
) -> list[np.ndarray]:
    """The rows of tokens, from the column that holds the prompts."""
    if "clean" in columns:
        other = next((name for name in ("tokens", "text") if name in columns), None)
        if other is not None:
            raise InputError(f"{path}: it has both 'clean' and {other!r}; give one of them")
    name = _prompt_column(columns)
    if name is None:
        raise InputError(
            f"{path}: there is no column 'tokens' or 'text' (or 'clean'); a valid line: "
            f"{EXAMPLE if tokenizer is not None else EXAMPLE_OF_IDS}"
        )
    origins = [(row, f"{unit} {number}") for number, row in enumerate(columns[name], first)]
    if name == "tokens":
        return [_token_row(path, row, where) for row, where in origins]
    if name == "text":
        return [_encode(path, row, tokenizer, where) for row, where in origins]
    return [_prompt(path, name, row, tokenizer, where) for row, where in origins]


def _prompt_column(columns: Mapping[str, Sequence[Any]]) -> str | None:
    return next((name for name in _PROMPTS if name in columns), None)


def _ends(columns: Mapping[str, Sequence[Any]], tokenizer: Tokenizer | None) -> np.ndarray:
    """The last token of each prompt, counted from the end; for text, before its end tokens."""
    name = _prompt_column(columns)
    assert name is not None
    behind = [
        added_behind(tokenizer, row) if tokenizer is not None and isinstance(row, str) else 0
        for row in columns[name]
    ]
    return -1 - np.array(behind, dtype=np.int64)[:, None]


def _misfits(
    path: Path,
    rows: Sequence[np.ndarray],
    corrupted: Sequence[np.ndarray] | None,
    answers: np.ndarray | None,
    wrong: np.ndarray | None,
    unit: str,
    first: int,
) -> dict[int, str]:
    """The indices of rows that `FeatureData` would refuse as pairs, with the reasons."""

    def where(number: int) -> str:
        return f"{path}: {unit} {number + first}"

    _check_answered(where(0), {"wrong": wrong, "corrupted": corrupted, "answer": answers})
    problems: dict[int, str] = {}
    for number, row in enumerate(rows):
        at, named = slice(number, number + 1), partial(_same, where(number))
        try:
            if corrupted is not None:
                check_corrupted([row], corrupted[at], named)
            if answers is not None and wrong is not None and answers.shape == wrong.shape:
                check_wrong(answers[at], wrong[at], named)
        except InputError as error:
            problems[number] = str(error)
    return problems


def _same(name: str, number: int) -> str:
    """The name, for any index; used for a row that is checked alone."""
    return name


def _answers(
    path: Path,
    name: str,
    values: Sequence[Any] | None,
    tokenizer: Tokenizer | None,
    unit: str,
    first: int,
    misfits: dict[int, str],
) -> tuple[np.ndarray | None, int]:
    """Token ids of a column of answers, and the number of texts of which only one token counts.

    Rows whose answer has no tokens get the id 0 and are added to `misfits`.
    """
    if values is None:
        return None, 0
    ids: list[Any] = []
    several = 0
    for number, value in enumerate(values, first):
        if not isinstance(value, str):
            ids.append(value)
            continue
        where = f"{unit} {number}, column {name!r}"
        if tokenizer is None:
            raise InputError(f"{path}: {where} is text, and the model has no tokenizer; give ids")
        encoded = bare_text(tokenizer, value)
        if not encoded:
            reason = f"{path}: {where}: {short(value)} has no tokens of this model"
            misfits.setdefault(number - first, reason)
        several += len(encoded) > 1
        ids.append(encoded[0] if encoded else 0)
    return id_lists(path, name, ids, unit, first), several


def _prompt(path: Path, name: str, row: Any, tokenizer: Tokenizer | None, where: str) -> np.ndarray:
    """A prompt that is text or a list of ids."""
    if isinstance(row, str):
        return _encode(path, row, tokenizer, where)
    if not isinstance(row, list):
        raise InputError(f"{path}: {where}: {name!r} is {short(row)}; give text or a list of ids")
    return _token_row(path, row, where)


def _token_row(path: Path, row: Any, where: str) -> np.ndarray:
    if isinstance(row, str):
        raise InputError(f"{path}: {where}: tokens are text; call the column 'text'")
    if not isinstance(row, list) or not row:
        raise InputError(f"{path}: {where}: tokens must be a list of ids with at least one id")
    for token in row:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            raise InputError(f"{path}: {where}: {short(token)} is not a token id")
    return np.array(row, dtype=np.int64)


def _encode(path: Path, row: Any, tokenizer: Tokenizer | None, where: str) -> np.ndarray:
    if tokenizer is None:
        raise InputError(f"{path}: it holds text, and the model has no tokenizer; give tokens")
    if not isinstance(row, str):
        raise InputError(f"{path}: {where}: text is {short(row)}")
    ids = whole_text(tokenizer, row)
    if not ids:
        raise InputError(f"{path}: {where}: the text has no tokens")
    return _token_row(path, ids, where)
