"""Which rows are held out, and what the labels would be if they had nothing to do with the rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.errors import InputError

Groups = Sequence[Hashable] | np.ndarray


def stratified_folds(
    Y: Bool[np.ndarray, "batch target"], n_splits: int, seed: int
) -> Int[np.ndarray, "batch target"]:
    """The fold of every row, for every target: both classes are dealt out evenly.

    Rows are shuffled once; each target deals its positive rows to the folds in turn, and then its
    negative rows, so that class counts, and fold sizes, differ by one at most between folds.
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

    Groups are dealt out from the largest, each to the fold with the fewest rows so far; the seed
    settles the order among groups of one size. Raises InputError with fewer groups than folds.
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
    """Features that have lost their tie to the activations, for null distributions.

    The features of one row move together, so that what they have to do with each other stays.
    Without groups, rows are permuted: exact when rows are independent draws.

    With groups (documents), neighbouring rows resemble each other, in activations and in labels.
    Permuted labels would not, so a probe would fit them less well than labels that are merely
    slow, and the null would be too narrow. Instead all rows, taken group after group, are moved
    round the circle by one random offset: the labels keep their own runs and frequencies and
    only lose their places. Offsets are at least the longest group, so that no row keeps labels
    of its own group, and all different: there may be fewer than `n_draws`.

    Args:
        features: the labels as observed; with groups, rows of one group in their own order.
        n_draws: how many draws.
        seed: of the draws.
        groups: the group of every row, if any.

    Raises:
        InputError: when one group holds more than half of the rows.
    """
    rng = np.random.default_rng(seed)
    n_row = len(features)
    if groups is None:
        moved = [rng.permutation(n_row) for _ in range(n_draws)]
        return features[np.array(moved).reshape(n_draws, n_row)]
    member = group_codes(groups)
    longest = int(np.bincount(member).max())
    offsets = rng.permutation(np.arange(longest, n_row - longest + 1))[:n_draws]
    if len(offsets) == 0:
        raise InputError(
            f"one group holds {longest} of {n_row} rows, so labels cannot be moved out of it"
        )
    in_order = np.argsort(member, kind="stable")
    draws = np.empty((len(offsets), *features.shape), dtype=bool)
    for draw, offset in zip(draws, offsets, strict=True):
        draw[in_order] = features[np.roll(in_order, offset)]
    return draws


def group_codes(groups: Groups) -> Int[np.ndarray, " batch"]:
    """Groups as numbers 0, 1, ... in the order of their first rows."""
    codes: dict[Hashable, int] = {}
    values = groups.tolist() if isinstance(groups, np.ndarray) else groups
    return np.array([codes.setdefault(value, len(codes)) for value in values], dtype=np.int64)
