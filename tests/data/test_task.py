from math import comb

import numpy as np
import pytest

from interp_toolkit.data.composites import task_data
from interp_toolkit.errors import InputError


def test_all_inputs_where_they_are_few(texts):
    data = task_data({"function": "uand", "n_features": 6, "most_on": 2})
    assert len(data) == 1 + 6 + comb(6, 2)
    assert len(np.unique(data.features, axis=0)) == len(data)
    assert data.features.sum(1).max() == 2
    texts(data.source)
    assert data.positions.tolist() == [2] * len(data)


def test_a_sample_where_they_are_many(texts):
    task = {"n_features": 40, "most_on": 3}
    data = task_data(task, most=500)
    assert len(data) == 500
    assert set(np.unique(data.features.sum(1))) == {0, 1, 2, 3}
    texts(data.source)
    assert data.digest() == task_data(task, most=500).digest()
    assert data.digest() != task_data(task, most=500, seed=1).digest()


@pytest.mark.parametrize("task", [None, {}, {"function": "0110"}, {"n_features": 3}])
def test_another_task(task, texts):
    with pytest.raises(InputError, check=texts):
        task_data(task)


def test_sizes_that_are_not_there(texts):
    with pytest.raises(InputError, check=texts):
        task_data({"n_features": 2, "most_on": 3})
