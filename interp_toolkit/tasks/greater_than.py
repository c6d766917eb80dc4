"""Greater than: "The war lasted from the year 1732 to the year 17" → a number above 32.

Tokenizers that have years as a century and two digits are asked for the two digits, as in the
source; those that have every digit by itself for the tens, above those of the first year. The
wrong answer lies below. Corrupted: the first year ends in 01, below every answer and most wrong
ones. Larger numbers are always right, so a model that prefers them whatever the first year does
this task too: what a corrupted prompt does to the preference is what tells.
Source: Hanna et al. 2023, "How does GPT-2 compute greater-than?".
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words, cannot_hold

TEMPLATE = "The {noun} lasted from the year {century}{year} to the year {century}"
NOUNS = (
    "war siege reign drought famine strike campaign expedition conflict dispute marriage project "
    "journey plague rebellion revolution voyage operation effort program"
)
CENTURIES = tuple(range(11, 19))
_CORRUPTED = "01"


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task."""
    words = Words(tokenizer)
    nouns = words.known(NOUNS, "nouns")
    digits = _digits(words, nouns[0])

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        year = int(rng.integers(12, 89))
        if digits == 2:
            above, below = int(rng.integers(year + 1, 100)), int(rng.integers(2, year))
        else:
            tens = year // 10
            above, below = int(rng.integers(tens + 1, 10)), int(rng.integers(0, tens))
        said = {"noun": rng.choice(nouns), "century": rng.choice(CENTURIES)}
        clean, corrupted = (TEMPLATE.format(year=end, **said) for end in (f"{year:02}", _CORRUPTED))
        return words.pair(clean, corrupted, f"{above:0{digits}}", f"{below:0{digits}}")

    return drawn_rows(draw, 1, rows, seed, "greater-than")


def _digits(words: Words, noun: str) -> int:
    """How many digits of a year are one token behind its century; raises InputError for others."""
    prompt = TEMPLATE.format(noun=noun, century=17, year=32)
    before = words.ids(prompt)
    if words.next_id(prompt, "45", before) is not None:
        return 2
    if all(words.next_id(prompt, end, before) is not None for end in "0123456789"):
        return 1
    raise cannot_hold("it has neither two digits nor single digits of a year as tokens")


GREATER_THAN = PromptTask(
    "greater-than",
    "End a span of years later than it began.",
    make,
    "Hanna et al. 2023, How does GPT-2 compute greater-than?",
)
