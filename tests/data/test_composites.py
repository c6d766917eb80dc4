"""Sparse boolean inputs: all of them, samples, and the rows of tokens that stand for them."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from interp_toolkit.data.composites import (
    all_composites,
    composite_data,
    composite_tokens,
    count_composites,
    sample_about,
    sample_composites,
)
from interp_toolkit.errors import InputError


def test_every_input_comes_once():
    on = all_composites(7, 3)
    assert len(on) == count_composites(7, 3) == 1 + 7 + 21 + 35
    assert len({row.tobytes() for row in on}) == len(on)
    assert on.sum(1).max() == 3
    assert (np.diff(on.sum(1)) >= 0).all()


@pytest.mark.parametrize(("m", "most_on"), [(9, 3), (5, 4), (40, 2)])
def test_samples_are_uniform_in_size_and_set(m, most_on):
    on = sample_composites(20_000, m, most_on, np.random.default_rng(0))
    sizes = np.bincount(on.sum(1), minlength=most_on + 1)
    assert len(sizes) == most_on + 1
    assert stats.chisquare(sizes).pvalue > 1e-4
    pairs = on[on.sum(1) == 2]
    counts = [int((pairs[:, i] & pairs[:, j]).sum()) for i, j in combinations(range(m), 2)]
    assert sum(counts) == len(pairs)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert len(counts) == comb(m, 2)


def test_samples_about_gates_turn_them_on(texts):
    gates = [(0, 5), (1, 7, 9), (2, 3)]
    on = sample_about(6_000, gates, 200, 4, np.random.default_rng(0))
    assert on.sum(1).max() <= 4
    whole = [on[:, list(gate)].all(1).mean() for gate in gates]
    missing = [(on[:, list(gate)].sum(1) == len(gate) - 1).mean() for gate in gates]
    assert np.allclose(whole, 1 / 9, atol=0.02)
    assert np.allclose(missing, 1 / 9, atol=0.03)
    assert on[:, 10:].any(1).mean() > 0.2
    with pytest.raises(InputError, check=texts):
        sample_about(5, gates, 200, 2, np.random.default_rng(0))


def test_tokens_name_what_is_on(texts):
    on = np.zeros((3, 5), dtype=bool)
    on[1, [4, 1]] = on[2, 0] = True
    assert composite_tokens(on, 2).tolist() == [[5, 5, 6], [1, 4, 6], [0, 5, 6]]
    data = composite_data(on, 2)
    assert data.positions.tolist() == [2, 2, 2]
    assert data.names == ("f0", "f1", "f2", "f3", "f4")
    with pytest.raises(InputError, check=texts):
        composite_tokens(on, 1)


@pytest.mark.parametrize("most_on", [0, 6])
def test_sizes_that_are_not_there_are_said(most_on, texts):
    for make in (
        lambda: all_composites(5, most_on),
        lambda: sample_composites(3, 5, most_on, np.random.default_rng(0)),
    ):
        with pytest.raises(InputError, check=texts):
            make()


def test_inputs_that_do_not_fit_or_are_none_are_said():
    rng = np.random.default_rng(0)
    for make, said in (
        (lambda: all_composites(200, 8), r"the inputs take [\d,]+\.\d GiB, more than 2"),
        (lambda: all_composites(3_000, 1_500), r"more than 10\^14 GiB"),
        (lambda: sample_composites(10**9, 200, 8, rng), "186.3 GiB"),
        (lambda: sample_composites(-1, 5, 2, rng), "-1 inputs requested"),
        (lambda: sample_about(5, [], 5, 2, rng), "at least one gate"),
        (lambda: sample_about(5, [()], 5, 2, rng), "at least one gate"),
        (lambda: sample_about(5, [(0, 5)], 5, 2, rng), r"outside 0\.\.4"),
    ):
        with pytest.raises(InputError, match=said):
            make()


@pytest.mark.parametrize("most_on", [2, 3])
def test_samples_about_gates_have_no_more_on_than_told(most_on):
    """Few features: a gate that is turned on nearly always meets others that are on."""
    on = sample_about(2_000, [(0, 1), (2, 3)], 6, most_on, np.random.default_rng(1))
    assert np.bincount(on.sum(1), minlength=most_on + 1).nonzero()[0].tolist() == [
        *range(most_on + 1)
    ]
