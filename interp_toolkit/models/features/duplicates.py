"""Groups of equal inputs, which count as one observation.

A deterministic model gives equal inputs equal activations, so copies of a prompt on both sides of
a split, or moved apart by a permutation, look like evidence that there is not. What is equal is
one group wherever rows are split, permuted or resampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int, Shaped
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components


def equal_inputs(inputs: Iterable[Shaped[np.ndarray, "..."]]) -> Int[np.ndarray, " row"]:
    """The group of every input, numbered in order of first occurrence; equal inputs share one.

    Examples:
        >>> equal_inputs([np.array([5, 7]), np.array([5]), np.array([5, 7])]).tolist()
        [0, 1, 0]
    """
    codes: dict[tuple[tuple[int, ...], bytes], int] = {}
    keys = ((array.shape, array.tobytes()) for array in map(np.ascontiguousarray, inputs))
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def equal_up_to(
    rows: Sequence[Int[np.ndarray, "..."]],
    positions: Sequence[int] | Int[np.ndarray, " row"],
    *,
    causal: bool = True,
) -> Int[np.ndarray, " row"]:
    """The group of every row by what a model's activations at its position can depend on.

    Args:
        rows: token ids.
        positions: one a row; negative ones count from the row's end.
        causal: whether later tokens have no say; else the whole row and the position count.

    Examples:
        >>> rows = [np.array([5, 7, 9]), np.array([5, 7]), np.array([5, 8, 9])]
        >>> equal_up_to(rows, [1, 1, 1]).tolist(), equal_up_to(rows, [0, 0, 0]).tolist()
        ([0, 0, 1], [0, 0, 0])
    """
    ends = [int(p) % len(row) for row, p in zip(rows, positions, strict=True)]
    if causal:
        return equal_inputs([row[: p + 1] for row, p in zip(rows, ends, strict=True)])
    return equal_inputs([np.append(row, p) for row, p in zip(rows, ends, strict=True)])


def joined(*groupings: Sequence[int] | Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """The finest grouping that keeps together what any of these does (connected components).

    Groups are numbered in order of first occurrence.

    Examples:
        >>> joined(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
        [0, 0, 0, 1]
    """
    codes = [np.unique(np.asarray(grouping), return_inverse=True)[1] for grouping in groupings]
    n, rows = len(codes[0]), np.arange(len(codes[0]))
    offsets = np.cumsum([n, *(code.max() + 1 for code in codes)])
    columns = np.concatenate([o + code for o, code in zip(offsets[:-1], codes, strict=True)])
    links = (np.ones(len(columns)), (np.tile(rows, len(codes)), columns))
    size = int(offsets[-1])
    component = connected_components(coo_matrix(links, shape=(size, size)), directed=False)[1][:n]
    return equal_inputs(component[:, None])
