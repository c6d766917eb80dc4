"""The superposition study: what each part measures, and how it is held against what is expected."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.superposition import jobs, study
from interp_studies.superposition.settings import SETTINGS
from interp_toolkit.data.composites import all_composites
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.toys.superposition.constructions.uand import universal_and

NOWHERE = Path("nowhere")


def test_the_affine_readout_has_a_quarter() -> None:
    values = jobs.affine(folder=NOWHERE, n_features=5, most_on=3, seed=0).values
    assert values["worst"] == pytest.approx(0.25, abs=1e-9)
    assert values["worst_without_bias"] == pytest.approx(1 / 3, abs=1e-9)


@pytest.mark.parametrize("fan_in", [2, 3, 4])
def test_the_affine_error_of_any_fan_in_is_the_programmes(fan_in: int) -> None:
    inputs = all_composites(5, fan_in).astype(float)
    truth = inputs[:, :fan_in].prod(axis=1)
    least = jobs._minimax(np.column_stack([inputs, np.ones(len(inputs))]), truth)
    assert least == pytest.approx(study.affine_error(fan_in), abs=1e-9)


def test_universal_and_by_brute_force() -> None:
    sizes = {"n_features": 21, "n_neurons": 300, "density": 0.3}
    values = jobs.universal(folder=NOWHERE, **sizes, most_on=[2, 3], seed=3).values
    layer = universal_and(21, 300, 0.3, seed=3)
    connections = layer.connections.numpy()
    for n_on, key in ((2, "worst"), (3, "worst_l3")):
        inputs = all_composites(21, n_on)
        activations = np.maximum(inputs @ connections.astype(float) - 1, 0)
        worst = max(
            np.abs(
                activations[:, connections[i] & connections[j]].mean(axis=1)
                - (inputs[:, i] & inputs[:, j])
            ).max()
            for i, j in combinations(range(21), 2)
        )
        assert values[key] == pytest.approx(worst, abs=1e-9)
    assert values["worst_after_offset"] == pytest.approx(values["worst"] / 2)
    assert values["pairs_per_neuron"] == pytest.approx(210 / 300)


def test_rescaled_least_squares_do_better_than_the_construction() -> None:
    sizes = {"n_features": 16, "n_neurons": 400, "density": 0.3, "seed": 1}
    fitted = jobs.least_squares(folder=NOWHERE, ridge=1e-3, **sizes).values
    own = universal_and(16, 400, 0.3, seed=1).epsilon(2)
    assert fitted["worst"] < own.worst
    assert fitted["rms"] < fitted["worst"]
    assert fitted["worst_after_offset"] <= fitted["worst"]


def test_class_means_are_the_closed_forms() -> None:
    layer = universal_and(40, 2_000, 0.25, seed=0)
    both, one, none = jobs.measured_means(layer, 3, seed=0)
    assert both == pytest.approx(0.25, abs=0.01)
    assert one == pytest.approx(0.5, abs=0.01)
    assert none == pytest.approx(3 * 0.25 - 1 + 0.75**3, abs=0.01)


def test_exact_and_rank_limited_bigrams() -> None:
    exact = jobs.exact_bigrams(folder=NOWHERE, d_model=16, d_head=4, seed=0).values
    assert exact["worst"] < 1e-13
    sizes = {"n_features": 64, "d_model": 32, "d_head": 8, "n_bigrams": 16}
    found = jobs.svd_bigrams(folder=NOWHERE, **sizes, seed=0).values
    assert 0.9 < found["auc"] <= 1
    assert found["signal_to_noise"] > 2


def test_the_comparison_says_no_more_than_is_known(texts) -> None:
    row = study.Row("a", exact=True, worst=0.5, worst_after_offset=0.24, rms=0.1, affine=0.25)
    assert row.beats_affine is True
    assert row._replace(worst_after_offset=0.25).beats_affine is False
    assert row._replace(exact=False).beats_affine is None
    assert row._replace(exact=False, worst_after_offset=0.3).beats_affine is False
    assert row._replace(worst_after_offset=None).beats_affine is False
    rows = [
        row,
        row._replace(name="b", worst_after_offset=0.3),
        row._replace(name="c", exact=False),
    ]
    texts(study.beside_affine(rows))


def test_every_setting_is_a_job_of_its_own() -> None:
    plan = study.SUPERPOSITION.plan("small", 2, Runner())
    names = [job.name for jobs in study.grid(plan).values() for job in jobs]
    assert len(set(names)) == len(names)
    assert all(math.isfinite(e.low) and e.low <= e.high for s in SETTINGS for e in s.expected)


@pytest.mark.slow
def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    """The quick settings, two seeds, and the figures at two points each."""
    quick = ("uand-64", "affine", "least-squares", "bigrams")
    monkeypatch.setattr(study, "SETTINGS", [s for s in SETTINGS if s.slug.startswith(quick)])
    monkeypatch.setattr(study, "DENSITIES", (0.1, 0.2))
    monkeypatch.setattr(study, "WIDTHS", (1_024, 2_048))
    result = study.SUPERPOSITION.run("small", 2, Runner(tmp_path, workers=1))
    assert result.status == "reached"
    texts(result.verdict)
    assert result.tables()[0].title == "Earlier beside ours"
    assert "theirs" not in result.tables()[0].columns
    rows = {row[0]: row for row in result.tables()[2].rows}
    assert list(rows) == [s.name for s in SETTINGS if s.slug.startswith(quick[::2])]
    assert rows["U-AND, d0 = 64, d = 1,024, p = 0.2"][-1] == "not better"
    affine = next(q for q in result.quantities if q.of == "affine readout")
    assert (affine.seeds, affine.expected) == (1, (0.25, 0.25))
    [least, _] = result.jobs["width-1024-seed-0"], result.jobs["density-0.1-seed-1"]
    assert abs(least["worst"] - least["predicted"]) < 0.06
    assert len(result.figures()) == 4
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    data = json.loads(dumps([result]))["results"][0]
    assert data["quantities"][0]["expected"] == [0.5, 0.54]
    assert "beside affine" in to_html([result])


def test_the_artefacts_are_registered() -> None:
    assert find("artefacts", "superposition") is study.SUPERPOSITION
    assert find("artefacts", "superposition/capacity").name == "superposition/capacity"
