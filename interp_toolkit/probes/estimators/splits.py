"""Held-out splits of the prompts, and shuffled labels for the null."""

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

    With groups (documents), rows of one group resemble each other, in activations and in labels.
    Permuted rows would not, so a probe would fit their labels less well than labels that have
    nothing to do with the activations but come in documents too, and the null would be too narrow.
    So groups trade labels whole, in a random order: exact when documents are independent draws of
    one length. Between groups of different lengths, a run of the longer one is taken, or the
    shorter one repeated; shifting all labels along by one offset instead lets them straddle two
    groups, which calls about twice as much noise significant as it should.

    Args:
        features: the labels as observed; with groups, rows of one group in their own order.
        n_draws: how many draws.
        seed: of the draws.
        groups: the group of every row, if any.

    Raises:
        InputError: when there is but one group.

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
        raise InputError("all rows are of one group, which has none to trade labels with")
    draws = np.empty((n_draws, *features.shape), dtype=bool)
    for draw in draws:
        for own, giver in zip(rows, rng.permutation(len(rows)), strict=True):
            draw[own] = features[_run(rows[giver], len(own), rng)]
    return draws


def _run(
    rows: Int[np.ndarray, " n"], length: int, rng: np.random.Generator
) -> Int[np.ndarray, " length"]:
    """As many consecutive rows: from a random start of more, or fewer repeated."""
    start = rng.integers(max(len(rows) - length, 0) + 1)
    return np.resize(rows[start:], length)


def group_codes(groups: Groups) -> Int[np.ndarray, " batch"]:
    """Groups as numbers 0, 1, ... in the order of their first rows."""
    codes: dict[Hashable, int] = {}
    values = groups.tolist() if isinstance(groups, np.ndarray) else groups
    return np.array([codes.setdefault(value, len(codes)) for value in values], dtype=np.int64)
