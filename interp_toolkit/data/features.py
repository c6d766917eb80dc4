"""Prompts with features, answers and corrupted counterparts, in one container of checked arrays.

A corrupted prompt differs from the clean one only in the information that determines the answer, so
that activations can be exchanged position by position (Wang et al. 2023, "Interpretability in the
Wild"). Pairs that violate this are refused, row by row.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Shaped

from interp_toolkit.errors import InputError, a_kind, suggestion
from interp_toolkit.formatting import ShortRepr

EXAMPLE = (
    '{"clean": "Mary met John, and John thanked", "corrupted": "Mary met John, and Anne thanked", '
    '"answer": " Mary", "wrong": " John"}'
)
EXAMPLE_OF_IDS = '{"clean": [5, 7, 9, 7], "corrupted": [5, 7, 9, 8], "answer": 9, "wrong": 5}'


def check_corrupted(
    clean: Sequence[Int[np.ndarray, " _"]],
    corrupted: Sequence[Int[np.ndarray, " _"]],
    where: Callable[[int], str],
) -> None:
    """Raise InputError if a corrupted row has another length than its clean one, or is equal.

    Args:
        clean: rows of tokens.
        corrupted: their counterparts.
        where: names a row by its index, for messages.
    """
    for number, (row, other) in enumerate(zip(clean, corrupted, strict=True)):
        if len(row) != len(other):
            raise InputError(
                f"{where(number)}: the clean prompt has {len(row)} tokens and the corrupted one "
                f"{len(other)}; both need the same number of tokens"
            )
        if np.array_equal(row, other):
            raise InputError(
                f"{where(number)}: the corrupted prompt equals the clean one; change the part "
                "that determines the answer"
            )


def check_wrong(
    answers: Int[np.ndarray, "row item"],
    wrong: Int[np.ndarray, "row item"],
    where: Callable[[int], str],
) -> None:
    """Raise InputError if a wrong answer equals the answer; `where` names a row by its index."""
    same = np.argwhere(answers == wrong)
    if len(same):
        row, column = same[0].tolist()
        raise InputError(
            f"{where(row)}: the wrong answer equals the answer (token {answers[row, column]}); "
            "give another token"
        )


@dataclass(frozen=True, eq=False)
class FeatureData(ShortRepr):
    """Prompts of any lengths, with their features, positions and answers.

    Attributes:
        tokens: one integer array per row. An array [n pos] or a sequence of rows is converted to a
            tuple of rows, so that rows of different lengths need no padding.
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

    tokens: Sequence[Any] | np.ndarray
    features: Bool[np.ndarray, "row feature"]
    names: tuple[str, ...]
    # Lengths are checked below, with a message for the user, so the axis has its own name.
    positions: Int[np.ndarray, " position"] | None = None
    groups: Shaped[np.ndarray, " group"] | None = None
    source: str = "arrays"
    answers: Int[np.ndarray, "..."] | None = None
    answer_positions: Int[np.ndarray, "..."] | None = None
    wrong: Int[np.ndarray, "..."] | None = None
    corrupted: Sequence[Any] | np.ndarray | None = None
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
        return np.array([len(row) for row in self.tokens], dtype=np.int64)

    def at(self, rows: Int[np.ndarray, " chosen"]) -> FeatureData:
        """Select rows, in this order, with their features, answers and groups."""
        arrays = ("positions", "groups", "answers", "answer_positions", "wrong")
        chosen: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else np.asarray(column)[rows]
            for name in arrays
        }
        for name in ("tokens", "corrupted"):
            listed = getattr(self, name)
            chosen[name] = None if listed is None else [listed[i] for i in rows.tolist()]
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
        for rows, of in ((self.tokens, ""), (self.corrupted or (), " (corrupted)")):
            for number, row in enumerate(rows):
                if row.max() >= d_vocab:
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

    def _rows(self, name: str, value: Any, of: str) -> tuple[np.ndarray, ...]:
        """Rows of tokens; `of` follows a row's number in messages."""
        try:
            rows = list(value)
        except TypeError:
            raise InputError(
                f"{self.source}: {name} must be rows of token ids, not {a_kind(value)}"
            ) from None
        if rows and all(_is_plain(row) for row in rows) and np.concatenate(rows).min() >= 0:
            return tuple(rows)
        return tuple(_row(row, f"{self._named(number)}{of}") for number, row in enumerate(rows))

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
        check_wrong(self.answers, wrong, self._named)
        object.__setattr__(self, "wrong", wrong)

    def _settle_corrupted(self, clean: tuple[np.ndarray, ...]) -> None:
        """Convert corrupted rows to a tuple, each checked against its clean row."""
        if self.corrupted is None:
            return
        if self.answers is None:
            raise InputError(f"{self.source}: corrupted rows without answers; give both")
        rows = self._rows("corrupted", self.corrupted, " (corrupted)")
        if len(rows) != len(clean):
            raise InputError(f"{self.source}: {len(rows)} corrupted rows for {len(clean)} rows")
        check_corrupted(clean, rows, self._named)
        object.__setattr__(self, "corrupted", rows)

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


def _is_plain(row: Any) -> bool:
    return type(row) is np.ndarray and row.dtype == np.int64 and row.ndim == 1 and len(row) > 0


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
