"""Boolean functions of some of the features: a truth table, and the features that it is of.

A table is a string of 0s and 1s in counting order, the first feature the most significant digit:
`BooleanFunction("0110", (2, 5))` is the XOR of features 2 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from interp_toolkit.errors import InputError

MOST_FEATURES = 16


class BooleanFunction(NamedTuple):
    """A truth table and the features it is of, the most significant first."""

    table: str
    features: tuple[int, ...]


def function_of(formula: Callable[..., object], features: Sequence[int]) -> BooleanFunction:
    """The function that a formula of bools gives, as `function_of(lambda a, b: a != b, (0, 3))`.

    Raises InputError for more than 16 features.
    """
    k = len(features)
    if k > MOST_FEATURES:
        raise InputError(f"a truth table takes up to {MOST_FEATURES} features, not {k}")
    rows = ([bool(index >> (k - 1 - i) & 1) for i in range(k)] for index in range(2**k))
    return BooleanFunction("".join("01"[bool(formula(*row))] for row in rows), tuple(features))


def check_function(function: BooleanFunction, n_features: int) -> None:
    """Raise InputError unless table and features fit, and the features differ and are there."""
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
    """The functions on these inputs.

    Raises InputError as `check_function`.
    """
    values = np.zeros((len(on), len(functions)), dtype=bool)
    for column, function in enumerate(functions):
        check_function(function, on.shape[1])
        weights = 1 << np.arange(len(function.features) - 1, -1, -1)
        index = on[:, list(function.features)] @ weights
        values[:, column] = np.array([bit == "1" for bit in function.table])[index]
    return values
