"""Rows of one length, drawn by seed: distinct, and as evenly from every template as they allow.

The rows of one length are those of the length that gives most of what is asked for. Templates come
in turn, two rows each, so that the first half of the rows, the second, those of even and of odd
number hold the same templates (where rows are chosen on one half and judged on the other).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.options import MAX_SEED
from interp_toolkit.tasks.words import PromptPair, cannot_hold

FEWEST = 4  # rows of a set, and of a template before another one is used
MOST = 100_000
TRIES, MORE_TRIES = 6, 48  # drafts for each row wanted, and beyond

#: draws a row of a template (a number below how many there are); None: it cannot be held
Draw = Callable[[int, np.random.Generator], PromptPair | None]


def drawn_rows(draw: Draw, templates: int, rows: int, seed: int, source: str) -> FeatureData:
    """A set of rows.

    Args:
        draw: makes a row of a template.
        templates: how many templates there are.
        rows: how many rows are wanted.
        seed: of the draws.
        source: what the set is called.

    Raises:
        InputError: a wrong seed; fewer than FEWEST rows are asked for, or more than MOST; the
            tokenizer has tokens for none, or for fewer than are asked for.
    """
    _check(rows, seed)
    used = min(templates, rows // FEWEST)
    wanted = -(-rows // used)
    drafts = [
        _distinct(draw, template, np.random.default_rng([seed, template]), wanted)
        for template in range(used)
    ]
    lengths = {len(pair.clean) for pairs in drafts for pair in pairs}
    if not lengths:
        raise cannot_hold("no prompt has words and answers that it knows, one token each")
    by_length = {
        length: [[pair for pair in pairs if len(pair.clean) == length] for pairs in drafts]
        for length in sorted(lengths)
    }
    chosen = max(by_length.values(), key=lambda pools: sum(min(len(p), wanted) for p in pools))
    found = _in_turn([pool for pool in chosen if pool], rows)
    if len(found) < rows:
        raise cannot_hold(
            f"it has tokens for {len(found)} different rows of one length, not {rows}; ask for "
            "fewer"
        )
    return FeatureData(
        np.array([pair.clean for pair in found]),
        np.zeros((rows, 0), dtype=bool),
        (),
        source=f"{source}, {rows} rows, seed {seed}",
        answers=np.array([pair.answer for pair in found]),
        wrong=np.array([pair.wrong for pair in found]),
        corrupted=np.array([pair.corrupted for pair in found]),
    )


def _check(rows: int, seed: int) -> None:
    """Raise InputError for a number of rows, or a seed, that nothing can be drawn with."""
    if not _whole(rows):
        raise InputError(f"{rows!r} rows of a task cannot be made; give a whole number")
    if rows < FEWEST:
        raise InputError(f"{rows} rows of a task are too few; ask for {FEWEST} or more")
    if rows > MOST:
        raise InputError(f"{rows} rows of a task are too many; ask for {MOST} or fewer")
    if not _whole(seed) or not 0 <= seed <= MAX_SEED:
        raise InputError(
            f"the seed {seed!r} cannot be used; give a whole number from 0 to {MAX_SEED}"
        )


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _distinct(
    draw: Draw, template: int, rng: np.random.Generator, wanted: int
) -> Sequence[PromptPair]:
    """Drafts of a template, no clean prompt twice."""
    found: dict[tuple[int, ...], PromptPair] = {}
    for _ in range(TRIES * wanted + MORE_TRIES):
        pair = draw(template, rng)
        if pair is not None:
            found.setdefault(pair.clean, pair)
    return list(found.values())


def _in_turn(pools: Sequence[Sequence[PromptPair]], rows: int) -> list[PromptPair]:
    """So many rows, two of each template at a time; templates that have run out are passed over."""
    turns: dict[int, list[PromptPair]] = defaultdict(list)
    for pool in pools:
        for place, pair in enumerate(pool):
            turns[place // 2].append(pair)
    in_turn = [pair for turn in sorted(turns) for pair in turns[turn]]
    return list({pair.clean: pair for pair in in_turn}.values())[:rows]
