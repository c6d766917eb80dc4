"""Attention-head detectors: the keys that a kind of head attends to, given the tokens of a prompt.

A detector defines an attention pattern: a relation between a query and keys of the same prompt. All
later steps (matched controls, one streaming pass, significance, knockouts) are the same for all
detectors. A relation that depends on tokens takes a sought token at every query. For the score, the
sought token is the query's own token or the answer at that position. For a control, it is another
token, which tests whether the head would attend to any token in this way. Built-in detectors are
registered under the entry-point group `interp_toolkit.detectors`, as are those of other packages.

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

#: (tokens, sought) of one prompt -> [query key] booleans; keys that the mask hides are ignored
Relation = Callable[[Int[np.ndarray, " pos"], Int[np.ndarray, " pos"]], Bool[np.ndarray, "pos pos"]]

#: smallest excess of a detected head. Attention that decays geometrically with distance has at most
#: 1/4 on any one position. Random heads with sharp attention seldom exceed 0.4 by position.
FLOOR_BY_TOKEN, FLOOR_BY_POSITION = 0.3, 0.4

Rows = Literal["repeats", "walks"]


@dataclass(frozen=True)
class Detector:
    """A kind of head.

    Attributes:
        name: name in results.
        summary: one line for `interp list`.
        relation: function of a prompt's tokens and sought tokens, both [pos] integers, that returns
            the keys of the pattern, [query key] booleans.
        by_token: whether the relation depends on tokens. If so, it is also compared with relabeled
            tokens and with the same positions in other prompts.
        shifts: direction of the shifted controls' keys: "back", "ahead" or "both".
        others: shifts (in positions, ahead positive) that belong to other detectors and are no
            controls; only with `shifts` "both".
        rows: prompts that the pattern needs: "repeats", or "walks" over a small alphabet.
        later: whether keys come after the query, which only bidirectional attention sees.
        seeks: whether the relation accepts other sought tokens than the query's own; if not, it is
            not compared with relabeled tokens.
        sought: token that the relation seeks at a query: the query's "own", or the prompt's
            "answer" at that position (-1 elsewhere). Without answers there are no targets.

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
        """Smallest excess of a detected head (see `significance`)."""
        return FLOOR_BY_TOKEN if self.by_token else FLOOR_BY_POSITION


def previous_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """Key one position before the query."""
    return np.eye(len(tokens), k=-1, dtype=np.bool_)


def next_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """Key one position after the query."""
    return np.eye(len(tokens), k=1, dtype=np.bool_)


def first_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """First key of the prompt."""
    mask = np.zeros((len(tokens), len(tokens)), dtype=np.bool_)
    mask[1:, 0] = True
    return mask


def duplicate_token(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """Other positions of the sought token."""
    mask: np.ndarray = tokens[None, :] == sought[:, None]
    np.fill_diagonal(mask, False)
    return mask


def induction(
    tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
) -> Bool[np.ndarray, "pos pos"]:
    """Keys one position after other occurrences of the sought token."""
    mask = np.zeros((len(tokens), len(tokens)), dtype=np.bool_)
    mask[:, 1:] = duplicate_token(tokens, sought)[:, :-1]
    np.fill_diagonal(mask, False)
    return mask


def hop(k: int) -> Relation:
    """Relation of k induction hops.

    A hop leads from a position to the one after the last earlier occurrence of its token. The first
    hop starts from the sought token. Keys that induction or the same token reaches are left out.

    Raises:
        InputError: `k` is below 2 (one hop is induction).
    """
    if k < 2:
        raise InputError(f"a k-hop head needs at least 2 hops, got {k}; one hop is induction")

    def relation(
        tokens: Int[np.ndarray, " pos"], sought: Int[np.ndarray, " pos"]
    ) -> Bool[np.ndarray, "pos pos"]:
        one = np.append(_after_last(tokens, tokens), -1)  # a hop from -1 (no position) leads to -1
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
    """Position after the last earlier occurrence of each query's sought token; -1 for none."""
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
    "attends mostly to the first token (attention sink)",
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
K_HOP = Detector("k-hop", "attends two induction hops back, or --hops", hop(2), rows="walks")
ANSWER = Detector(
    "answer",
    "attends from the answer position to occurrences of the answer",
    duplicate_token,
    sought="answer",
)

#: built-in detectors, in the order of results
OURS = (
    "induction",
    "previous-token",
    "duplicate-token",
    "k-hop",
    "first-token",
    "next-token",
    "answer",
)
#: phrases for the keys of a pattern, in a claim such as "L5H1 attends to the previous token"
KEY_PHRASES = {
    "previous-token": ("the previous token", "the preceding token"),
    "next-token": ("the next token", "the following token"),
    "first-token": ("the first token",),
    "duplicate-token": (
        "duplicate tokens",
        "the same token elsewhere",
        "other occurrences of the same token",
    ),
    "induction": tuple(
        f"the token after an earlier occurrence of {token}"
        for token in ("its own token", "the same token", "the current token")
    ),
    "answer": ("the answer", "occurrences of the answer"),
}


def as_detector(spec: Any, hops: int = 2) -> Detector:
    """Convert a registered name, a `Detector`, a mask, or a function of tokens to a detector.

    Args:
        spec: the detector. A mask has [query key] booleans, for prompts of that length. A function
            takes one prompt's tokens, [pos] integers, and returns such a mask, which must depend on
            them. Unlike a `Detector`, a function is not compared with relabeled tokens.
        hops: number of hops of the k-hop detector.

    Raises:
        InputError: the name is unknown, or the type is none of these.
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
    """Convert one or several specs (see `as_detector`); raises InputError for repeated names."""
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
