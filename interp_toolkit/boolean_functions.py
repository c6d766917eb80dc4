"""Boolean functions of features: polynomials, threshold degree, the error of a readout.

`mobius` writes a function of k bits as one polynomial g(x) = Σ_S c_S Π_{i in S} x_i over the sets S
of its inputs, with c_S = Σ_{T ⊆ S} (-1)^{|S| - |T|} g(1 on T, 0 elsewhere): an AND of each set;
XOR is a + b - 2 ab ("Computation in superposition", sections 1.2 and 1.4). The threshold degree is
the least degree of a polynomial with the function's signs.

A readout is ε-accurate if it lies within ε of 1 on every input on which the function is true,
and within ε of 0 on every other input (same source, notation). The worst error is one measure. A
second measure allows each gate its best gain and bias, which the next layer can supply. Let the
on-scores lie in an interval of width s_on and the off-scores in one of width s_off. With D =
max(s_on, s_off) and the gap g = min(on) - max(off) (negative if they overlap), the minimal worst
error over gains and biases is D / (2 (g + D)). It is 1/2, the error of a constant, if that is
larger or g + D <= 0. For AND, the best readout that is affine in the two features has 1/4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr


def mobius(table: str) -> dict[tuple[int, ...], int]:
    """The nonzero coefficients of the polynomial, keyed by set of inputs, small sets first.

    Args:
        table: 2^k bits, the first input most significant.

    Raises:
        InputError: the table does not have 2^k bits.
    """
    n_inputs = len(table).bit_length() - 1
    if len(table) != 2**n_inputs or set(table) - {"0", "1"}:
        raise InputError(f"a truth table must be 2^k bits, like 0110, not {table!r}")
    values = [int(bit) for bit in table]
    for k in range(n_inputs):  # for one input after the other, subtract the value without it
        bit = 1 << (n_inputs - 1 - k)
        values = [v - values[i ^ bit] if i & bit else v for i, v in enumerate(values)]
    coefficients = {}
    for size in range(n_inputs + 1):
        for chosen in combinations(range(n_inputs), size):
            coefficient = values[sum(1 << (n_inputs - 1 - k) for k in chosen)]
            if coefficient:
                coefficients[chosen] = coefficient
    return coefficients


MOST_BITS = 6
SUPPORT = 1e-9  # vertex weights below this fraction of the largest count as zero
LARGEST_DENOMINATOR = 10_000  # of a coefficient, before scaling all to integers

Monomial = tuple[int, ...]


@dataclass(frozen=True)
class ThresholdDegree(ShortRepr):
    """The threshold degree of a function, with proofs of both bounds.

    Attributes:
        table: truth table, as in `probes.estimators.truth_tables`; constants are allowed too.
        degree: the threshold degree.
        polynomial: integer coefficients with the function's signs, by the set of bits: it proves
            that the degree is enough.
        weights: one integer per input in counting order, which prove that one degree less is not
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
        InputError: not a truth table, or one of more than six bits.
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
        raise InputError(f"a truth table must be 2^n zeros and ones, like 0110, not {table!r}")
    n = len(table).bit_length() - 1
    if n > MOST_BITS:
        raise InputError(
            f"the threshold degree can be computed for at most {MOST_BITS} bits, got {n}"
        )
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
    """Integer coefficients with the function's signs: a linear program keeps them few and small."""
    from scipy.optimize import linprog  # takes long to import

    signed = signs(table)[:, None] * monomial_values(n, degree)
    k = signed.shape[1]
    solution = linprog(
        np.ones(2 * k),  # minimize the sum of absolute coefficients
        A_ub=-np.hstack([signed, -signed]),
        b_ub=-np.ones(len(signed)),
        method="highs",
    )
    if solution.x is None:
        return None
    fractions = [
        Fraction(float(x)).limit_denominator(LARGEST_DENOMINATOR)
        for x in solution.x[:k] - solution.x[k:]
    ]
    scale = math.lcm(*(x.denominator for x in fractions))
    coefficients = [int(x * scale) for x in fractions]
    if (signed.astype(object) @ np.array(coefficients, dtype=object)).min() <= 0:
        raise AssertionError(f"{table}: the coefficients do not hold in integers")
    return {m: c for m, c in zip(monomials(n, degree), coefficients, strict=True) if c}


def _weights(table: str, n: int, degree: int) -> Int[np.ndarray, " input"]:
    """Integer weights with equal sums over both classes for every monomial up to the degree."""
    from scipy.optimize import linprog

    signed = signs(table)[:, None] * monomial_values(n, degree)
    solution = linprog(
        np.zeros(len(signed)),
        A_eq=np.vstack([signed.T, np.ones(len(signed))]),
        b_eq=np.eye(signed.shape[1] + 1)[-1],
        method="highs-ds",  # ends at a vertex, whose support determines the solution
    )
    if solution.x is None:
        raise AssertionError(f"{table}: neither a polynomial nor weights of degree {degree}")
    support = np.flatnonzero(solution.x > SUPPORT * solution.x.max())
    weights = np.zeros(len(signed), dtype=np.int64)
    weights[support] = _rational(solution.x[support], signed[support]) or _integers(signed[support])
    if weights.min() < 0 or not weights.any() or (weights @ signed).any():
        raise AssertionError(f"{table}: the weights do not hold in integers")
    return weights


def _rational(
    weights: Float[np.ndarray, " input"], signed: Int[np.ndarray, "input monomial"]
) -> list[int] | None:
    """The rounded weights as coprime positive integers; None unless they are exact."""
    ratios = [Fraction(x).limit_denominator(LARGEST_DENOMINATOR) for x in weights / weights.max()]
    scale = math.lcm(*(x.denominator for x in ratios))
    whole = [int(x * scale) for x in ratios]
    divisor = math.gcd(*whole)
    exact = min(whole) > 0 and not (np.array(whole, dtype=object) @ signed).any()
    return [x // divisor for x in whole] if exact else None


def _integers(signed: Int[np.ndarray, "input monomial"]) -> list[int]:
    """The unique vanishing combination of the rows, as coprime positive integers."""
    from sympy import QQ, ZZ  # half a second to import, and few functions need it
    from sympy.polys.matrices import DomainMatrix

    matrix = DomainMatrix(signed.T.tolist(), signed.T.shape, ZZ).convert_to(QQ)
    [nullvector] = matrix.nullspace().to_list()
    fractions = [Fraction(int(x.numerator), int(x.denominator)) for x in nullvector]
    scale = math.lcm(*(x.denominator for x in fractions))
    whole = [int(x * scale) for x in fractions]
    divisor = math.gcd(*whole) * (1 if whole[0] > 0 else -1)
    return [x // divisor for x in whole]


#: minimal worst error of an affine readout of the AND of two bits, if all four inputs occur
AFFINE = 0.25


@dataclass(frozen=True)
class Epsilon:
    """The errors of readouts of some gates over some inputs.

    Attributes:
        worst: the largest |readout - function|.
        q99: the 99 % quantile of |readout - function| over gates and inputs.
        rms: the root mean square over gates and inputs.
        worst_after_offset: the worst error of all gates, after each gate's readout has been
            scaled and shifted so that its worst error is smallest.
    """

    worst: float
    q99: float
    rms: float
    worst_after_offset: float


def after_offset(
    on_low: Float[np.ndarray, "*gate"],
    on_high: Float[np.ndarray, "*gate"],
    off_low: Float[np.ndarray, "*gate"],
    off_high: Float[np.ndarray, "*gate"],
) -> Float[np.ndarray, "*gate"]:
    """Worst error of each gate after its best gain (>= 0) and bias, from the range of its scores.

    NaN for a gate without scores in one class (pass NaN as that class' range).
    """
    spread = np.maximum(on_high - on_low, off_high - off_low)
    room = (on_low - off_high) + spread
    defined = ~np.isnan(room)
    least = np.full(np.shape(room), 0.5)
    useful = defined & (room > 0)
    least[useful] = np.minimum(0.5, spread[useful] / (2 * room[useful]))
    least[~defined] = np.nan
    return least


def gate_after_offset(
    scores: Float[np.ndarray, "input gate"], truth: Bool[np.ndarray, "input gate"]
) -> Float[np.ndarray, " gate"]:
    """`after_offset` of each gate's scores; NaN for a gate that is constant on the inputs."""
    on, off = np.where(truth, scores, np.nan), np.where(truth, np.nan, scores)
    both = truth.any(axis=0) & ~truth.all(axis=0)
    least = np.full(scores.shape[1], np.nan)
    ranges = [f(side[:, both], axis=0) for side in (on, off) for f in (np.nanmin, np.nanmax)]
    least[both] = after_offset(*ranges)
    return least


def epsilon(
    scores: Float[np.ndarray, "input gate"], truth: Bool[np.ndarray, "input gate"]
) -> Epsilon:
    """The errors of the scores of some gates on some inputs.

    Gates that are constant on the inputs are excluded from `worst_after_offset` only; it is NaN
    if all gates are constant. Raises InputError without inputs or gates.
    """
    if not scores.size:
        raise InputError("there is no readout to measure: no inputs or no gates")
    errors = np.abs(scores - truth)
    least = gate_after_offset(scores, truth)
    defined = least[~np.isnan(least)]
    return Epsilon(
        worst=float(errors.max()),
        q99=float(np.quantile(errors, 0.99)),
        rms=float(np.sqrt(np.mean(errors**2))),
        worst_after_offset=float(defined.max()) if len(defined) else float("nan"),
    )
