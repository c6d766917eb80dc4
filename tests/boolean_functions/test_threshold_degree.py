"""Threshold degrees against counts from the literature, symmetry and exact witnesses."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.boolean_functions import ThresholdDegree, threshold_degree
from interp_toolkit.errors import InputError

tables = st.integers(1, 4).flatmap(lambda n: st.text("01", min_size=2**n, max_size=2**n))


def value(polynomial: dict[tuple[int, ...], int], bits: tuple[int, ...]) -> int:
    return sum(c * all(bits[i] for i in m) for m, c in polynomial.items())


def check_witnesses(found: ThresholdDegree) -> None:
    """Both witnesses, by nothing but integer arithmetic."""
    n = len(found.table).bit_length() - 1
    inputs = list(itertools.product((0, 1), repeat=n))
    for bits, truth in zip(inputs, found.table, strict=True):
        p = value(dict(found.polynomial), bits)
        assert p != 0
        assert (p > 0) == (truth == "1")
    assert max((len(m) for m in found.polynomial), default=0) <= found.degree
    if found.degree == 0:
        assert found.weights is None
        return
    weights = [Fraction(int(w)) for w in found.weights]
    assert min(weights) >= 0
    assert sum(weights) > 0
    for size in range(found.degree):
        for monomial in itertools.combinations(range(n), size):
            balance = sum(
                (1 if truth == "1" else -1) * w * all(bits[i] for i in monomial)
                for bits, truth, w in zip(inputs, found.table, weights, strict=True)
            )
            assert balance == 0


def test_as_many_threshold_functions_as_the_literature_counts() -> None:
    """4, 14 and 104 of one, two and three bits (OEIS A000609); parity alone needs all bits."""
    for n, linear in ((1, 4), (2, 14), (3, 104)):
        found = [threshold_degree(format(i, f"0{2**n}b")) for i in range(2 ** (2**n))]
        counts = Counter(f.degree for f in found)
        assert counts[0] + counts[1] == linear
        assert counts[n] == 2
    for f in found:
        check_witnesses(f)


@settings(max_examples=60)
@given(tables)
def test_witnesses_hold_in_integers(table: str) -> None:
    check_witnesses(threshold_degree(table))


@settings(max_examples=40)
@given(tables, st.randoms(use_true_random=False))
def test_names_and_signs_of_bits_do_not_matter(table: str, random) -> None:
    n = len(table).bit_length() - 1
    order = random.sample(range(n), n)
    flipped = [random.random() < 0.5 for _ in range(n)]
    other = "".join(
        table[sum((bits[order[k]] ^ flipped[k]) << (n - 1 - k) for k in range(n))]
        for bits in itertools.product((0, 1), repeat=n)
    )
    negated = other.translate(str.maketrans("01", "10"))
    degree = threshold_degree(table).degree
    assert threshold_degree(other).degree == degree
    assert threshold_degree(negated).degree == degree


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_functions_of_the_number_of_bits_have_as_many_degrees_as_changes_of_sign(n: int) -> None:
    rng = np.random.default_rng(n)
    for counts in ([s % 2 for s in range(n + 1)], *rng.integers(0, 2, (4, n + 1)).tolist()):
        table = "".join(str(counts[index.bit_count()]) for index in range(2**n))
        changes = sum(a != b for a, b in itertools.pairwise(counts))
        found = threshold_degree(table)
        assert found.degree == changes
        check_witnesses(found)


@pytest.mark.parametrize("table", ["", "011", "01x0", "0" * 128])
def test_what_is_no_table_is_said_in_a_line(table: str) -> None:
    with pytest.raises(InputError):
        threshold_degree(table)
