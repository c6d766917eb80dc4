"""The frozen-qk circuit: detectors by hand, hand-set models whose circuit is known, the study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

import interp_toolkit as it
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.circuit import study as circuit
from interp_studies.random_attention.circuit.job import (
    PREVIOUS,
    RETRIEVING,
    ablations,
    full_rows,
    key_to_value,
    parts_of,
    scores,
    settings_of,
    value_to_key,
)
from interp_toolkit.registry import find
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.toys.random_attention.tasks import Retrieval
from interp_toolkit.training.tasks.problem import TaskProblem


def test_where_the_detectors_look_by_hand() -> None:
    """Keys 9, 8, 7, values 1, 2, 1, and 8 is asked."""
    tokens = np.array([9, 1, 8, 2, 7, 1, 8])
    assert np.argwhere(value_to_key(tokens, tokens)).tolist() == [[1, 0], [3, 2], [5, 4]]
    assert np.argwhere(key_to_value(tokens, tokens)).tolist() == [[6, 3]]
    sought = np.where(np.arange(7) == 6, 9, tokens)  # as if 9 were asked
    assert np.argwhere(key_to_value(tokens, sought)).tolist() == [[6, 1]]


def test_full_rows_end_with_the_query() -> None:
    task = Retrieval(5, 40)
    rows = full_rows(task, 30)
    assert rows.tokens.shape == (30, 11)
    assert (rows.read == 10).all()
    assert (rows.tokens[:, 0::2] >= 20).all()
    assert ((rows.tokens[:, 1::2] >= 1) & (rows.tokens[:, 1::2] < 20)).all()
    asked = rows.tokens[:, :-1:2] == rows.tokens[:, -1:]
    assert torch.equal((rows.tokens[:, 1::2] * asked).sum(1), rows.answer[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toy", "asking", "right", "found"),
    [
        ("induction", [(1, 0)], 1.0, "confirmed"),
        ("induction-decoy", [(1, 0), (1, 1)], 1.0, "confirmed"),
        ("decoy", [(1, 1)], 0.0, "undecided"),  # it attends as it should and writes nothing
    ],
)
def test_hand_set_circuits(toy: str, asking: list, right: float, found: str) -> None:
    model = it.load(f"toy:{toy}")
    task = Retrieval(6, 62)
    heads = scores(model, full_rows(task, 16))
    parts = parts_of(heads)
    assert parts == {PREVIOUS.name: [(0, 1)], RETRIEVING.name: asking}
    lost = ablations(model, full_rows(task, 48), parts)
    by_name = {row["without"]: row for row in lost}
    assert {row["intact"] for row in lost} == {right}
    assert by_name["L0H0"]["lost"] == 0
    if found == "confirmed":
        assert by_name["L1H0"]["lost"] > 0.5
        assert by_name["L1H1"]["lost"] == 0
        assert by_name["all query-to-value heads"] == {
            **by_name["L1H0"],
            "without": "all query-to-value heads",
        }
    assert circuit.outcome({"parts": parts, "ablations": lost}) == found


def made(previous: list, asking: list, lost: float, low: float) -> dict[str, Any]:
    groups = [f"all {part.name} heads" for part in (PREVIOUS, RETRIEVING)]
    row = {"intact": 0.8, "lost": 0.5, "low": 0.4}
    return {
        "parts": {PREVIOUS.name: previous, RETRIEVING.name: asking},
        "ablations": [
            {**row, "without": groups[0]},
            {**row, "without": groups[1], "lost": lost, "low": low},
        ],
    }


@pytest.mark.parametrize(
    ("seed", "word"),
    [
        (made([(0, 0)], [(1, 0)], 0.5, 0.4), "confirmed"),
        (made([(0, 0)], [(1, 0)], 0.039, 0.01), "undecided"),  # below a twentieth of 0.8
        (made([(0, 0)], [(1, 0)], 0.2, -0.01), "undecided"),
        (made([], [(1, 0)], 0.5, 0.4), "not_detected"),
        (made([(0, 0)], [], 0.5, 0.4), "not_detected"),
    ],
)
def test_the_rule(seed: dict[str, Any], word: str) -> None:
    assert circuit.outcome(seed) == word


def test_the_machine_word_for_several_seeds() -> None:
    assert circuit.status(["confirmed", "confirmed"]) == "confirmed"
    assert circuit.status(["confirmed", "not_detected"]) == "partly_reached"
    assert circuit.status(["undecided", "not_detected"]) == "undecided"
    assert circuit.status(["not_detected"]) == "not_detected"


@pytest.mark.slow
def test_the_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = {
        "steps": 3,
        "d_model": 8,
        "rows": 4,
        "test_examples": 20,
        "examples": 0,
        "most_pairs": 6,
    }
    monkeypatch.setattr(circuit, "DIFFERS", {"small": tiny, "paper": tiny})
    monkeypatch.setattr(circuit, "SCORED_ROWS", 12)
    monkeypatch.setattr(circuit, "ABLATED_ROWS", 24)
    artefact = find("artefacts", circuit.FIGURE_3.name)
    result = artefact.run("small", 1, Runner(tmp_path, workers=1))
    assert result.status == "not_detected"
    assert "In 0 of 1 seed " in result.verdict
    [values] = result.jobs.values()
    config = find("recipes", "retrieval").config(**settings_of("small", tiny))
    before = TaskProblem(config, 0).model
    after = it.load(tmp_path / "frozen-qk-circuit-seed-0.safetensors")
    kept = dict(after.named_parameters())
    for name, parameter in before.named_parameters():
        assert torch.equal(parameter, kept[name]) == name.endswith(("W_Q", "W_K"))
    assert values["before"] == json.loads(json.dumps(scores(before, full_rows(config.task, 12))))
    assert values["before"] != values["after"]
    assert len(result.figures()) == 6
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert json.loads(dumps([result]))["results"][0]["probe"] == circuit.FIGURE_3.name
    assert "Accuracy without heads" in to_html([result])
    assert all(q.reached is None for q in result.quantities)
