"""Random layers: what they hold, the width they need by hand, and the study at small sizes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_studies.claims import JudgedClaim, judge
from interp_studies.jobs.runner import Runner
from interp_studies.open import random_layers as study
from interp_studies.open.random_layers import (
    CLAIMS,
    KINDS,
    layers_job,
    mean_error,
    needed_width,
    width_figure,
    width_table,
)
from interp_toolkit.data.composites import all_composites
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps

NOWHERE = Path("nowhere")


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_has_so_many_neurons(kind: str) -> None:
    x = all_composites(6, 2).astype(float)
    held = KINDS[kind](x, 40, np.random.default_rng(0))
    assert held.shape == (len(x), 40)
    if kind in ("gaussian", "sparse", "squares", "construction"):
        assert held.min() >= 0


def test_squares_are_exact_from_as_many_as_there_are_products() -> None:
    """m (m + 1) / 2 squares of m features span every quadratic function: errors of rounding."""
    m, rng = 7, np.random.default_rng(0)
    on = rng.permutation(all_composites(m, 4))
    width = m * (m + 1) // 2 + 12
    error, read = mean_error(KINDS["squares"](on.astype(float), width, rng), on, 5)
    assert error < 0.05
    assert read == 1


def test_linear_layers_have_a_quarter_at_least() -> None:
    found = layers_job(
        folder=NOWHERE, kind="linear", n_features=9, widths=[30], most_on=3, held_out=5, seed=0
    )
    assert found.values["error"][0] >= 0.25
    assert found.values["read"] == [0.0]


def test_the_needed_width_is_where_a_power_law_crosses() -> None:
    widths = [50, 100, 200, 400]
    errors = [0.5 * (50 / w) ** 0.5 for w in widths]  # a quarter at 200
    assert needed_width(widths, errors) == pytest.approx(200)
    assert needed_width([100, 400], [0.5, 0.125]) == pytest.approx(200)


def test_a_width_outside_the_widths_measured_is_not_made_up() -> None:
    widths = [48, 96, 192, 384, 768]
    assert needed_width(widths, [0.6, 0.55, 0.5, 0.48, 0.47]) == math.inf
    assert needed_width(widths, [0.2, 0.1, 0.1, 0.1, 0.1]) == 0
    assert 48 < needed_width(widths[:3], [0.5, 0.0, 0.0]) < 96
    values = [
        {"kind": kind, "n_features": m, "seed": 0, "widths": [48, 96], "error": errors}
        for kind in KINDS
        for m, errors in ((16, [0.5, 0.2]), (32, [0.5, 0.4] if kind == "gated" else [0.2, 0.1]))
    ]
    found = judge(CLAIMS, study.measures(values))
    assert {f.judgement for f in found if not f.check} == {"undecided"}
    rows = {row[0]: row[1:] for row in width_table(values).rows}
    assert rows["gated"][1] == "above 96"
    assert rows["gaussian"][1] == "below 48"
    by_kind = {trace["name"]: trace for trace in width_figure(values).data}
    assert by_kind["gated"]["y"][1] is None


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
        for kind in KINDS
        for m in study.FEATURES
    ]
    found = study.measures(values)
    assert found["gaussian"] == pytest.approx([1.0])
    assert found["squares"] == pytest.approx([2.0])
    assert found["gaussian beside"] == pytest.approx([2.0])
    assert found["sparse beside"] == pytest.approx([1.5])
    assert found["linear"] == [0.3]
    assert len(judge(CLAIMS, {k: [v[0], v[0] + 0.01] for k, v in found.items()})) == 7


def findings(low: float, high: float) -> list[JudgedClaim]:
    """The study's claims of the interval 0.2 to 0.3, with these ends."""
    return [
        JudgedClaim(f"{i}", (low + high) / 2, low, high, "3 draws", above=0.2, below=0.3)
        for i in range(7)
    ]


def test_the_verdict_says_no_more_than_each_judgement() -> None:
    undecided = study.verdict(findings(-1.0, 1.0))
    assert undecided.count("not known") == 3
    for claim in ("about proportional", "slower", "faster"):
        assert claim not in undecided
        assert claim in study.verdict(findings(0.22, 0.28))
    nothing = [
        JudgedClaim(f"{i}", math.nan, -math.inf, math.inf, "1 draw", above=0.2) for i in range(7)
    ]
    assert "inf" not in study.verdict(nothing)
    assert "nan" not in study.verdict(nothing)


def test_what_holds_by_construction_is_a_check() -> None:
    fitted = {key: [0.9, 1.0] for key in ("gaussian", "construction", "squares", "linear")}
    fitted |= {f"{kind} beside": [1.0, 1.1] for kind in ("gaussian", "gated", "sparse")}
    assert [f.check for f in judge(CLAIMS, fitted)] == [False] * 6 + [True]


def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "FEATURES", (8, 10))
    monkeypatch.setattr(study, "WIDTHS", (24, 48, 96))
    result = find("artefacts", "open/random-layers").run("small", 2, Runner(workers=1))
    assert len(result.claims) == 7
    undecided = [f for f in result.claims if f.judgement == "undecided"]
    assert undecided  # two draws say little
    assert "not known" in result.verdict
    assert "All random layers" not in result.verdict
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "open/random-layers"
