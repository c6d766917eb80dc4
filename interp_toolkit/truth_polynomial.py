"""A boolean function as a sum of ANDs with integer coefficients.

Every function of k bits is one polynomial g(x) = Σ_S c_S Π_{i in S} x_i over the sets S of its
inputs, with c_S = Σ_{T ⊆ S} (-1)^{|S| - |T|} g(1 on T, 0 elsewhere) (Möbius inversion): an AND of
each set, the empty one a constant, single inputs themselves. XOR is a + b - 2 ab.
Source: "Computation in superposition", sections 1.2 and 1.4.
"""

from __future__ import annotations

from itertools import combinations

from interp_toolkit.errors import InputError


def mobius(table: str) -> dict[tuple[int, ...], int]:
    """The coefficients that are not 0, by the set of inputs, small sets first.

    Args:
        table: 2^k bits, the first input most significant.

    Raises:
        InputError: not a power of two of bits.
    """
    n_inputs = len(table).bit_length() - 1
    if len(table) != 2**n_inputs or set(table) - {"0", "1"}:
        raise InputError(f"a truth table is 2^k bits, like 0110, not {table!r}")
    values = [int(bit) for bit in table]
    for k in range(n_inputs):  # one input after the other: subtract the value without it
        bit = 1 << (n_inputs - 1 - k)
        values = [v - values[i ^ bit] if i & bit else v for i, v in enumerate(values)]
    found = {}
    for size in range(n_inputs + 1):
        for chosen in combinations(range(n_inputs), size):
            coefficient = values[sum(1 << (n_inputs - 1 - k) for k in chosen)]
            if coefficient:
                found[chosen] = coefficient
    return found
