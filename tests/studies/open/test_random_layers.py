"""Random layers: what they hold, the width they need by hand, and the study at small sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_toolkit.data.composites import all_composites
from interp_toolkit.registry import find
from interp_toolkit.report.json import dumps
from interp_toolkit.studies.jobs.runner import Runner
from interp_toolkit.studies.open import random_layers as study

NOWHERE = Path("nowhere")


@pytest.mark.parametrize("kind", list(study.KINDS))
def test_every_kind_has_so_many_neurons(kind: str) -> None:
    x = all_composites(6, 2).astype(float)
    held = study.KINDS[kind](x, 40, np.random.default_rng(0))
    assert held.shape == (len(x), 40)
    if kind in ("gaussian", "sparse", "squares", "construction"):
        assert held.min() >= 0


def test_squares_are_exact_from_as_many_as_there_are_products() -> None:
    """m (m + 1) / 2 squares of m features span every quadratic function: errors of rounding."""
    m, rng = 7, np.random.default_rng(0)
    on = rng.permutation(all_composites(m, 4))
    width = m * (m + 1) // 2 + 12
    error, read = study.mean_error(study.KINDS["squares"](on.astype(float), width, rng), on)
    assert error < 0.05
    assert read == 1


def test_linear_layers_have_a_quarter_at_least() -> None:
    found = study.layers_job(folder=NOWHERE, kind="linear", n_features=9, widths=[30], seed=0)
    assert found.values["error"][0] >= 0.25
    assert found.values["read"] == [0.0]


def test_the_needed_width_is_where_a_power_law_crosses() -> None:
    widths = [50, 100, 200, 400]
    errors = [0.5 * (50 / w) ** 0.5 for w in widths]  # a quarter at 200
    assert study.needed_width(widths, errors) == pytest.approx(200)
    assert study.needed_width(widths[:2], errors[:2]) == pytest.approx(200)
    assert study.needed_width([*widths[3:], 800], [0.1, 0.05]) == pytest.approx(160)


def test_exponents_and_ratios_are_taken_by_seed() -> None:
    def error(kind: str, m: int, width: int) -> float:
        needed = {"sparse": 15.0, "gaussian": 10.0, "gated": 12.0, "squares": 1.0}.get(kind, 5.0)
        needed *= m**2 if kind == "squares" else m
        return 0.25 * (needed / width) ** 0.7

    values = [
        {
            "kind": kind,
            "n_features": m,
            "seed": 3,
            "widths": [50, 100, 400, 3_000],
            "error": [0.3]
            if kind == "linear"
            else [error(kind, m, w) for w in (50, 100, 400, 3_000)],
        }
        for kind in study.KINDS
        for m in study.FEATURES
    ]
    found = study.fit(values)
    assert found["gaussian"] == pytest.approx([1.0])
    assert found["squares"] == pytest.approx([2.0])
    assert found["gaussian beside"] == pytest.approx([2.0])
    assert found["sparse beside"] == pytest.approx([1.5])
    assert found["linear"] == [0.3]
    assert len(study.judge({k: [v[0], v[0] + 0.01] for k, v in found.items()})) == 7


def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "FEATURES", (8, 10))
    monkeypatch.setattr(study, "WIDTHS", (24, 48, 96))
    result = find("artefacts", "open/random-layers").run("small", 2, Runner(workers=1))
    assert len(result.findings) == 7
    assert "All random layers with a nonlinearity do" in result.verdict
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "open/random-layers"
