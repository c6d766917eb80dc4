"""Modular addition: all pairs, each with the answer that Python gives."""

from __future__ import annotations

import torch

from interp_toolkit.toys.random_attention.tasks import ModularAddition


def test_all_pairs_and_their_sums() -> None:
    task = ModularAddition(7)
    rows = task.numbered(torch.arange(task.n_rows))
    seen = set()
    for (a, b, equals), (read,), (answer,) in zip(*(x.tolist() for x in rows), strict=True):
        assert (equals, read) == (7, 2)
        assert answer == (a + b) % 7
        seen.add((a, b))
    assert seen == {(a, b) for a in range(7) for b in range(7)}
    assert rows.answer.flatten().bincount().tolist() == [7] * 7
    assert task.guess == 1 / 7


def test_drawn_pairs_are_even() -> None:
    rows = ModularAddition(3).draw(90_000, torch.Generator().manual_seed(0))
    counts = (3 * rows.tokens[:, 0] + rows.tokens[:, 1]).bincount()
    assert len(counts) == 9
    assert (counts - 10_000).abs().max() < 500  # five standard deviations


def test_the_sources_size() -> None:
    task = ModularAddition(599)
    assert (task.d_vocab, task.n_ctx, task.n_rows) == (600, 3, 358_801)
