"""First-order estimates of knockouts are derivatives: checked against finite differences."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import interp_toolkit as it
from interp_toolkit.circuits.heads import analysis as head_analysis
from interp_toolkit.circuits.heads.analysis import HEADS
from interp_toolkit.circuits.heads.attention_knockout import KnockoutRunner
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.heads.first_order import estimated_effects
from interp_toolkit.circuits.metrics import task_check
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.task import task_of
from interp_toolkit.toys.hand_set.induction import induction, induction_gqa

STEP = 1e-4


def runner_of(model, rows=5):
    prompts = repeated_prompts(model, rows=rows, n_pos=min(24, model.cfg.n_ctx))
    task, _ = task_of(model, prompts)
    detectors = {name: as_detector(name) for name in ("previous-token", "induction")}
    targets = {n: partial(targets_of, d, prompts, causal=True) for n, d in detectors.items()}
    return KnockoutRunner(model, task, targets)


def moved(model, runner, layer, head, name, step):
    """The metric of each prompt with a head's output moved a step towards the knockout's."""
    rows = runner.task.rows
    tokens, keys = runner.task.prompts.tokens[rows], torch.from_numpy(runner.targets[name](rows))
    kept: dict[str, torch.Tensor] = {}

    def keep(part):
        return lambda value, hook: kept.__setitem__(part, value.detach())

    def move(z, hook):
        pattern = kept["pattern"][:, head].clone()
        n_heads = kept["pattern"].shape[1]
        values = kept["v"][:, :, head * kept["v"].shape[2] // n_heads]
        left = pattern.masked_fill(keys, 0.0)
        total = left.sum(-1, keepdim=True)
        scaled = torch.where(total > 0.01, left / total.clamp_min(1e-30), left)
        missing = torch.where(total > 0.01, 0.0, 1 - total)
        knocked_out = scaled @ values + missing * values.mean((0, 1))
        changed = keys.any(-1, keepdim=True)
        z = z.clone()
        z[:, :, head] += step * torch.where(changed, knocked_out - z[:, :, head], 0.0)
        return z

    at = f"blocks.{layer}.attn.hook_"
    hooks = [(at + "pattern", keep("pattern")), (at + "v", keep("v")), (at + "z", move)]
    with torch.no_grad():
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
    return runner.task.read(logits, rows)[:, 0]


@pytest.mark.parametrize("build", [induction, induction_gqa])
def test_an_estimate_is_the_derivative_of_the_metric_along_the_knockout(build) -> None:
    model = build().double()
    for parameter in model.parameters():  # away from saturation, where derivatives vanish
        parameter.data += 0.02 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
    runner = runner_of(model)
    names = list(runner.targets)
    estimates = estimated_effects(runner, names, runner.task.rows)
    before = [p.requires_grad for p in model.parameters()]
    largest = max(float(e.abs().max()) for e in estimates.values())
    assert largest > 1e-3
    for name in names:
        for layer in range(2):
            for head in range(int(model.cfg.n_heads)):
                ends = [moved(model, runner, layer, head, name, s) for s in (-STEP, STEP)]
                slope = float((ends[0] - ends[1]).mean()) / (2 * STEP)
                assert float(estimates[name][layer, head]) == pytest.approx(
                    slope, rel=2e-3, abs=2e-3 * largest
                )
    assert [p.requires_grad for p in model.parameters()] == before
    assert all(p.grad is None for p in model.parameters())


def test_heads_that_attend_or_whose_estimate_is_large_are_knocked_out_alone(monkeypatch) -> None:
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    monkeypatch.setattr(head_analysis, "BUDGET", 0.0)
    model = it.load("toy:induction-decoy")
    result = HEADS(model, detectors=["induction"])
    attending = {h.name for h in result.heads if h.attends}
    tested = {h.name: h for h in result.heads if h.knockout}
    assert len(attending) > 1
    assert set(tested) == attending
    for head in tested.values():
        assert head.knockout.is_partial
        assert head.status == head.causal == "undecided"
        assert head.knockout.effect.low <= head.knockout.effect.mean <= head.knockout.effect.high
        assert head.to_dict()["amount"][1] <= head.to_dict()["amount"][0]


def test_an_estimate_above_the_threshold_selects_a_head(monkeypatch) -> None:
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    monkeypatch.setattr(head_analysis, "MOST_MEMBERS", 0)  # none by its attention
    model = it.load("toy:induction-decoy")
    for size, selected in ((100.0, ["L1H0"]), (1e-6, [])):
        effects = torch.zeros(2, int(model.cfg.n_heads), dtype=torch.float64)
        effects[1, 0] = size
        monkeypatch.setattr(
            head_analysis, "estimated_effects", lambda *_, e=effects: {"induction": e}
        )
        result = HEADS(model, detectors=["induction"])
        assert [h.name for h in result.heads if h.knockout] == selected
