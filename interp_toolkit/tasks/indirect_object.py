"""Indirect objects: "Then, Mary and John went to the store. John gave a drink to" → " Mary".

Names, places and objects are drawn; the two names come in either order (ABBA and BABA), half of
the rows each. The wrong answer is the subject. Corrupted: the subject's second mention is replaced
with a third name (ABC), so that no name comes twice and neither is to be preferred.
Source: Wang et al. 2023, "Interpretability in the Wild: a Circuit for Indirect Object
Identification in GPT-2 Small", whose templates are like these.
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words

TEMPLATES = (
    "Then, {first} and {second} went to the {place}. {subject} gave a {object} to",
    "When {first} and {second} got back to the {place}, {subject} gave a {object} to",
    "After {first} and {second} had walked to the {place}, {subject} passed a {object} to",
    "While {first} and {second} were sitting at the {place}, {subject} offered a {object} to",
)
NAMES = (
    "Mary John Anne Tom James Paul Mark Peter Sarah Emma Alice Bob Jack Kate Lisa Laura Mike David "
    "Robert Michael William Richard Thomas Daniel Matthew Andrew George Steven Edward Brian Kevin "
    "Jason Eric Scott Frank Adam Henry Ryan Jane Susan Karen Linda Helen Sandra Rachel Anna Amy "
    "Julia Maria Diana Martin Charles Simon Ben Sam Luke Alex Max Victoria Elizabeth"
)
PLACES = "store park school office house station market garden hospital restaurant library"
OBJECTS = "drink ring book basket computer ball letter key cup picture box snack"


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task; templates with either order of names count as templates of their own."""
    words = Words(tokenizer)
    names = words.known(NAMES, "names")
    places, objects = words.known(PLACES, "places", 1), words.known(OBJECTS, "objects", 1)

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        number, subject_first = divmod(template, 2)
        subject, other, third = rng.choice(names, 3, replace=False)
        first, second = (subject, other) if subject_first else (other, subject)
        said = {"first": first, "second": second, "place": rng.choice(places)}
        said["object"] = rng.choice(objects)
        clean, corrupted = (
            TEMPLATES[number].format(subject=name, **said) for name in (subject, third)
        )
        return words.pair(clean, corrupted, f" {other}", f" {subject}")

    return drawn_rows(draw, 2 * len(TEMPLATES), rows, seed, "indirect-object")


INDIRECT_OBJECT = PromptTask(
    "indirect-object",
    "Name who is given something, not who gives it.",
    make,
    "Wang et al. 2023, Interpretability in the Wild",
)
