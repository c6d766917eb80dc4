"""Stacked circuits: exponents by hand, and the study end to end at small sizes."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_toolkit.registry import find
from interp_toolkit.report.json import dumps
from interp_toolkit.studies.jobs.runner import Runner
from interp_toolkit.studies.open import stacked_errors
from interp_toolkit.studies.open.exponents import exponent
from interp_toolkit.studies.open.finding import coverage_of_each
from interp_toolkit.studies.open.seed_claim import SeedClaim, finding_of, in_words


def made(neurons: float, depth: float, seed: int) -> list[dict]:
    """Errors that follow a power law exactly, in every way and rounding."""
    layers = np.arange(1, 7)
    return [
        {
            "arm": arm,
            "n_neurons": n,
            "seed": seed,
            **{how: (n**neurons * layers**depth).tolist() for how in stacked_errors.ROUNDING},
        }
        for arm in stacked_errors.ARMS
        for n in (100, 400, 1_600)
    ]


def test_exponents_of_exact_power_laws() -> None:
    values = [v for seed, (a, b) in enumerate([(-0.5, 1.2), (-0.3, 0.8)]) for v in made(a, b, seed)]
    found = stacked_errors.fit(values)
    for arm in stacked_errors.ARMS:
        for how in stacked_errors.ROUNDING:
            assert found[arm, how, "neurons"] == pytest.approx([-0.5, -0.3])
            assert found[arm, how, "depth"] == pytest.approx([1.2, 0.8])
    assert exponent([1, 2, 4], [3.0, 6.0, 12.0]) == pytest.approx(1)


def test_a_finding_is_the_mean_over_seeds_with_its_interval() -> None:
    claim = SeedClaim("c", [1.0, 1.2, 0.8, 1.0], above=0.5)
    found = finding_of(claim, coverage_of_each(3))
    assert found.units == "4 seeds"
    assert found.value == pytest.approx(1.0)
    assert found.judgement == "confirmed"
    wider = finding_of(claim, coverage_of_each(30))
    assert wider.low < found.low < found.high < wider.high
    assert in_words(found).startswith("1.00 (")


def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_errors, "NEURONS", (256, 512))
    result = find("artefacts", "open/stacked-errors").run(
        "small", 2, Runner(workers=1, first_seed=5)
    )
    assert len(result.findings) == 6
    assert {v["seed"] for v in result.jobs.values()} == {5, 6}
    assert result.provenance.seed == 5
    assert "Errors grow as a power of the depth" in result.verdict
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "open/stacked-errors"
