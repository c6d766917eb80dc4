"""Which rows are trained on and which tested: none of both, unless the table is the task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.errors import InputError
from interp_toolkit.toys.random_attention.tasks import TaskRows
from interp_toolkit.training.tasks.problem import RowSet, task_rows
from interp_toolkit.training.tasks.recipes import (
    DyckTraining,
    MemorizationTraining,
    ModularAdditionTraining,
    RetrievalTraining,
)


def rows_of(config: Any, seed: int = 0) -> tuple[TaskRows, TaskRows]:
    train, test = task_rows(config, seed)
    assert train is not None
    return train, test


def as_set(rows: TaskRows) -> set[tuple[int, ...]]:
    return {tuple(tokens) for tokens in rows.tokens.tolist()}


def test_drawn_rows_keep_off_the_test() -> None:
    config = DyckTraining(length=8, examples=3_000, test_examples=40)
    train, test = rows_of(config)
    assert (len(train.tokens), len(test.tokens)) == (3_000, 40)
    assert not as_set(train) & as_set(test)
    other_train, same_test = rows_of(config, seed=1)
    assert torch.equal(test.tokens, same_test.tokens)
    assert not torch.equal(train.tokens, other_train.tokens)


def test_numbered_rows_are_all_different() -> None:
    config = ModularAdditionTraining(modulus=11, examples=100, test_examples=21)
    train, test = rows_of(config)
    assert len(as_set(train)) == 100
    assert len(as_set(test)) == 21
    assert not as_set(train) & as_set(test)
    other_train, same_test = rows_of(config, seed=1)
    assert torch.equal(test.tokens, same_test.tokens)
    assert as_set(other_train) == as_set(train)  # as all the others are trained on
    assert not torch.equal(train.tokens, other_train.tokens)


def test_a_table_is_trained_on_and_tested_whole() -> None:
    train, test = rows_of(MemorizationTraining(side=9))
    assert len(as_set(train)) == len(train.tokens) == 81
    assert torch.equal(train.tokens, test.tokens)


def test_without_a_training_set() -> None:
    train, test = task_rows(DyckTraining(length=8, examples=0, test_examples=40), 0)
    assert train is None
    assert len(test.tokens) == 40


@pytest.mark.parametrize("examples", [0, 10])
def test_a_test_of_all_the_rows_there_are(examples: int, texts) -> None:
    config = DyckTraining(length=2, examples=examples, test_examples=500)
    with pytest.raises(InputError, match="dyck-1", check=texts):
        task_rows(config, 0)


def test_a_test_of_nearly_all_the_rows_there_are(texts) -> None:
    """One pair of 33 keys and 31 values: 4,000 test rows leave two in a hundred."""
    config = RetrievalTraining(most_pairs=1, symbols=64, examples=0)
    with pytest.raises(InputError, match="4,000", check=texts):
        task_rows(config, 0)


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.tuples(
            *[st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1)] * 2
        )
    )
)
def test_a_set_of_rows_knows_its_own(lists: tuple[list[list[int]], list[list[int]]]) -> None:
    known, asked = lists
    found = RowSet(torch.tensor(known)).has(torch.tensor(asked))
    assert found.tolist() == [row in known for row in asked]


def test_rows_that_differ_in_one_token_are_told_apart() -> None:
    rows = torch.randint(0, 2**20, (1, 300), generator=torch.Generator().manual_seed(0))
    near = rows + 2 ** torch.arange(20).repeat_interleave(300)[:, None] * torch.eye(
        300
    ).long().repeat(20, 1)
    assert not RowSet(rows).has(near).any()
    assert RowSet(near).has(near).all()
