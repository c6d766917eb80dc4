"""Docstrings: the arguments are documented in the order in which the function takes them.

    def port(self, load, size, files):
        \"\"\"oil column piece

        :param load: crime population
        :param size: unit dark
        :param                               → " files", not " load" or " size"

Corrupted: the third argument in the `def` line is another word, so that the answer is nowhere.
Source: Heimersheim and Janiak 2023, "A circuit for Python docstrings in a 4-layer attention-only
transformer".
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.encoding import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import drawn_rows
from interp_toolkit.tasks.words import PromptPair, Words

TEMPLATE = '''def {0}(self, {1}, {2}, {3}):
    """{4} {5} {6}

    :param {1}: {7} {8}
    :param {2}: {9} {10}
    :param'''
WORDS = (
    "port load size files date name value key model shape source target group order level index "
    "page line text color image user event state time cost unit table field point oil column piece "
    "crime population dark water paper market field garden river street letter picture number"
)
LEAST_WORDS = 16  # a row has twelve


def make(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Rows of the task."""
    words = Words(tokenizer)
    known = words.known(WORDS, "words", LEAST_WORDS)

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        *said, another = rng.choice(known, 12, replace=False).tolist()
        clean = TEMPLATE.format(*said)
        definition, rest = clean.split("\n", 1)
        corrupted = definition.replace(f", {said[3]})", f", {another})") + "\n" + rest
        return words.pair(clean, corrupted, f" {said[3]}", f" {said[rng.integers(1, 3)]}")

    return drawn_rows(draw, 1, rows, seed, "docstring")


DOCSTRING = PromptTask(
    "docstring",
    "Document a function's arguments in their order.",
    make,
    "Heimersheim and Janiak 2023, A circuit for Python docstrings",
)
