"""Figures of the analyses on toys: plotly knows all that is in them, and JSON holds them.

Universal AND, which takes longer, has its own test beside its analysis.
"""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

import interp_toolkit as it
from interp_toolkit.results import jsonable

RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("xor-2head", "xor", {}),
    ("xor-1head", "xor", {}),
    ("induction", "heads", {}),
    ("induction", "circuit", {}),
    ("induction", "qk", {}),
    ("induction", "ov", {"layer": 1, "head": 0}),
    ("induction-trained", "composition", {}),
    ("induction-trained", "collapse", {}),
    ("sort-causal-trained", "sorting", {}),
    ("skip-bigrams", "skip-bigrams", {}),
]


@pytest.mark.parametrize(("toy", "probe", "options"), RUNS, ids=[f"{p}-{t}" for t, p, _ in RUNS])
def test_plotly_takes_every_figure(toy: str, probe: str, options: dict[str, Any]) -> None:
    figures = it.analyze(f"toy:{toy}", probe, **options).figures()
    assert figures
    for figure in figures:
        plain = json.loads(json.dumps(jsonable(figure), allow_nan=False))
        drawn = go.Figure(data=plain["data"], layout=plain["layout"])
        assert len(drawn.data) == len(figure.data)
