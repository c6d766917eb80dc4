"""Splits of prompts into folds, and labels shuffled relative to the activations.

Prompts of one group (a document) resemble each other: folds keep groups whole, and whole groups
exchange labels.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.errors import InputError

Groups = Sequence[Hashable] | np.ndarray


def stratified_folds(
    Y: Bool[np.ndarray, "batch target"], n_splits: int, seed: int
) -> Int[np.ndarray, "batch target"]:
    """The fold of every row, for every target: both classes are distributed evenly.

    Rows are shuffled once; each target assigns its positive rows to the folds in turn, and then its
    negative rows, so that class counts and fold sizes differ by at most one between folds.
    """
    order = np.random.default_rng(seed).permutation(len(Y))
    shuffled = Y[order]
    turn = np.where(
        shuffled, np.cumsum(shuffled, 0) - 1, shuffled.sum(0) + np.cumsum(~shuffled, 0) - 1
    )
    folds = np.empty(Y.shape, dtype=np.int16)
    folds[order] = turn % n_splits
    return folds


def grouped_folds(groups: Groups, n_splits: int, seed: int) -> Int[np.ndarray, "batch 1"]:
    """The fold of every row, the same for all targets, with every group whole in one fold.

    Groups are assigned from the largest down, each to the fold with the fewest rows so far; the
    seed orders groups of equal size. Raises InputError with fewer groups than folds.
    """
    member = group_codes(groups)
    sizes = np.bincount(member)
    if len(sizes) < n_splits:
        raise InputError(f"{len(sizes)} groups cannot be split into {n_splits} folds")
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    fold_of = np.empty(len(sizes), dtype=np.int16)
    load = np.zeros(n_splits, dtype=int)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold_of[group] = np.argmin(load)
        load[fold_of[group]] += sizes[group]
    return np.asarray(fold_of[member][:, None])


def shuffled_labels(
    features: Bool[np.ndarray, "batch feature"],
    n_draws: int,
    seed: int,
    groups: Groups | None = None,
) -> Bool[np.ndarray, "draw batch feature"]:
    """Features shuffled relative to the activations, for null distributions.

    The features of one row move together, so that their dependence on each other is preserved.
    Without groups, rows are permuted: exact when rows are independent draws.

    With groups (documents), rows of one group resemble each other, in activations and in labels.
    Permuting single rows would destroy that resemblance and make the null too narrow. Whole groups
    therefore exchange labels, in random order: exact when documents are independent draws of one
    length. Between groups of different lengths, a consecutive run of the longer one is taken, or
    the shorter one repeated. Shifting all labels by one offset instead would let them straddle
    groups, which doubles the false positive rate.

    Args:
        features: the observed labels; with groups, rows of one group in their own order.
        n_draws: number of draws.
        seed: random seed of the draws.
        groups: the group of every row, if any.

    Raises:
        InputError: there is only one group.

    Examples:
        >>> features = np.array([[True, False], [False, False], [False, True]])
        >>> draws = shuffled_labels(features, 5, seed=0)
        >>> draws.shape, draws.sum(1).tolist() == [[1, 1]] * 5
        ((5, 3, 2), True)
    """
    rng = np.random.default_rng(seed)
    n_row = len(features)
    if groups is None:
        moved = [rng.permutation(n_row) for _ in range(n_draws)]
        return features[np.array(moved, dtype=np.int64).reshape(n_draws, n_row)]
    member = group_codes(groups)
    rows = [np.flatnonzero(member == group) for group in range(member.max() + 1)]
    if len(rows) == 1:
        raise InputError("all rows are of one group, so no other group can exchange labels with it")
    draws = np.empty((n_draws, *features.shape), dtype=bool)
    for draw in draws:
        for own, giver in zip(rows, rng.permutation(len(rows)), strict=True):
            draw[own] = features[_run(rows[giver], len(own), rng)]
    return draws


def _run(
    rows: Int[np.ndarray, " n"], length: int, rng: np.random.Generator
) -> Int[np.ndarray, " length"]:
    """A run of n consecutive rows: from a random start, or repeated if there are fewer."""
    start = rng.integers(max(len(rows) - length, 0) + 1)
    return np.resize(rows[start:], length)


def group_codes(groups: Groups) -> Int[np.ndarray, " batch"]:
    """Groups as numbers 0, 1, ... in the order of their first occurrence."""
    codes: dict[Hashable, int] = {}
    values = groups.tolist() if isinstance(groups, np.ndarray) else groups
    return np.array([codes.setdefault(value, len(codes)) for value in values], dtype=np.int64)
