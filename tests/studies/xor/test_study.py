"""The XOR study: closed forms, certificates and what it says where the theorem's words fail."""

from __future__ import annotations

import json
import math
from pathlib import Path

import plotly.graph_objects as go
import pytest

from interp_studies.jobs.runner import Runner
from interp_studies.result import StudyResult
from interp_studies.xor import layers, study
from interp_studies.xor.layers import KINDS
from interp_toolkit.errors import InputError
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps, to_html

NOWHERE = Path("nowhere")


def test_attention_and_scores_are_the_closed_forms() -> None:
    values = layers.hand_set(folder=NOWHERE).values
    a = math.e
    head_0 = {
        "00": (a / (2 * a + 1), a / (2 * a + 1), 1 / (2 * a + 1)),
        "01": (a / (a + 2), 1 / (a + 2), 1 / (a + 2)),
        "10": (1 / (a + 2), a / (a + 2), 1 / (a + 2)),
        "11": (1 / 3, 1 / 3, 1 / 3),
    }
    flipped = {"00": "11", "01": "10", "10": "01", "11": "00"}
    for given, (first, second) in zip(values["inputs"], values["attention"], strict=True):
        assert first == pytest.approx(head_0[given], abs=1e-14)
        assert second == pytest.approx(head_0[flipped[given]], abs=1e-14)
    expected = [0.844638, 1.152234, 1.152234, 0.844638]
    assert values["scores"] == pytest.approx(expected, abs=1e-6)


def test_which_two_heads_separate() -> None:
    found = {k: v["status"] for k, v in layers.hand_set(folder=NOWHERE).values["two_heads"].items()}
    assert found == {
        "one finds 0, one finds 1, orthogonal": "separable",
        "both write along the same direction": "separable",
        "both avoid their token": "separable",
        "one attends uniformly": "separable",
        "both attend uniformly": "not_separable",
        "both find 1, alike": "not_separable",
        "both find 1, one more sharply": "separable",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_random_layers(kind: str) -> None:
    values = layers.random_layers(folder=NOWHERE, kind=kind, n_layers=8, seed=1).values
    if KINDS[kind].expected:
        assert values["not_separable"] == 8
        assert values["residual"] < 1e-14
    else:
        assert values["separable"] >= (1 if kind == "mlp" else 8)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    patch = pytest.MonkeyPatch()
    patch.setattr(study, "LAYERS", 5)
    runner = Runner(tmp_path_factory.mktemp("xor"), workers=1, given={"xor": {"steps": "300"}})
    found = find("artefacts", "xor").run("small", 1, runner)
    patch.undo()
    return found


def test_one_head_does_not_go_below_its_bound(result: StudyResult) -> None:
    [one] = [q for q in result.quantities if q.of == "trained, 1-head, XOR" and "loss" in q.name]
    assert one.expected is not None
    assert one.expected[0] == pytest.approx(math.log(2) / 2)
    assert one.lowest >= one.expected[0]
    assert one.reached


def test_the_verdict_says_what_was_counted(result: StudyResult, texts) -> None:
    texts(result.verdict)
    assert "xor.steps=300" in result.verdict
    assert result.status == "reached"
    assert result.evidence.random["two-heads"] == 5


def test_tables_figures_and_page(result: StudyResult, texts) -> None:
    titles = [table.title for table in result.tables()]
    texts(titles)
    assert all(go.Figure(f.data, f.layout) for f in result.figures())
    assert json.loads(dumps([result]))["results"][0]["jobs"]["hand-set"]["scores"]
    page = to_html([result])
    assert "at least 0.34657" in page


def test_settings_of_one_variant_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(study, "LAYERS", 1)
    runner = Runner(tmp_path, workers=1, given={"xor": {"steps": "20", "1-head.steps": "10"}})
    result = find("artefacts", "xor").run("small", 1, runner)
    assert "xor.1-head.steps=10" in result.verdict


def test_what_it_will_not_train_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which functions"):
        find("artefacts", "xor").run("small", 1, Runner(tmp_path, given={"xor": {"table": "0111"}}))
