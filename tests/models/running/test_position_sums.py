"""Sums over rows by position, against sums of the cache's values; contexts that nobody fills."""

from __future__ import annotations

import pytest
import torch

import interp_toolkit as it
from interp_toolkit.models.running.streaming import position_sums
from interp_toolkit.toys.hand_set.untrained import random_model

SIZES = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_vocab": 13}
HOOKS = ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]


@pytest.mark.parametrize("memory", [None, "20KiB"])
def test_rows_of_different_lengths(memory) -> None:
    model = random_model(0, **SIZES, n_ctx=9)
    rows = [[1, 2, 3], [4, 5], [6, 7, 8, 9, 10], [3, 2, 1], [12, 11]]
    sums, counts = position_sums(model, rows, HOOKS, memory=memory)
    assert counts.tolist() == [5, 5, 3, 1, 1]
    for name in HOOKS:
        wanted = torch.zeros((5, 2, 8), dtype=torch.float64)
        for row in rows:
            with torch.no_grad():
                found = model.run_with_cache(torch.tensor([row]))[1][name][0]
            wanted[: len(row)] += found
        torch.testing.assert_close(sums[name], wanted, rtol=1e-5, atol=1e-5)


def test_a_context_of_a_thousand_million_positions_is_not_allocated() -> None:
    """Of a model without position embeddings, which claims that it can read so many."""
    plain, vast = (random_model(0, **SIZES, n_ctx=n, positions="none") for n in (40, 10**9))
    rows = [[1, 2, 3], [4, 5]]
    for one, other in zip(
        *(position_sums(model, rows, HOOKS)[0].values() for model in (plain, vast)), strict=True
    ):
        assert torch.equal(one, other)
    with it.ablate(vast, heads=[(0, 1)], reference=rows):
        assert vast(torch.tensor([[1, 2, 3]])).shape == (1, 3, 13)


def test_hooks_are_read_together_as_far_as_the_memory_goes() -> None:
    """Down to one at a time: twelve layers at once would not fit."""
    model = random_model(0, **SIZES | {"n_layers": 12}, n_ctx=40)
    rows = torch.randint(13, (6, 40), generator=torch.Generator().manual_seed(0))
    hooks = [f"blocks.{layer}.attn.hook_z" for layer in range(12)]
    firsts: list[int] = []
    first = model.hook_dict["blocks.0.hook_resid_pre"]
    handle = first.register_forward_hook(lambda *given: firsts.append(1))
    whole, _ = position_sums(model, rows, hooks)
    at_once = len(firsts)
    tight, _ = position_sums(model, rows, hooks, memory="120kB")
    handle.remove()
    assert at_once == 1
    assert len(firsts) - at_once >= 12
    assert list(whole) == list(tight) == hooks
    for name, sums in whole.items():
        torch.testing.assert_close(tight[name], sums, rtol=1e-6, atol=1e-6)
