"""`make calibrate` on fewer models: p-values are small as often as they say, and it would tell."""

import numpy as np
import pytest
from scipy import stats


@pytest.fixture(scope="module")
def calibration(benchmarks):
    return benchmarks("calibration")


@pytest.mark.parametrize("name", ["composition", "own-token", "roles", "skip-bigrams"])
def test_small_p_values_are_no_more_frequent_than_they_say(calibration, name):
    draw, _ = calibration.NULLS[name]
    found = {}
    for values in draw(60):
        for null, p in values.items():
            found.setdefault(null, []).append(p)
    for null, p in found.items():
        assert len(p) == 60
        few = int((np.array(p) <= 0.05).sum())
        assert stats.binom.sf(few - 1, len(p), 0.05) > 1e-3, null


def test_p_values_that_are_too_small_are_told(calibration):
    p = np.random.default_rng(0).random(500)
    assert calibration.judged("skip-bigrams", list(p))["too small"] > 0.01
    squared = calibration.judged("skip-bigrams", list(p**2))
    assert squared["too small"] < 1e-6
    assert squared["uniform"] < 1e-6
    share, low, high = squared["at most 0.05"]
    assert low > 0.05
    assert low < share < high
    conservative = calibration.judged("skip-bigrams", list(np.sqrt(p)))
    assert conservative["too small"] > 0.5
    assert conservative["uniform"] < 1e-6
