"""What rows ask, one entry for each answer of each row, and the places of a row that matter to it.

A place counts if it is before the asked one: what the model has read by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.errors import InputError

FEWEST_ROWS = 6  # with five, no sign-flip p-value is below 0.05


@dataclass(frozen=True, eq=False)
class Asks:
    """Everything that rows ask, row by row.

    Attributes:
        tokens: of the row that asks.
        position: where it asks.
        answer: the token that should be named there.
        wrong: the token that should not, or None.
        slots: how many answers a row asks for: entries of one row stand together.

    Examples:
        >>> tokens, position = np.array([[3, 4, 3, 5]]), np.array([3])
        >>> Asks(tokens, position, np.array([4]), np.array([3]), 1).last_repeat(np.array([3]))
        array([[False, False,  True, False]])
    """

    tokens: Int[np.ndarray, "ask pos"]
    position: Int[np.ndarray, " ask"]
    answer: Int[np.ndarray, " ask"]
    wrong: Int[np.ndarray, " ask"] | None
    slots: int

    def __len__(self) -> int:
        return len(self.position)

    @property
    def at_hand(self) -> Int[np.ndarray, " token"]:
        """The tokens that some row has as answer or as wrong answer."""
        both = self.answer if self.wrong is None else np.concatenate([self.answer, self.wrong])
        ids: np.ndarray = np.unique(both)
        return ids

    @property
    def earlier(self) -> Bool[np.ndarray, "ask pos"]:
        """Positions before the asked one."""
        before: np.ndarray = np.arange(self.tokens.shape[1]) < self.position[:, None]
        return before

    def holding(self, ids: Int[np.ndarray, " ask"]) -> Bool[np.ndarray, "ask pos"]:
        """Earlier positions that hold these tokens, one for each ask."""
        held: np.ndarray = self.earlier & (self.tokens == ids[:, None])
        return held

    def last_repeat(self, ids: Int[np.ndarray, " ask"]) -> Bool[np.ndarray, "ask pos"]:
        """The last earlier position of these tokens, where there are two or more."""
        held = self.holding(ids)
        last = np.zeros_like(held)
        number = np.flatnonzero(held.sum(1) > 1)
        last[number, held.shape[1] - 1 - held[number, ::-1].argmax(1)] = True
        return last

    def first(self) -> Bool[np.ndarray, "ask pos"]:
        """The first position, where it is an earlier one."""
        at_first: np.ndarray = self.earlier & (np.arange(self.tokens.shape[1]) == 0)
        return at_first

    def by_row(self, values: Float[np.ndarray, "*some ask"]) -> Float[np.ndarray, "*some row"]:
        """The mean over each row's answers; those that are NaN take no part."""
        slots = values.reshape(*values.shape[:-1], -1, self.slots)
        if self.slots == 1:
            return slots[..., 0]
        filled = ~np.isnan(slots)
        with np.errstate(invalid="ignore"):
            mean: np.ndarray = np.where(filled, slots, 0).sum(-1) / filled.sum(-1)
        return mean


def asks_of(prompts: Prompts) -> Asks:
    """The questions of these rows.

    Raises InputError for rows that ask nothing, too few of them, or all for the same.
    """
    if prompts.answers is None or prompts.answer_positions is None:
        raise InputError(
            "these prompts have no answers, by which heads are judged; give --task, or --data with "
            "an answer column (and a wrong one beside it)"
        )
    rows, slots = prompts.answers.shape
    if rows < FEWEST_ROWS:
        raise InputError(f"{rows} rows are too few to judge heads by; give {FEWEST_ROWS} or more")
    wrong = None if prompts.wrong is None else prompts.wrong.numpy().reshape(-1)
    asks = Asks(
        tokens=prompts.tokens.numpy().repeat(slots, axis=0),
        position=prompts.answer_positions.numpy().reshape(-1),
        answer=prompts.answers.numpy().reshape(-1),
        wrong=wrong,
        slots=slots,
    )
    if len(asks.at_hand) < 2:
        raise InputError("all rows ask for the same answer; heads are judged by what sets it apart")
    return asks
