"""`make calibrate` on fewer models: p-values are small as often as they say, and it would tell."""

import numpy as np
import pytest
from scipy import stats

#: with how many draws: those of universal keys are cheap, and their p-values in large steps
NULLS = {"composition": 60, "own-token": 60, "roles": 60, "skip-bigrams": 60, "universal-keys": 600}


@pytest.fixture(scope="module")
def calibration(benchmarks):
    return benchmarks("calibration")


@pytest.mark.parametrize("name", NULLS)
def test_small_p_values_are_no_more_frequent_than_they_say(calibration, name):
    found = {}
    for values in calibration.NULLS[name](NULLS[name]):
        for null, p in values.items():
            found.setdefault(null, []).append(p)
    for null, p in found.items():
        assert len(p) == NULLS[name]
        for level in calibration.LEVELS:
            few = int((np.array(p) <= level).sum())
            assert stats.binom.sf(few - 1, len(p), level) > 1e-3, (null, level)


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


def test_verdicts_of_whole_analyses_are_counted(calibration):
    found = list(calibration.verdicts(1))
    assert all(one.keys() == set(calibration.WHOLE) for one in found)
    every = [dict.fromkeys(calibration.WHOLE, word) for word in ("detected", "undecided", "absent")]
    for name, models, share, words in calibration.counted(every):
        assert name in calibration.WHOLE
        assert models == 3
        assert share.startswith("0.333 (0.008 to 0.906)")
        assert words == "detected 1, undecided 1, absent 1"
