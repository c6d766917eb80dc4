"""Heads for boolean functions: classes, the batch's forward pass, the claims."""

from __future__ import annotations

import math
from pathlib import Path

import plotly.graph_objects as go
import pytest
import torch

from interp_studies.jobs.runner import Runner
from interp_studies.open import boolean_heads as study
from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.registry import find
from interp_toolkit.report.html import to_html


def test_fourteen_classes_of_three_bits() -> None:
    """Slepian 1953; with the constants' class."""
    found = {study.representative(t) for t in [*study.functions(), "0" * 8, "1" * 8]}
    assert len(found) == 14
    assert study.class_name("10010110") == "parity"
    for table in study.functions():
        least = study.representative(table)
        assert threshold_degree(least).degree == threshold_degree(table).degree


def test_the_batch_computes_what_a_plain_loop_does() -> None:
    layers = study.Layers(2, 2, 3, seed=0)
    with torch.no_grad():
        found = layers.updates()
        for m in range(2):
            for i, row in enumerate(layers.inputs):
                x = layers.tokens[m, row] + layers.places[m]
                expected = torch.zeros(study.D_MODEL)
                for h in range(3):
                    q = x[-1] @ layers.W_Q[m, h]
                    scores = x @ layers.W_K[m, h] @ q / math.sqrt(study.D_HEAD)
                    mixed = scores.softmax(0) @ x @ layers.W_V[m, h]
                    expected += mixed @ layers.W_O[m, h]
                torch.testing.assert_close(found[m, i], expected, rtol=1e-4, atol=1e-6)


def test_training_solves_what_it_can_and_nothing_else() -> None:
    tables = ["0111", "0001", "0110"]
    one = study.solved(study.train(tables, 1, seed=0, steps=600), tables)
    assert one.tolist() == [True, True, False]
    two = [study.solved(study.train(["0110"], 2, s, steps=800), ["0110"])[0] for s in range(4)]
    assert sum(map(bool, two)) >= 2


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory):
    patch = pytest.MonkeyPatch()
    patch.setattr(study, "STEPS", 40)
    patch.setattr(study, "MOST_BITS", 3)
    patch.setattr(study, "functions", lambda: ["01101001", "00010111", "00111100"])
    runner = Runner(tmp_path_factory.mktemp("heads"), workers=1, first_seed=3003)
    found = find("artefacts", "open/boolean-heads").run("small", 2, runner)
    patch.undo()
    return found


def test_exact_claims_are_confirmed_and_few_steps_do_not_confirm_the_others(result, texts) -> None:
    outcomes = [f.judgement for f in result.claims]
    assert outcomes[:2] == ["confirmed", "confirmed"]
    assert outcomes[3] != "confirmed"
    assert result.status in ("undecided", "partly_answered")  # of two claims; checks do not count
    assert [f.check for f in result.claims] == [True, True, True, False, False]
    assert result.provenance.seed == 3003
    texts(result.verdict)


def test_table_figure_and_page(result) -> None:
    [table] = result.details
    assert [row[3] for row in table.rows] == [1, 2, 3]
    assert all(go.Figure(f.data, f.layout) for f in result.figures())
    assert "Solved by training" in to_html([result])


def test_one_function_that_needs_more_is_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(study, "_as_many_as_the_degree", lambda table: table != "00111100")
    values = study.exact(folder=tmp_path, most_bits=3).values
    n, holds = values["three_bits"]
    assert (n, holds) == (254, 253)
    claim = study.exact_claim("so", n, holds, overturned_by="")
    assert claim.judgement == "refuted"
