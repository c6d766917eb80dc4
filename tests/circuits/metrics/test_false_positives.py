"""Heads whose knockouts do nothing have no causal word: `benchmarks/knockout_calibration.py`."""

import numpy as np
import pytest
from scipy import stats

from interp_toolkit.stats import LEVEL

GROUPS = 60


@pytest.fixture(scope="module")
def study(benchmarks):
    return benchmarks("knockout_calibration")


def test_knockouts_of_nothing_have_no_effect_and_none_is_denied_without_rows(study):
    found = study.words_of_nothing(GROUPS, seed=9)
    assert stats.binom.sf(found["wrong_words"] - 1, GROUPS, LEVEL) > 1e-3, found["wrong"]
    assert {"negligible", "undecided"} <= set(found["words"])


def test_a_knockout_of_nothing_turns_as_many_rows_right_as_wrong(study):
    nothing = study.Nothing(np.random.default_rng(0), 4000, 2, right=0.9, flip=0.1)
    knockout = study.Knockout(frozenset([study.Head(0, 0)]), study.RELATION)
    found = nothing.readings([study.INTACT, knockout], nothing.task.rows)
    lost = (found[study.INTACT] - found[knockout])[:, 0]
    assert np.abs(lost).mean() == pytest.approx(0.1, abs=0.02)
    assert lost.mean() == pytest.approx(0, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("null", ["random_answers", "shuffled", "idle"])
def test_where_there_is_nothing_to_say_no_head_is_named(study, null):
    found = getattr(study, null)(2, seed=11)
    assert found["wrong_models"] == 0, found["wrong"]
    assert found["wrong_words"] == 0, found["wrong"]
    assert found["at_home"] == (2 if null == "idle" else 0)
