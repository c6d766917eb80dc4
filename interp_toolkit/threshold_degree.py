"""The threshold degree of a boolean function: the least degree of a polynomial with its signs.

A polynomial p of degree d has the signs of a function f of n bits when p(x) > 0 where f is true
and p(x) < 0 where it is false. Monomials are ANDs of at most d bits. That such a p exists, or that
none does, is a question of linear separability with these monomials as coordinates, and has a
witness either way (Gordan 1873):

    degree d is enough        integer coefficients, checked on all 2^n inputs
    degree d is not enough    integer weights mu(x) >= 0, not all 0, with Σ ±mu(x) m(x) = 0 for
                              every monomial m of degree d: + where f is true, - where it is false

Both are found by linear programmes in floating point, and believed only after a check in integers.
Source: Minsky and Papert, "Perceptrons" (1969), there called the order of a predicate; the
dual weights as in O'Donnell and Servedio, "New degree bounds for polynomial threshold functions"
(2010), section 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from jaxtyping import Int
from scipy.optimize import linprog
from sympy import QQ, ZZ
from sympy.polys.matrices import DomainMatrix

from interp_toolkit.brief import Brief
from interp_toolkit.errors import InputError

MOST_BITS = 6
SUPPORT = 1e-9  # weights of a vertex below this share of the largest are zero
LARGEST_DENOMINATOR = 10_000  # of a coefficient, before all are made integers

Monomial = tuple[int, ...]


@dataclass(frozen=True)
class ThresholdDegree(Brief):
    """The least degree, and why it is neither more nor less.

    Attributes:
        table: of the function, as in `probes.estimators.boolean`; constants too.
        degree: the threshold degree.
        polynomial: integer coefficients with the function's signs, by the set of bits.
        weights: integers, one an input in counting order, that show that one degree less is not
            enough; None for a constant.

    Examples:
        >>> xor = threshold_degree("0110")
        >>> xor.degree, xor.weights.tolist()
        (2, [1, 1, 1, 1])
    """

    table: str
    degree: int
    polynomial: Mapping[Monomial, int]
    weights: Int[np.ndarray, " input"] | None


@lru_cache(maxsize=4096)
def threshold_degree(table: str) -> ThresholdDegree:
    """The threshold degree of a function of at most six bits, in exact integers.

    Args:
        table: 2^n zeros and ones, the first bit most significant.

    Raises:
        InputError: no such table, or one of more bits.
    """
    n = _n_bits(table)
    weights: Int[np.ndarray, " input"] | None = None
    for degree in range(n + 1):
        polynomial = _polynomial(table, n, degree)
        if polynomial is not None:
            return ThresholdDegree(table, degree, polynomial, weights)
        weights = _weights(table, n, degree)
    raise AssertionError("every function is a polynomial of its bits")


def _n_bits(table: str) -> int:
    if not isinstance(table, str) or set(table) - {"0", "1"} or len(table).bit_count() != 1:
        raise InputError(f"a truth table is 2^n zeros and ones, like 0110, not {table!r}")
    n = len(table).bit_length() - 1
    if n > MOST_BITS:
        raise InputError(f"the threshold degree is found of at most {MOST_BITS} bits, not {n}")
    return n


def monomials(n_bits: int, degree: int) -> list[Monomial]:
    """The sets of at most `degree` bits, small ones first."""
    sizes = range(min(degree, n_bits) + 1)
    return [chosen for size in sizes for chosen in itertools.combinations(range(n_bits), size)]


def monomial_values(n_bits: int, degree: int) -> Int[np.ndarray, "input monomial"]:
    """Every monomial on every input, inputs in counting order."""
    bits = np.array(list(itertools.product((0, 1), repeat=n_bits)), dtype=np.int64)
    bits = bits.reshape(2**n_bits, n_bits)
    return np.stack([bits[:, list(m)].prod(1) for m in monomials(n_bits, degree)], axis=1)


def signs(table: str) -> Int[np.ndarray, " input"]:
    """+1 where the function is true, -1 where it is false."""
    return np.array([1 if bit == "1" else -1 for bit in table], dtype=np.int64)


def _polynomial(table: str, n: int, degree: int) -> dict[Monomial, int] | None:
    """Integer coefficients with the function's signs, as few and small as a programme finds."""
    signed = signs(table)[:, None] * monomial_values(n, degree)
    k = signed.shape[1]
    found = linprog(
        np.ones(2 * k),  # the least sum of absolute coefficients
        A_ub=-np.hstack([signed, -signed]),
        b_ub=-np.ones(len(signed)),
        method="highs",
    )
    if found.x is None:
        return None
    fractions = [
        Fraction(float(x)).limit_denominator(LARGEST_DENOMINATOR) for x in found.x[:k] - found.x[k:]
    ]
    scale = math.lcm(*(x.denominator for x in fractions))
    coefficients = [int(x * scale) for x in fractions]
    if (signed.astype(object) @ np.array(coefficients, dtype=object)).min() <= 0:
        raise AssertionError(f"{table}: the coefficients do not hold in integers")
    return {m: c for m, c in zip(monomials(n, degree), coefficients, strict=True) if c}


def _weights(table: str, n: int, degree: int) -> Int[np.ndarray, " input"]:
    """Integer weights under which every monomial of the degree balances between the classes."""
    signed = signs(table)[:, None] * monomial_values(n, degree)
    found = linprog(
        np.zeros(len(signed)),
        A_eq=np.vstack([signed.T, np.ones(len(signed))]),
        b_eq=np.eye(signed.shape[1] + 1)[-1],
        method="highs-ds",  # ends at a vertex, whose support settles it
    )
    if found.x is None:
        raise AssertionError(f"{table}: neither a polynomial nor weights of degree {degree}")
    support = np.flatnonzero(found.x > SUPPORT * found.x.max())
    weights = np.zeros(len(signed), dtype=np.int64)
    weights[support] = _integers(signed[support])
    if weights.min() < 0 or not weights.any() or (weights @ signed).any():
        raise AssertionError(f"{table}: the weights do not hold in integers")
    return weights


def _integers(signed: Int[np.ndarray, "input monomial"]) -> list[int]:
    """The one combination of the rows that vanishes, as positive integers without a divisor."""
    matrix = DomainMatrix(signed.T.tolist(), signed.T.shape, ZZ).convert_to(QQ)
    [found] = matrix.nullspace().to_list()
    fractions = [Fraction(int(x.numerator), int(x.denominator)) for x in found]
    scale = math.lcm(*(x.denominator for x in fractions))
    whole = [int(x * scale) for x in fractions]
    divisor = math.gcd(*whole) * (1 if whole[0] > 0 else -1)
    return [x // divisor for x in whole]
