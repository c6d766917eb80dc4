"""Repeated sentences: a sentence, then the same again up to its last word.

The nouns are drawn, so that nothing but the first sentence tells the last one. The wrong answer is
another noun of the sentence. Corrupted: in the first sentence the last noun is another one.
Source: Olsson et al. 2022, "In-context Learning and Induction Heads", whose heads copy text too.
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words

SENTENCES = (
    "Today the {0} brought the {1} a {2} from the",
    "Later the {0} showed the {1} a {2} near the",
    "Once the {0} left the {1} a {2} behind the",
    "Then the {0} sold the {1} a {2} for the",
)
NOUNS = (
    "teacher doctor student king writer singer player farmer book letter table picture house "
    "window chair bird horse flower truck bridge garden river street paper key box ring clock "
    "ball cup basket computer"
)


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task."""
    words = Words(tokenizer)
    nouns = words.known(NOUNS, "nouns")

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        *said, last, another = rng.choice(nouns, 5, replace=False).tolist()
        start = SENTENCES[template].format(*said)
        clean, corrupted = (f"{start} {noun}. {start}" for noun in (last, another))
        return words.pair(clean, corrupted, f" {last}", f" {rng.choice(said)}")

    return drawn_rows(draw, len(SENTENCES), rows, seed, "copy-text")


COPY_TEXT = PromptTask(
    "copy-text",
    "Say a sentence again.",
    make,
    "Olsson et al. 2022, In-context Learning and Induction Heads",
)
