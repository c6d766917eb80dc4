"""Closed forms of the paper's remarks against brute force."""

import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from interp_studies.superposition.remarks import (
    bits,
    budgets,
    clique_ratio,
    cliques,
    linear_structure,
    log2_choose,
    product_rms,
    products,
    reader_rms,
    summed_rms,
    unit,
    universal,
    xor_vector,
)
from interp_toolkit.boolean_functions import mobius

HERE = Path()


def rows(outcome):
    return {row["name"]: (row["measured"], row["expected"]) for row in outcome.values["rows"]}


@pytest.mark.parametrize(
    ("weights", "on"),
    [
        ([1, 1, -2, 0, 0, 0], [0, 0, 0, 1, 1, 1]),
        ([1, 1, -2, 0, 0, 0], [1, 0, 0, 1, 1, 0]),
        ([1, 1, -2, 0, 0, 0], [1, 1, 1, 0, 0, 0]),
        ([2, -1, 0.5, 3], [1, 0, 1, 0]),
        ([1], [1]),
    ],
)
def test_the_error_of_a_reader_of_random_vectors(weights, on):
    """Against 20,000 draws of all vectors."""
    rng, d, n = np.random.default_rng(0), 64, 20_000
    weights, on = np.array(weights, float), np.array(on, float)
    vectors = [unit(rng, n, d) for _ in weights]
    reader = sum(w * v for w, v in zip(weights, vectors, strict=True))
    residual = sum(o * v for o, v in zip(on, vectors, strict=True))
    error = (reader * residual).sum(axis=1) - weights @ on
    rms = float(np.sqrt(np.square(error).mean()))
    assert rms == pytest.approx(float(reader_rms(weights, on, d)), rel=0.03, abs=1e-9)


def test_measured_errors_of_the_xor_vector():
    measured = rows(xor_vector(folder=HERE, m=24, d=512, seed=1))
    assert len(measured) == 3
    for found, expected in measured.values():
        assert found == pytest.approx(expected, rel=0.25)


def test_the_xor_vector_without_interference_is_xor():
    for a, b in product([0, 1], repeat=2):
        assert a + b - 2 * (a & b) == a ^ b


@pytest.mark.parametrize("k", [1, 4, 25])
def test_equal_errors_add_and_independent_ones_add_in_squares(k):
    for name, (found, expected) in rows(budgets(folder=HERE, k=k, seed=0)).items():
        assert found == pytest.approx(expected, rel=0.06), name
    assert summed_rms(k, 1 / k, equal=True) == pytest.approx(1)
    assert summed_rms(k, 1 / math.sqrt(k), equal=False) == pytest.approx(1)


def test_every_truth_table_is_the_sum_of_its_ands():
    for code in range(256):
        table = format(code, "08b")
        for number, inputs in enumerate(product([0, 1], repeat=3)):
            value = sum(c * all(inputs[i] for i in s) for s, c in mobius(table).items())
            assert value == int(table[number])


@pytest.mark.parametrize(("k", "m"), [(2, 10), (3, 7)])
def test_functions_of_all_fan_ins(k, m):
    ((found, expected),) = rows(universal(folder=HERE, k=k, m=m, d=2_048, seed=0)).values()
    assert found == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("s", [2, 6])
def test_products_where_neither_is_on(s):
    """The closed form by draws of everything, and the study's row."""
    rng, r, n = np.random.default_rng(0), 48, 20_000
    a = rng.standard_normal(s)
    v, i, j = rng.standard_normal((n, s, r)), unit(rng, n, r), unit(rng, n, r)
    x = np.einsum("s,nsr->nr", a, v / np.linalg.norm(v, axis=2, keepdims=True))
    error = (i * x).sum(1) * (j * x).sum(1)
    # averaged over draws of the vectors, |x|^2 has mean sum of a^2 and its own spread
    spread = np.square(np.square(x).sum(1)).mean() / float(a @ a) ** 2
    rms = float(np.sqrt(np.square(error).mean() / spread))
    assert rms == pytest.approx(product_rms(float(a @ a), r), rel=0.05)
    outcome = products(folder=HERE, m=512, r=256, s=s, seed=0)
    ((found, expected),) = rows(outcome).values()
    assert found == pytest.approx(expected, rel=0.5)


def test_the_noise_of_cliques_is_that_of_their_bigrams():
    d = 96
    for sizes in ([(8, 8)] * 4, [(2, 32)] * 4, [(4, 4), (4, 60)]):
        outcome = cliques(folder=HERE, sizes=sizes, d=d, seed=0)
        ((found, expected),) = rows(outcome).values()
        assert expected == clique_ratio(sizes, d) == d / math.sqrt(outcome.values["bigrams"])
        assert found == pytest.approx(expected, rel=0.25)
        assert outcome.values["over all other pairs"] < found


def test_a_linear_structure_holds_more_bigrams_than_dimensions():
    outcome = linear_structure(folder=HERE, n_a=6, n_b=5, seed=0)
    assert outcome.values["worst"] == 0
    ((found, expected),) = rows(outcome).values()
    pairs = [(x, y) for x in product(range(6), range(5)) for y in product(range(6), range(5))]
    assert found == expected == sum(x[0] == y[0] for x, y in pairs) == 150


def test_bits_name_the_subsets():
    assert log2_choose(10.0, 3.0) == pytest.approx(math.log2(math.comb(10, 3)))
    found = bits(16, 100, 0.25)
    assert found["neurons"] == pytest.approx(100 * math.log2(math.comb(16, 4)))
    n_pairs = len(list(combinations(range(16), 2)))
    subset = (math.lgamma(101) - math.lgamma(7.25) - math.lgamma(94.75)) / math.log(2)
    assert found["pairs"] == pytest.approx(n_pairs * subset)
    assert found["weights"] == 1_600
