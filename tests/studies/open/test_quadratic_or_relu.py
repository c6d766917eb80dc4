"""Squares against ReLUs: equal neurons, known layers, and the study at small sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_studies.claims import JudgedClaim
from interp_studies.jobs.runner import Runner
from interp_studies.open import quadratic_or_relu as study
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps

GIVEN = {"most_on": 3, "most_inputs": 12_000, "held_out": 5, "connected": 1.5}


def test_all_layers_have_as_many_neurons_and_squares_span_products() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 5))
    found = study.layers(x, np.eye(5), 1.5, rng)
    assert set(found) == set(study.LAYERS)
    assert {held.shape[1] for held in found.values()} == {15}
    for name in ("squares", "random squares"):
        fitted = np.linalg.lstsq(found[name], x[:, 1] * x[:, 3], rcond=None)[0]
        np.testing.assert_allclose(found[name] @ fitted, x[:, 1] * x[:, 3], atol=1e-8)


def test_with_an_axis_a_feature_squares_are_all_but_exact() -> None:
    values = study.compared_job(folder=Path("x"), dim=8, load=1.0, seed=0, **GIVEN).values
    assert values["n_features"] == 8
    assert values["squares"]["rms"] < values["relu"]["rms"]
    assert values["squares"]["read"] > 0.9


def test_ratios_are_geometric_means_over_widths() -> None:
    values = [
        {
            "dim": dim,
            "load": load,
            "seed": 0,
            "squares": {"rms": squares, "read": 0.9},
            "random squares": {"rms": squares, "read": 0.9},
            "relu": {"rms": 1.0, "read": 0.5},
        }
        for dim, squares in ((12, 0.25), (16, 1.0))
        for load in study.LOADS
    ]
    found = study.measures(values)
    assert found["squares 1"] == pytest.approx([0.5])
    assert found["random 1.5"] == pytest.approx([1.0])
    assert found["gap 1"] == pytest.approx([0.4])


def findings(low: float, high: float) -> list[JudgedClaim]:
    """The study's claims of the interval 0.2 to 0.3, with these ends."""
    return [
        JudgedClaim(f"{i}", (low + high) / 2, low, high, "3 draws", above=0.2, below=0.3)
        for i in range(5)
    ]


def test_the_verdict_says_no_more_than_each_judgement(texts) -> None:
    undecided = study.verdict(findings(-1.0, 1.0))
    assert undecided.count("not known") == 5
    assert "squares have less" not in undecided
    assert "not known" not in study.verdict(findings(0.22, 0.28))
    texts(study.verdict(findings(0.4, 0.5)))


def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "DIMS", (5, 6))
    result = find("artefacts", "open/quadratic-or-relu").run("small", 2, Runner(workers=1))
    assert len(result.claims) == 5
    undecided = sum(f.judgement == "undecided" for f in result.claims)
    assert undecided > 0  # two draws say little
    assert result.verdict.count("not known") == undecided
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "open/quadratic-or-relu"
