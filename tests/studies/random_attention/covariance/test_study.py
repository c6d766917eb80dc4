"""The study of theorem 2.1, end to end on few draws, and what it says of the exact gap."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.covariance import study
from interp_studies.random_attention.covariance.recursion import MixingLaw
from interp_toolkit.report.html import dumps, to_html


def test_gap_and_its_exponent() -> None:
    gaps = {n: study.gap(MixingLaw(), n) for n in (64, 128, 256, 512)}
    np.testing.assert_allclose(list(gaps.values()), [0.042, 0.021, 0.011, 0.0054], atol=5e-4)
    assert study.slope(gaps) == pytest.approx(-1, abs=0.02)
    assert study.slope({10: 0.3, 100: 0.003}) == pytest.approx(-2)


def test_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = study.CovarianceSizes((32, 64, 128), 32, 400, 60, 1)
    monkeypatch.setitem(study.PRESETS, "small", sizes)
    result = study.SDE.run("small", 1, Runner(tmp_path, workers=1))
    named = {(q.of, q.name): q for q in result.quantities}
    exponent = named["network, exact: full", "exponent of n in the gap"]
    assert exponent.reached
    assert exponent.expected == (-1, -1)
    means = [q for (_, name), q in named.items() if name.startswith("mean of Tr")]
    assert len(means) == 27
    assert all(q.reached for q in means)
    printed = {row[0]: row[1:] for row in result.details[1].rows}
    start, as_printed, derived, network = printed["Φ12"]
    assert as_printed > start + 0.3
    assert derived == pytest.approx(start)
    assert network == pytest.approx(start)
    growth = [row[3] for row in result.details[2].rows]
    assert growth == sorted(growth)
    assert growth[-1] > 100
    assert "omits" in result.verdict
    assert json.loads(dumps([result]))["results"][0]["evidence"]["slopes"].keys() == set(
        study.KINDS
    )
    assert len(result.figures()) == 4
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    page = to_html([result])
    assert "The three variances" in page
    assert "Exact beside ours" in page
    again = study.SDE.run("small", 1, Runner(tmp_path, workers=1, resume=True))
    assert again.quantities == result.quantities
