"""Agreement of subject and verb: "The keys near the table" → " are", not " is".

The noun nearest to the verb is of either number, in half of the rows another one than the
subject's. Corrupted: the subject in the other number, so that the answers change places.
Source: Linzen et al. 2016, "Assessing the Ability of LSTMs to Learn Syntax-Sensitive
Dependencies"; prompts as in Finlayson et al. 2021, "Causal Analysis of Syntactic Agreement
Mechanisms in Neural Language Models".
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words, cannot_hold

TEMPLATES = (
    "The {subject} near the {other}",
    "The {subject} behind the {other}",
    "The {subject} beside the {other}",
)
VERBS = ("is", "are")
NOUNS = (
    "key:keys car:cars table:tables door:doors tree:trees book:books boy:boys girl:girls dog:dogs "
    "cat:cats teacher:teachers doctor:doctors student:students picture:pictures house:houses "
    "window:windows chair:chairs bird:birds horse:horses flower:flowers truck:trucks king:kings "
    "writer:writers singer:singers player:players letter:letters building:buildings bridge:bridges"
)
LEAST_NOUNS = 8


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task; either number of either noun counts as a template of its own."""
    words = Words(tokenizer)
    pairs = [noun.split(":") for noun in NOUNS.split()]
    nouns = [pair for pair in pairs if all(words.is_one(word) for word in pair)]
    if len(nouns) < LEAST_NOUNS:
        raise cannot_hold(
            f"of {len(pairs)} nouns {len(nouns)} are one token in both numbers, and {LEAST_NOUNS} "
            "are needed"
        )

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        rest, number = divmod(template, 2)
        text, near = divmod(rest, 2)
        subject, other = (nouns[i] for i in rng.choice(len(nouns), 2, replace=False))
        clean, corrupted = (
            TEMPLATES[text].format(subject=subject[n], other=other[near])
            for n in (number, 1 - number)
        )
        return words.pair(clean, corrupted, f" {VERBS[number]}", f" {VERBS[1 - number]}")

    return drawn_rows(draw, 4 * len(TEMPLATES), rows, seed, "subject-verb-agreement")


SUBJECT_VERB = PromptTask(
    "subject-verb-agreement",
    "Give the verb the number of its subject, another noun between them.",
    make,
    "Linzen et al. 2016; Finlayson et al. 2021, Causal Analysis of Syntactic Agreement Mechanisms",
)
