"""k-hop against hops taken one by one, and guessing against all strings."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.toys.random_attention.tasks import KHop, answer_chances


def hop(letters: list[int] | str, place: int | None) -> int | None:
    """The place after the last earlier occurrence of the letter here."""
    if place is None:
        return None
    earlier = [i for i in range(place) if letters[i] == letters[place]]
    return earlier[-1] + 1 if earlier else None


def hop_k(letters: list[int] | str, place: int, k: int) -> int | None:
    at: int | None = place
    for _ in range(k):
        at = hop(letters, at)
    return at


def test_the_sources_example() -> None:
    at = hop_k("adcada", 5, 2)
    assert at is not None
    assert "adcada"[at] == "c"


@given(st.integers(1, 6), st.integers(3, 24), st.integers(2, 5), st.integers(0, 2**31))
def test_every_answer_is_k_hops_away(most: int, length: int, alphabet: int, seed: int) -> None:
    task = KHop(most, length, alphabet)
    rows = task.draw(4, torch.Generator().manual_seed(seed))
    for tokens, read, answers in zip(*(x.tolist() for x in rows), strict=True):
        k, letters = tokens[0] - alphabet, tokens[1:]
        assert 1 <= k <= most
        assert read == list(range(1, length))
        for place, answer in enumerate(answers):
            at = hop_k(letters, place, k)
            assert answer == (alphabet if at is None else letters[at])


def test_all_numbers_of_hops_and_letters_come() -> None:
    tokens = KHop(16, 20, 4).draw(2_000, torch.Generator().manual_seed(0)).tokens
    assert set(tokens[:, 0].tolist()) == set(range(5, 21))
    assert set(tokens[:, 1:].flatten().tolist()) == set(range(4))


@pytest.mark.parametrize(("most", "length", "alphabet"), [(5, 8, 2), (4, 7, 3), (3, 6, 4)])
def test_chances_of_an_answer_over_all_strings(most: int, length: int, alphabet: int) -> None:
    strings = list(itertools.product(range(alphabet), repeat=length))
    expected = torch.zeros(most, length, 3, dtype=torch.float64)
    for string in strings:
        for place in range(length):
            at: int | None = place
            for k in range(most):
                at = hop(list(string), at)
                kind = 2 if at is None else int(string[at] != string[place])
                expected[k, place, kind] += 1 / len(strings)
    expected[:, :, 1] /= alphabet - 1  # one certain other letter
    found = answer_chances(most, length, alphabet)
    assert torch.allclose(found, expected, atol=1e-12)
    guess = expected.amax(-1).mean().item()
    assert KHop(most, length + 1, alphabet).guess == pytest.approx(guess)


def test_at_the_sources_sizes_guessing_is_right_half_of_the_time() -> None:
    task = KHop(16, 100, 4)
    rows = task.draw(2_000, torch.Generator().manual_seed(0))
    chances = answer_chances(16, 99, 4)[rows.tokens[:, 0] - 5]
    best = chances.argmax(-1)
    said = torch.where(best == 2, 4, rows.tokens[:, 1:])
    assert not (best == 1).any()
    right = (said == rows.answer).double().mean().item()
    assert right == pytest.approx(task.guess, abs=0.01)
    assert task.guess == pytest.approx(0.512, abs=5e-4)
