"""Prompts with features, answers and corrupted counterparts, in one container of checked arrays.

A corrupted prompt differs from the clean one only in the information that determines the answer, so
that activations can be exchanged position by position (Wang et al. 2023, "Interpretability in the
Wild"). Pairs that violate this are refused, row by row.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np
from jaxtyping import Bool, Int, Shaped

from interp_toolkit.errors import InputError, a_kind, suggestion
from interp_toolkit.formatting import ShortRepr

EXAMPLE = (
    '{"clean": "Mary met John, and John thanked", "corrupted": "Mary met John, and Anne thanked", '
    '"answer": " Mary", "wrong": " John"}'
)
EXAMPLE_OF_IDS = '{"clean": [5, 7, 9, 7], "corrupted": [5, 7, 9, 8], "answer": 9, "wrong": 5}'


class RaggedTokens(Sequence[np.ndarray]):
    """Rows of token ids of any lengths, in one array; a row is a view of it.

    Attributes:
        flat: the ids of all rows, one row after another.
        lengths: [n], the number of ids in each row.
    """

    def __init__(self, flat: Int[np.ndarray, " id"], lengths: Int[np.ndarray, " n"]):
        self.flat, self.lengths = flat, lengths
        self._starts = np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> RaggedTokens:
        """Rows that are arrays already."""
        flat = np.concatenate(rows) if len(rows) else np.zeros(0, np.int64)
        return cls(flat, np.fromiter(map(len, rows), np.int64, len(rows)))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, row: SupportsIndex) -> np.ndarray: ...
    @overload
    def __getitem__(self, row: slice) -> RaggedTokens: ...
    def __getitem__(self, row: SupportsIndex | slice) -> np.ndarray | RaggedTokens:
        if isinstance(row, slice):
            return self.at(np.arange(len(self))[row])
        start = self._starts[row]
        return self.flat[start : start + self.lengths[row]]

    def __iter__(self) -> Iterator[np.ndarray]:
        ends = zip(self._starts.tolist(), self.lengths.tolist(), strict=True)
        return (self.flat[start : start + length] for start, length in ends)

    def at(self, rows: Int[np.ndarray, " chosen"]) -> RaggedTokens:
        """Select rows, in this order."""
        lengths = self.lengths[rows]
        shift = self._starts[rows] - (np.cumsum(lengths) - lengths)
        return RaggedTokens(
            self.flat[np.arange(lengths.sum()) + np.repeat(shift, lengths)], lengths
        )


def pair_problems(clean: RaggedTokens, corrupted: RaggedTokens) -> dict[int, str]:
    """The problem of each corrupted row of another length than its clean one, or equal to it."""
    problems = {}
    for row in np.flatnonzero(clean.lengths != corrupted.lengths).tolist():
        problems[row] = (
            f"the clean prompt has {clean.lengths[row]} tokens and the corrupted one "
            f"{corrupted.lengths[row]}; both need the same number of tokens"
        )
    alike = np.flatnonzero(clean.lengths == corrupted.lengths)
    one, other = clean.at(alike), corrupted.at(alike)
    changed = np.repeat(np.arange(len(one)), one.lengths)[one.flat != other.flat]
    for row in np.delete(alike, np.unique(changed)).tolist():
        problems[row] = (
            "the corrupted prompt equals the clean one; change the part that determines the answer"
        )
    return problems


def wrong_problems(
    answers: Int[np.ndarray, "row item"], wrong: Int[np.ndarray, "row item"]
) -> dict[int, str]:
    """The problem of each row whose wrong answer equals the answer."""
    same = np.argwhere(answers == wrong)[::-1].tolist()  # the first of a row counts
    return {
        row: f"the wrong answer equals the answer (token {answers[row, item]}); give another token"
        for row, item in same
    }


@dataclass(frozen=True, eq=False)
class FeatureData(ShortRepr):
    """Prompts of any lengths, with their features, positions and answers.

    Attributes:
        tokens: one integer array per row. An array [n pos] or a sequence of rows is converted to
            `RaggedTokens`, so that rows of different lengths need no padding.
        features: [n k] booleans.
        names: names of the k features.
        positions: [n], the position to read in each row; None: the analysis chooses. Negative
            positions count from the row's end, and are converted to count from its start.
        groups: [n], groups of rows that must not be split (such as a row's document), or None.
        answers: [n m], token ids that the logits should predict, m per row; None: no answers.
            [n] is accepted for one answer per row.
        answer_positions: [n m], the positions of these logits; [m] if equal for all rows; None:
            the row's end (for one answer per row only). Negative positions as in `positions`.
        wrong: [n m], token ids that the logits should not predict at the same positions, one for
            each answer, or None. [n] is accepted for one per row.
        corrupted: a counterpart of each row, of the same length, that differs in the information
            that determines the answer; converted like `tokens`; None: no counterparts.
        source: where the data comes from, as a phrase.
        reading: how a file was read, line by line: the column of each role, what was left out, and
            three rows as the model sees them.

    Raises InputError if the parts do not fit together.

    Examples:
        >>> rows = [np.array([5, 7, 9]), np.array([7, 9])]
        >>> data = FeatureData(rows, np.array([[True], [False]]), ("a",))
        >>> len(data), data.names
        (2, ('a',))
    """

    tokens: Any
    features: Bool[np.ndarray, "row feature"]
    names: tuple[str, ...]
    # Lengths are checked below, with a message for the user, so the axis has its own name.
    positions: Int[np.ndarray, " position"] | None = None
    groups: Shaped[np.ndarray, " group"] | None = None
    source: str = "arrays"
    answers: Int[np.ndarray, "..."] | None = None
    answer_positions: Int[np.ndarray, "..."] | None = None
    wrong: Int[np.ndarray, "..."] | None = None
    corrupted: Any = None
    reading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = self._rows("tokens", self.tokens, "")
        if not rows:
            raise InputError(f"{self.source}: there are no rows")
        object.__setattr__(self, "tokens", rows)
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        self._check_features(len(rows))
        for name in ("positions", "answers", "answer_positions", "wrong"):
            self._settle_integers(name)
        for what, column in (("positions", self.positions), ("groups", self.groups)):
            if column is not None and column.ndim != 1:
                raise InputError(f"{self.source}: {what} must be [row], not {list(column.shape)}")
            if column is not None and len(column) != len(rows):
                raise InputError(f"{self.source}: {len(column)} {what} for {len(rows)} rows")
        if self.positions is not None:
            object.__setattr__(self, "positions", self._from_start(self.positions))
        self._settle_answers(len(rows))
        self._settle_wrong()
        self._settle_corrupted(rows)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Tokens in each row."""
        return np.asarray(self.tokens.lengths)

    def at(self, rows: Int[np.ndarray, " chosen"]) -> FeatureData:
        """Select rows, in this order, with their features, answers and groups."""
        arrays = ("positions", "groups", "answers", "answer_positions", "wrong")
        chosen: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else np.asarray(column)[rows]
            for name in arrays
        }
        for name in ("tokens", "corrupted"):
            listed = getattr(self, name)
            chosen[name] = None if listed is None else listed.at(rows)
        return dataclasses.replace(self, features=self.features[rows], **chosen)

    def token_matrix(self) -> Int[np.ndarray, "n pos"]:
        """The tokens as one array. Raises InputError when rows differ in length."""
        lengths = self.lengths
        if len(np.unique(lengths)) > 1:
            raise InputError(
                f"{self.source}: rows have {lengths.min()} to {lengths.max()} tokens, so they do "
                "not form an array"
            )
        return np.stack(list(self.tokens))

    def check_vocabulary(self, d_vocab: int) -> FeatureData:
        """The data itself; raises InputError for prompts with tokens outside the vocabulary."""
        for rows, of in ((self.tokens, ""), (self.corrupted, " (corrupted)")):
            if rows is None or rows.flat.max() < d_vocab:
                continue
            number, row = next((i, row) for i, row in enumerate(rows) if row.max() >= d_vocab)
            raise InputError(
                f"{self._named(number)}{of} has token {row.max()}; the vocabulary is 0 to "
                f"{d_vocab - 1}"
            )
        return self

    def within_context(self, n_ctx: int) -> FeatureData:
        """The rows of at most `n_ctx` tokens; if most are longer, all, which a pass rejects."""
        short = np.flatnonzero(self.lengths <= n_ctx)
        if len(short) == len(self) or 2 * len(short) < len(self):
            return self
        left = (
            f"{len(self) - len(short)} of {len(self)} prompts left out: longer than {n_ctx} tokens"
        )
        reading = (*self.reading, left) if self.reading else ()
        return dataclasses.replace(
            self.at(short), source=f"{self.source} ({left})", reading=reading
        )

    def column(self, name: str) -> Bool[np.ndarray, " n"]:
        """One feature by name. Raises InputError when there is none of that name."""
        if name not in self.names:
            raise InputError(f"no feature {name!r}{suggestion(name, self.names)}")
        return self.features[:, self.names.index(name)]

    def digest(self) -> str:
        """SHA-256 of tokens, features, positions, answers, wrong answers and corrupted rows."""
        parts: Iterable[np.ndarray | None] = (
            self.lengths,
            *self.tokens,
            self.features,
            self.positions,
            *(part for part in (self.answers, self.answer_positions) if part is not None),
            *(self.corrupted or ()),
            *(part for part in (self.wrong,) if part is not None),
        )
        sha = hashlib.sha256()
        for part in parts:
            values = np.zeros(0) if part is None else part
            sha.update(f"{values.shape}".encode())
            sha.update(np.ascontiguousarray(values.astype("<i8")).tobytes())
        return sha.hexdigest()

    def _rows(self, name: str, value: Any, of: str) -> RaggedTokens:
        """Rows of tokens; `of` follows a row's number in messages."""
        if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 2:
            value = RaggedTokens(value.reshape(-1), np.full(len(value), value.shape[1]))
        if isinstance(value, RaggedTokens) and value.lengths.all() and (value.flat >= 0).all():
            return value
        try:
            rows = list(value)
        except TypeError:
            raise InputError(
                f"{self.source}: {name} must be rows of token ids, not {a_kind(value)}"
            ) from None
        named = (f"{self._named(number)}{of}" for number in range(len(rows)))
        return RaggedTokens.of(list(map(_row, rows, named)))

    def _settle_integers(self, name: str) -> None:
        """Convert a part to an array of integers; lists are accepted."""
        value = getattr(self, name)
        if value is None:
            return
        try:
            values = np.asarray(value)
        except ValueError:  # lists of different lengths
            raise InputError(
                f"{self.source}: {name} must be an array of integers; these lists differ in length"
            ) from None
        if values.dtype.kind not in "iu" and values.size:
            held = "text" if values.dtype.kind in "US" else f"{values.dtype} values"
            raise InputError(f"{self.source}: {name} hold {held}; give integers")
        if values.size and values.max() > np.iinfo(np.int64).max:
            raise InputError(f"{self.source}: {name} hold {values.max()}, which is far too large")
        object.__setattr__(self, name, values.astype(np.int64))

    def _settle_answers(self, n_rows: int) -> None:
        """Convert answers and their positions to [n m], with positions from the row's start."""
        if self.answers is None:
            if self.answer_positions is not None:
                raise InputError(f"{self.source}: answer_positions without answers")
            return
        answers = self.answers[:, None] if self.answers.ndim == 1 else self.answers
        if answers.ndim != 2 or len(answers) != n_rows or not answers.shape[1]:
            raise InputError(
                f"{self.source}: answers must be [row position] for {n_rows} rows, not "
                f"{list(self.answers.shape)}"
            )
        if answers.min() < 0:
            raise InputError(f"{self.source}: the answer {answers.min()} is not a token id")
        positions = self.answer_positions
        if positions is None:
            if answers.shape[1] > 1:
                raise InputError(
                    f"{self.source}: {answers.shape[1]} answers in a row need answer_positions, "
                    "the positions whose logits predict them"
                )
            positions = np.full(answers.shape, -1)
        try:
            positions = np.broadcast_to(positions, answers.shape)
        except ValueError:
            raise InputError(
                f"{self.source}: answer_positions of shape {list(positions.shape)} do not fit "
                f"answers of shape {list(answers.shape)}: give that shape, or one position for "
                "each answer of a row"
            ) from None
        positions = np.stack([self._from_start(column) for column in positions.T], axis=1)
        in_order = np.sort(positions, axis=1)
        twice = np.argwhere(in_order[:, 1:] == in_order[:, :-1])
        if len(twice):
            row, number = twice[0].tolist()
            raise InputError(
                f"{self._named(row)}: position {in_order[row, number]} has two answers; give "
                "each answer its own position"
            )
        object.__setattr__(self, "answers", answers)
        object.__setattr__(self, "answer_positions", positions)

    def _settle_wrong(self) -> None:
        """Convert wrong answers to [n m], one for each answer."""
        if self.wrong is None:
            return
        if self.answers is None:
            raise InputError(f"{self.source}: wrong answers without answers; give both")
        wrong = self.wrong[:, None] if self.wrong.ndim == 1 else self.wrong
        if wrong.shape != self.answers.shape:
            raise InputError(
                f"{self.source}: wrong answers {list(self.wrong.shape)} do not fit answers "
                f"{list(self.answers.shape)}; give one for each"
            )
        if wrong.min() < 0:
            raise InputError(f"{self.source}: the wrong answer {wrong.min()} is not a token id")
        self._check_none(wrong_problems(self.answers, wrong))
        object.__setattr__(self, "wrong", wrong)

    def _settle_corrupted(self, clean: RaggedTokens) -> None:
        """Convert corrupted rows to `RaggedTokens`, each checked against its clean row."""
        if self.corrupted is None:
            return
        if self.answers is None:
            raise InputError(f"{self.source}: corrupted rows without answers; give both")
        rows = self._rows("corrupted", self.corrupted, " (corrupted)")
        if len(rows) != len(clean):
            raise InputError(f"{self.source}: {len(rows)} corrupted rows for {len(clean)} rows")
        self._check_none(pair_problems(clean, rows))
        object.__setattr__(self, "corrupted", rows)

    def _check_none(self, problems: dict[int, str]) -> None:
        if problems:
            row = min(problems)
            raise InputError(f"{self._named(row)}: {problems[row]}")

    def _named(self, number: int) -> str:
        return f"{self.source}: row index {number}"

    def _check_features(self, n_rows: int) -> None:
        if self.features.dtype != np.bool_ or self.features.ndim != 2:
            raise InputError(f"{self.source}: features must be booleans [row feature]")
        if len(self.features) != n_rows:
            raise InputError(f"{self.source}: {len(self.features)} feature rows for {n_rows} rows")
        if self.features.shape[1] != len(self.names):
            raise InputError(
                f"{self.source}: {len(self.names)} names for {self.features.shape[1]} features"
            )
        if len(set(self.names)) != len(self.names) or not all(self.names):
            raise InputError(f"{self.source}: feature names must differ and not be empty")

    def _from_start(self, positions: np.ndarray) -> np.ndarray:
        lengths = self.lengths
        outside = np.flatnonzero((positions >= lengths) | (positions < -lengths))
        if len(outside):
            row = int(outside[0])
            raise InputError(
                f"{self.source}: position {positions[row]} is outside row index {row}, "
                f"which has {lengths[row]} tokens"
            )
        return np.where(positions < 0, positions + lengths, positions).astype(np.int64)


def _row(row: np.ndarray | Iterable[int], where: str) -> np.ndarray:
    try:
        ids = np.asarray(row)
    except ValueError:  # lists in it
        ids = np.zeros(())
    if ids.ndim != 1 or not len(ids):
        raise InputError(f"{where} must be a list of token ids with at least one id")
    if ids.dtype.kind not in "iu":
        raise InputError(f"{where} holds {ids.dtype} values; token ids are integers")
    if ids.min() < 0:
        raise InputError(f"{where} has the negative token id {ids.min()}")
    if ids.max() > np.iinfo(np.int64).max:
        raise InputError(f"{where} has the token id {ids.max()}, which is far too large")
    return ids.astype(np.int64, copy=False)
