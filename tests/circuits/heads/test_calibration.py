"""Detections are right: no head of an untrained model, every planted head and no other.

The study of `benchmarks/head_calibration.py`, on fewer models; its docstring says what is drawn.
"""

import pytest
from scipy import stats

from interp_toolkit.stats import LEVEL


@pytest.fixture(scope="module")
def study(benchmarks):
    return benchmarks("head_calibration")


@pytest.mark.slow
def test_untrained_models_have_no_heads(study):
    found = study.untrained(40, 1.0, seed=7)
    assert found["models"] == 40
    assert stats.binom.sf(found["wrong_models"] - 1, 40, LEVEL) > 1e-3, found["wrong"]


@pytest.mark.slow
def test_planted_heads_are_found_and_no_others(study):
    found = study.full_strength(25, seed=8)
    assert found["planted"] > 25
    assert found["found"] == found["planted"], found["missed"]
    assert stats.binom.sf(found["wrong_models"] - 1, 25, LEVEL) > 1e-3, found["wrong"]


@pytest.mark.slow
def test_power_rises_from_nothing_to_all(study, monkeypatch):
    monkeypatch.setattr(study, "STRENGTHS", (0.0, 1.0))
    for kind, (none, full) in study.power(2).items():
        assert none == 0, kind
        assert full == 1, kind


def test_the_bound_is_clopper_and_pearsons(study):
    assert study.upper_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert study.upper_bound(3, 50) == pytest.approx(
        stats.binomtest(3, 50).proportion_ci(0.9, method="exact").high
    )
    assert study.upper_bound(5, 5) == 1.0
