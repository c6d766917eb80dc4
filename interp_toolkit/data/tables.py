"""Tables of prompts read as `schema` plans them: cells as token ids, booleans and positions.

Rows without a label, a prompt or a position are left out while they are few: where many cells of a
label are empty, emptiness may mean something. Rows without an answer, and pairs that do not fit,
are left out unless they are most rows. Other cells that do not fit are errors, with row, column and
text. Everything that was decided or left out is recorded in `source` and `reading`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from interp_toolkit.data.border import Border, PromptTexts, at_border, mending_space, spaced
from interp_toolkit.data.cells import (
    BLANK,
    NO_ANSWER,
    Column,
    PromptTable,
    items_of,
    kind_of,
    short,
    truth_of,
)
from interp_toolkit.data.features import (
    FeatureData,
    RaggedTokens,
    pair_problems,
    wrong_problems,
)
from interp_toolkit.data.preview import SHOWN, described, roles_of
from interp_toolkit.data.schema import Feature, Plan, Schema, plan_of
from interp_toolkit.data.text.tokenization import Tokenizer, added_behind, bare_texts, whole_texts
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.formatting import counted

MOST_MISSING = 1 / 4  # of the cells of a label, prompt, position or group
_BLANK_SAMPLE = 200  # rows in which blanks are looked for
_MOST_BLANKS = 0.9  # of these rows
_QUESTION = re.compile(r"[.!?。！？].*[?？:：]\s*$")  # behind another sentence
_ALIKE = 5  # rows with one and the same first token from which that is noted


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
    path: str | Path, chosen: Sequence[str], columns: Mapping[str, Iterable[Any]], n_rows: int
) -> np.ndarray:
    """The chosen columns of arrays as one array, [row feature]."""
    table = PromptTable.of(path, {n: list(columns[n]) for n in chosen}, "row index", 0)
    for name, column in table.columns.items():
        if len(column) != n_rows:
            raise InputError(f"{path}: {len(column)} feature rows for {n_rows} rows ({name!r})")
    return _features(table, [Feature(name, name) for name in chosen], n_rows)


def integers(table: PromptTable, name: str) -> np.ndarray:
    """A column of integers, also in digits; raises InputError for other values."""
    whole = table.columns[name].mapped(_whole)
    if bad := whole.where(lambda value: value is None):
        raise table.refuse(bad[0], name, "is not an integer")
    return whole.array(np.int64)


def _whole(value: Any) -> int | None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    return value if fits else None


def data_of_table(
    table: PromptTable,
    tokenizer: Tokenizer | None,
    schema: Schema,
    feature_names: Sequence[str] | None,
) -> FeatureData:
    """Read a table.

    Raises InputError for columns that `plan_of` refuses and cells that cannot be read.
    """
    table, plan = plan_of(table, schema, feature_names)
    if not len(table):
        raise InputError(f"{table.path}: there are no rows")
    n_rows, left = len(table), _Left(table)
    table = _complete(table, plan, left)
    notes = [*table.notes, *plan.notes]
    if getattr(tokenizer, "mask_token", None) is None:
        table = _before_blanks(table, plan, notes)
    rows, corrupted, answers, wrong = _tokens(table, plan, tokenizer, schema, left, notes)
    answer_position = (
        None if plan.answer_position is None else _id_lists(table, plan.answer_position)
    )
    if plan.answer_position is None and answers is not None and answers.shape[1] == 1:
        answer_position = _ends(table, plan, tokenizer)
    left.add_pairs(table, rows, corrupted, answers, wrong)
    features = _features(table, plan.features, len(table))
    position = None if plan.position is None else integers(table, plan.position)
    if position is not None:
        lengths = rows.lengths
        outside = int(((position >= lengths) | (position < -lengths)).sum())
        if 2 * outside > len(rows):  # of something else than tokens
            position = None
            notes.append(f"{plan.position!r} is not read: outside {outside:,} of the prompts")
    group = None if plan.group is None else _group_names(table, plan.group)
    used = left.others(table)
    if not len(used) or 2 * len(used) < n_rows:
        raise InputError(f"{left.first} ({len(left.numbers)} of {n_rows} prompts do not fit)")

    def of_used(column: Any) -> Any:
        if column is None or len(used) == len(table):
            return column
        return column[used] if isinstance(column, np.ndarray) else column.at(used)

    notes += left.notes(n_rows)
    data = FeatureData(
        of_used(rows),
        of_used(features),
        tuple(feature.name for feature in plan.features),
        of_used(position),
        of_used(group),
        str(table.path),
        of_used(answers),
        of_used(answer_position),
        of_used(wrong),
        of_used(corrupted),
    )
    rows_read = [table.row(i) for i in used[:SHOWN].tolist()]
    return described(data, notes, [*roles_of(plan), *notes], tokenizer, rows_read)


def untokenized(
    table: PromptTable, schema: Schema, feature_names: Sequence[str] | None
) -> list[str]:
    """The lines of `FeatureData.reading` for a table whose texts no tokenizer reads.

    Raises InputError as `data_of_table` does.
    """
    table, plan = plan_of(table, schema, feature_names)
    if plan.prompt_ids and (plan.answer is None or plan.answer_ids):
        return list(data_of_table(table, None, schema, feature_names).reading)
    n_rows, left, notes = len(table), _Left(table), [*table.notes, *plan.notes]
    table = _before_blanks(_complete(table, plan, left), plan, notes)
    lines = [*roles_of(plan), *notes, *left.notes(n_rows)]
    if plan.prompt_ids or plan.answer is None or plan.answer_ids:
        return [*lines, *map(short, table.columns[plan.prompt][:SHOWN])]
    prompts, answers = _texts(table, plan.prompt), _words(table, plan.answer, lines)
    apart, n_spaced = spaced(PromptTexts(prompts, None, answers, None), schema.answer_space)
    if n_spaced:
        lines.append(f"a space is put before {n_spaced:,} of {counted(len(table), 'answer')}")
    pairs = zip(apart.prompts[:SHOWN], apart.answers[:SHOWN], strict=True)
    return lines + [f"{text[-40:]!r} -> {short(answer)}" for text, answer in pairs]


class _Left:
    """Rows that are left out, with a reason for each kind of problem."""

    def __init__(self, table: PromptTable):
        self.path = table.path
        self.numbers: set[int] = set()  # of the rows in the file
        self.reasons: dict[str, dict[int, str]] = {}

    @property
    def first(self) -> str:
        """The reason for the first row."""
        return next(reason for rows in self.reasons.values() for reason in rows.values())

    def add(self, kind: str, table: PromptTable, row: int, reason: str) -> None:
        """Leave out a row; the first reason counts."""
        number = table.number(row)
        if number not in self.numbers:
            self.numbers.add(number)
            self.reasons.setdefault(kind, {})[number] = reason

    def notes(self, n_rows: int) -> list[str]:
        """One note for each kind of problem, with the count and the first row."""
        return [
            f"{len(rows)} of {n_rows} prompts left out: "
            f"{next(iter(rows.values())).removeprefix(f'{self.path}: ')}"
            for rows in self.reasons.values()
        ]

    def others(self, table: PromptTable) -> np.ndarray:
        """The indices of the table's rows that are not left out."""
        if not self.numbers:
            return np.arange(len(table))
        return np.array([i for i in range(len(table)) if table.number(i) not in self.numbers], int)

    def add_pairs(
        self,
        table: PromptTable,
        rows: RaggedTokens,
        corrupted: RaggedTokens | None,
        answers: np.ndarray | None,
        wrong: np.ndarray | None,
    ) -> None:
        """Leave out rows that `FeatureData` would refuse as pairs."""
        problems: dict[int, str] = {}
        if answers is not None and wrong is not None and answers.shape == wrong.shape:
            problems = wrong_problems(answers, wrong)
        if corrupted is not None:
            problems |= pair_problems(rows, corrupted)
        for row in sorted(problems):
            self.add("pair", table, row, f"{table.row(row)}: {problems[row]}")


def _complete(table: PromptTable, plan: Plan, left: _Left) -> PromptTable:
    """The rows that have all cells; raises InputError where too many lack one."""
    marks = {f.column for f in plan.features if len(table.columns[f.column].present_texts) == 1}
    labels = [f.column for f in plan.features if f.true is None or f.column not in marks]
    needed = [plan.prompt, plan.position, plan.group, *labels]
    answers = [plan.answer, plan.wrong, plan.corrupted, plan.answer_position]
    for name in (name for name in needed if name is not None):
        column = table.columns[name]
        if not column.counts["missing"]:
            continue
        lacking = column.where(partial(_lacks, plan, name))
        for row in lacking:
            left.add(name, table, row, f"{table.cell(row, name)} is no value")
        if len(lacking) > MOST_MISSING * len(table):
            part = f"{len(lacking)} of {counted(len(table), 'row')} lack it"
            raise table.refuse(lacking[0], name, f"is missing ({part}); fill or remove these rows")
    for name in (name for name in answers if name is not None):
        for row in table.columns[name].where(partial(_is_no_answer, plan.answer_ids)):
            left.add("answer", table, row, f"{table.cell(row, name)} is no value")
    if not left.numbers:
        return table
    rows = left.others(table)
    if 2 * len(rows) < len(table):
        raise InputError(f"{left.first} ({len(left.numbers)} of {len(table)} prompts do not fit)")
    return table.select(rows)


def _before_blanks(table: PromptTable, plan: Plan, notes: list[str]) -> PromptTable:
    """The table with prompts that end before their blank, if nearly all have one blank to fill."""
    sample = list(map(str, table.columns[plan.prompt][:_BLANK_SAMPLE]))
    blanks = [len(BLANK.findall(text)) == 1 and "\n" not in text for text in sample]
    if sum(blanks) < _MOST_BLANKS * len(sample):
        return table
    example = BLANK.search(sample[blanks.index(True)])
    assert example is not None
    if plan.answer is None:
        notes.append(
            f"prompts have a blank, {example[0]!r}; with --answer-column they end before it"
        )
        return table
    columns = dict(table.columns)
    for name in (plan.prompt, plan.corrupted):
        if name is not None:
            columns[name] = Column.of(name, list(map(_before_blank, columns[name].values)))
    changed = list(map(str.__ne__, columns[plan.prompt].values, table.columns[plan.prompt].values))
    if any(changed):
        n = counted(len(changed), "prompt")
        whole = "" if all(changed) else "; the others stay whole"
        notes.append(f"{sum(changed):,} of {n} end before their blank, {example[0]!r}{whole}")
        answers = table.columns[plan.answer].values
        pairs = zip(columns[plan.prompt].values, answers, changed, strict=True)
        if unfit := sum(cut and not _may_follow(text, answer) for text, answer, cut in pairs):
            notes.append(
                f"in {unfit:,} of {n} the answer does not fill the blank: it stands before it, or "
                "begins with the prompt"
            )
    return dataclasses.replace(table, columns=columns)


def _before_blank(text: str) -> str:
    """A prompt up to its blank; unchanged if it begins with it, or a question follows."""
    before, _, behind = "\0".join(BLANK.split(text, 1)).partition("\0")
    is_whole = not before.strip() or BLANK.search(behind) or _QUESTION.search(behind)
    return text if is_whole else before.rstrip(" ")


def _may_follow(text: str, answer: Any) -> bool:
    """Whether an answer neither stands in a prompt nor repeats it."""
    if not isinstance(answer, str) or not (word := answer.strip()):
        return True
    return not word.startswith(text.strip()) and not re.search(rf"\b{re.escape(word)}\b", text)


def _lacks(plan: Plan, name: str, value: Any) -> bool:
    """Whether a cell holds no value; of prompts and groups, words such as "none" are values."""
    if isinstance(value, str) and name in (plan.prompt, plan.group):
        return not value or items_of(value) == []
    return kind_of(value) == "missing"


def _is_no_answer(ids: bool, value: Any) -> bool:
    """Whether a cell holds no answer; among texts, a word such as "none" may be one."""
    if isinstance(value, str) and not ids:
        return value in NO_ANSWER or items_of(value) == []
    return kind_of(value) == "missing"


def _tokens(
    table: PromptTable,
    plan: Plan,
    tokenizer: Tokenizer | None,
    schema: Schema,
    left: _Left,
    notes: list[str],
) -> tuple[RaggedTokens, RaggedTokens | None, np.ndarray | None, np.ndarray | None]:
    """Token ids of prompts, corrupted prompts, answers and wrong answers."""
    named = (plan.answer, plan.wrong)
    if plan.answer is None or plan.answer_ids:
        rows, corrupted = _clean_and_corrupted(table, plan, tokenizer)
        answers, wrong = (None if name is None else _id_lists(table, name) for name in named)
        if plan.data_set and answers is not None:
            _check_ids(table, plan, tokenizer, answers)
        return rows, corrupted, answers, wrong
    if tokenizer is None:
        raise InputError(
            f"{table.row(0)}, column {plan.answer!r} is text, and the model has no tokenizer; give "
            "ids"
        )
    words = _words(table, plan.answer, notes)
    wrong_words = None if plan.wrong is None else _words(table, plan.wrong, notes)
    if plan.prompt_ids:
        ids = [
            column and Column(column.name, bare_texts(tokenizer, column.levels), column.codes)
            for column in (words, wrong_words)
        ]
        return *_clean_and_corrupted(table, plan, tokenizer), *_firsts(
            table, plan, ids, left, notes
        )
    texts = PromptTexts(
        _texts(table, plan.prompt),
        None if plan.corrupted is None else _texts(table, plan.corrupted),
        words,
        wrong_words,
    )
    apart, n_spaced = spaced(texts, schema.answer_space)
    border = at_border(tokenizer, apart, schema.answer_space)
    notes += _border_notes(tokenizer, texts, border, n_spaced, schema, table)
    rows = _tokenized(table, border.texts.prompts, tokenizer)
    others = border.texts.corrupted
    corrupted = None if others is None else _tokenized(table, others, tokenizer, may_be_empty=True)
    return rows, corrupted, *_firsts(table, plan, [border.answers, border.wrong], left, notes)


def _check_ids(
    table: PromptTable, plan: Plan, tokenizer: Tokenizer | None, answers: np.ndarray
) -> None:
    """Raise InputError if the names in a data set's prompts are not what its token ids spell."""
    decode = getattr(tokenizer, "decode", None)
    if decode is None:
        return
    spelled = [str(decode([token])).strip() for token in answers[:, 0].tolist()]
    texts = _texts(table, plan.prompt)
    if 2 * sum(word in text for word, text in zip(spelled, texts, strict=True)) < len(texts):
        raise InputError(
            f"{table.path} has token ids of another tokenizer: {spelled[0]!r} is not in the prompt "
            f"of {table.row(0).removeprefix(f'{table.path}: ')}; give a column of words with "
            "--answer-column"
        )


def _clean_and_corrupted(
    table: PromptTable, plan: Plan, tokenizer: Tokenizer | None
) -> tuple[RaggedTokens, RaggedTokens | None]:
    rows = _prompts(table, plan.prompt, tokenizer)
    return rows, None if plan.corrupted is None else _prompts(table, plan.corrupted, tokenizer)


def _border_notes(
    tokenizer: Tokenizer,
    texts: PromptTexts,
    border: Border,
    n_spaced: int,
    schema: Schema,
    table: PromptTable,
) -> list[str]:
    n, of_rows = len(texts.prompts), counted(len(texts.prompts), "row")
    notes = []
    if n_spaced:
        notes.append(f"a space was put before {n_spaced:,} of {counted(n, 'answer')}")
    elif 2 * len(texts.answers.where(lambda answer: answer[:1].isspace())) < n:
        notes.append("answers are read as written, without a space put before them")
    last_word = texts.answers.mapped(lambda answer: answer.strip().rpartition(" ")[2])
    likely = texts.ends.paired(last_word, _ends_with).where(bool)
    pairs = zip(likely, texts.answers.select(np.array(likely, int)).values, strict=True)
    ends = sum(_ends_with(texts.prompts[row], answer) for row, answer in pairs)
    if ends:
        notes.append(f"in {ends:,} of {of_rows} the prompt ends with its answer")
    if border.moved:
        notes.append(
            f"in {border.moved:,} of {of_rows} the space before the answer is a token of its own "
            "and ends the prompt"
        )
    if border.merged:
        row = border.merged[0]
        way = mending_space(tokenizer, texts, row, schema.answer_space)
        mend = f"--answer-space {way}" if way else "end the prompts where a token ends"
        [answer] = border.texts.answers[row : row + 1]
        example = f"{short(texts.prompts[row][-20:])} + {short(answer)}"
        name = table.row(row).removeprefix(f"{table.path}: ")
        notes.append(
            f"in {len(border.merged):,} of {of_rows} prompt and answer share a token in one text "
            f"({name}: {example}): {mend}"
        )
    return notes


def _ends_with(text: str, answer: str) -> bool:
    """Whether an answer is the last word, or words, of a text."""
    return f" {text.rstrip(' .')}".endswith(f" {answer.strip()}")


def _firsts(
    table: PromptTable, plan: Plan, ids: Sequence[Column | None], left: _Left, notes: list[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The first id of each answer [row 1]; rows whose answer has none are left out."""
    firsts: list[np.ndarray | None] = []
    several = 0
    for name, column in zip((plan.answer, plan.wrong), ids, strict=True):
        if column is None:
            firsts.append(None)
            continue
        several += len(column.where(lambda tokens: len(tokens) > 1))
        for row in column.where(lambda tokens: not tokens):
            reason = f"{table.cell(row, str(name))} has no tokens of this model"
            left.add("answer", table, row, reason)
        first = column.mapped(lambda tokens: tokens[0] if tokens else 0)
        firsts.append(first.array(np.int64)[:, None])
    if several:
        notes.append(f"{several:,} answers of several tokens count by their first")
    if firsts[0] is not None and len(table) >= _ALIKE and not np.ptp(firsts[0]):
        notes.append("all answers begin with the same token")
    return firsts[0], firsts[1]


def _words(table: PromptTable, name: str, notes: list[str]) -> Column:
    """Answers as text: numbers in digits, of lists the first."""
    column = table.columns[name]
    if not column.are_texts:
        column = column.mapped(items_of)
        for row in column.where(_is_of_numbers):
            raise table.refuse(row, name, "is a list of numbers, not of texts")
        several = column.where(lambda value: isinstance(value, list) and len(value) > 1)
        if several:
            notes.append(f"of several answers in {name!r} the first counts, {len(several):,} times")
        column = column.mapped(lambda value: value[0] if isinstance(value, list) else value)
    column = _as_texts(table, column, "is not a text or a number")
    for row in column.where(lambda text: text[:2] in ("['", '["') and text.rstrip()[-1:] == "]"):
        raise table.refuse(row, name, "is a list without commas; write lists as JSON")
    return column


def _is_of_numbers(value: Any) -> bool:
    """Whether a cell is a list of numbers, not all of them whole."""
    is_list = isinstance(value, list) and len(value) > 1
    return is_list and any(isinstance(one, float) for one in value) and str not in map(type, value)


def _texts(table: PromptTable, name: str) -> list[str]:
    """A column of prompts as texts; numbers in digits."""
    column = table.columns[name]
    column = column.mapped(items_of) if column.kind == "texts" else column
    return list(_as_texts(table, column, "is not text; give text or a list of ids").values)


def _as_texts(table: PromptTable, column: Column, problem: str) -> Column:
    """Texts, and numbers in digits; raises InputError for other cells, with their problem."""
    if column.are_texts:
        return column
    for row in column.where(lambda value: not isinstance(value, str | int | float)):
        raise table.refuse(row, column.name, problem)
    return Column.of(column.name, list(map(str, column.values)))


def _prompts(table: PromptTable, name: str, tokenizer: Tokenizer | None) -> RaggedTokens:
    """Prompts that are texts or lists of ids."""
    column = table.columns[name]
    if column.kind not in ("ids", "mixed", "nested", "other", "texts") or name == "text":
        return _tokenized(table, _texts(table, name), tokenizer)
    rows = [items_of(value) for value in column.values]
    for number, row in enumerate(rows):
        if not isinstance(row, list) or not row:
            raise table.refuse(number, name, "must be a list of ids with at least one id")
        for token in row:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
                raise table.refuse(number, name, f"has {short(token)}, which is not a token id")
    return _token_rows(rows)


def _tokenized(
    table: PromptTable,
    texts: Sequence[str],
    tokenizer: Tokenizer | None,
    may_be_empty: bool = False,
) -> RaggedTokens:
    """The token ids of texts."""
    if tokenizer is None:
        raise InputError(
            f"{table.path}: it holds text, and the model has no tokenizer; give tokens"
        )
    ids = whole_texts(tokenizer, texts)
    try:
        rows = _token_rows(ids)
    except (TypeError, ValueError, OverflowError):
        rows = RaggedTokens(np.full(1, -1), np.ones(1, np.int64))
    if not may_be_empty and not rows.lengths.all():
        raise InputError(f"{table.row(int(rows.lengths.argmin()))}: the text has no tokens")
    if rows.flat.size and (rows.flat.min() < 0 or rows.flat.max() >= 2**31):
        raise InputError(f"{table.path}: the tokenizer returned something other than token ids")
    return rows


def _token_rows(rows: Sequence[Sequence[int]]) -> RaggedTokens:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ids = itertools.chain.from_iterable(rows)
    return RaggedTokens(np.fromiter(ids, np.int64, int(lengths.sum())), lengths)


def _ends(table: PromptTable, plan: Plan, tokenizer: Tokenizer | None) -> np.ndarray:
    """The last token of each prompt, counted from the end; for text, before its end tokens."""
    behind = 0
    if not plan.prompt_ids and tokenizer is not None:
        behind = added_behind(tokenizer, str(table.columns[plan.prompt][:1][0]))
    return np.full((len(table), 1), -1 - behind)


def _id_lists(table: PromptTable, name: str) -> np.ndarray:
    """A column of integers, or of lists of integers of one length, [row item]."""
    lists = table.columns[name].mapped(items_of)
    lists = lists.mapped(lambda value: value if isinstance(value, list) else [value])
    [first] = lists[:1]
    for row in lists.where(lambda value: len(value) != len(first)):
        raise InputError(
            f"{table.row(row)} has {len(lists[row : row + 1][0])} values of {name!r}, {table.unit} "
            f"{table.number(0) + table.first} has {len(first)}; all rows need the same number"
        )
    whole = lists.mapped(lambda items: list(map(_whole, items)))
    for row in whole.where(lambda items: None in items):
        raise table.refuse(row, name, "is not an integer")
    return whole.array(np.int64)


def _features(table: PromptTable, features: Sequence[Feature], n_rows: int) -> np.ndarray:
    """The features as booleans, [row feature]."""
    if not features:
        return np.zeros((n_rows, 0), dtype=bool)
    return np.stack([_booleans(table, feature) for feature in features], axis=1)


def _booleans(table: PromptTable, feature: Feature) -> np.ndarray:
    column = table.columns[feature.column]
    if feature.true is not None:
        truths = column.mapped(lambda value: str(value) == feature.true)
    else:
        truths = column.mapped(truth_of)
    for row in truths.where(lambda truth: truth is None):
        raise table.refuse(
            row,
            feature.column,
            "is not a boolean (true, false, 0 or 1); name the features to read with "
            f"--feature-column, or what is true of this one: {feature.name}=VALUE",
        )
    return truths.array(bool)


def _group_names(table: PromptTable, name: str) -> np.ndarray:
    """A column of names or numbers, as names; raises InputError for other values."""
    column = table.columns[name]
    for row in column.where(lambda value: not isinstance(value, str | int)):
        raise table.refuse(row, name, "is neither a name nor a number")
    return column.mapped(str).array(np.str_)
