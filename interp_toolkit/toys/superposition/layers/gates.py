"""Boolean functions and AND gates of features.

A boolean function is a truth table and its features. A table is a string of 0s and 1s in counting
order, the first feature the most significant digit: `BooleanFunction("0110", (2, 5))` is the XOR of
features 2 and 5. AND gates are tuples of feature numbers: the gate `(2, 5)` is true if features 2
and 5 are both on.

Source: "Computation in superposition", sections 1.1 and 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.data.composites import random_subsets
from interp_toolkit.errors import InputError

MOST_FEATURES = 16


class BooleanFunction(NamedTuple):
    """A truth table and its features, the most significant first."""

    table: str
    features: tuple[int, ...]


def function_of(formula: Callable[..., object], features: Sequence[int]) -> BooleanFunction:
    """The function defined by a formula, as in `function_of(lambda a, b: a != b, (0, 3))`.

    Raises InputError for more than 16 features.
    """
    k = len(features)
    if k > MOST_FEATURES:
        raise InputError(f"a truth table must have at most {MOST_FEATURES} features, not {k}")
    rows = ([bool(index >> (k - 1 - i) & 1) for i in range(k)] for index in range(2**k))
    return BooleanFunction("".join("01"[bool(formula(*row))] for row in rows), tuple(features))


def check_function(function: BooleanFunction, n_features: int) -> None:
    """Raise InputError unless the table fits the features, which must be known and distinct."""
    table, features = function
    if set(table) - {"0", "1"} or len(table) != 2 ** len(features):
        raise InputError(
            f"the truth table {table!r} of {len(features)} features is not "
            f"{2 ** len(features)} zeros and ones"
        )
    if len(set(features)) < len(features):
        raise InputError(f"the features {features} of a function must differ")
    if any(not 0 <= i < n_features for i in features):
        raise InputError(f"the features {features} of a function must be among 0..{n_features - 1}")


def function_values(
    functions: Sequence[BooleanFunction], on: Bool[np.ndarray, "input feature"]
) -> Bool[np.ndarray, "input function"]:
    """The values of functions on these inputs.

    Raises InputError as `check_function`.
    """
    values = np.zeros((len(on), len(functions)), dtype=bool)
    for column, function in enumerate(functions):
        check_function(function, on.shape[1])
        weights = 1 << np.arange(len(function.features) - 1, -1, -1)
        index = on[:, list(function.features)] @ weights
        values[:, column] = np.array([bit == "1" for bit in function.table])[index]
    return values


Gate = tuple[int, ...]


def all_pairs(n_features: int) -> list[Gate]:
    """Every pair (i, j) with i < j: (0, 1), (0, 2), ..."""
    return list(combinations(range(n_features), 2))


def random_gates(n_features: int, n_gates: int, fan_in: int = 2, *, seed: int = 0) -> list[Gate]:
    """Distinct random gates of one fan-in, in order.

    Raises InputError if there are not that many.
    """
    if not 1 <= fan_in <= n_features:
        raise InputError(
            f"a gate of fan-in {fan_in} needs as many features; there are {n_features}"
        )
    there = comb(n_features, fan_in)
    if not 1 <= n_gates <= there:
        raise InputError(
            f"{n_gates} gates of fan-in {fan_in} requested; of {n_features} features, 1 to {there} "
            "are possible"
        )
    rng = np.random.default_rng(seed)
    if 2 * n_gates > there:
        every = list(combinations(range(n_features), fan_in))
        return [every[k] for k in sorted(rng.choice(there, n_gates, replace=False))]
    gates: dict[Gate, None] = {}
    while len(gates) < n_gates:
        subsets = np.sort(random_subsets(n_gates - len(gates), n_features, fan_in, rng), axis=1)
        gates.update(dict.fromkeys(tuple(row) for row in subsets.tolist()))
    return sorted(gates)


def checked_gates(
    gates: Sequence[Sequence[int]], n_features: int, *, fan_in: int | None = None
) -> list[Gate]:
    """The gates as sorted tuples.

    Args:
        gates: feature indices of each gate.
        n_features: number of features.
        fan_in: required fan-in of every gate; None: at least 2.

    Raises:
        InputError: a gate with a repeated or unknown feature, or with another fan-in; or no gates.
    """
    if not len(gates):
        raise InputError("there are no gates: give at least one, such as (0, 1)")
    checked = [tuple(sorted(int(i) for i in gate)) for gate in gates]
    for gate in checked:
        if len(set(gate)) != len(gate) or len(gate) < 2 or fan_in not in (None, len(gate)):
            expected = "two or more" if fan_in is None else f"{fan_in}"
            raise InputError(f"the gate {gate} is not a set of {expected} different features")
        if gate[0] < 0 or gate[-1] >= n_features:
            raise InputError(f"the gate {gate} names a feature outside 0..{n_features - 1}")
    return checked


def gate_truth(
    on: Bool[np.ndarray, "input feature"], gates: Sequence[Gate]
) -> Bool[np.ndarray, "input gate"]:
    """Whether all of a gate's features are on."""
    return np.stack([on[:, list(gate)].all(axis=1) for gate in gates], axis=1)


def inputs_about(
    gates: Sequence[Gate],
    missing: Int[np.ndarray, " gate"],
    n_features: int,
    n_on: int,
    rng: np.random.Generator,
) -> Bool[np.ndarray, "gate feature"]:
    """An input for each gate: all its features except `missing` are on, and random others.

    Args:
        gates: the gate of each input.
        missing: index within the gate of the feature that is off; -1: none is.
        n_features: number of features of the inputs.
        n_on: total number of features that are on, at least the largest fan-in.
        rng: draws the others.
    """
    on = np.zeros((len(gates), n_features), dtype=bool)
    kinds = [(len(gate), bool(i >= 0)) for gate, i in zip(gates, missing, strict=True)]
    for fan_in, lacking in dict.fromkeys(kinds):
        rows = np.array([row for row, kind in enumerate(kinds) if kind == (fan_in, lacking)])
        members = np.array([sorted(gates[int(row)]) for row in rows])
        n_others = min(n_on - fan_in + lacking, n_features - fan_in)
        others = random_subsets(len(rows), max(n_features - fan_in, 1), n_others, rng)
        on[rows[:, None], _past(others, members)] = True
        on[rows[:, None], members] = True
        if lacking:
            on[rows, members[np.arange(len(rows)), missing[rows]]] = False
    return on


def _past(
    others: Int[np.ndarray, "n size"], members: Int[np.ndarray, "n fan_in"]
) -> Int[np.ndarray, "n size"]:
    """Indices among the features that are not members, as indices among all features."""
    for member in members.T:
        others = others + (others >= member[:, None])
    return others
