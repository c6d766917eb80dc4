"""Repeated random tokens: what came after the last token the first time round comes again.

A segment of different random tokens, then its beginning again, cut off at a random place. The
wrong answer is another token of the segment. Corrupted: in the first segment the answer is
replaced with a token that the row does not have.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words, cannot_hold

LENGTH = 24  # tokens a row, without what the tokenizer puts before every text
SEGMENT = (14, 20)  # tokens before the repeat, from and below


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task."""
    words = Words(tokenizer)
    ids = words.vocabulary()
    if len(ids) <= SEGMENT[1]:
        raise cannot_hold(f"it has {len(ids)} tokens, and a row needs {SEGMENT[1] + 1}")

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        n_first = int(rng.integers(*SEGMENT))
        *segment, another = rng.choice(ids, n_first + 1, replace=False).tolist()
        again = LENGTH - n_first
        first = [another if i == again else token for i, token in enumerate(segment)]
        clean, corrupted = ((*words.first, *part, *segment[:again]) for part in (segment, first))
        others = [token for token in segment if token not in (segment[again], segment[again - 1])]
        return PromptPair(clean, corrupted, segment[again], int(rng.choice(others)))

    return drawn_rows(draw, 1, rows, seed, "copy-random")


COPY_RANDOM = PromptTask(
    "copy-random",
    "Go on with random tokens that repeat.",
    make,
    "Olsson et al. 2022, In-context Learning and Induction Heads",
)
