"""Sparse boolean inputs with at most l features on, and their form as tokens.

An input with at most l of m features on is a row of l + 1 tokens. The numbers of the features that
are on come first, in increasing order, then `nothing` tokens (id m) up to length l. The last token
is `read` (id m + 1), at whose position the model computes. `task_data` makes such inputs for a
model whose task record describes them.

Source: "Computation in superposition", section 1.1 (l-composite inputs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.data.features import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.registry import TaskRecord

#: largest size of inputs made at once, in bytes
MOST_BYTES = 2**31


def count_composites(n_features: int, most_on: int) -> int:
    """The number of inputs with at most `most_on` features on."""
    return sum(comb(n_features, k) for k in range(most_on + 1))


def all_composites(n_features: int, most_on: int) -> Bool[np.ndarray, "input feature"]:
    """Every input with at most `most_on` features on, the empty one first, then by size.

    Raises InputError for invalid sizes, or more inputs than fit in memory.
    """
    _check(n_features, most_on)
    n = count_composites(n_features, most_on)
    _check_bytes(n, n_features)
    inputs = np.zeros((n, n_features), dtype=bool)
    row = 0
    for size in range(most_on + 1):
        sets = chain.from_iterable(combinations(range(n_features), size))
        count = comb(n_features, size)
        chosen = np.fromiter(sets, np.int32, count * size).reshape(count, size)
        inputs[np.arange(row, row + count)[:, None], chosen] = True
        row += count
    return inputs


def sample_composites(
    n: int, n_features: int, most_on: int, rng: np.random.Generator
) -> Bool[np.ndarray, "input feature"]:
    """Random inputs: a uniform number of features in 0..most_on, then a uniform set of that size.

    Raises InputError for invalid sizes, or more inputs than fit in memory.
    """
    _check(n_features, most_on)
    if n < 0:
        raise InputError(f"{n} inputs requested: give 0 or more")
    _check_bytes(n, n_features)
    sizes = rng.integers(0, most_on + 1, n)
    inputs = np.zeros((n, n_features), dtype=bool)
    for size in range(1, most_on + 1):
        rows = np.flatnonzero(sizes == size)
        inputs[rows[:, None], random_subsets(len(rows), n_features, size, rng)] = True
    return inputs


def sample_about(
    n: int,
    gates: Sequence[Sequence[int]],
    n_features: int,
    most_on: int,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "input feature"]:
    """Random inputs centered on gates, which uniform inputs would almost never activate.

    Each is for one gate: a third of them have all its features on, a third all but one, a third
    none on purpose. Further features are on at random, so that at most `most_on` are on in all.

    Raises InputError for invalid sizes, no gates, gates of unknown features, and gates with more
    features than may be on.
    """
    if not gates or any(not gate for gate in gates):
        raise InputError("give at least one gate, each of one feature or more")
    if any(not 0 <= i < n_features for gate in gates for i in gate):
        raise InputError(f"a gate names a feature outside 0..{n_features - 1}")
    inputs = sample_composites(n, n_features, most_on, rng)
    widest = max(map(len, gates))
    if widest > most_on:
        raise InputError(f"a gate has {widest} features, but at most {most_on} are on at once")
    for row, which, kind in zip(
        inputs, rng.integers(0, len(gates), n), rng.integers(0, 3, n), strict=True
    ):
        gate = list(gates[which])
        if kind == 2:
            continue
        left_out = gate[rng.integers(len(gate))] if kind else -1
        row[gate] = [feature != left_out for feature in gate]
        others = np.setdiff1d(np.flatnonzero(row), gate)
        surplus = int(row.sum()) - most_on
        row[rng.permutation(others)[: max(0, surplus)]] = False
    return inputs


def composite_tokens(
    on: Bool[np.ndarray, "input feature"], most_on: int
) -> Int[np.ndarray, "input pos"]:
    """The token rows of these inputs.

    Raises InputError if an input has more than `most_on` features on.
    """
    n, n_features = on.shape
    counts = on.sum(axis=1)
    if len(counts) and counts.max() > most_on:
        raise InputError(f"an input has {counts.max()} features on; the model reads {most_on}")
    tokens = np.full((n, most_on + 1), n_features, dtype=np.int64)
    rows, features = np.nonzero(on)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if n else counts
    tokens[rows, np.arange(len(rows)) - np.repeat(starts, counts)] = features
    tokens[:, -1] = n_features + 1
    return tokens


def composite_data(
    on: Bool[np.ndarray, "input feature"], most_on: int, source: str = "sparse boolean inputs"
) -> FeatureData:
    """These inputs as data for a model, read at the last position."""
    n, n_features = on.shape
    return FeatureData(
        composite_tokens(on, most_on),
        on,
        tuple(f"f{i}" for i in range(n_features)),
        positions=np.full(n, most_on, dtype=np.int64),
        source=source,
    )


def random_subsets(
    n: int, n_features: int, size: int, rng: np.random.Generator
) -> Int[np.ndarray, "n size"]:
    """Uniform random sets of `size` features, one per row, by rejection of rows with repeats."""
    subsets = rng.integers(0, n_features, (n, size))
    while True:
        ordered = np.sort(subsets, axis=1)
        repeats = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(repeats):
            return subsets
        if 4 * size > n_features:  # few rows lack repeats: rank random keys instead
            keys = rng.random((len(repeats), n_features))
            subsets[repeats] = np.argpartition(keys, size - 1, axis=1)[:, :size]
        else:
            subsets[repeats] = rng.integers(0, n_features, (len(repeats), size))


def _check(n_features: int, most_on: int) -> None:
    if not 1 <= most_on <= n_features:
        raise InputError(f"{most_on} features cannot be on at once; there are {n_features}")


def _check_bytes(n: int, n_features: int) -> None:
    size = n * n_features
    if size > MOST_BYTES:
        gib = f"{size / 2**30:,.1f}" if size < 2**80 else "more than 10^14"
        raise InputError(
            f"the inputs take {gib} GiB, more than {MOST_BYTES / 2**30:.0f}: use "
            "fewer features, fewer on at once, or a random sample"
        )


#: largest number of inputs that are enumerated instead of sampled
MOST_INPUTS = 20_000


def task_data(
    task: Mapping[str, Any] | None, *, seed: int = 0, most: int = MOST_INPUTS
) -> FeatureData:
    """All inputs with at most the task's number of features on, or a random sample, as data.

    Args:
        task: a model's task record; "n_features" and "most_on" define the inputs, and "gates", if
            present, the gates on which a sample is centered.
        seed: random seed of the sample.
        most: largest number of inputs.

    Raises:
        InputError: no such record, or invalid sizes.
    """
    record = TaskRecord.from_json(task)
    n_features, most_on = record.n_features, record.most_on
    if n_features is None or most_on is None:
        raise InputError(
            "no data: this model records no task on sparse boolean inputs, so give prompts "
            "(--data FILE)"
        )
    source = f"with at most {most_on} of {n_features} features on"
    if 1 <= most_on <= n_features and count_composites(n_features, most_on) > most:
        rng = np.random.default_rng(seed)
        if record.gates:
            sample = sample_about(most, record.gates, n_features, most_on, rng)
            return composite_data(sample, most_on, f"{most:,} random inputs about gates, {source}")
        sample = sample_composites(most, n_features, most_on, rng)
        return composite_data(sample, most_on, f"{most:,} random inputs {source}")
    return composite_data(all_composites(n_features, most_on), most_on, f"all inputs {source}")
