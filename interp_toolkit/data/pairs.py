"""Pairs: a clean prompt and its corrupted counterpart, an answer and a wrong one.

A corrupted prompt is the clean one with what the answer rests on changed and everything else in
place, so that activations can be carried from one to the other position by position (Wang et al.
2023, "Interpretability in the Wild"). What breaks that is refused here, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

from interp_toolkit.errors import InputError

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
    """Raise InputError where a corrupted row is not as long as its clean one, or is the same.

    Args:
        clean: rows of tokens.
        corrupted: their counterparts.
        where: names a row, by its number.
    """
    for number, (row, other) in enumerate(zip(clean, corrupted, strict=True)):
        if len(row) != len(other):
            raise InputError(
                f"{where(number)}: the clean prompt has {len(row)} tokens and the corrupted one "
                f"{len(other)}; exchange words for others of equally many tokens"
            )
        if np.array_equal(row, other):
            raise InputError(
                f"{where(number)}: the corrupted prompt is the clean one; change in it what the "
                "answer rests on"
            )


def check_wrong(
    answers: Int[np.ndarray, "row asked"],
    wrong: Int[np.ndarray, "row asked"],
    where: Callable[[int], str],
) -> None:
    """Raise InputError where a wrong answer is the answer; `where` names a row, by its number."""
    same = np.argwhere(answers == wrong)
    if len(same):
        row, column = same[0].tolist()
        raise InputError(
            f"{where(row)}: the wrong answer is the answer (token {answers[row, column]}); give "
            "another token"
        )
