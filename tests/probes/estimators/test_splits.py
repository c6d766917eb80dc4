"""Folds and shuffled labels."""

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.heldout import (
    group_codes,
    grouped_folds,
    shuffled_labels,
    stratified_folds,
)


@given(
    n=st.integers(4, 60), n_splits=st.integers(2, 6), seed=st.integers(0, 99), rate=st.floats(0, 1)
)
def test_stratified_folds_deal_out_both_classes_evenly(n, n_splits, seed, rate):
    Y = np.random.default_rng(seed).random((n, 3)) < rate
    folds = stratified_folds(Y, n_splits, seed)
    for t in range(3):
        for rows in (Y[:, t], ~Y[:, t], np.ones(n, dtype=bool)):
            counts = np.bincount(folds[rows, t], minlength=n_splits)
            assert counts.max() - counts.min() <= 1
    assert np.array_equal(folds, stratified_folds(Y, n_splits, seed))


def test_stratified_folds_follow_the_seed():
    Y = np.arange(50)[:, None] % 2 == 0
    assert not np.array_equal(stratified_folds(Y, 5, 0), stratified_folds(Y, 5, 1))


@given(st.lists(st.integers(0, 9), min_size=12, max_size=80), st.integers(0, 99))
def test_a_group_is_never_split(groups, seed):
    groups = [*groups, 20, 21, 22]
    folds = grouped_folds(np.array(groups), 3, seed)[:, 0]
    for group in set(groups):
        assert len(set(folds[np.array(groups) == group])) == 1
    assert set(folds) == {0, 1, 2}


def test_equal_groups_make_equal_folds():
    folds = grouped_folds([f"document {i // 4}" for i in range(40)], 5, 0)
    assert np.bincount(folds[:, 0]).tolist() == [8] * 5


def test_fewer_groups_than_folds_are_refused(texts):
    with pytest.raises(InputError, check=texts):
        grouped_folds([0, 0, 1, 1], 5, 0)


def test_groups_are_numbered_in_order_of_appearance():
    assert group_codes(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]


def test_permuted_labels_keep_rows_whole():
    features = np.random.default_rng(0).random((30, 4)) < 0.5
    draws = shuffled_labels(features, 7, seed=3)
    assert draws.shape == (7, 30, 4)
    for draw in draws:
        assert sorted(map(tuple, draw)) == sorted(map(tuple, features))
    assert not np.array_equal(draws[0], draws[1])
    assert np.array_equal(draws, shuffled_labels(features, 7, seed=3))


def test_labels_of_whole_groups_trade_places() -> None:
    """With groups of one size a draw permutes them and keeps the order within each."""
    groups = np.arange(30) % 6  # rows of a group need not stand together
    features = np.arange(30)[:, None] == np.arange(30)  # every row has a name
    draws = shuffled_labels(features, 50, seed=0, groups=groups)
    assert draws.shape == (50, 30, 30)
    for draw in draws:
        source = draw.argmax(1)
        assert sorted(source) == list(range(30))
        for group in range(6):
            rows = source[groups == group]
            assert len(np.unique(groups[rows])) == 1
            assert (np.diff(rows) == 6).all()
    firsts = collections.Counter(draw.argmax(1)[0] % 6 for draw in draws)
    assert len(firsts) == 6
    assert np.array_equal(draws, shuffled_labels(features, 50, seed=0, groups=groups))


def test_groups_of_other_sizes_are_cut_or_repeated() -> None:
    groups = np.repeat([0, 1], [3, 7])
    features = np.arange(10)[:, None] == np.arange(10)
    traded = 0
    for draw in shuffled_labels(features, 40, seed=0, groups=groups):
        source = draw.argmax(1)
        if source[0] < 3:
            assert np.array_equal(source, np.arange(10))
            continue
        traded += 1
        assert (np.diff(source[:3]) == 1).all()  # a run of the longer one
        assert source[3:].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert traded > 5


def test_one_group_has_none_to_trade_with() -> None:
    with pytest.raises(InputError, match="one group"):
        shuffled_labels(np.ones((10, 1), dtype=bool), 3, 0, groups=[0] * 10)
