"""Generated texts: what can be known of them is what the exact statistics say."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from told_share import told_share

from interp_toolkit.toys.random_attention.texts import (
    BAD,
    END_CHANCE,
    FIRST_NAMES,
    GOOD,
    LAST_NAMES,
    PEOPLE,
    SCENES,
    THINGS,
    WORDS_A_SENTENCE,
    best_accuracy,
    passages,
    read,
    reviews,
)

WHOLE = 10**9  # words a row


def read_sentence(words: list[str]) -> tuple[tuple[str, str], tuple[str, str]]:
    one, last_one, verb, other, last_other, into, the, adjective, noun, stop = words
    assert (into, the, stop) == ("in", "the", ".")
    assert adjective in SCENES[verb][0]
    assert noun in SCENES[verb][1]
    return (one, last_one), (other, last_other)


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_each_document_is_of_the_grammar_and_tells_names_once(seed: int) -> None:
    for text in passages(3, seed):
        words, names = text.split(), dict[str, str]()
        for start in range(0, len(words), WORDS_A_SENTENCE):
            people = read_sentence(words[start : start + WORDS_A_SENTENCE])
            assert people[0][0] != people[1][0]
            for first, last in people:
                assert names.setdefault(first, last) == last
        assert len(names) <= PEOPLE
        told = 2 * len(words) // WORDS_A_SENTENCE - len(names)
        assert read([text], WHOLE).repeated_last_names == pytest.approx(told / len(words))


def nats(texts: list[str], length: int = WHOLE) -> float:
    """The total surprise, of all but the first word of each row."""
    n_words = sum(len(text.split()) + 1 for text in texts)
    return read(texts, length).nats * (n_words - math.ceil(n_words / length))


def test_the_surprise_of_a_document_is_its_improbability() -> None:
    # one sentence: two of 32 first names in order, two last names, a verb, an adjective, a noun
    text = next(p for p in passages(200, 3) if len(p.split()) == WORDS_A_SENTENCE)
    n_first, n_last = len(FIRST_NAMES), len(LAST_NAMES)
    ways = n_first * (n_first - 1) * n_last**2 * len(SCENES) * 2 * 4
    surprise = nats([text]) + math.log(n_first)  # the first word's is left out
    assert surprise == pytest.approx(math.log(ways) - math.log(END_CHANCE))


def test_the_chances_of_names_are_those_that_occur() -> None:
    # the first name of a second sentence is one of the first sentence's two people in 2 of 3 cases
    known = Counter[bool]()
    goes_on, sentence = -math.log(1 - END_CHANCE), math.log(6 * 2 * 4)
    for text in passages(1_000, 5):
        words = text.split()
        if len(words) > WORDS_A_SENTENCE:
            before = (words[0], words[3])
            again = [words[WORDS_A_SENTENCE] in before, words[WORDS_A_SENTENCE + 3] in before]
            known[again[0]] += 1
            if len(words) == 2 * WORDS_A_SENTENCE:
                # of three people two are known, then of two either one (and the last new) or both
                new = math.log(30 * len(LAST_NAMES))
                expected = goes_on + sentence - math.log(END_CHANCE)
                expected += math.log(3) + (0 if again[0] else new)
                expected += math.log(2) + (0 if again[1] else new)
                first = " ".join(words[:WORDS_A_SENTENCE])
                found = nats([text]) - nats([first]) - math.log(END_CHANCE)
                assert found == pytest.approx(expected)
    assert known[True] / known.total() == pytest.approx(2 / 3, abs=0.05)


def test_the_share_of_told_names_is_the_closed_form() -> None:
    assert read(passages(500, 8), WHOLE).repeated_last_names == pytest.approx(
        told_share(), abs=0.008
    )


def test_shorter_rows_tell_less() -> None:
    texts = list(passages(80, 4))
    found = [read(texts, length) for length in (16, 64, 256, WHOLE)]
    assert [r.nats for r in found] == sorted((r.nats for r in found), reverse=True)
    assert [r.repeated_last_names for r in found] == sorted(r.repeated_last_names for r in found)
    # a row of a sentence's words that begins with it: nothing is told
    same = next(p for p in texts if len(p.split()) == 4 * WORDS_A_SENTENCE)
    assert read([same], WORDS_A_SENTENCE).repeated_last_names == 0


def test_the_same_seed_gives_the_same_text() -> None:
    texts = [list(passages(20, seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1]
    assert not set(texts[0]) & set(texts[2])


def votes(text: str) -> int:
    """Good sentences less bad ones."""
    total = 0
    for sentence in text.split("."):
        words = sentence.split()
        if words:
            assert (words[0], words[2]) == ("the", "was")
            assert words[1] in THINGS
            assert words[-1] in GOOD + BAD
            total += (1 if words[-1] in GOOD else -1) * (-1 if "not" in words else 1)
    return total


def test_the_majority_of_sides_is_right_as_often_as_the_closed_form_says() -> None:
    found = [(votes(text), label) for text, label in reviews(8_000, 4)]
    right = sum(0.5 if not vote else (vote > 0) == label for vote, label in found)
    assert right / len(found) == pytest.approx(best_accuracy(), abs=0.01)
    assert sum(label for _, label in found) / len(found) == pytest.approx(0.5, abs=0.02)
