"""Memorization: one table, all of its entries, and what they weigh."""

from __future__ import annotations

from collections import Counter, defaultdict

import torch

from interp_toolkit.toys.random_attention.tasks import Memorization


def test_the_rows_are_the_table() -> None:
    task = Memorization(8, table_seed=3)
    rows = task.numbered(torch.arange(64))
    table = {}
    for (first, second), (read,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        assert 0 <= first < 8 <= second < 16
        assert read == 1
        assert 0 <= answer < 8
        table[first, second] = answer
    assert len(table) == 64
    drawn = task.draw(200, torch.Generator().manual_seed(0))
    for (first, second), (answer,) in zip(
        drawn.tokens.tolist(), drawn.answer.tolist(), strict=True
    ):
        assert table[first, second] == answer
    by_second = defaultdict(Counter)
    for (_, second), value in table.items():
        by_second[second][value] += 1
    assert task.guess == sum(max(counts.values()) for counts in by_second.values()) / 64


def test_the_seed_says_which_table() -> None:
    assert torch.equal(Memorization(32).table(), Memorization(32).table())
    assert not torch.equal(Memorization(32).table(), Memorization(32, table_seed=1).table())


def test_the_sources_size() -> None:
    task = Memorization(512)
    assert (task.d_vocab, task.n_ctx, task.n_rows) == (1_024, 3, 2**18)
    assert task.stored_bits == 9 * 2**18
    values = task.table().bincount()
    assert len(values) == 512
    assert (values - 512).abs().max() < 5 * 512**0.5
