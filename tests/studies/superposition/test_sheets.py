"""Stacking and skip-bigrams: what is measured, against counts and closed forms; the pages."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.superposition import skip_bigrams, stacking
from interp_toolkit.data.composites import sample_composites
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.toys.superposition.constructions.stacked import random_circuit

NOWHERE = Path("nowhere")
SMALL = {"folder": NOWHERE, "n_neurons": 256, "depth": 3, "n_inputs": 40}
SMALL |= {"n_features": 64, "per_gate": 8, "most_on": 3}


def stacked(arm: str, seed: int) -> dict:
    """What a small circuit of this way found."""
    axes, spread = stacking.ARMS[arm]
    return stacking.stacked_job(arm=arm, axes=axes, spread=spread, seed=seed, **SMALL).values


def check_page(result: object) -> None:
    """Its figures are plotly's, its JSON is whole, its page has its tables."""
    assert result.figures()
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == result.probe
    assert "Every seed" in to_html([result])


def test_a_stacked_circuit_keeps_about_as_many_features_on() -> None:
    values = stacked("own axes", 1)
    plan = random_circuit(stacking.FEATURES, [stacking.FEATURES] * 3, xor_share=0.5, seed=1)
    on = sample_composites(40, stacking.FEATURES, stacking.MOST_ON, np.random.default_rng(1))
    counts = np.zeros(40)
    for function in plan[0]:
        first, second = on[:, function.features[0]], on[:, function.features[1]]
        counts += first ^ second if function.table == "0110" else first & second
    assert values["on"][0] == pytest.approx(float(counts.mean()))
    assert len(values["plain"]) == len(values["rounded"]) == 3
    assert values["plain"][0] == pytest.approx(values["rounded"][0])


def test_the_first_layer_is_the_same_in_all_ways_and_superposition_costs() -> None:
    found = {arm: stacked(arm, 2) for arm in stacking.ARMS}
    first = [v["plain"][0] for v in found.values()]
    assert first == pytest.approx([first[0]] * len(first), rel=1e-9)
    own, random, spread = (v["plain"][2] for v in found.values())
    assert own < spread < random


def test_random_bigrams_have_the_closed_forms_noise() -> None:
    found = skip_bigrams.random_job(folder=NOWHERE, load=1.0, seed=0, sizes=(48, 16, 200)).values
    assert found["n"] == 768
    assert found["projected_ratio"] == pytest.approx(found["projected_expected"], rel=0.15)
    assert found["svd_ratio"] > found["projected_ratio"]


def test_few_cliques_are_exact_up_to_interference() -> None:
    """One clique of one pair: signal 1, noise the inner products' product, about 1/d."""
    sizes = {"n_keys": 1, "n_queries": 1, "rank": 2, "d_model": 200}
    found = skip_bigrams.clique_job(folder=NOWHERE, seed=0, **sizes).values
    assert found["n"] == 2
    assert found["exact_signal"] == pytest.approx(1, abs=0.05)
    assert found["source_noise"] == pytest.approx(math.sqrt(2) / 200)
    assert found["exact_auc"] == 1


def test_the_identity_needs_no_more_rank_for_more_features() -> None:
    few, many = (
        skip_bigrams.identity_job(
            folder=NOWHERE, n_features=m, d_model=64, d_head=16, seed=0
        ).values["projection_ratio"]
        for m in (100, 600)
    )
    assert few == pytest.approx(many, rel=0.1)
    assert many == pytest.approx(math.sqrt(16 * 64 / (64 - 16 + 16)), rel=0.3)


def test_the_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stacking, "NEURONS", (256, 512))
    page = find("artefacts", "superposition/stacking").run("small", 1, Runner(workers=1))
    check_page(page)
    assert "spread f-vectors" in page.verdict
    monkeypatch.setattr(skip_bigrams, "FEATURES", 150)
    monkeypatch.setattr(skip_bigrams, "D_MODEL", 32)
    monkeypatch.setattr(skip_bigrams, "D_HEAD", 8)
    monkeypatch.setattr(skip_bigrams, "CLIQUE_SIZES", (4, 8))
    monkeypatch.setattr(skip_bigrams, "LONE_SIZES", (8, 32))
    monkeypatch.setattr(skip_bigrams, "IDENTITIES", (32, 64))
    page = find("artefacts", "superposition/skip-bigrams").run("small", 2, Runner(workers=1))
    check_page(page)
    by_name = {(q.of, q.name): q.median for q in page.quantities}
    ratios = [by_name["random, SVD", f"signal / noise at load = {x:g}"] for x in skip_bigrams.LOADS]
    assert ratios == sorted(ratios, reverse=True)
