"""Shares of variance: planted parts come back, and sum to one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.circuits.sorting.measures.positions import (
    position_shares,
    split_scores,
    split_written,
)
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.toys.sorting.sorters import sort_argmax, sort_min_greater


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 3), st.floats(0, 3), st.floats(0, 3))
def test_planted_parts_come_back(seed: int, a: float, b: float, c: float) -> None:
    """Key, key × query, and key × query's place, each drawn without the others' means."""
    draw = torch.Generator().manual_seed(seed)

    def centred(*shape: int) -> torch.Tensor:
        part = torch.randn(*shape, generator=draw, dtype=torch.float64)
        for axis in range(len(shape)):
            part = part - part.mean(axis, keepdim=True)
        return part

    key, query, place = a * centred(6), b * centred(5, 6), c * centred(4, 5, 6)
    scores = (key + query + place)[:, :, None].expand(4, 5, 3, 6)
    common = torch.randn(4, 5, 1, 1, generator=draw, dtype=torch.float64)  # of no pattern
    shares, _ = split_scores(scores + 10 * common)
    sizes = np.array([float((part**2).mean()) for part in (key, query, place)])
    total = sizes.sum()
    if total < 1e-6:
        return
    np.testing.assert_allclose(shares[:3], sizes / total, atol=1e-9)
    assert shares[3] == pytest.approx(0, abs=1e-9)


def test_a_key_place_is_told_from_a_token() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 1, 7, 1, generator=draw, dtype=torch.float64).expand(4, 5, 7, 6)
    shares, kept = split_scores(scores)
    assert shares[3] == pytest.approx(1)
    assert kept == 1.0  # no two keys differ but by place
    written = torch.randn(7, 1, 6, generator=draw, dtype=torch.float64).expand(7, 5, 6)
    token, place = split_written(written)
    assert (token, place) == pytest.approx((0, 1))


def test_an_order_that_turns_with_the_place_is_not_kept() -> None:
    up = torch.arange(4, dtype=torch.float64)
    scores = torch.stack([up, up, up, -up])[:, None, None, :]
    _, kept = split_scores(scores)
    assert kept == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("model", "words", "d_vocab_out"),
    [
        (sort_min_greater(), "15 list10 16 sorted10", 15),
        (sort_argmax(), "10 list1-10 11 pad12", 10),
    ],
)
def test_hand_set_sorters_do_not_look_at_where_keys_stand(model, words, d_vocab_out) -> None:
    layout = parse_layout(words, d_vocab=model.cfg.d_vocab, d_vocab_out=d_vocab_out)
    for found in position_shares(model, layout):
        assert found.qk_key_place == pytest.approx(0, abs=1e-9)
        assert found.ov_place == pytest.approx(0, abs=1e-9)
        assert found.order_kept > 0.99
