"""Small reviews of places, and whether they are good: what a bag of words can tell.

A review is a few sentences `the NOUN was ADJECTIVE .`; each adjective is drawn from the side of
the review with chance `AGREEING`, else from the other. A sentence may be denied (`was not ...`),
and then its adjective is drawn from the opposite side. The review's label is the side, so that some
reviews mislead: nobody is right in more than `best_accuracy` of them on average.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


THINGS = _words(
    "soup bread coffee menu table room bed view music waiter owner garden bill price service wine"
)
GOOD = _words("great lovely fresh kind warm clean superb fair friendly charming quick perfect")
BAD = _words("awful dirty stale rude cold broken bland slow noisy bitter greasy horrid")
SIDES = (BAD, GOOD)  # by label
AGREEING = 0.8
DENIED = 0.2
SHORTEST, LONGEST = 2, 5  # sentences


def reviews(n_reviews: int, seed: int) -> Iterator[tuple[str, int]]:
    """Fresh reviews and their labels (1: good), the same ones for the same seed."""
    drawing = random.Random(seed)
    for _ in range(n_reviews):
        label = int(drawing.random() * 2)
        sentences = SHORTEST + int(drawing.random() * (LONGEST - SHORTEST + 1))
        text = "".join(f" {_sentence(drawing, label)}" for _ in range(sentences))
        yield text, label


def best_accuracy() -> float:
    """The share of reviews that the majority of the sentences' sides gets right, ties halved."""
    shares = [_majority(n) for n in range(SHORTEST, LONGEST + 1)]
    return math.fsum(shares) / len(shares)


def _majority(sentences: int) -> float:
    """The chance that more than half of so many sentences agree, and half that of a tie."""
    share = 0.0
    for agreeing in range(sentences + 1):
        weight = (agreeing > sentences / 2) + 0.5 * (agreeing == sentences / 2)
        chance = AGREEING**agreeing * (1 - AGREEING) ** (sentences - agreeing)
        share += weight * math.comb(sentences, agreeing) * chance
    return share


def _sentence(drawing: random.Random, label: int) -> str:
    side = label if drawing.random() < AGREEING else 1 - label
    denied = drawing.random() < DENIED
    words = SIDES[1 - side if denied else side]
    thing = THINGS[int(drawing.random() * len(THINGS))]
    word = words[int(drawing.random() * len(words))]
    return f"the {thing} was {'not ' if denied else ''}{word} ."
