"""Edges cut on rows in parts: the same values, and of one part at a time its passes."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import Pass, PatchedModel
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.task import metric_for

ASKED = {
    "values": lambda cut: cut.values([cut.edges[:3], cut.edges[::4]]),
    "alone": lambda cut: cut.alone([cut.edges[:9], cut.edges[::2]]),
    "without": lambda cut: cut.without(cut.engine.wiring.writers[1:3]),
    "attributions": lambda cut: cut.attributions(steps=2),
}


@pytest.mark.parametrize("asked", list(ASKED))
def test_passes_of_some_rows_are_gone_before_those_of_others(
    zoo, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Held on to by a loop, those before took as much again as the memory that was allowed."""
    model = zoo("own")
    prompts = repeated_prompts(model, rows=8)
    engine = PatchedModel(model)
    judged, _ = metric_for(model, prompts, None)
    rows = torch.arange(4)
    cut, whole = (EdgeAblation(engine, prompts, rows, rows + 4, judged, 2**30) for _ in range(2))
    cut._at_once = cut._graded_at_once = 1
    passes: list[weakref.ref[Pass]] = []
    held: list[int] = []
    plain = PatchedModel.whole

    def counted(engine: PatchedModel, *given: object, **named: object) -> Pass:
        held.append(sum(one() is not None for one in passes))
        found = plain(engine, *given, **named)
        passes.append(weakref.ref(found))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(PatchedModel, "whole", counted)
        found = ASKED[asked](cut)
    assert len(held) == len(rows)
    assert set(held) == {0}
    np.testing.assert_allclose(found, ASKED[asked](whole), rtol=1e-4, atol=1e-5)
