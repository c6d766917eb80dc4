"""Prompt layouts with answers, for the tasks of `shared_work`.

Token ids: 0 is BOS, 1 is a mark (a separator, or the answer "not seen"), then come content tokens,
then special tokens (labels, pointers, queries). All content tokens of a prompt differ, except where
the layout repeats one, so that the answer is unique:

- induction: `BOS .. a b .. a`, answer b, the token after the earlier a
- previous-token: `BOS .. a b`, answer a
- duplicate-token: `BOS .. a .. a`, answer a if it occurred before, else the mark
- first-token: `label .. ..`, answer the label
- k-hop: `BOS .. b c .. a b MARK .. a`, answer c, two hops back
- pointer: `BOS v1 v2 .. pi`, answer vi (without BOS in contexts of up to 4 tokens)
- lookup: `BOS k1 v1 k2 v2 .. qi`, answer vi
- max: `BOS v1 v2 .. MARK`, answer the largest id
- mixed: `label .. ..`, answers the label and the previous token in turn
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError

BOS, MARK, CONTENT = 0, 1, 2  # ids; content tokens go on from CONTENT
LABELS = 6  # ids that only stand first
SHORT = 4  # contexts up to here have no room for BOS
MIXED_TURN = 2  # the label is asked for at every second place

#: layout -> the relation that its work heads attend to
RELATIONS = {
    "induction": "induction",
    "previous-token": "previous-token",
    "duplicate-token": "duplicate-token",
    "first-token": "first-token",
    "k-hop": "k-hop",
    "pointer": "answer",
    "lookup": "answer",
    "max": "answer",
    "mixed": "previous-token",
}
SHORTEST = {
    "induction": 5,
    "previous-token": 3,
    "duplicate-token": 4,
    "first-token": 3,
    "k-hop": 8,
    "pointer": 3,
    "lookup": 6,
    "max": 4,
    "mixed": 5,
}

Row = tuple[list[int], list[int], list[int]]  # tokens, answers, where they are asked for


@dataclass(frozen=True)
class Layout:
    """A layout with its sizes.

    Attributes:
        name: one of RELATIONS.
        n_ctx: number of positions of a prompt.
        n_content: number of content tokens.
        asked: number of positions with an answer, in layouts that can have several.
    """

    name: str
    n_ctx: int
    n_content: int
    asked: int = 1

    def __post_init__(self) -> None:
        if self.name not in RELATIONS:
            raise InputError(f"no layout {self.name!r}; known: {', '.join(RELATIONS)}")
        shortest = SHORTEST[self.name] + self.asked - 1
        if self.n_ctx < shortest or (self.name == "lookup" and self.n_ctx % 2):
            raise InputError(
                f"{self.name}: {self.asked} answers do not fit rows of {self.n_ctx} tokens"
            )
        if self.n_content < self.n_ctx:
            raise InputError(
                f"{self.n_content} content tokens are too few for rows of {self.n_ctx}"
            )

    @property
    def has_bos(self) -> bool:
        """Whether prompts begin with BOS."""
        short = self.name == "pointer" and self.n_ctx <= SHORT
        return self.name not in ("first-token", "mixed") and not short

    @property
    def roles(self) -> range:
        """Ids of the special tokens: labels, pointers, queries."""
        counts = {
            "first-token": LABELS,
            "mixed": LABELS,
            "pointer": self.n_ctx - 1,
            "lookup": self.n_content // 2,
        }
        start = CONTENT + self.n_content
        return range(start, start + counts.get(self.name, 0))

    @property
    def content(self) -> range:
        """Ids of the content tokens."""
        return range(CONTENT, CONTENT + self.n_content)

    @property
    def d_vocab(self) -> int:
        """Number of token ids."""
        return self.roles.stop

    @property
    def query_places(self) -> range:
        """Positions that may have an answer."""
        return range(self.n_ctx - self.asked, self.n_ctx)

    def rows(self, n: int, seed: int = 0) -> FeatureData:
        """`n` random prompts with their answers."""
        rng = np.random.default_rng([seed, n])
        drawn = [_DRAW[self.name](self, rng) for _ in range(n)]
        tokens, answers, places = (np.array(part) for part in zip(*drawn, strict=True))
        return FeatureData(
            tokens,
            np.zeros((n, 0), dtype=np.bool_),
            (),
            source=f"layout {self.name}",
            answers=answers,
            answer_positions=places,
        )


def _distinct(layout: Layout, rng: np.random.Generator, n: int) -> list[int]:
    drawn: Int[np.ndarray, " n"] = rng.choice(np.array(layout.content), n, replace=False)
    return [int(t) for t in drawn]


def _induction(layout: Layout, rng: np.random.Generator) -> Row:
    first = _distinct(layout, rng, layout.n_ctx - 1 - layout.asked)
    again = rng.choice(len(first) - 1, layout.asked, replace=False)
    tokens = [BOS, *first, *(first[i] for i in again)]
    return tokens, [first[i + 1] for i in again], list(layout.query_places)


def _previous(layout: Layout, rng: np.random.Generator) -> Row:
    tokens = [BOS, *_distinct(layout, rng, layout.n_ctx - 1)]
    places = list(layout.query_places)
    return tokens, [tokens[p - 1] for p in places], places


def _duplicate(layout: Layout, rng: np.random.Generator) -> Row:
    fresh = _distinct(layout, rng, layout.n_ctx - 1)
    tokens = [BOS, *fresh]
    first = layout.n_ctx - layout.asked
    earlier = rng.permutation(np.arange(1, first))
    places, answers = list(layout.query_places), []
    for number, place in enumerate(places):
        seen = number < len(earlier) and rng.random() < 1 / 2
        if seen:
            tokens[place] = tokens[int(earlier[number])]
        answers.append(tokens[place] if seen else MARK)
    return tokens, answers, places


def _label(layout: Layout, rng: np.random.Generator) -> list[int]:
    return [int(rng.choice(np.array(layout.roles))), *_distinct(layout, rng, layout.n_ctx - 1)]


def _first(layout: Layout, rng: np.random.Generator) -> Row:
    tokens, places = _label(layout, rng), list(layout.query_places)
    return tokens, [tokens[0]] * len(places), places


def _mixed(layout: Layout, rng: np.random.Generator) -> Row:
    tokens, places = _label(layout, rng), list(layout.query_places)
    return tokens, [tokens[0] if p % MIXED_TURN else tokens[p - 1] for p in places], places


def _k_hop(layout: Layout, rng: np.random.Generator) -> Row:
    last = layout.n_ctx - 1
    tokens = [BOS, *_distinct(layout, rng, last)]
    second = int(rng.integers(3, last - 2))  # of a; b and the mark follow, and then the last a
    first = int(rng.integers(1, second - 1))  # of b; c follows
    tokens[second + 1], tokens[second + 2], tokens[last] = tokens[first], MARK, tokens[second]
    return tokens, [tokens[first + 1]], [last]


def _pointer(layout: Layout, rng: np.random.Generator) -> Row:
    start = int(layout.has_bos)
    values = _distinct(layout, rng, layout.n_ctx - 1 - start)
    tokens = [BOS] * start + values
    at = int(rng.integers(start, len(tokens)))
    return [*tokens, layout.roles[at]], [tokens[at]], [layout.n_ctx - 1]


def _lookup(layout: Layout, rng: np.random.Generator) -> Row:
    pairs, half = layout.n_ctx // 2 - 1, layout.n_content // 2
    keys = rng.choice(half, pairs, replace=False).tolist()
    values = (CONTENT + half + rng.choice(half, pairs, replace=False)).tolist()
    asked = int(rng.integers(pairs))
    body = [t for k, v in zip(keys, values, strict=True) for t in (CONTENT + k, v)]
    return [BOS, *body, layout.roles[keys[asked]]], [values[asked]], [layout.n_ctx - 1]


def _max(layout: Layout, rng: np.random.Generator) -> Row:
    values = _distinct(layout, rng, layout.n_ctx - 2)
    return [BOS, *values, MARK], [max(values)], [layout.n_ctx - 1]


_DRAW = {
    "induction": _induction,
    "previous-token": _previous,
    "duplicate-token": _duplicate,
    "first-token": _first,
    "k-hop": _k_hop,
    "pointer": _pointer,
    "lookup": _lookup,
    "max": _max,
    "mixed": _mixed,
}
