"""What each column of a table is: decided here and nowhere else, by the user or from the file.

`Schema` holds the user's choices. `plan_of` decides the rest from names and values together: a name
proposes a column and its values must fit; where no name fits, the values alone may (the only column
of different texts of several words is the prompt). Where two readings are plausible and differ, the
file is refused with both and the options that choose.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from interp_toolkit.data.cells import (
    BLANK,
    LOGICAL,
    TOKEN_COLUMNS,
    Column,
    PromptTable,
    items_of,
    plain_name,
)
from interp_toolkit.data.choices import as_answers
from interp_toolkit.data.published import recognized
from interp_toolkit.data.templates import FILLING, filled, first_text, is_template
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.files import read_yaml

Space = Literal["auto", "add", "keep"]

#: names of our columns, the most telling first; of two in one line the values decide
_PROMPTS = (
    ("tokens", "text", "clean"),
    ("clean_prompt", "prompt_clean", "clean_prefix", "prompt"),
    ("input_ids", "token_ids"),
    (
        "question",
        "question_stem",
        "sentence",
        "input",
        "prefix",
        "statement",
        "instruction",
        "query",
        "goal",
    ),
)
_ANSWERS = (
    ("answer",),
    ("target_true", "correct_answer", "best_answer", "clean_answer", "answers", "correct_answers"),
)
#: names that class labels have as often as answers do
_ANSWERS_OR_LABELS = ("correct", "target", "output", "completion", "continuation")
_WRONG = (
    ("wrong",),
    ("target_false", "wrong_answer", "incorrect_answer", "best_incorrect_answer"),
    ("incorrect_answers", "wrong_answers", "patch_answer", "incorrect"),
    ("incorrect_answer_1", "wrong_answer_1", "distractor1"),
)
_CORRUPTED = (
    ("corrupted",),
    (
        "corrupt",
        "corrupted_prompt",
        "corrupt_prompt",
        "counterfactual_prompt",
        "corrupted_hard",
        "patch_prefix",
    ),
)
_TEMPLATES = ("template", "pattern", "prompt_template", "prompt_templates")
_ROLES = {"answer": (*_ANSWERS, _ANSWERS_OR_LABELS), "wrong": _WRONG, "corrupted": _CORRUPTED}
_OPTIONS = re.compile(
    r"(choice|option|ending|sol|op)?s?_?[0-9a-e]?"
)  # columns of a multiple choice
_IDS = ("ids", "bit", "number")
_SCALARS = ("text", "number", *LOGICAL)
_LISTS = ("mixed", "nested", "other", "texts")
_FEW_CLASSES = 20
_MOST_WORDS = 4  # in the name of a column of prompts
_ROWS_PER_CLASS = 5
_SAMPLE = 1000  # rows by which prompts and answers are compared
_WHOLE_SENTENCE = re.compile(r"""[.!?。！？]["'”’)]?\s*$""")


@dataclass(frozen=True)
class Schema:
    """The columns of a table as the user names them; None: decided by names and values.

    Attributes:
        prompt_column: the prompts, texts or lists of token ids.
        answer_column: what follows each prompt.
        wrong_column: an answer that should not follow.
        corrupted_column: the corrupted prompts.
        feature_column: the features, in order; NAME=VALUE is true where the column has this value.
        group_column: groups of rows that are not split.
        answer_space: whether a space precedes an answer in text: `keep` as in the file, `add` one,
            or `auto`: where the prompt's end and the answer's beginning are words.
        answer_ids: whether numbers as answers are token ids; None: only with prompts of ids.
        answer_index_from: the number of the first option of a multiple choice, 0 or 1; None: the
            one that names an option in every row.
        records: the key, or path of keys, of the records in a `.json` file.

    Examples:
        >>> Schema(prompt_column="question", answer_space="add").is_explicit
        True
    """

    prompt_column: str | None = None
    answer_column: str | None = None
    wrong_column: str | None = None
    corrupted_column: str | None = None
    feature_column: Sequence[str] | None = None
    group_column: str | None = None
    answer_space: Space = "auto"
    answer_ids: bool | None = None
    answer_index_from: int | None = None
    records: str | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether the user chose anything of the columns."""
        return self != Schema(records=self.records)


def as_schema(
    schema: Schema | Mapping[str, Any] | str | Path | None, more: Mapping[str, Any] | None = None
) -> Schema:
    """A schema from a mapping of its attributes, or from a YAML file of one; None: no choices.

    `more` takes precedence. Raises InputError for an unknown attribute or a value of another kind.
    """
    where = str(schema) if isinstance(schema, str | Path) else "schema"
    values: Any = vars(schema) if isinstance(schema, Schema) else schema or {}
    values = read_yaml(Path(values)) if isinstance(values, str | Path) else values
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: give the columns by role, such as prompt_column: question")
    values = {str(name).strip("-").replace("-", "_"): v for name, v in values.items()}
    values |= more or {}
    names = [field.name for field in dataclasses.fields(Schema)]
    for name, value in values.items():
        if name not in names:
            raise InputError(f"{where}: there is no {name!r}{suggestion(name, names)}")
        several = name == "feature_column" and isinstance(value, list | tuple)
        texts = value if several else [value]
        is_right = all(isinstance(text, str) for text in texts)
        if name == "answer_ids":
            is_right = isinstance(value, bool)
        elif name == "answer_index_from":
            is_right = type(value) is int and value in (0, 1)
        elif name == "answer_space":
            is_right = value in get_args(Space)
        if not is_right and (value is not None or name == "answer_space"):
            kinds = {"answer_ids": "true or false", "answer_space": "auto, add or keep"}
            kinds |= {"answer_index_from": "0 or 1", "records": "the key of a list of records"}
            kind = kinds.get(name, "the name of a column")
            raise InputError(f"{where}: {name} is {value!r}; give {kind}")
    features = values.get("feature_column")
    if features is not None:
        values["feature_column"] = (features,) if isinstance(features, str) else tuple(features)
    return Schema(**values)


@dataclass(frozen=True)
class Feature:
    """A feature column, and the value that is true; None: a column of booleans."""

    name: str
    column: str
    true: str | None = None


@dataclass(frozen=True)
class Plan:
    """How a table is read.

    Attributes:
        prompt, answer, wrong, corrupted, group, position, answer_position: names of columns.
        prompt_ids, answer_ids: whether their numbers are token ids.
        features: the features to read.
        data_set: the data set whose rules apply; "": none.
        notes: what the reader should know of the choice.
    """

    prompt: str
    prompt_ids: bool
    answer: str | None
    answer_ids: bool
    wrong: str | None
    corrupted: str | None
    group: str | None
    position: str | None
    answer_position: str | None
    features: tuple[Feature, ...]
    data_set: str
    notes: tuple[str, ...]

    @property
    def roles(self) -> dict[str, str]:
        """The column of each role that has one."""
        named = ("prompt", "answer", "wrong", "corrupted", "group", "position", "answer_position")
        return {role: column for role in named if (column := getattr(self, role)) is not None}


def plan_of(
    table: PromptTable, schema: Schema, feature_names: Sequence[str] | None
) -> tuple[PromptTable, Plan]:
    """The table, in the reader's columns for a data set with rules of its own, and its plan.

    Args:
        table: the columns.
        schema: the user's choices.
        feature_names: the features to read; None: all; empty: none. `schema` takes precedence.

    Raises:
        InputError: no prompts, a column that is missing, or two plausible readings.
    """
    chosen = schema.feature_column if schema.feature_column is not None else feature_names
    data_set, of_ids = "", None
    if not schema.is_explicit and not chosen:
        table, data_set, of_ids = recognized(table)
    columns = (schema.prompt_column, schema.wrong_column, schema.corrupted_column)
    used = {*columns, schema.group_column, *(name.partition("=")[0] for name in chosen or ())}
    table = table.with_paths([name for name in (*used, schema.answer_column) if name])
    if not data_set and not schema.answer_ids:
        read = as_answers(table, used, schema.answer_column, schema.answer_index_from)
        if read is not None:
            wrong = schema.wrong_column or ("wrong" if "wrong" in read.columns else None)
            table = read
            schema = dataclasses.replace(schema, answer_column="answer", wrong_column=wrong)
    plan = _Decision(table, schema, chosen, data_set, of_ids).plan()
    for name in (plan.prompt, plan.corrupted):
        if name is None or table.columns[name].kind != "texts":
            continue
        lists = table.columns[name].mapped(items_of)
        if all(isinstance(v, list) and set(map(type, v)) == {str} for v in lists.levels):
            text, note = _texts_of_lists(lists)
            notes = (*table.notes, note)
            table = dataclasses.replace(table, columns={**table.columns, name: text}, notes=notes)
    full = filled(table, plan.roles, used, schema.prompt_column is not None)
    if full is None:
        return table, plan
    table, answer = full
    schema = dataclasses.replace(schema, prompt_column=plan.prompt, answer_column=answer)
    return table, _Decision(table, schema, chosen, data_set, of_ids).plan()


def _texts_of_lists(lists: Column) -> tuple[Column, str]:
    """Lists of words as texts, or the first of several texts, with a note."""
    name, items = lists.name, [item for items in lists.levels for item in items]
    if any(" " in item.strip() for item in items):
        first = [items[0] for items in lists.values]
        return Column.of(name, first), f"of several texts in {name!r} the first is read"
    space = "" if any(item[:1].isspace() for item in items) else " "
    how = "joined by spaces" if space else "joined"
    return Column.of(
        name, list(map(space.join, lists.values))
    ), f"lists of words in {name!r}, {how}"


class _Decision:
    def __init__(
        self,
        table: PromptTable,
        schema: Schema,
        chosen: Sequence[str] | None,
        data_set: str,
        of_ids: bool | None,
    ):
        self.table, self.schema, self.chosen, self.data_set = table, schema, chosen, data_set
        self.of_ids = schema.answer_ids if of_ids is None else of_ids
        self.plain = {plain_name(name): name for name in table.columns}
        explicit = [schema.prompt_column, schema.answer_column, schema.wrong_column]
        explicit += [schema.corrupted_column, schema.group_column]
        self.taken: set[str | None] = {name for name in explicit if name is not None}
        for name in self.taken:
            self._check(str(name))
            if explicit.count(name) > 1:
                raise InputError(f"{table.path}: column {name!r} is given for two roles; give two")
        self.features = [self._feature(name) for name in chosen or ()]
        if schema.feature_column is not None or chosen:
            self.taken |= {feature.column for feature in self.features}
        self.notes: list[str] = []
        self.unfilled: set[str] = set()

    def plan(self) -> Plan:
        """Decide role by role; each takes its column from the later ones."""
        columns = self.table.columns
        prompt = self._prompt()
        self._check_inside("prompt", prompt)
        prompt_ids = self._is_ids(columns[prompt])
        position = self._by_name((("position",),), _IDS)
        answer_position = self._by_name((("answer_position",),), _IDS)
        group = self.schema.group_column or self._by_name((("group",),), ("mixed", *_SCALARS))
        answer = self._answer(prompt)
        kinds = ("texts", "ids", "mixed", *_SCALARS)
        wrong = self.schema.wrong_column or self._by_name(self._wrong_names(answer), kinds)
        corrupted = self.schema.corrupted_column or self._by_name(
            _CORRUPTED, ("ids",) if prompt_ids else ("text", "ids", "number", "mixed")
        )
        for role, name in (("answer", answer), ("wrong", wrong), ("corrupted", corrupted)):
            self._check_inside(role, name)
        is_flag = wrong is not None and columns[wrong].kind in LOGICAL
        is_flag &= answer is None or columns[answer].kind not in ("number", *LOGICAL)
        if is_flag and self.schema.wrong_column is None:
            self.taken.discard(wrong)
            wrong = None
        if answer is None:
            explicit = self.schema.is_explicit or self.chosen
            for role, name in (("wrong", wrong), ("corrupted", corrupted)):
                named = getattr(self.schema, f"{role}_column")
                if name is not None and (named or (name == role and not explicit)):
                    raise InputError(
                        f"{self.table.path} has {name!r} and no 'answer'; name the answers with "
                        "--answer-column, or only what is read with --prompt-column or "
                        f"--feature-column (columns: {self.table.names})"
                    )
            self.taken -= {wrong, corrupted}
            wrong = corrupted = None
        answer_ids = answer is not None and self._holds_ids(answer, prompt_ids, answer_position)
        is_text = columns[prompt].kind not in ("ids", *_LISTS)
        if prompt == "tokens" and is_text and (answer is None or answer_ids):
            problem = "is not a list of ids; call a column of texts 'text'"
            raise self.table.refuse(0, prompt, problem)
        features = tuple(self._features())
        plan = Plan(
            *(prompt, prompt_ids, answer, answer_ids, wrong, corrupted),
            *(group, position, answer_position, features, self.data_set, ()),
        )
        self.unfilled = _ROLES.keys() - plan.roles.keys()
        return dataclasses.replace(plan, notes=(*self._renamed(plan), *self.notes, *self._rest()))

    def _check_inside(self, role: str, name: str | None) -> None:
        """Raise InputError if a column holds records, naming the values in them."""
        paths = [] if name is None else self.table.paths(name)
        if paths not in ([], [name]):
            options = [f"--{role}-column {path}" for path in paths]
            raise InputError(
                f"{self.table.path}: {name!r} holds records; give {' or '.join(options[:3])}"
            )

    def _check(self, name: str) -> Column:
        if name not in self.table.columns:
            near = suggestion(name, self.table.columns)
            raise InputError(f"{self.table.path}: there is no column {name!r}{near}")
        return self.table.columns[name]

    def _refuse(self, what: str, names: Sequence[str], options: Sequence[str]) -> InputError:
        either = " or ".join(repr(name) for name in names[:3])
        chosen = " or ".join(options[:3])
        return InputError(
            f"{self.table.path}: {either} {what}; give {chosen} (columns: {self.table.names})"
        )

    def _named(self, names: Sequence[str], kinds: Sequence[str]) -> list[Column]:
        """The free columns of these names, and of these kinds."""
        free = [self.plain[name] for name in names if name in self.plain]
        columns = [self.table.columns[name] for name in free if name not in self.taken]
        return [column for column in columns if column.kind in kinds]

    def _by_name(self, tiers: Sequence[Sequence[str]], kinds: Sequence[str]) -> str | None:
        """The first column of these names and kinds, which no other role may take any more."""
        for names in tiers:
            for column in self._named(names, kinds):
                self.taken.add(column.name)
                return column.name
        return None

    def _prompt(self) -> str:
        if self.schema.prompt_column is not None:
            return self.schema.prompt_column
        ours = [name for name in _PROMPTS[0] if name in self.table.columns]
        if "clean" in ours and len(ours) > 1:
            raise InputError(
                f"{self.table.path}: it has both 'clean' and {ours[0]!r}; give one of them, or "
                f"--prompt-column clean or --prompt-column {ours[0]}"
            )
        wordy = [c for n, c in self.table.columns.items() if c.is_wordy and n not in self.taken]
        templates = self._named(_TEMPLATES, ("text", "texts"))
        templates = [c for c in templates if is_template(c.mapped(first_text)[:_SAMPLE])]
        if len(templates) == 1:  # filled by other columns
            wordy = [c for c in wordy if plain_name(c.name) not in FILLING]
        wordy += [c for c in templates if c not in wordy]
        others = ("text", "ids", "mixed", "number", "bit", "other", "yes", "nested")
        for names in _PROMPTS:
            kinds = ("ids",) if "input_ids" in names else others
            columns = self._named(names, (*others, "texts") if "tokens" in names else kinds)
            varied = [c for c in columns if not self._is_label(c)] or ([] if wordy else columns)
            if len(varied) > 1 and names is not _PROMPTS[0]:
                several = [column.name for column in varied]
                raise self._refuse(
                    "may be the prompt", several, [f"--prompt-column {name}" for name in several]
                )
            if varied:
                rivals = [c.name for c in self._named(_PROMPTS[1], ("text",)) if c.is_wordy]
                if varied[0].name == "text" and rivals and varied[0].is_wordy:
                    several = ["text", *rivals]
                    options = [f"--prompt-column {name}" for name in several]
                    raise self._refuse("may be the prompt", several, options)
                self.taken.add(varied[0].name)
                return varied[0].name
        if wordy and len(wordy[0].name.split()) > _MOST_WORDS:
            raise InputError(
                f"{self.table.path}: its first line looks like a row ({wordy[0].name!r}), not a "
                "header; put a line of names before it, such as text,label"
            )
        if len(wordy) == 1:
            self.taken.add(wordy[0].name)
            return wordy[0].name
        several = [column.name for column in wordy]
        if several:
            options = [f"--prompt-column {name}" for name in several]
            raise self._refuse("may be the prompt", several, options)
        if (ends := self._one_token_each()) is not None:
            raise InputError(
                f"{self.table.path}: columns {ends[0]} to {ends[1]} look like one token each: give "
                'one column tokens instead, with lists such as "[5, 1, 7]", or an .npz file with '
                "an array tokens [row, position]"
            )
        raise InputError(
            f"{self.table.path}: no column of prompts ('text' or 'tokens'); name one with "
            f"--prompt-column (columns: {self.table.names})"
        )

    def _one_token_each(self) -> tuple[str, str] | None:
        """The first and last of free columns of numbers that are numbered in order, if any."""
        by_stem: dict[str, list[str]] = {}
        for name, column in self.table.columns.items():
            numbered = re.fullmatch(r"(.*?)(\d+)", name)
            if numbered and name not in self.taken and column.kind in ("number", "bit"):
                by_stem.setdefault(numbered[1], []).append(name)
        for stem, several in by_stem.items():
            counts = [int(name.removeprefix(stem)) for name in several]
            if len(several) > 1 and counts == list(range(counts[0], counts[0] + len(counts))):
                return several[0], several[-1]
        return None

    def _is_ids(self, column: Column) -> bool:
        """Whether prompts are lists of token ids; raises InputError where texts may be meant."""
        if column.kind != "ids" or column.name == "text":
            return False
        names = (*_PROMPTS[0], *TOKEN_COLUMNS)
        if isinstance(column.levels[0], str) and column.name not in names:
            raise InputError(
                f"{self.table.path}: {column.name!r} holds lists of numbers as text, prompts of "
                "token ids or texts; call the column 'tokens' or 'text'"
            )
        return True

    def _is_label(self, column: Column) -> bool:
        """Whether so few short values recur so often that they are no prompts."""
        few = len(column.distinct) <= 2 and column.n_present >= _ROWS_PER_CLASS
        return few and column.kind != "ids" and not column.is_wordy

    def _answer(self, prompt: str) -> str | None:
        if self.schema.answer_column is not None:
            self._check_choices(self.table.columns[self.schema.answer_column])
            return self.schema.answer_column
        kinds = ("text", "number", "bit", "yes", "ids", "texts", "boolean", "damaged", "mixed")
        for names in _ANSWERS:
            column = next(iter(self._named(names, kinds)), None)
            if column is not None:
                self._check_choices(column)
                few = column.kind == "bit" and column.n_present >= _ROWS_PER_CLASS
                if (few or column.kind == "boolean") and not self._is_paired():
                    raise self._ambiguous_label(column, "holds booleans")
                if not self._is_paired() and self._is_class(column, prompt):
                    self.notes.append(f"{column.name!r} has {len(column.distinct)} values only")
                self.taken.add(column.name)
                return column.name
        columns = self._named(_ANSWERS_OR_LABELS, ("text", "number", "texts", "yes"))
        for column in self._named(_ANSWERS_OR_LABELS[1:], ("boolean",)):  # "correct" is a label
            if column.n_present >= _ROWS_PER_CLASS and not self.features:
                raise self._ambiguous_label(column, "holds the words true and false")
        if len(columns) > 1:
            several = [column.name for column in columns]
            options = [f"--answer-column {name}" for name in several]
            raise self._refuse("may be the answer", several, options)
        for column in columns:
            self._check_choices(column)
            if not self._is_paired() and (error := self._label_instead(column, prompt)):
                if self.features:
                    return None
                raise error
            self.taken.add(column.name)
            return column.name
        return None

    def _label_instead(self, column: Column, prompt: str) -> InputError | None:
        """An error if a column may be a class label, or describe whole sentences beside one."""
        if self._is_class(column, prompt):
            n = len(column.distinct)
            return self._ambiguous_label(column, f"has {n} values in {column.n_present} rows")
        texts = self.table.columns[prompt][:_SAMPLE]
        if all(BLANK.search(str(text)) for text in texts) and all(
            str(word) in str(text) for word, text in zip(column[:_SAMPLE], texts, strict=True)
        ):
            return InputError(
                f"{self.table.path}: {column.name!r} stands in prompts with a blank and may fill it"
                f" or not: give --answer-column {column.name}, or --feature-column for prompts "
                f"without answers (columns: {self.table.names})"
            )
        logical = [c for c in self.table.columns.values() if c.kind in LOGICAL]
        labels = [c.name for c in logical if not c.is_row_number and c.name != column.name]
        if not labels or not self._are_sentences(prompt):
            return None
        return InputError(
            f"{self.table.path}: {column.name!r} may follow whole sentences or describe them, as "
            f"{labels[0]!r} does: give --feature-column {labels[0]} or --answer-column "
            f"{column.name} (columns: {self.table.names})"
        )

    def _ambiguous_label(self, column: Column, what: str) -> InputError:
        value = f"={min(column.distinct)}" if len(column.distinct) > 2 else ""
        return InputError(
            f"{self.table.path}: {column.name!r} {what}, a class label or the next word: give "
            f"--feature-column {column.name}{value} or --answer-column {column.name} "
            f"(columns: {self.table.names})"
        )

    def _is_paired(self) -> bool:
        """Whether a wrong answer or a corrupted prompt is there, as beside answers."""
        names = (*(name for tier in (*_WRONG, *_CORRUPTED) for name in tier), "target_new")
        explicit = self.schema.wrong_column or self.schema.corrupted_column
        return bool(explicit or self._named(names, ("ids", "texts", *_SCALARS)))

    def _are_sentences(self, prompt: str) -> bool:
        texts = self.table.columns[prompt][:_SAMPLE]
        return 5 * sum(bool(_WHOLE_SENTENCE.search(str(text))) for text in texts) >= 4 * len(texts)

    def _is_class(self, column: Column, prompt: str) -> bool:
        """Whether few values recur, and prompts are whole sentences or the values but two."""
        n = len(column.distinct)
        if n < 2 or column.n_present < _ROWS_PER_CLASS * n / 2 or n > _FEW_CLASSES:
            return False
        rows = list(zip(self.table.columns[prompt][:_SAMPLE], column[:_SAMPLE], strict=True))
        copied = (re.search(rf"\b{re.escape(str(a).strip())}\b", str(t)) for t, a in rows)
        if 2 * sum(map(bool, copied)) > len(rows):
            return False
        return n == 2 or (column.n_present >= _ROWS_PER_CLASS * n and self._are_sentences(prompt))

    def _check_choices(self, column: Column) -> None:
        """Raise InputError if the answers are numbers or letters of options."""
        keys = {value.strip().lower().removeprefix("-") for value in column.distinct}
        if not keys or not keys <= set("0123456789abcdefgh"):
            return
        options = [
            other
            for name, other in self.table.columns.items()
            if name not in (column.name, self.schema.prompt_column)
            and _OPTIONS.fullmatch(plain_name(name))
            and plain_name(name)
            and not other.kind.startswith(("bit", "number", "boolean"))
        ]
        lists = [one for one in options if one.kind in ("texts", "record", "nested", "mixed")]
        if lists or len(options) > 1:
            raise InputError(
                f"{self.table.path}: {column.name!r} holds numbers or letters of the options in "
                f"{', '.join(one.name for one in options[:4])}, but not one for every row; remove "
                "the other rows, or give a column of words with --answer-column"
            )

    def _wrong_names(self, answer: str | None) -> Sequence[Sequence[str]]:
        return (*_WRONG, ("target_new",)) if plain_name(answer or "") == "target_true" else _WRONG

    def _holds_ids(self, answer: str, prompt_ids: bool, answer_position: str | None) -> bool:
        if self.of_ids is not None:
            return self.of_ids
        kind = self.table.columns[answer].kind
        if kind == "ids" and not prompt_ids and answer_position is None:
            if self.schema.answer_column is not None:
                return False
            raise InputError(
                f"{self.table.path}: {answer!r} holds lists of numbers: give --answer-ids if they "
                f"are token ids, or --answer-column {answer} if the first is an answer in digits"
            )
        return kind == "ids" or (prompt_ids and kind in _IDS)

    def _feature(self, name: str) -> Feature:
        """A feature by its column, or by column and value, NAME=VALUE."""
        if name not in self.table.columns:
            column, equals, value = name.rpartition("=")
            if equals and column in self.table.columns:
                if value not in self.table.columns[column].distinct:
                    near = suggestion(value, self.table.columns[column].distinct)
                    raise InputError(f"{self.table.path}: {column!r} has no value {value!r}{near}")
                return Feature(name, column, value)
            near = suggestion(name, self.table.columns)
            raise InputError(f"{self.table.path}: there is no feature {name!r}{near}")
        column_of = self.table.columns[name]
        if column_of.kind in (*LOGICAL, "damaged", "empty"):
            return Feature(name, name)
        values = column_of.present_texts
        if len(values) != 2:
            raise InputError(
                f"{self.table.path}: {name!r} has {len(values)} values, and a feature has two: "
                f"give one with --feature-column {name}=VALUE, such as {name}={values[-1]}"
            )
        return Feature(name, name, _affirmative(values))

    def _features(self) -> list[Feature]:
        if self.chosen is not None:
            two = [f for f in self.features if f.true is not None and f.name == f.column]
            self.notes += [f"{f.name!r} is true where it is {f.true!r}" for f in two]
            return self.features
        return [
            Feature(name, name)
            for name, column in self.table.columns.items()
            if name not in self.taken
            and column.kind in (*LOGICAL, "damaged")
            and not column.is_row_number
        ]

    def _renamed(self, plan: Plan) -> list[str]:
        names = plan.roles
        ours = {"prompt": _PROMPTS[0]}
        other = [
            f"{name} as {role}"
            for role, name in names.items()
            if plain_name(name) not in (role, *ours.get(role, ()))
        ]
        read = [f"read as {self.data_set}"] if self.data_set else []
        return [*read, f"read {', '.join(other)}"] if other else read

    def _rest(self) -> list[str]:
        """A note on columns that no role takes."""
        features = {feature.column for feature in self._features()} if self.chosen is None else ()
        rest = [
            name or "(no name)"
            for name, column in self.table.columns.items()
            if name not in self.taken and name not in features and not column.is_row_number
        ]
        names = {role: {n for tier in tiers for n in tier} for role, tiers in _ROLES.items()}
        unfit = [
            f"{name!r} ({self.table.columns[name].kind}) is not read as {role}"
            + "".join(
                f": --{role}-column {path}" for path in self.table.paths(name)[:1] if path != name
            )
            for role, of_role in names.items()
            for name in rest
            if plain_name(name) in of_role and role in self.unfilled
        ]
        every = [f"columns not read: {', '.join(rest)}"] if rest and not self.chosen else []
        return every + unfit


def _affirmative(values: Sequence[str]) -> str:
    """The true one of two values: that of which the other is the negation, else the later one."""
    first, second = values
    negations = ("not", "non", "no", "un", "in")
    plain = [re.sub(r"[\W_]", "", value.lower()) for value in (first, second)]
    if any(plain[1] == f"{negation}{plain[0]}" for negation in negations):
        return first
    return second
