"""Boolean functions of three bits, up to the names and signs of bits and of the value (NPN).

Two functions are of one class when one becomes the other by swapping inputs, negating some, and
maybe negating the value. There are 14 classes of the 256 functions of three bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

N_BITS = 3
NAMES = {  # of the class of a well-known function
    "00000001": "AND of three",
    "00000011": "AND of two",
    "00001111": "one bit",
    "00010111": "majority",
    "00011011": "multiplexer",
    "00111100": "XOR of two",
    "01101001": "parity",
    "01111110": "not all equal",
    "00010110": "exactly two",
    "00000000": "constant",
}


def functions() -> list[str]:
    """All tables that are not constant."""
    return [format(i, f"0{2**N_BITS}b") for i in range(1, 2 ** (2**N_BITS) - 1)]


@cache
def representative(table: str) -> str:
    """The least table of its class."""
    return min(_relatives(table))


def class_name(table: str) -> str:
    """What its class is called: after a well-known function, or by its least table."""
    by_class = {representative(known): name for known, name in NAMES.items()}
    least = representative(table)
    return by_class.get(least, least)


def _relatives(table: str) -> Iterator[str]:
    inputs = list(itertools.product((0, 1), repeat=N_BITS))
    for order in itertools.permutations(range(N_BITS)):
        for flips in inputs:
            moved = "".join(
                table[sum((x[order[k]] ^ flips[k]) << (N_BITS - 1 - k) for k in range(N_BITS))]
                for x in inputs
            )
            yield moved
            yield moved.translate(str.maketrans("01", "10"))
