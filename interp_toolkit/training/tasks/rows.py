"""Training and test rows of a task, by seed.

The test rows are the same for all seeds, and a seed's training set has none of them. Of a task
that can be numbered, all are different; of any other, they come as the task draws them, the
training set on the device. A task that is learned by heart has one set of rows for both.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.toys.random_attention.task import FiniteTask, Task, TaskRows
from interp_toolkit.training.tasks.settings import SyntheticTraining, TaskTraining

TEST_SEED = 2**31
AT_ONCE = 10_000  # rows drawn
LEAST_LEFT = 0.1  # of the rows drawn, that the test must leave to train on


def task_rows(config: SyntheticTraining, seed: int) -> tuple[TaskRows | None, TaskRows]:
    """The training set (None: rows are drawn afresh) and the test rows, on the device.

    Raises:
        InputError: the test has nearly all the rows there are.
    """
    task = config.task
    if not isinstance(config, TaskTraining):
        assert isinstance(task, FiniteTask)
        rows = task.numbered(torch.arange(task.n_rows)).to(config.device)
        return rows, rows
    if isinstance(task, FiniteTask):
        train, test = _numbered(task, config, seed)
    else:
        train, test = _sampled(task, config, seed)
    return (train.to(config.device) if config.examples else None), test.to(config.device)


def _numbered(task: FiniteTask, config: TaskTraining, seed: int) -> tuple[TaskRows, TaskRows]:
    """Some of the rows there are, each at most once."""
    order = torch.randperm(task.n_rows, generator=torch.Generator().manual_seed(TEST_SEED))
    test, others = order[: config.test_examples], order[config.test_examples :]
    mixed = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    return task.numbered(others[mixed[: config.examples]]), task.numbered(test)


def _sampled(task: Task, config: TaskTraining, seed: int) -> tuple[TaskRows, TaskRows]:
    """Rows drawn for the test, and others, none of which is in the test."""
    test = task.draw(config.test_examples, torch.Generator().manual_seed(TEST_SEED))
    test = test.to(config.device)
    held_out = RowSet(test.tokens)
    generator = torch.Generator(config.device).manual_seed(seed)
    n_examples, batches, n_sampled = max(config.examples, 1), list[TaskRows](), 0
    while n_sampled < n_examples:
        rows = task.draw(AT_ONCE, generator)
        batches.append(rows.take(~held_out.has(rows.tokens)))
        n_sampled += len(batches[-1].tokens)
        if len(batches[-1].tokens) < LEAST_LEFT * AT_ONCE:
            raise InputError(
                f"the {config.test_examples:,} test_examples leave hardly a row of this "
                f"{task.name} to train on: give fewer, or a larger task"
            )
    return TaskRows(*(torch.cat(parts)[:n_examples] for parts in zip(*batches, strict=True))), test


class RowSet:
    """Rows of tokens, each known by a number of 64 bits: a random linear form, modulo 2^64.

    Two different rows share a number with a chance below 2^-40. Asking waits for no device.
    """

    def __init__(self, tokens: Int[Tensor, "known pos"]):
        generator = torch.Generator().manual_seed(0)
        factors = torch.randint(-(2**62), 2**62, (tokens.shape[1],), generator=generator)
        self.factors = factors.to(tokens.device)
        self.sorted_numbers = self._numbers(tokens).sort().values

    def has(self, tokens: Int[Tensor, "row pos"]) -> Bool[Tensor, " row"]:
        """Membership of these rows in the set."""
        numbers = self._numbers(tokens)
        index = torch.searchsorted(self.sorted_numbers, numbers).clamp(
            max=len(self.sorted_numbers) - 1
        )
        return self.sorted_numbers[index] == numbers

    def _numbers(self, tokens: Int[Tensor, "row pos"]) -> Int[Tensor, " row"]:
        return (tokens * self.factors).sum(1)
