"""Means over seeds and what is said of them; power laws by least squares."""

from __future__ import annotations

import math

import pytest

from interp_studies.claims import (
    JudgedClaim,
    SeedClaim,
    coverage_of_each,
    in_words,
    judged_claim,
    outcome_in_words,
)
from interp_studies.power_law import exponent, exponential_residual, power_residual


def found_in(values, level: float = 0.95, factor: bool = False) -> JudgedClaim:
    """What comes of the claim that the mean lies above 1/2."""
    return judged_claim(SeedClaim("c", values, above=0.5, factor=factor), level)


def test_a_finding_is_the_mean_over_seeds_with_its_interval() -> None:
    found = found_in([1.0, 1.2, 0.8, 1.0], coverage_of_each(3))
    assert found.value == pytest.approx(1.0)
    assert found.judgement == "confirmed"
    wider = found_in([1.0, 1.2, 0.8, 1.0], coverage_of_each(30))
    assert wider.low < found.low < found.high < wider.high
    assert in_words(found).startswith("1.00 (")


def test_factors_are_geometric_means_with_intervals_above_0() -> None:
    """Two seeds' ratios, 1 and 4: on logarithms the interval is far wider than 2, and not below."""
    plain = found_in([1.0, 4.0])
    found = found_in([1.0, 4.0], factor=True)
    assert plain.low < 0 < found.low < 1
    assert found.value == pytest.approx(2.0)
    half = 12.7062 * math.log(4) / 2  # t of one degree of freedom; s / sqrt(2) = ln 4 / 2
    assert found.low == pytest.approx(2 * math.exp(-half), rel=1e-3)
    assert found.high == pytest.approx(2 * math.exp(half), rel=1e-3)


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [1.0, math.inf], [0.0, 1.0]])
def test_what_is_not_known_is_said_to_be(values: list[float], texts) -> None:
    found = found_in(values, factor=True)
    assert found.judgement == "undecided"
    assert in_words(found) == "not known"
    texts(outcome_in_words(found, "it is", "it is not", "What it is"))


def test_a_clause_follows_its_judgement(texts) -> None:
    def clause(*values: float) -> str:
        found = found_in(values)
        return outcome_in_words(found, "it is", "it is not,", "what it is")

    assert clause(1.0, 1.01, 0.99).startswith("it is 1.00 (")
    assert clause(0.1, 0.11, 0.09).startswith("it is not, 0.10 (")
    texts(clause(0.1, 1.0))


def test_laws_leave_nothing_of_what_they_describe() -> None:
    power, doubling = [3.0 * x**1.5 for x in range(2, 7)], [2.0**x for x in range(2, 7)]
    assert exponent(range(2, 7), power) == pytest.approx(1.5)
    assert power_residual(range(2, 7), power) == pytest.approx(0, abs=1e-9)
    assert exponential_residual(range(2, 7), doubling) == pytest.approx(0, abs=1e-9)
    assert power_residual(range(2, 7), doubling) > 0.05
    assert exponential_residual(range(2, 7), power) > 0.05
