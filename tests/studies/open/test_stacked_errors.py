"""Stacked circuits: exponents by hand, and the study end to end at small sizes."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_studies.claims import JudgedClaim
from interp_studies.jobs.runner import Runner
from interp_studies.open import stacked_errors
from interp_studies.power_law import exponent
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps


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
    found = stacked_errors.measures(values)
    for arm in stacked_errors.ARMS:
        for how in stacked_errors.ROUNDING:
            assert found[arm, how, "neurons"] == pytest.approx([-0.5, -0.3])
            assert found[arm, how, "depth"] == pytest.approx([1.2, 0.8])
    assert exponent([1, 2, 4], [3.0, 6.0, 12.0]) == pytest.approx(1)


def test_which_law_fits_is_told_by_residuals() -> None:
    """Exact powers have none about a power; exact doubling has none about a factor a layer."""
    powers = [v for seed in (0, 1) for v in made(-0.5, 1.2 + seed / 10, seed)]
    doubling = [
        v | {how: (2.0 ** np.arange(6)).tolist() for how in stacked_errors.ROUNDING} for v in powers
    ]
    logs, depth = np.log(2.0) * np.arange(5), np.log(np.arange(2, 7))
    about = logs - np.polyval(np.polyfit(depth, logs, 1), depth)
    for values, expected in ((powers, None), (doubling, np.sqrt(np.mean(about**2)))):
        law = stacked_errors.measures(values)[stacked_errors.RANDOM, "plain", "law"]
        if expected is None:
            assert max(law) < -0.01
        else:
            assert law == pytest.approx([expected, expected])


def findings(low: float, high: float) -> list[JudgedClaim]:
    """Seven claims of the interval 0.2 to 0.3, with these ends."""
    return [
        JudgedClaim(f"{i}", (low + high) / 2, low, high, "3 circuits", above=0.2, below=0.3)
        for i in range(7)
    ]


def test_the_verdict_says_no_more_than_each_judgement(texts) -> None:
    undecided = stacked_errors.verdict(findings(-1.0, 1.0))
    assert undecided.count("not known") == 7
    for claim in ("falls about", "do not help", "it grows from layer", "fits better"):
        assert claim not in undecided
    confirmed = stacked_errors.verdict(findings(0.22, 0.28))
    assert "not known" not in confirmed
    texts(confirmed)
    texts(stacked_errors.verdict(findings(0.4, 0.5)))
    texts(stacked_errors.verdict(findings(-0.4, -0.3)))


def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_errors, "NEURONS", (256, 512))
    result = find("artefacts", "open/stacked-errors").run(
        "small", 2, Runner(workers=1, first_seed=5)
    )
    assert len(result.claims) == 7
    assert {v["seed"] for v in result.jobs.values()} == {5, 6}
    assert result.provenance.seed == 5
    undecided = sum(f.judgement == "undecided" for f in result.claims)
    assert undecided > 0  # two circuits say little
    assert result.verdict.count("not known") >= undecided
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "open/stacked-errors"
