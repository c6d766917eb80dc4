"""Decimal addition against Python's integers, and teacher forcing against greedy decoding."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.toys.random_attention.tasks import DecimalAddition


@given(st.integers(1, 18), st.booleans(), st.integers(0, 2**31))
def test_rows_are_sums(digits: int, backwards: bool, seed: int) -> None:
    task = DecimalAddition(digits, backwards)
    rows = task.draw(5, torch.Generator().manual_seed(seed))
    for tokens, read, answer in zip(*(x.tolist() for x in rows), strict=True):
        row = [*tokens, answer[-1]]
        assert [row[place + 1] for place in read] == answer
        assert (row[digits], row[2 * digits + 1]) == (10, 11)
        numbers = [row[:digits], row[digits + 1 : 2 * digits + 1], row[2 * digits + 2 :]]
        if backwards:
            numbers = [number[::-1] for number in numbers]
        assert numbers[0][0] > 0
        assert numbers[1][0] > 0
        first, second, total = (int("".join(map(str, number))) for number in numbers)
        assert first + second == total


def test_the_sources_example_and_size() -> None:
    task = DecimalAddition(10)
    assert (task.d_vocab, task.n_ctx) == (12, 32)
    numbers = torch.tensor([1234567890 + 2345678901])
    assert task._written(numbers, 11).tolist() == [[0, 3, 5, 8, 0, 2, 4, 6, 7, 9, 1]]


@pytest.mark.parametrize("digits", [1, 2])
def test_the_likeliest_sum(digits: int) -> None:
    numbers = range(10 ** (digits - 1), 10**digits)
    sums = Counter(a + b for a, b in itertools.product(numbers, repeat=2))
    (likeliest, count), *_ = sums.most_common()
    assert likeliest == 11 * 10 ** (digits - 1) - 1
    assert DecimalAddition(digits).guess == pytest.approx(count / len(numbers) ** 2)
