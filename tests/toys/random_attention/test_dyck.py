"""Dyck-1 against a counter that walks each string, and against all balanced strings."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from interp_toolkit.toys.random_attention.tasks import (
    FALSE,
    TRUE,
    Dyck,
    balanced_strings,
    is_balanced,
    shuffled,
)


def balanced(string: list[int]) -> bool:
    depth = 0
    for parenthesis in string:
        depth += 1 if parenthesis == 0 else -1
        if depth < 0:
            return False
    return depth == 0


@given(st.integers(1, 24).map(lambda half: 2 * half), st.integers(0, 2**31))
def test_every_answer_is_right(length: int, seed: int) -> None:
    rows = Dyck(length).draw(20, torch.Generator().manual_seed(seed))
    for tokens, (read,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        assert (read, tokens[-1]) == (length, 2)
        assert set(tokens[:-1]) <= {0, 1}
        assert answer == (TRUE if balanced(tokens[:-1]) else FALSE)


def test_balanced_is_told_for_every_string() -> None:
    strings = list(itertools.product([0, 1], repeat=8))
    found = is_balanced(torch.tensor(strings))
    assert found.tolist() == [balanced(list(string)) for string in strings]
    assert found.sum() == math.comb(8, 4) // 5


def test_balanced_strings_are_uniform() -> None:
    made = balanced_strings(42_000, 10, torch.Generator().manual_seed(0))
    strings, counts = made.unique(dim=0, return_counts=True)
    assert len(strings) == math.comb(10, 5) // 6
    assert all(balanced(string) for string in strings.tolist())
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_orders_are_uniform() -> None:
    made = shuffled(30_000, 2, 3, torch.Generator().manual_seed(0))
    strings, counts = made.unique(dim=0, return_counts=True)
    assert len(strings) == math.comb(5, 2)
    assert (strings.sum(1) == 3).all()
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_the_kinds_of_rows_have_their_shares() -> None:
    length, n_rows = 40, 30_000
    rows = Dyck(length).draw(n_rows, torch.Generator().manual_seed(0))
    is_true = rows.answer[:, 0] == TRUE
    assert is_true.double().mean().item() == pytest.approx(1 / 2, abs=0.015)
    wrong = rows.tokens[~is_true, :-1]
    excess = (1 - 2 * wrong).sum(1)
    by_chance = math.comb(length, length // 2) / 2**length
    expected = (1 + by_chance) / 3  # as many of each: the order alone tells
    assert (excess == 0).double().mean().item() == pytest.approx(expected, abs=0.02)
    two_off = math.comb(length, length // 2 - 1) / 2**length
    near = (1 + 2 * two_off) / 3  # one turned round, or so by chance
    assert (excess.abs() == 2).double().mean().item() == pytest.approx(near, abs=0.02)
