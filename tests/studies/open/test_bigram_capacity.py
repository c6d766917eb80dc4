"""Trained bigram heads: measures by hand, training that learns, and the study at small sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_studies.claims import JudgedClaim, judge
from interp_studies.jobs.runner import Runner
from interp_studies.open import bigram_capacity as study
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps


def test_auc_within_queries_by_hand() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0], [1.0, 1.0, 1.0]]).double()
    present = torch.tensor([[True, False, False], [False, True, False], [False, False, False]])
    found = study.quality(scores, present)
    assert found["auc"] == pytest.approx((1.0 + 0.75) / 2)  # above both; above one, even with one
    outside = np.array([1.0, 2.0, 0.0, 5.0, 1.0, 1.0, 1.0])
    assert found["ratio"] == pytest.approx((4.0 - outside.mean()) / outside.std())


def test_the_capacity_is_where_the_auc_crosses() -> None:
    loads = [0.25, 0.5, 1.0]
    assert study.capacity(loads, [1.0, 0.95, 0.9]) == pytest.approx(0.5)
    assert study.capacity(loads, [0.99, 0.97, 0.93]) == pytest.approx(0.5 * 2**0.5)
    assert study.capacity(loads, [1.0, 0.99, 0.97]) == 1.0
    assert study.capacity(loads, [0.9, 0.99, 0.97]) == 0.25


def test_training_beats_the_construction_where_it_is_full() -> None:
    given = {"sizes": (16, 4, 40), "steps": 250, "rate": 0.02, "others": 5.0}
    values = study.trained_job(folder=Path("x"), load=0.5, seed=0, **given).values
    assert values["n"] == 32
    for name in ("logistic", "attention"):
        assert values[name]["auc"] > values["svd"]["auc"] + 0.02


def findings(low: float, high: float) -> list[JudgedClaim]:
    """The study's claims of the interval 0.2 to 0.3, with these ends."""
    return [
        JudgedClaim(f"{i}", (low + high) / 2, low, high, "3 draws", above=0.2, below=0.3)
        for i in range(5)
    ]


def test_the_verdict_says_no_more_than_each_judgement(texts) -> None:
    undecided = study.verdict(findings(-1.0, 1.0))
    texts(undecided)
    assert undecided.count("not known") == 5
    texts(study.verdict(findings(0.22, 0.28)))
    texts(study.verdict(findings(0.0, 0.1)))
    mixed = [*findings(0.22, 0.28)[:2], *findings(-1.0, 1.0)[2:]]
    texts(study.verdict(mixed))


def test_capacities_and_ratios_stay_above_0() -> None:
    fitted = {"full": [0.9, 0.95]}
    for key in ("svd", "logistic beside", "attention beside", "gain"):
        fitted[key] = [0.2, 2.0]
    for found in judge(study.CLAIMS, fitted)[:4]:
        assert 0 < found.low < found.high
        assert found.value == pytest.approx(0.4**0.5)


def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch, texts) -> None:
    for name, value in (("D_MODEL", 12), ("D_HEAD", 4), ("FEATURES", 30), ("STEPS", 30)):
        monkeypatch.setattr(study, name, value)
    result = find("artefacts", "open/bigram-capacity").run("small", 2, Runner(workers=1))
    assert len(result.claims) == 5
    texts(result.verdict)
    undecided = sum(f.judgement == "undecided" for f in result.claims)
    assert undecided > 0  # two sets of bigrams say little
    assert result.verdict.count("not known") == undecided
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "open/bigram-capacity"
