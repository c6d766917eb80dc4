"""ε after the best gain and bias, against a linear program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from interp_toolkit.boolean_functions import (
    AFFINE,
    after_offset,
    epsilon,
    gate_after_offset,
)
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError

SCORE = st.integers(-5, 5).map(float)


def by_programme(on, off):
    """The least e with |g s + b - truth| <= e for all scores s, over gains g >= 0 and biases b."""
    rows, limits = [], []
    for scores, truth in ((on, 1.0), (off, 0.0)):
        for s in scores:
            rows += [[s, 1, -1], [-s, -1, -1]]
            limits += [truth, -truth]
    bounds = [(0, None), (None, None), (0, None)]
    return linprog([0, 0, 1], rows, limits, bounds=bounds).fun


@settings(max_examples=150)
@given(on=st.lists(SCORE, min_size=1, max_size=5), off=st.lists(SCORE, min_size=1, max_size=5))
def test_the_closed_form_is_the_programme_s_optimum(on, off):
    scores = np.array([*on, *off])[:, None]
    truth = np.array([True] * len(on) + [False] * len(off))[:, None]
    assert gate_after_offset(scores, truth)[0] == pytest.approx(by_programme(on, off), abs=1e-9)


def test_an_affine_readout_has_a_quarter():
    on = all_composites(2, 2)
    scores = on.sum(1, keepdims=True).astype(float)
    found = epsilon(scores, on.all(1, keepdims=True))
    assert found.worst_after_offset == AFFINE
    assert found.worst == 1.0


def test_a_constant_shift_is_halved():
    """Errors from 0 to M above the truth become M/2."""
    assert after_offset(*np.array([1.0, 1.3, 0.0, 0.3])[:, None])[0] == pytest.approx(0.15)


def test_gates_of_one_class_have_no_offset():
    scores = np.array([[0.9, 0.2], [1.2, 0.1]])
    found = gate_after_offset(scores, np.array([[True, False], [True, False]]))
    assert np.isnan(found).all()
    assert epsilon(scores, np.array([[True, False], [True, False]])).worst == pytest.approx(0.2)


def test_all_measures_over_gates_and_inputs():
    rng = np.random.default_rng(0)
    truth = rng.random((50, 7)) < 0.3
    scores = truth + 0.1 * rng.normal(size=truth.shape)
    found = epsilon(scores, truth)
    errors = np.abs(scores - truth)
    assert found.worst == errors.max()
    assert found.rms == pytest.approx(np.sqrt((errors**2).mean()))
    assert found.q99 == pytest.approx(np.quantile(errors, 0.99))
    assert found.worst_after_offset == gate_after_offset(scores, truth).max()


def test_nothing_to_measure_is_said():
    with pytest.raises(InputError, match="no readout"):
        epsilon(np.zeros((0, 2)), np.zeros((0, 2), bool))
