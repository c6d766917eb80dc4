"""Inputs for a model whose task record says that it computes on sparse boolean inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from interp_toolkit.data.composites import (
    all_composites,
    composite_data,
    count_composites,
    sample_about,
    sample_composites,
)
from interp_toolkit.data.features import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.registry import TaskRecord

#: all inputs are taken where they are fewer
MOST_INPUTS = 20_000


def task_data(
    task: Mapping[str, Any] | None, *, seed: int = 0, most: int = MOST_INPUTS
) -> FeatureData:
    """All inputs with at most so many features on, or a random sample of them, as data.

    Args:
        task: a model's task record; its "n_features" and "most_on" say what the inputs are, its
            "gates", if it has some, what a sample of them is about.
        seed: of the sample.
        most: how many inputs at most.

    Raises:
        InputError: no such record, or sizes that are not there.
    """
    record = TaskRecord.from_json(task)
    n_features, most_on = record.n_features, record.most_on
    if n_features is None or most_on is None:
        raise InputError(
            "no data: this model records no task on sparse boolean inputs, so give prompts "
            "(--data FILE)"
        )
    source = f"with at most {most_on} of {n_features} features on"
    if 1 <= most_on <= n_features and count_composites(n_features, most_on) > most:
        rng = np.random.default_rng(seed)
        if record.gates:
            sample = sample_about(most, record.gates, n_features, most_on, rng)
            return composite_data(sample, most_on, f"{most:,} random inputs about gates, {source}")
        sample = sample_composites(most, n_features, most_on, rng)
        return composite_data(sample, most_on, f"{most:,} random inputs {source}")
    return composite_data(all_composites(n_features, most_on), most_on, f"all inputs {source}")
