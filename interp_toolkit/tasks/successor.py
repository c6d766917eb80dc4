"""Successors: "Tuesday comes next after Monday, and ..." of days, months, numbers and letters.

Corrupted: another member of the same sequence in its place; the wrong answer is what follows that
one, so that the answers change places.
Source: Gould et al. 2023, "Successor Heads: Recurring, Interpretable Attention Heads In The Wild".
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import LEAST, PromptPair, Words, cannot_hold

TEMPLATES = (
    "In order, the one right after {0} is",
    "In order, what comes right after {0} is",
    "In sequence, the one that follows {0} is",
    "In sequence, what follows right after {0} is",
)
SEQUENCES = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
    " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
)
LEAST_STEPS = 4  # of a sequence, for it to be used


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task; a template with each sequence counts as one of its own."""
    words = Words(tokenizer)
    steps = [_steps(words, sequence.split()) for sequence in SEQUENCES]
    held = [one for one in steps if len(one) >= LEAST_STEPS]
    if sum(map(len, held)) < LEAST:
        raise cannot_hold(
            f"of its days, months, numbers and letters {sum(map(len, held))} are one token as "
            f"their successors are, and {LEAST} are needed"
        )

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        text, number = divmod(template, len(held))
        chosen = rng.choice(len(held[number]), 2, replace=False)
        (one, after), (another, wrong) = (held[number][i] for i in chosen)
        clean, corrupted = (TEMPLATES[text].format(word) for word in (one, another))
        return words.pair(clean, corrupted, f" {after}", f" {wrong}")

    return drawn_rows(draw, len(TEMPLATES) * len(held), rows, seed, "successor")


def _steps(words: Words, sequence: list[str]) -> list[tuple[str, str]]:
    """Neighbours in a sequence that are one token each."""
    pairs = pairwise(sequence)
    return [pair for pair in pairs if all(words.is_one(word) for word in pair)]


SUCCESSOR = PromptTask(
    "successor",
    "Name the day, month, number or letter that comes next.",
    make,
    "Gould et al. 2023, Successor Heads",
)
