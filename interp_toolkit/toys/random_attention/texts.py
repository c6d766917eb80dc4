"""Two generated corpora: people with names, for language modeling; reviews, for sentiment.

*People.* A document is about a few people, each with a first and a last name drawn for that
document. Each sentence is `FIRST LAST VERB FIRST LAST in the ADJECTIVE NOUN .`, about two of them;
after each, the document ends with a fixed probability. Everything except the names has the same
distribution in all documents: the last name that belongs to a first name must be looked up in the
text so far, as an induction head does. Every distribution is known. The surprisal of each word (in
nats), given the distributions and a part of the text, can therefore be computed exactly, and no
predictor with the same information can do better on average.

*Reviews.* A review is a few sentences `the NOUN was ADJECTIVE .`; each adjective is drawn from the
side of the review with probability `AGREEING`, else from the other. A sentence may be negated
(`was not ...`), and its adjective is then drawn from the opposite side. The review's label is its
side, so some reviews are misleading: no predictor has a higher expected accuracy than
`best_accuracy`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Ada Amir Anna Boris Carla Chen Dora Emil Eva Farid Greta Hans Ines Ivan Jana Karl "
    "Lena Lucas Mara Nadia Nils Olga Omar Paul Petra Rosa Samir Sven Tara Viktor Yuki Zoe"
)
LAST_NAMES = _words(
    "Abbot Adler Baker Berg Blum Costa Dahl Diaz Engel Falk Fischer Garcia Haas Horn Ito Jansen "
    "Kern Khan Klein Lopez Lund Mori Novak Okafor Petrov Quist Rossi Sato Silva Toth Vogel Wolf"
)
#: each verb with the adjectives and nouns that may follow it
SCENES = {
    "met": (("old", "dark"), ("mill", "inn", "barn", "chapel")),
    "saw": (("empty", "cold"), ("street", "market", "station", "square")),
    "heard": (("quiet", "dark"), ("hall", "church", "theatre", "chapel")),
    "taught": (("small", "old"), ("school", "library", "studio", "hall")),
    "helped": (("busy", "small"), ("kitchen", "shop", "market", "bakery")),
    "followed": (("cold", "empty"), ("forest", "valley", "street", "park")),
}
VERBS = tuple(SCENES)
PEOPLE = 3  # in a document
END_CHANCE = 1 / 8  # after each sentence
WORDS_A_SENTENCE = 10


class TextStatistics(NamedTuple):
    """Statistics of the words of a text, without the first words of rows.

    Attributes:
        nats: the mean surprisal of a word or a document's end.
        repeated_last_names: the fraction of words that are last names seen earlier in the row.
    """

    nats: float
    repeated_last_names: float


def passages(n_passages: int, seed: int) -> Iterator[str]:
    """Random documents, reproducible by seed, with a space before each word."""
    drawing = random.Random(seed)
    for _ in range(n_passages):
        yield "".join(f" {word}" for word in _passage(drawing))


def read(texts: Iterable[str], length: int) -> TextStatistics:
    """Statistics of texts in rows of `length` words; document ends count as words.

    The reader knows the grammar, and of the text before its row only the sentence in which the row
    begins. So no predictor that sees the row alone can do better on average.
    """
    surprises, n_determined = list[float](), 0
    index = 0
    for text in texts:
        reader = _Reader()
        for word in [*text.split(), None]:
            if index % length == 0:
                reader.forget()
            surprise, determined = reader.read(word)
            if index % length:
                surprises.append(surprise)
                n_determined += determined
            index += 1
    return TextStatistics(math.fsum(surprises) / len(surprises), n_determined / len(surprises))


def _passage(drawing: random.Random) -> Iterator[str]:
    cast = _distinct(drawing, FIRST_NAMES, PEOPLE)
    last_names = {first: _one(drawing, LAST_NAMES) for first in cast}
    while True:
        one, other = _distinct(drawing, cast, 2)
        verb = _one(drawing, VERBS)
        adjectives, nouns = SCENES[verb]
        yield from (one, last_names[one], verb, other, last_names[other])
        yield from ("in", "the", _one(drawing, adjectives), _one(drawing, nouns), ".")
        if drawing.random() < END_CHANCE:
            return


def _one(drawing: random.Random, of: Sequence[str]) -> str:
    return of[int(drawing.random() * len(of))]


def _distinct(drawing: random.Random, of: Sequence[str], number: int) -> list[str]:
    left = list(of)
    return [left.pop(int(drawing.random() * len(left))) for _ in range(number)]


class _Reader:
    """Reads a document word by word; `None` is its end.

    Attributes:
        sentence: its words so far.
        last_names: last names of the people mentioned so far, by first name.
    """

    def __init__(self) -> None:
        self.sentence: list[str] = []
        self.last_names: dict[str, str] = {}
        self.first_sentence = True

    def forget(self) -> None:
        """Forget all sentences but this one."""
        self.last_names = {
            self.sentence[slot]: self.sentence[slot + 1]
            for slot in (0, 3)
            if slot + 1 < len(self.sentence)
        }

    def read(self, word: str | None) -> tuple[float, bool]:
        """Surprisal of the next word, and whether it is a last name that occurred before."""
        if word is None:
            return -math.log(END_CHANCE), False
        position, determined = len(self.sentence), False
        if position in (0, 3):
            surprise = self._first_name(word)
        elif position in (1, 4):
            first = self.sentence[-1]
            determined = first in self.last_names
            surprise = 0.0 if determined else math.log(len(LAST_NAMES))
            self.last_names[first] = word
        else:
            surprise = math.log(self._choices(position))
        if position == 0 and not self.first_sentence:
            surprise -= math.log1p(-END_CHANCE)
        self._goes_on(word)
        return surprise, determined

    def _first_name(self, name: str) -> float:
        """Surprisal of a first name: one of the document's people not yet named in the sentence."""
        named = self.sentence[:1]
        candidates = [person for person in self.last_names if person not in named]
        people = PEOPLE - len(named)
        chance = 1 / people
        if name not in candidates:
            chance *= (people - len(candidates)) / (
                len(FIRST_NAMES) - len({*self.last_names, *named})
            )
        return -math.log(chance)

    def _choices(self, position: int) -> int:
        """The number of possible words at this position of the sentence."""
        if position == 2:
            return len(VERBS)
        if position in (7, 8):
            return len(SCENES[self.sentence[2]][position - 7])
        return 1

    def _goes_on(self, word: str) -> None:
        self.sentence.append(word)
        if len(self.sentence) == WORDS_A_SENTENCE:
            self.sentence, self.first_sentence = [], False


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
    """Random reviews with their labels (1: good), reproducible by seed."""
    drawing = random.Random(seed)
    for _ in range(n_reviews):
        label = int(drawing.random() * 2)
        sentences = SHORTEST + int(drawing.random() * (LONGEST - SHORTEST + 1))
        text = "".join(f" {_sentence(drawing, label)}" for _ in range(sentences))
        yield text, label


def best_accuracy() -> float:
    """The accuracy of the majority of the sentences' sides, with ties counted as one half."""
    shares = [_majority(n) for n in range(SHORTEST, LONGEST + 1)]
    return math.fsum(shares) / len(shares)


def _majority(sentences: int) -> float:
    """The chance that more than half of the sentences agree, plus half the chance of a tie."""
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
