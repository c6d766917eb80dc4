"""Partly random heads: what is frozen stays, what is trained moves, when it may; the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
import torch

from interp_studies.claims import JudgedClaim
from interp_studies.jobs.runner import Runner
from interp_studies.open import partly_random_heads as study
from interp_studies.open.partly_random_heads import Condition, PartlyFrozen, settings_of
from interp_toolkit.report.html import to_html
from interp_toolkit.training.engine.trainer import fit
from interp_toolkit.training.tasks.problem import TaskProblem

TINY: dict[str, Any] = {
    **study.SETTINGS["small"],
    "d_model": 8,
    "rows": 4,
    "steps": 4,
    "log_every": 2,
    "most_pairs": 2,
    "symbols": 8,
    "test_examples": 10,
    "warm_up": 0,
}


def moved(condition: Condition, steps: int = 3) -> dict[str, list[bool]]:
    """By parameter, which of its heads (or which parameter as a whole) training changed."""
    config = settings_of({**TINY, "steps": steps}, condition)
    problem = PartlyFrozen(config, 0, condition)
    before = {name: p.detach().clone() for name, p in problem.model.named_parameters()}
    fit(problem, config, 0)
    found = {}
    for name, p in problem.model.named_parameters():
        changed = (p != before[name]).flatten(1) if p.ndim == 3 else (p != before[name])[None]
        found[name] = [bool(one.any()) for one in changed]
    return found


@pytest.mark.parametrize("trained", [(0, 0), (2, 0), (0, 1), (1, 1), (2, 2)])
def test_the_first_heads_of_a_layer_are_trained_and_no_bit_of_the_others(
    trained: tuple[int, int],
) -> None:
    found = moved(Condition("", trained))
    for layer, number in enumerate(trained):
        for name in ("W_Q", "W_K"):
            assert found.pop(f"blocks.{layer}.attn.{name}") == [h < number for h in range(2)]
    assert all(all(heads) for heads in found.values())


def test_unfreezing_begins_after_its_share_of_the_steps() -> None:
    config = settings_of({**TINY, "rows": 64}, Condition("", (2, 2), since=0.5))
    problem = PartlyFrozen(config, 0, Condition("", (2, 2), since=0.5))
    W_Q = problem.model.blocks[1].attn.W_Q
    generator = torch.Generator().manual_seed(0)
    seen = []
    for _ in range(4):
        problem.model.zero_grad()
        torch.autograd.backward(problem.loss(problem.draw(generator)))
        seen.append(bool(W_Q.grad.any()))
    assert seen == [False, False, True, True]


def test_all_trained_is_the_standard_recipe() -> None:
    condition = Condition("", (2, 2))
    config = settings_of(TINY, condition)
    models = []
    for problem in (PartlyFrozen(config, 1, condition), TaskProblem(config, 1)):
        fit(problem, config, 1)
        models.append(problem.model.state_dict())
    assert len(models[0]) > 10
    for name, weight in models[0].items():
        torch.testing.assert_close(weight, models[1][name], rtol=0, atol=0)


def test_queries_and_keys_start_at_their_scale() -> None:
    for condition in study.conditions(2):
        config = settings_of({**TINY, "d_model": 64}, condition)
        problem = PartlyFrozen(config, 0, condition)
        block = problem.model.blocks[0].attn
        assert block.W_Q.std().item() == pytest.approx(condition.qk_std, rel=0.1)
        assert block.W_V.std().item() == pytest.approx(0.05, rel=0.1)


def made(**accuracy: list[float]) -> dict[str, list[dict[str, Any]]]:
    """Eight seeds of every condition, with these accuracies or 0.95."""
    return {
        c.name: [
            {"accuracy": value, "guess": 0.45}
            for value in accuracy.get(c.name.replace(", ", "_").replace(" ", "_"), [0.95] * 8)
        ]
        for c in study.conditions(2)
    }


def test_claims_from_made_accuracies(texts) -> None:
    fails = [0.5] * 8
    found = made(none=fails, first_layer_all=fails, last_layer_one=[0.7] * 7 + [0.5])
    none, first, last_one, one_each, _, late, sharp, gain = study.judge(found, 2_000)
    # of 0 of 8 seeds, each tail of 0.05/16: (1 - p)^8 = 1/320
    assert (none.low, none.high) == pytest.approx((0.0, 1 - 320 ** (-1 / 8)))
    assert (one_each.low, one_each.high) == pytest.approx((320 ** (-1 / 8), 1.0))
    assert none.judgement == first.judgement == last_one.judgement == "confirmed"
    assert last_one.value == pytest.approx(7 / 8)
    assert late.judgement == "undecided"  # 8 of 8: from 0.49
    assert sharp.judgement == "confirmed"
    assert gain.value == pytest.approx((7 * 0.25 + 0.45) / 8)
    assert gain.judgement == "confirmed"
    fewer = study.judge(found, 20)[-1]  # the same seeds on fewer of the shared rows
    assert fewer.low < 0 < gain.low
    assert fewer.judgement == "undecided"
    text = study.verdict(study.judge(found, 2_000), found, study.SETTINGS["small"])
    texts(text)


@pytest.mark.parametrize(
    "claim",
    [
        study.NONE,
        study.FIRST,
        study.LAST_ONE,
        study.LATE,
        study.SHARP,
        "gain",
    ],
)
def test_every_clause_of_the_verdict_rests_on_its_claim(claim: str, texts) -> None:
    found = made()
    names = [*found, "gain"]
    for open_ in (None, claim):
        findings = [
            JudgedClaim(name, 0.0, -1.0, 1.0, "8 seeds", above=0.0 if name == open_ else -2.0)
            for name in names
        ]
        text = study.verdict(findings, found, study.SETTINGS["small"])
        texts(text)


def test_a_seed_that_has_learnt_stops() -> None:
    condition = Condition("", (2, 2))
    config = settings_of({**TINY, "steps": 40, "target": 0.99}, condition)
    fitted = fit(PartlyFrozen(config, 0, condition), config, 0)
    assert fitted.stopped_early
    assert fitted.measured["error"][-1] < 0.99 <= min(fitted.measured["error"][:-1], default=1)


def test_study_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts) -> None:
    monkeypatch.setitem(study.SETTINGS, "small", TINY)
    result = study.PARTLY_RANDOM_HEADS.run("small", 2, Runner(tmp_path, workers=1, first_seed=5))
    assert len(result.jobs) == 2 * 7
    assert {job["seed"] for job in result.jobs.values()} == {5, 6}
    assert len(result.claims) == 8
    texts(result.verdict)
    table = result.details[0]
    assert [row[0] for row in table.rows] == [c.name for c in study.conditions(2)]
    for figure in result.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    texts(result.evidence.reason)
    assert study.PARTLY_RANDOM_HEADS.first_seed > 1004  # the trials'
    assert study.PARTLY_RANDOM_HEADS.question in str(result.to_dict())
    assert result.figures()[0].title in to_html([result])
