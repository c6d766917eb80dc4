"""JSON data from whatever results hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from interp_toolkit.results import jsonable


@dataclass(frozen=True)
class Inner:
    values: np.ndarray
    where: Path


def test_plain_data_from_arrays_tensors_and_dataclasses() -> None:
    value = {
        1: Inner(np.array([1.5, np.nan, np.inf]), Path("a/b")),
        "bf16": torch.tensor([0.5], dtype=torch.bfloat16),
        "flag": np.bool_(True),
        "count": np.int64(3),
        "set": {"x"},
        "none": None,
    }
    assert jsonable(value) == {
        "1": {"values": [1.5, None, None], "where": "a/b"},
        "bf16": [0.5],
        "flag": True,
        "count": 3,
        "set": ["x"],
        "none": None,
    }
    assert jsonable(True) is True
    assert type(jsonable(np.float64(2.0))) is float


def test_what_has_no_json_form_is_refused_rather_than_printed(texts) -> None:
    with pytest.raises(TypeError, match="JSON", check=texts):
        jsonable({"x": object()})
