"""What of a file is read, in lines that every result repeats and `interp info FILE` prints.

The column of each role, notes on what was decided and left out, features that tell little (the same
in nearly all rows, or told by the prompt's length), and three rows as the model sees them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from interp_toolkit.data.cells import PromptTable, short
from interp_toolkit.data.features import FeatureData
from interp_toolkit.data.schema import Plan
from interp_toolkit.data.text.tokenization import Tokenizer
from interp_toolkit.formatting import listed

SHOWN = 3  # rows in `FeatureData.reading`
_SHOWN_TOKENS = 8  # of a prompt, its last ones
_RARE = 0.02  # fraction of rows below which a feature is nearly constant
_BY_LENGTH = 0.9  # AUROC of the prompt's length for a feature that follows it
_LEAST_ROWS = 5  # of each class, for that AUROC


def columns_of(table: PromptTable) -> list[str]:
    """The columns as they are, one line each: kind, number of values, an example."""
    return [
        f"{name or '(no name)'}: {column.kind}, {len(column.distinct):,} values"
        + (f", {column.counts['missing']:,} missing" if column.counts["missing"] else "")
        + f", such as {short(next((v for v in column.levels if v not in (None, '')), None))}"
        for name, column in table.columns.items()
    ]


def roles_of(plan: Plan) -> list[str]:
    """The column of each role, one line each."""
    ids = {"prompt": plan.prompt_ids, "answer": plan.answer_ids}
    lines = [
        f"{role}: column {column!r}{', token ids' if ids.get(role) else ''}"
        for role, column in plan.roles.items()
    ]
    names = ", ".join(repr(feature.name) for feature in plan.features)
    return [*lines, f"features: {names}"] if names else lines


def described(
    data: FeatureData,
    notes: Sequence[str],
    reading: Sequence[str],
    tokenizer: Tokenizer | None,
    rows: Sequence[str],
) -> FeatureData:
    """The data with what was decided in `source` and `reading`, and features that tell little."""
    every = [*notes, *feature_notes(data)]
    source = f"{data.source} ({'; '.join(every)})" if every else data.source
    lines = [*reading, *every[len(notes) :]]
    lines += [_shown(data, row, tokenizer, name) for row, name in enumerate(rows[:SHOWN])]
    return dataclasses.replace(data, source=source, reading=tuple(lines))


def _shown(data: FeatureData, row: int, tokenizer: Tokenizer | None, name: str) -> str:
    """A row as the model sees it: the prompt's last tokens and the answer's."""
    ids = data.tokens[row].tolist()
    cut = "… " if len(ids) > _SHOWN_TOKENS else ""
    name = name.removeprefix(f"{data.source}: ")
    line = f"{name}: {cut}{' '.join(_token(tokenizer, one) for one in ids[-_SHOWN_TOKENS:])}"
    for arrow, column in (("->", data.answers), ("not", data.wrong)):
        if column is not None:
            line += f" {arrow} {' '.join(_token(tokenizer, one) for one in column[row].tolist())}"
    return line


def _token(tokenizer: Tokenizer | None, token: int) -> str:
    decode = getattr(tokenizer, "decode", None)
    return str(token) if decode is None else f"{decode([token])!r} ({token})"


def feature_notes(data: FeatureData) -> list[str]:
    """Notes on features with one value, with nearly one, and that follow the prompt's length."""
    n = len(data)
    ones = data.features.sum(axis=0)
    rarer = np.minimum(ones, n - ones)
    constant = np.flatnonzero(rarer == 0) if n > 1 else np.zeros(0, int)
    rare = np.flatnonzero((rarer > 0) & (rarer < _RARE * n))
    enough = np.flatnonzero(rarer >= _LEAST_ROWS)
    ranks = _ranks(data.lengths)
    by_length = [
        k for k in enough if abs(_auroc(ranks, data.features[:, k]) - 0.5) >= _BY_LENGTH - 0.5
    ]
    return [
        f"{_named(data, columns)} {what}"
        for columns, what in (
            (constant, "the same in all rows"),
            (rare, "the same in nearly all rows"),
            (by_length, "told by the prompt's length alone"),
        )
        if len(columns)
    ]


def _named(data: FeatureData, columns: Iterable[Any]) -> str:
    names = [repr(data.names[k]) for k in columns]
    start, verb = ("features", "are") if len(names) > 1 else ("feature", "is")
    return f"{start} {listed(names)} {verb}"


def _ranks(lengths: np.ndarray) -> np.ndarray:
    """The rank of each length, the mean of their ranks for equal ones."""
    counts = np.bincount(lengths)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[lengths])


def _auroc(ranks: np.ndarray, on: np.ndarray) -> float:
    """The chance that a row with the feature ranks higher than one without, ties by half."""
    n = int(on.sum())
    return float((ranks[on].sum() - n * (n + 1) / 2) / (n * (len(on) - n)))
