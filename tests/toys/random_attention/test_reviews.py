"""The generated reviews against a reader that counts sides."""

from __future__ import annotations

import pytest

from interp_toolkit.toys.random_attention.texts import BAD, GOOD, THINGS, best_accuracy, reviews


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
