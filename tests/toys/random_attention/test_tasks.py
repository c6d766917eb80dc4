"""What every synthetic task keeps to, whatever its sizes."""

from __future__ import annotations

import json
import math

import pytest
import torch

from interp_toolkit.toys.random_attention.tasks import (
    NOTHING,
    DecimalAddition,
    Dyck,
    KHop,
    Memorization,
    ModularAddition,
    Retrieval,
    Task,
    TaskRows,
    right_share,
)

TASKS = [
    Retrieval(most_pairs=1, symbols=4),
    Retrieval(most_pairs=3, symbols=8, repeated_keys=True),
    Retrieval(30, 256),
    KHop(most_hops=1, length=3, alphabet=2),
    KHop(16, 100, 4),
    ModularAddition(2),
    ModularAddition(599),
    DecimalAddition(1),
    DecimalAddition(18, reversed=True),
    Dyck(2),
    Dyck(40),
    Memorization(2),
    Memorization(40, table_seed=7),
]
every_task = pytest.mark.parametrize("task", TASKS, ids=str)


def drawn(task: Task, n_rows: int, seed: int = 0) -> TaskRows:
    return task.draw(n_rows, torch.Generator().manual_seed(seed))


@every_task
def test_rows_fit_into_the_model_they_are_for(task: Task) -> None:
    rows = drawn(task, 300)
    assert len(rows.tokens) == len(rows.read) == len(rows.answer) == 300
    assert rows.read.shape == rows.answer.shape
    assert all(tensor.dtype == torch.int64 for tensor in rows)
    assert rows.tokens.shape[1] <= task.n_ctx
    assert rows.tokens.min() >= 0
    assert rows.tokens.max() < task.d_vocab
    assert rows.answer.min() >= 0
    assert rows.answer.max() < task.d_vocab
    assert rows.read.min() >= 0
    assert rows.read.max() < rows.tokens.shape[1]


@every_task
def test_the_generator_alone_says_which_rows(task: Task) -> None:
    first, again, other = drawn(task, 50), drawn(task, 50), drawn(task, 50, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.tokens, other.tokens)


@every_task
def test_the_same_question_has_the_same_answer(task: Task) -> None:
    rows = drawn(task, 2_000)
    asked: dict[tuple[int, ...], list[int]] = {}
    for tokens, answer in zip(rows.tokens.tolist(), rows.answer.tolist(), strict=True):
        assert asked.setdefault(tuple(tokens), answer) == answer


@every_task
def test_the_record_is_json_and_makes_the_task_again(task: Task) -> None:
    record = json.loads(json.dumps(task.record()))
    assert record.pop("name") == task.name
    assert type(task)(**record) == task


@every_task
def test_guessing_is_a_chance_above_naming_any_token(task: Task) -> None:
    assert task.guess is not None
    least = 0 if isinstance(task, DecimalAddition) else 1 / task.d_vocab
    assert least < task.guess <= 1
    assert math.isfinite(task.guess)


def test_the_share_of_rows_and_of_answers() -> None:
    answer = torch.tensor([[1, 2], [3, NOTHING], [4, 5], [6, NOTHING]])
    given = torch.tensor([[1, 2], [3, 9], [4, 0], [0, 0]])
    assert right_share(given, answer, whole_rows=True) == 0.5
    assert right_share(given, answer, whole_rows=False) == 4 / 6


def test_some_of_the_rows() -> None:
    rows = drawn(ModularAddition(5), 10)
    for which in (slice(2, 5), torch.tensor([2, 3, 4]), torch.arange(10).clamp(2, 5) % 5 > 1):
        taken = rows.take(which)
        for part, whole in zip(taken, rows, strict=True):
            assert torch.equal(part, whole[which])
    assert all(t.device.type == "cpu" for t in rows.to("cpu"))
