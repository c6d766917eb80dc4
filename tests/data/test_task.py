from math import comb

import numpy as np
import pytest

from interp_toolkit.data.composites import task_data
from interp_toolkit.errors import InputError


def test_all_inputs_where_they_are_few():
    data = task_data({"function": "uand", "n_features": 6, "most_on": 2})
    assert len(data) == 1 + 6 + comb(6, 2)
    assert len(np.unique(data.features, axis=0)) == len(data)
    assert data.features.sum(1).max() == 2
    assert data.source == "all inputs with at most 2 of 6 features on"
    assert data.positions.tolist() == [2] * len(data)


def test_a_sample_where_they_are_many():
    task = {"n_features": 40, "most_on": 3}
    data = task_data(task, most=500)
    assert len(data) == 500
    assert set(np.unique(data.features.sum(1))) == {0, 1, 2, 3}
    assert data.source == "500 random inputs with at most 3 of 40 features on"
    assert data.digest() == task_data(task, most=500).digest()
    assert data.digest() != task_data(task, most=500, seed=1).digest()


@pytest.mark.parametrize("task", [None, {}, {"function": "0110"}, {"n_features": 3}])
def test_another_task(task):
    with pytest.raises(InputError, match="this model records no task on sparse boolean inputs"):
        task_data(task)


def test_sizes_that_are_not_there():
    with pytest.raises(InputError, match="3 features cannot be on at once; there are 2"):
        task_data({"n_features": 2, "most_on": 3})
