"""Batches, loss and accuracy of a variant on a task, against the whole model's logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from interp_toolkit.toys.random_attention.tasks import NOTHING
from interp_toolkit.toys.random_attention.variants import VARIANTS, Variant
from interp_toolkit.training.engine.trainer import fit
from interp_toolkit.training.tasks.problem import SyntheticTraining, TaskProblem, answer_logits
from interp_toolkit.training.tasks.recipes import (
    DecimalAdditionTraining,
    DyckTraining,
    KHopTraining,
    MemorizationTraining,
    ModularAdditionTraining,
    RetrievalTraining,
)

TINY: dict[str, Any] = {"layers": 1, "heads": 2, "d_model": 8, "rows": 16, "dtype": "float64"}
SMALL_TEST: dict[str, Any] = {"examples": 200, "test_examples": 60}
CONFIGS: list[SyntheticTraining] = [
    RetrievalTraining(most_pairs=3, symbols=16, **TINY, **SMALL_TEST),
    KHopTraining(length=9, **TINY, **SMALL_TEST),
    ModularAdditionTraining(modulus=17, **TINY, **SMALL_TEST),
    DecimalAdditionTraining(digits=2, **TINY, **SMALL_TEST),
    DyckTraining(length=10, **TINY, **SMALL_TEST),
    MemorizationTraining(side=8, **TINY),
]
every_task = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.task.name)


@every_task
def test_loss_and_accuracy_are_those_of_the_whole_model(config: SyntheticTraining) -> None:
    problem = TaskProblem(config, seed=0)
    rows = problem.test_rows.take(slice(30))
    logits = problem.model(rows.tokens)
    losses, right = [], []
    for row, reads, answers in zip(logits, rows.read.tolist(), rows.answer.tolist(), strict=True):
        losses += [
            F.cross_entropy(row[read], torch.tensor(answer)).item()
            for read, answer in zip(reads, answers, strict=True)
        ]
        marks = [row[read].argmax() == a for read, a in zip(reads, answers, strict=True)]
        right += [all(marks)] if config.task.whole_rows else marks
    assert problem.loss(rows).item() == pytest.approx(sum(losses) / len(losses))
    assert problem.accuracy(rows) == pytest.approx(sum(map(bool, right)) / len(right))


@every_task
def test_a_short_training_lowers_the_loss(config: SyntheticTraining) -> None:
    config = config.model_copy(update={"steps": 60, "lr": 0.01, "warm_up": 0})
    fitted = fit(TaskProblem(config, seed=0), config, seed=0)
    losses = [loss for _, loss in fitted.curve]
    assert sum(losses[-5:]) < 0.97 * sum(losses[:5])
    assert set(fitted.measured) == {"accuracy"}
    assert len(fitted.measured["accuracy"]) == len(losses)


@every_task
def test_later_tokens_change_no_earlier_logit(config: SyntheticTraining) -> None:
    for variant in VARIANTS:
        problem = TaskProblem(config.model_copy(update={"variant": variant}), seed=0)
        tokens = problem.test_rows.tokens[:4]
        half = tokens.shape[1] // 2
        changed = tokens.clone()
        changed[:, half:] = (changed[:, half:] + 1) % config.task.d_vocab
        with torch.no_grad():
            before, after = problem.model(tokens), problem.model(changed)
        assert torch.equal(before[:, :half], after[:, :half])
        assert not torch.equal(before[:, half:], after[:, half:])


def test_batches_come_from_the_training_set() -> None:
    problem = TaskProblem(CONFIGS[0], seed=0)
    assert problem.train_rows is not None
    known = {tuple(row) for row in problem.train_rows.tokens.tolist()}
    generator = torch.Generator().manual_seed(0)
    batches = [problem.draw(generator) for _ in range(100)]
    seen = {tuple(row) for batch in batches for row in batch.tokens.tolist()}
    assert seen <= known
    assert len(seen) > 0.95 * len(known)


def test_fresh_batches_ask_for_nothing_that_the_test_asks() -> None:
    config = DyckTraining(length=6, examples=0, test_examples=20, **TINY)
    problem = TaskProblem(config, seed=0)
    tested = {tuple(row) for row in problem.test_rows.tokens.tolist()}
    batch = problem.draw(torch.Generator().manual_seed(1))
    hidden = [answer == [NOTHING] for answer in batch.answer.tolist()]
    assert hidden == [tuple(row) in tested for row in batch.tokens.tolist()]
    assert 0 < sum(hidden) < len(hidden)
    shown = torch.tensor([not hides for hides in hidden])
    assert problem.loss(batch).item() == pytest.approx(problem.loss(batch.take(shown)).item())
    assert problem.loss(batch.take(~shown)).item() == 0


def test_a_table_is_asked_for_whole_in_training() -> None:
    problem = TaskProblem(CONFIGS[-1], seed=0)
    generator = torch.Generator().manual_seed(0)
    batches = [problem.draw(generator) for _ in range(40)]
    assert all((batch.answer != NOTHING).all() for batch in batches)
    assert len({tuple(row) for batch in batches for row in batch.tokens.tolist()}) == 64


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_frozen_stays_as_it_was(variant: Variant) -> None:
    settings = {**TINY, "variant": variant, "steps": 3, "weight_decay": 0.5, "biases": True}
    config = RetrievalTraining(most_pairs=3, symbols=16, **settings, **SMALL_TEST)
    problem = TaskProblem(config, seed=0)
    before = {name: x.clone() for name, x in problem.model.state_dict().items()}
    fit(problem, config, seed=0)
    trained = {name for name, p in problem.model.named_parameters() if p.requires_grad}
    moved = {n for n, x in problem.model.state_dict().items() if not torch.equal(x, before[n])}
    assert moved == trained
    frozen = {"frozen-qk": "W_Q", "frozen-mlp": "mlp.W_in", "random": "W_V"}.get(variant)
    assert frozen is None or not any(frozen in name for name in moved)


def test_logits_are_read_where_answers_are() -> None:
    problem = TaskProblem(CONFIGS[3], seed=0)
    rows = problem.test_rows.take(slice(5))
    logits = problem.model(rows.tokens)
    expected = torch.stack([row[read] for row, read in zip(logits, rows.read, strict=True)])
    assert torch.allclose(answer_logits(problem.model, rows), expected, atol=1e-12)
