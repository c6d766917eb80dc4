"""Gates, inputs about them, and their truth, against plain Python sets."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.gates import (
    all_pairs,
    checked_gates,
    gate_truth,
    inputs_about,
    random_gates,
)


def test_all_pairs_come_in_order() -> None:
    assert all_pairs(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("n_features", "n_gates", "fan_in"), [(9, 30, 2), (9, 84, 3), (500, 90, 4)]
)
def test_random_gates_are_distinct_sets(n_features: int, n_gates: int, fan_in: int) -> None:
    gates = random_gates(n_features, n_gates, fan_in, seed=3)
    assert len({frozenset(gate) for gate in gates}) == n_gates
    assert all(len(set(gate)) == fan_in and set(gate) <= set(range(n_features)) for gate in gates)
    assert gates == random_gates(n_features, n_gates, fan_in, seed=3)
    assert n_gates == comb(n_features, fan_in) or gates != random_gates(
        n_features, n_gates, fan_in, seed=4
    )


def test_random_gates_are_uniform() -> None:
    counts = dict.fromkeys(combinations(range(6), 2), 0)
    for seed in range(3_000):
        for gate in random_gates(6, 3, seed=seed):
            counts[gate] += 1
    expected = 3_000 * 3 / 15  # standard deviation 22
    assert all(abs(n - expected) < 110 for n in counts.values())


def test_truth_is_all_of_the_gate() -> None:
    on = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=bool)
    assert gate_truth(on, [(0, 1), (0, 1, 2)]).tolist() == [
        [True, False],
        [True, True],
        [False, False],
    ]


@pytest.mark.parametrize("n_features", [6, 40])
def test_inputs_about_gates(n_features: int) -> None:
    gates = random_gates(n_features, 6, 2, seed=1) + random_gates(n_features, 6, 3, seed=2)
    gates *= 20
    missing = np.random.default_rng(0).integers(-1, 2, len(gates))
    on = inputs_about(gates, missing, n_features, 5, np.random.default_rng(0))
    for row, gate, place in zip(on, gates, missing, strict=True):
        present = {*gate} - ({gate[place]} if place >= 0 else set())
        assert present <= set(np.flatnonzero(row))
        assert place < 0 or not row[gate[place]]
        assert row.sum() == min(5, n_features - (place >= 0))
    assert on.any(axis=0).all()


@pytest.mark.parametrize(
    ("gates", "fan_in", "complaint"),
    [
        ([], None, "no gates"),
        ([(1, 1)], None, "different features"),
        ([(1,)], None, "different features"),
        ([(1, 2, 3)], 2, "set of 2 different"),
        ([(0, 8)], None, "outside 0..7"),
        ([(-1, 2)], None, "outside 0..7"),
    ],
)
def test_gates_that_are_none(gates: list, fan_in: int | None, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        checked_gates(gates, 8, fan_in=fan_in)


def test_more_gates_than_there_are() -> None:
    with pytest.raises(InputError, match="of 4 features, 1 to 6 are possible"):
        random_gates(4, 7)
    with pytest.raises(InputError, match="fan-in 5"):
        random_gates(4, 1, 5)
