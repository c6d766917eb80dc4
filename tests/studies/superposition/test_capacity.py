"""N_Lp(d): known optima, known bounds, exact probabilities, and the study end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_studies.jobs.runner import Runner
from interp_studies.superposition import capacity as study
from interp_studies.superposition.packing import (
    capacity,
    free_norms,
    interference,
    least_interference,
    random_capacity,
    welch_capacity,
)
from interp_toolkit.report.html import dumps, to_html


def least(n: int, d: int, power: int, relu: bool) -> float:
    generator = torch.Generator().manual_seed(0)
    return least_interference(n, d, power, relu=relu, generator=generator)


def test_interference_by_hand() -> None:
    """Three directions at 0, 60 and 180 degrees, of any length."""
    directions = torch.tensor([[2.0, 0.0], [0.5, math.sqrt(0.75)], [-0.1, 0.0]])
    cosines = [0.5, -1.0, -0.5]
    linear = 2 * sum(abs(c) ** 3 for c in cosines)
    assert interference(directions, 3, relu=False).item() == pytest.approx(linear)
    assert interference(directions, 3, relu=True).item() == pytest.approx(2 * 0.5**3)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_tight_frames_attain_welchs_bound(d: int) -> None:
    for n in (d, d + 1, 2 * d, 3 * d + 1):
        assert least(n, d, 2, relu=False) == pytest.approx(n * n / d - n, abs=1e-3)


def test_known_optimal_directions() -> None:
    for d in (2, 4):  # an orthoplex interferes nowhere under a ReLU
        assert least(2 * d, d, 2, relu=True) == pytest.approx(0, abs=1e-3)
    assert least(6, 3, 4, relu=False) == pytest.approx(30 / 25, abs=1e-3)  # the icosahedron's axes
    assert least(3, 2, 4, relu=False) == pytest.approx(6 / 16, abs=1e-4)  # 60 degrees apart


@pytest.mark.parametrize(("n", "d", "power"), [(9, 3, 4), (20, 4, 4), (14, 3, 6)])
def test_welchs_bound_is_not_undercut(n: int, d: int, power: int) -> None:
    assert least(n, d, power, relu=False) + n >= n * n / welch_capacity(d, power) - 1e-6


def test_welch_capacity_is_one_over_the_mean_power_of_a_cosine() -> None:
    vectors = np.random.default_rng(0).standard_normal((400_000, 5))
    cosines = vectors[:, 0] / np.linalg.norm(vectors, axis=1)
    for power in (2, 4, 6):
        assert 1 / welch_capacity(5, power) == pytest.approx(np.mean(cosines**power), rel=0.03)
    with pytest.raises(ValueError, match="even powers"):
        welch_capacity(5, 3)


@pytest.mark.parametrize(("d", "n"), [(2, 2), (3, 3), (7, 7)])
def test_without_a_relu_the_mean_square_keeps_d(d: int, n: int) -> None:
    found, tried = capacity(d, 2, relu=False, seed=0)
    assert found == n
    assert tried[d] == pytest.approx(-d, abs=1e-3)
    assert list(tried) == sorted(tried)
    assert max(tried) > d


def test_more_are_kept_under_higher_powers_and_a_relu() -> None:
    counts = [capacity(3, p, relu=True, seed=0)[0] for p in (2, 4, 6)]
    assert counts == sorted(set(counts))
    assert counts[0] >= 6
    assert capacity(3, 4, relu=False, seed=0)[0] < counts[1]


def test_random_directions_are_within_epsilon_as_often_as_said() -> None:
    n = round(random_capacity(20, 0.5))
    generator = np.random.default_rng(0)
    pairs = []
    for _ in range(400):
        vectors = generator.standard_normal((n, 20))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        pairs.append((np.abs(np.triu(vectors @ vectors.T, 1)) > 0.5).sum())
    assert np.mean(pairs) == pytest.approx(1, abs=0.3)
    assert random_capacity(1, 0.5) == 1
    rates = [
        math.log(random_capacity(d + 20, 0.5) / random_capacity(d, 0.5)) / 20 for d in (20, 60)
    ]
    assert min(rates) > 0.5**2 / 4


def test_free_norms_are_no_two_groups_at_the_fourth_power() -> None:
    loss, norms = free_norms(24, 3, 4, seed=0, steps=400)
    assert norms.min() > 0.3
    assert loss < -capacity_loss(3, 4)


def capacity_loss(d: int, power: int) -> float:
    """How much the best number of unit directions saves."""
    found, tried = capacity(d, power, relu=True, seed=0)
    return -tried[found]


def test_each_law_is_named_where_it_holds() -> None:
    dimensions = (4, 6, 8, 16, 32)
    shapes = {"a d": lambda d: 2.5 * d, "a d ln d": lambda d: 1.5 * d * math.log(d)}
    for name, law in shapes.items():
        found = study.laws({d: law(d) for d in dimensions})
        assert found[name]["scatter"] == pytest.approx(0, abs=1e-9)
        assert found[name]["a"] == pytest.approx({"a d": 2.5, "a d ln d": 1.5}[name])
    found = study.laws({d: 3 * d**1.2 for d in dimensions})
    assert found["a d^k"]["k"] == pytest.approx(1.2)
    assert min(found, key=lambda name: found[name]["scatter"]) == "a d^k"
    found = study.laws({d: 3 * 1.3**d for d in dimensions})
    assert found["a g^d"]["g"] == pytest.approx(1.3)
    assert min(found, key=lambda name: found[name]["scatter"]) == "a g^d"
    assert study.laws({4: 1.0, 8: 2.0, 9: 3.0}) == {}


def test_the_scatter_is_of_what_the_other_dimensions_foretell() -> None:
    """By fitting anew without each; a law within another need not be the worse of the two."""
    rng = np.random.default_rng(3)
    d = np.array([4, 6, 8, 12, 16, 24])
    n = 2 * d * np.exp(rng.normal(0, 0.2, len(d)))
    found = study.laws(dict(zip(d.tolist(), n.tolist(), strict=True)))
    plain, power = [], []
    for out in range(len(d)):
        kept = np.arange(len(d)) != out
        plain.append(np.log(n / d)[out] - np.log(n / d)[kept].mean())
        line = np.polyfit(np.log(d[kept]), np.log(n[kept]), 1)
        power.append(np.log(n[out]) - np.polyval(line, np.log(d[out])))
    for name, errors in (("a d", plain), ("a d^k", power)):
        assert found[name]["scatter"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert found["a d"]["scatter"] < found["a d^k"]["scatter"]


def test_the_verdict_says_what_the_counts_show(texts) -> None:
    dimensions = (4, 6, 8, 16, 32)
    powers = {2: {d: 2.0 * d for d in dimensions}, 4: {d: 3.0 * d**2 for d in dimensions}}
    texts(study.judgement(powers))
    steep = powers | {4: {d: 1.5**d for d in dimensions}, 8: {4: 9.0}}
    said = study.judgement(steep)
    texts(said)
    rising = {2: {d: float(d) ** 1.8 for d in dimensions}}
    texts(study.judgement(rising))
    assert study.judgement({4: steep[4]}) == ""


def test_what_the_conjecture_would_look_like() -> None:
    """One exponential for all p, and polynomials that leave it: seen where they are."""
    exponential = {d: 2.0**d for d in (2, 3, 4, 6, 8)}
    by_power = {
        p: {d: min(n, float(d**k)) for d, n in exponential.items()} for p, k in ((2, 1), (4, 4))
    }
    by_power[8] = exponential
    assert study.alike(by_power) == [(2, 4, 8), (3, 4, 8), (4, 4, 8), (6, 4, 8), (8, 4, 8)]
    assert study.still_exponential(exponential)
    assert not study.still_exponential({d: float(d**2) for d in (2, 3, 4, 6, 8)})


@pytest.mark.slow
def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    monkeypatch.setattr(study, "DIMENSIONS", {"small": {2: (2, 4), 4: (2, 4)}})
    monkeypatch.setattr(study, "FREE_D", 2)
    monkeypatch.setattr(study, "FREE_N", 8)
    result = study.CAPACITY.run("small", 1, Runner(tmp_path, workers=1))
    by_name = {(q.of, q.name): q for q in result.quantities}
    assert [by_name["p = 2, linear", f"N at d = {d}"].median for d in (2, 4)] == [2, 4]
    texts(by_name["p = 4, linear", "N at d = 4"].remark)
    assert all(q.reached is None for q in result.quantities)
    assert result.evidence.growth["linear"] == {"2": None, "4": None}
    assert result.evidence.tight_frames is True
    kept = result.jobs["relu-p4-d4-seed-0"]["N"]
    assert "With a ReLU, 4 dimensions keep" in result.verdict
    assert f"{kept} at p = 4" in result.verdict
    texts(result.verdict)
    assert len(result.figures()) == 4
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == "superposition/capacity"
    assert "Growth" in to_html([result])
