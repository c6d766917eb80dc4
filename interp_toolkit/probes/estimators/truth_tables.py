"""Truth tables of boolean functions of features.

A table is a string of 0s and 1s, one per combination of the features in counting order, the
first feature the most significant digit: for two, the values at 00, 01, 10, 11. XOR is `0110`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import counted
from interp_toolkit.probes.estimators.arrays import as_booleans

#: the named functions of two features
TABLES: Mapping[str, str] = {
    "xor": "0110",
    "and": "0001",
    "or": "0111",
    "nand": "1110",
    "nor": "1000",
    "xnor": "1001",
}


def check_table(table: str) -> int:
    """The number of features of a truth table.

    Raises InputError for one that is not 2, 4, 8, ... zeros and ones, or is constant.
    """
    if not isinstance(table, str) or set(table) - {"0", "1"}:
        raise InputError(f"the truth table {table!r} is not a string of 0s and 1s, such as '0110'")
    if len(table) < 2 or len(table).bit_count() != 1:
        raise InputError(f"the truth table {table!r} has {len(table)} entries; k features need 2^k")
    if len(set(table)) == 1:
        raise InputError(
            f"the truth table {table!r} is constant: there are not two classes to separate"
        )
    return len(table).bit_length() - 1


def depends_on(table: str) -> tuple[int, ...]:
    """The features, by number, whose value changes the function for some values of the others.

    Examples:
        >>> depends_on("0110"), depends_on("0011")
        ((0, 1), (0,))
    """
    n = len(table).bit_length() - 1
    flips = [1 << (n - 1 - feature) for feature in range(n)]  # the first is most significant
    return tuple(
        feature
        for feature, flip in enumerate(flips)
        if any(bit != table[i ^ flip] for i, bit in enumerate(table))
    )


def truth_values(table: str, features: Any) -> Bool[np.ndarray, " batch"]:
    """The table's value for every row of features.

    Args:
        table: 2^k zeros and ones, as in `BooleanProbe`.
        features: [n, k] booleans, or numbers that are 0 or 1.

    Raises:
        InputError: an invalid table, the wrong number of columns, values other than 0 and 1; a
            1-dimensional array, which may hold the function's values in place of its features.

    Examples:
        >>> truth_values("0110", [[0, 0], [0, 1], [1, 0], [1, 1]]).tolist()
        [False, True, True, False]
    """
    return np.asarray(np.array([bit == "1" for bit in table])[combinations(table, features)])


def combinations(table: str, features: Any) -> Int[np.ndarray, " batch"]:
    """Which entry of the table every row of features is; arguments and errors as `truth_values`."""
    n_features = check_table(table)
    hint = _features_not_values(table, n_features)
    columns = as_booleans(features, hint=hint)
    n_columns = columns.shape[1]
    if n_columns != n_features:
        remedy = f", shape {columns.shape}: {hint}" if n_columns == 1 else ""
        raise InputError(
            f"the truth table {table!r} takes {n_features} features, got "
            f"{counted(n_columns, 'column')}{remedy}"
        )
    return np.asarray(columns @ (1 << np.arange(n_features - 1, -1, -1)))


@cache  # truth values are asked for more often than errors are shown
def _features_not_values(table: str, n_features: int) -> str:
    """The remedy for labels, the function's values, where its features are taken."""
    bits = {1: "the bit as a column", 2: "the two bits"}.get(n_features, f"the {n_features} bits")
    names = {TABLES[name]: f"their {name.upper()}" for name in TABLES}
    values = names.get(table, "the function's values")
    return f"give {bits}, not {values}; for labels use LogisticProbe"
