"""Folds and shuffled labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.errors import InputError
from interp_toolkit.probes.splits import (
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


def test_fewer_groups_than_folds_are_refused():
    with pytest.raises(InputError, match="2 groups cannot be split into 5 folds"):
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


def test_circular_labels_keep_their_neighbours_and_leave_their_group():
    groups = np.repeat(np.arange(6), 5)
    features = np.arange(30)[:, None] == np.arange(30)  # every row has a name
    draws = shuffled_labels(features, 100, seed=0, groups=groups)
    assert len(draws) == 21  # offsets 5 to 25, each once
    for draw in draws:
        source = draw.argmax(1)
        assert (np.diff(source) % 30 == 1).all()
        assert (groups[source] != groups).all()
    assert len({draw.argmax(1)[0] for draw in draws}) == 21


def test_scattered_groups_are_moved_in_the_order_of_groups():
    groups = np.arange(12) % 3
    features = np.arange(12)[:, None] == np.arange(12)
    for draw in shuffled_labels(features, 5, seed=0, groups=groups):
        source = draw.argmax(1)[np.argsort(groups, kind="stable")]
        steps = np.argsort(np.argsort(groups, kind="stable"))[source]
        assert (np.diff(steps) % 12 == 1).all()


def test_labels_cannot_leave_a_group_of_most_rows():
    with pytest.raises(InputError, match="one group holds 8 of 10 rows"):
        shuffled_labels(np.ones((10, 1), dtype=bool), 3, 0, groups=[0] * 8 + [1] * 2)
