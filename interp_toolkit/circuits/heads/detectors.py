"""Attention-head detectors: which keys a kind of head attends to, given the tokens of a row.

A detector is a relation between a query and keys of the same row, and nothing else; what is done
with it (matched controls, one streaming pass, significance, knockouts) is the same for all. A
relation that depends on tokens is asked about the token it seeks at every query: the query's own
token, or the answer that the row asks for there, for the score itself; another one for a control
("would the head attend so to any other token's place?"). Ours are registered under the entry-point
group `interp_toolkit.detectors`, as another package's.

Sources: previous-token, duplicate-token and induction heads, Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits", and Olsson et al. 2022, "In-context Learning and Induction
Heads"; hop_k, Sanford et al. 2024, "Transformers, parallel computation, and logarithmic depth";
first-token sinks, Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.errors import InputError
from interp_toolkit.registry import find

#: (tokens, sought) of one row -> [query key] booleans; keys that the mask hides are ignored
Relation = Callable[[Int[np.ndarray, " pos"], Int[np.ndarray, " pos"]], Bool[np.ndarray, "pos pos"]]

#: least excess of a detected head: attention that falls off geometrically with distance puts at
#: most a quarter on any one position; by position alone sharp random heads reach more, seldom this
FLOOR_BY_TOKEN, FLOOR_BY_POSITION = 0.3, 0.4

Rows = Literal["repeats", "walks"]


@dataclass(frozen=True)
class Detector:
    """A kind of head.

    Attributes:
        name: as in results.
        summary: one line for `interp list`.
        relation: which keys it attends to.
        by_token: whether the relation depends on tokens; if so it is also compared with relabelled
            tokens and with the same places in other rows.
        shifts: "back", "ahead" or "both": where the shifted controls lie, as steps of the key.
        others: shifts that are detectors of their own, and so no controls.
        rows: prompts it needs: "repeats", or "walks" over a small alphabet.
        later: whether its keys come after the query, which only bidirectional attention sees.
        seeks: whether the relation can be asked about other tokens than the query's own; one that
            cannot is not compared with relabelled tokens.
        sought: what token it seeks at a query: the query's "own", or the "answer" that the rows ask
            for there (-1 where they ask nothing); without answers it has no targets.

    Examples:
        >>> def two_back(tokens, sought):
        ...     return np.eye(len(tokens), k=-2, dtype=bool)
        >>> Detector("two-back", "attends two tokens back", two_back, by_token=False).floor
        0.4
    """

    name: str
    summary: str
    relation: Relation = field(repr=False)
    by_token: bool = True
    shifts: Literal["back", "ahead", "both"] = "both"
    others: Collection[int] = ()
    rows: Rows = "repeats"
    later: bool = False
    seeks: bool = True
    sought: Literal["own", "answer"] = "own"

    @property
    def floor(self) -> float:
        """Least excess of a detected head (see `significance`)."""
        return FLOOR_BY_TOKEN if self.by_token else FLOOR_BY_POSITION


def previous_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """The key one before the query."""
    return np.eye(len(tokens), k=-1, dtype=np.bool_)


def next_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """The key one after the query."""
    return np.eye(len(tokens), k=1, dtype=np.bool_)


def first_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """The first key of the row."""
    mask = np.zeros((len(tokens), len(tokens)), dtype=np.bool_)
    mask[1:, 0] = True
    return mask


def duplicate_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """Other places of the token sought."""
    mask: np.ndarray = tokens[None, :] == sought[:, None]
    np.fill_diagonal(mask, False)
    return mask


def induction(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """The key after another place of the token sought."""
    mask = np.zeros((len(tokens), len(tokens)), dtype=np.bool_)
    mask[:, 1:] = duplicate_token(tokens, sought)[:, :-1]
    np.fill_diagonal(mask, False)
    return mask


def hop(k: int) -> Relation:
    """The relation of k hops.

    A hop goes from a position to the one after the last earlier occurrence of its token; the first
    goes from the token sought. Keys that a single hop or the same token reaches are left out.

    Raises InputError for fewer than two hops (one is induction).
    """
    if k < 2:
        raise InputError(f"a k-hop head needs at least 2 hops, got {k}; one hop is induction")

    def relation(
        tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
    ) -> Bool[np.ndarray, "pos pos"]:
        one = np.append(_after_last(tokens, tokens), -1)  # from -1, nowhere, hops lead nowhere
        end = _after_last(tokens, sought)
        for _ in range(k - 1):
            end = one[end]
        queries = np.flatnonzero((end >= 0) & (end < np.arange(len(tokens))))
        mask = np.zeros((len(tokens), len(tokens)), dtype=np.bool_)
        mask[queries, end[queries]] = True
        allowed: np.ndarray = mask & ~induction(tokens, sought) & ~duplicate_token(tokens, sought)
        return allowed

    return relation


def _after_last(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Int[np.ndarray, " pos"]:
    """For every query, the position after the last earlier one of the token sought; -1: none."""
    earlier = tokens[None, :] == sought[:, None]
    earlier &= np.tri(len(tokens), k=-1, dtype=np.bool_)
    after: np.ndarray = len(tokens) - earlier[:, ::-1].argmax(1)
    return np.where(earlier.any(1), after, -1)


PREVIOUS_TOKEN = Detector(
    "previous-token",
    "attends to the previous token",
    previous_token,
    by_token=False,
    shifts="back",
)
NEXT_TOKEN = Detector(
    "next-token",
    "attends to the next token (bidirectional models)",
    next_token,
    by_token=False,
    shifts="ahead",
    later=True,
)
FIRST_TOKEN = Detector(
    "first-token",
    "rests its attention on the first token (attention sink)",
    first_token,
    by_token=False,
    shifts="ahead",
)
DUPLICATE_TOKEN = Detector(
    "duplicate-token",
    "attends to the same token elsewhere",
    duplicate_token,
    others=(1,),
)
INDUCTION = Detector(
    "induction",
    "attends to the token after an earlier occurrence of its own token",
    induction,
    others=(-1,),
)
K_HOP = Detector("k-hop", "attends two induction hops back", hop(2), rows="walks")
ANSWER = Detector(
    "answer",
    "attends, at answer positions, to the token that is the answer",
    duplicate_token,
    sought="answer",
)

#: in the order of results
OURS = (
    "induction",
    "previous-token",
    "duplicate-token",
    "k-hop",
    "first-token",
    "next-token",
    "answer",
)


def as_detector(spec: Any, hops: int = 2) -> Detector:
    """A detector from its registered name, a `Detector`, a mask, or a function of tokens.

    Args:
        spec: a mask is [query key] booleans, for rows of that many positions; a function takes one
            row's tokens, [pos] integers, and returns such a mask, which must depend on them. It
            cannot be asked about other tokens; a `Detector` can, and is then held to more.
        hops: of the k-hop detector.

    Raises:
        InputError: an unknown name, or something that is none of these.
    """
    if isinstance(spec, str):
        if spec == "k-hop" and hops != 2:
            return Detector("k-hop", f"attends {hops} induction hops back", hop(hops), rows="walks")
        registered = find("detectors", spec)
        if not isinstance(registered, Detector):
            raise InputError(f"the detector registered as {spec!r} is not a Detector")
        return registered
    if isinstance(spec, Detector):
        return spec
    if callable(spec):
        name = getattr(spec, "__name__", type(spec).__name__)
        return Detector(
            name,
            "a user's own function",
            lambda tokens, sought: _mask(spec(tokens)),
            seeks=False,
        )
    mask = _mask(spec)
    return Detector("mask", "a user's own mask", lambda tokens, sought: mask, by_token=False)


def as_detectors(specs: Any, hops: int = 2) -> list[Detector]:
    """One or several, as `as_detector` takes them; raises InputError when two have one name."""
    several = specs if isinstance(specs, list | tuple) else (specs,)
    detectors = [as_detector(item, hops) for item in several]
    names = [detector.name for detector in detectors]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the detector {name} is given twice")
    if not detectors:
        raise InputError("give at least one detector")
    return detectors


def _mask(value: Any) -> Bool[np.ndarray, "pos pos"]:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    mask = np.asarray(value)
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1] or mask.dtype != np.bool_:
        raise InputError("a detector's mask must be a square array of booleans, [query key]")
    return mask
