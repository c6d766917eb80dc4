"""Gendered pronouns: "So Mary is a really great friend, isn't" → " she", not " he".

Corrupted: a name that is mostly of the other gender, so that the answers change places.
Source: Mathwin et al. 2023, "Identifying a Preliminary Circuit for Predicting Gendered Pronouns in
GPT-2 Small", whose prompts are like these.
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words

TEMPLATES = (
    "So {name} is a really great {noun}, isn't",
    "So {name} was a very good {noun}, wasn't",
    "And {name} is a rather nice {noun}, isn't",
    "Well, {name} was quite the {noun}, wasn't",
)
NAMES = {
    "he": (
        "John Tom James Paul Mark Peter Bob Jack Mike David Robert Michael William Richard Thomas "
        "Daniel Matthew Andrew George Steven Edward Brian Kevin Jason Eric Frank Adam Henry"
    ),
    "she": (
        "Mary Anne Sarah Emma Alice Kate Lisa Laura Jane Susan Karen Linda Helen Sandra Rachel "
        "Anna Amy Julia Maria Diana Victoria Elizabeth Emily Jessica Jennifer Margaret Nancy"
    ),
}
NOUNS = "friend cook neighbor leader player teacher student singer dancer writer person"


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task; a template with names of either gender counts as two."""
    words = Words(tokenizer)
    names = {
        pronoun: words.known(of, f"names that go with {pronoun!r}") for pronoun, of in NAMES.items()
    }
    nouns = words.known(NOUNS, "nouns", 1)

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        text, number = divmod(template, 2)
        answer, wrong = tuple(NAMES)[:: -1 if number else 1]
        noun = rng.choice(nouns)
        clean, corrupted = (
            TEMPLATES[text].format(name=rng.choice(names[pronoun]), noun=noun)
            for pronoun in (answer, wrong)
        )
        return words.pair(clean, corrupted, f" {answer}", f" {wrong}")

    return drawn_rows(draw, 2 * len(TEMPLATES), rows, seed, "gendered-pronoun")


GENDERED_PRONOUN = PromptTask(
    "gendered-pronoun",
    "Take up a name with the pronoun that mostly goes with it.",
    make,
    "Mathwin et al. 2023, Identifying a Preliminary Circuit for Predicting Gendered Pronouns",
)
