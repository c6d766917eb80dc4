"""Tokens in order (weekdays, numbers, letters), and rows that ask for the one after another.

Lists are given as token ids, or taken from the model's tokenizer: those texts of `LISTS` that are
one token, with or without a space in front. A row asks for a successor where the token in front of
its answer on a list stands earlier in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.circuits.roles.asks import Asks
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model

FEWEST = 4  # members: with fewer, other shifts and orders say nothing
LISTS = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten eleven twelve",
    "first second third fourth fifth sixth seventh eighth ninth tenth",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
)


@dataclass(frozen=True, eq=False)
class Successions:
    """Which asks are for a successor.

    Attributes:
        lists: token ids in order, those that some row asks for.
        which: the list of each ask; -1: it asks for no successor.
        before: the token in front of the answer on that list; -1 likewise.
    """

    lists: tuple[Int[np.ndarray, " member"], ...]
    which: Int[np.ndarray, " ask"]
    before: Int[np.ndarray, " ask"]

    @property
    def asked(self) -> Bool[np.ndarray, " ask"]:
        """Whether an ask is for a successor."""
        found: np.ndarray = self.which >= 0
        return found


def lists_of(model: Model, given: Sequence[Sequence[int]] | None) -> list[Int[np.ndarray, " m"]]:
    """Lists of tokens in order: those given, or the tokenizer's; none without either.

    Raises InputError for a list that is too short, or has a token twice or outside the vocabulary.
    """
    if given is None:
        tokenizer = getattr(model, "tokenizer", None)
        return [] if tokenizer is None else _of_tokenizer(tokenizer)
    lists = [np.asarray(members, dtype=np.int64) for members in given]
    d_vocab = int(model.cfg.d_vocab)
    for members in lists:
        if members.ndim != 1 or len(np.unique(members)) != len(members) or len(members) < FEWEST:
            raise InputError(f"a list of successors has {FEWEST} different tokens or more")
        if members.min() < 0 or members.max() >= d_vocab:
            raise InputError(f"a list of successors has tokens outside 0 to {d_vocab - 1}")
    return lists


def successions(asks: Asks, lists: Sequence[Int[np.ndarray, " m"]]) -> Successions:
    """Which asks are for a successor, by the first list on which they are."""
    which, before = (np.full(len(asks), -1) for _ in range(2))
    for number, members in enumerate(lists):
        follows = dict(zip(members[1:].tolist(), members[:-1].tolist(), strict=True))
        token = np.array([follows.get(answer, -1) for answer in asks.answer.tolist()])
        found = (which < 0) & (token >= 0) & asks.holding(token).any(1)
        which[found], before[found] = number, token[found]
    used = [number for number in range(len(lists)) if (which == number).any()]
    renamed = np.array([used.index(n) if n in used else -1 for n in which.tolist()], dtype=int)
    return Successions(tuple(lists[n] for n in used), renamed, before)


def _of_tokenizer(tokenizer: Any) -> list[Int[np.ndarray, " member"]]:
    lists: list[Int[np.ndarray, " member"]] = []
    for text in LISTS:
        for space in (" ", ""):
            ids = [_single(tokenizer, space + word) for word in text.split()]
            kept = _longest(ids)
            if len(kept) >= FEWEST and not any(np.array_equal(kept, other) for other in lists):
                lists.append(np.array(kept))
    return lists


def _single(tokenizer: Any, text: str) -> int | None:
    """The id of a text that is one token."""
    try:
        ids = tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # strangers' tokenizers
        return None
    ids = getattr(ids, "ids", ids)
    return int(ids[0]) if len(ids) == 1 else None


def _longest(ids: Sequence[int | None]) -> list[int]:
    """The longest stretch without a gap: what stands beside a gap has no successor."""
    best: list[int] = []
    run: list[int] = []
    for token in [*ids, None]:
        if token is None or token in run:
            best, run = max(best, run, key=len), []
        else:
            run.append(token)
    return best
