"""Training on repeated random tokens: the rows, the loss, and that it repeats."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from interp_toolkit.errors import InputError
from interp_toolkit.registry import Progress, Session, TrainingRun
from interp_toolkit.toys.hand_set.induction import induction
from interp_toolkit.training.induction import RECIPE, InductionTraining, draw_rows, evaluate, train

TINY = {"d_vocab": 16, "n_ctx": 16, "shortest": 4, "longest": 8, "d_model": 16, "heads": 2}


def trained(**settings) -> TrainingRun:
    return train(InductionTraining(**{**TINY, "steps": 3, "rows": 4, **settings}))


def test_rows_repeat_and_say_where() -> None:
    config = InductionTraining()
    rows = draw_rows(config, 200, torch.Generator().manual_seed(0))
    periods, prefixes = set(), set()
    for tokens, known, first in zip(*(x.tolist() for x in rows), strict=True):
        start = known.index(True)  # its next token is the first that is told
        assert known == [p >= start for p in range(47)]
        period = start - tokens.index(tokens[start])
        prefix = start - period
        assert tokens[prefix + period :] == tokens[prefix:-period]
        assert len(set(tokens[: prefix + period])) == prefix + period
        assert first == [p < prefix + period - 1 for p in range(47)]
        periods.add(period)
        prefixes.add(prefix)
    assert periods == set(range(6, 25))
    assert min(prefixes) == 0
    assert max(prefixes) > 24


def test_few_tokens_are_used_evenly() -> None:
    config = InductionTraining(d_vocab=4, n_ctx=24, shortest=12, longest=12)
    tokens = draw_rows(config, 500, torch.Generator().manual_seed(0)).tokens
    assert torch.bincount(tokens[:, :12].flatten()).tolist() == [1500] * 4


def test_the_scores_of_a_model_that_is_known() -> None:
    config = InductionTraining()
    rows = draw_rows(config, 50, torch.Generator().manual_seed(1))
    scores = evaluate(induction(48, 48), rows)
    assert scores.accuracy == 1.0
    assert scores.second == pytest.approx(math.log(1 + 47 * math.exp(-10)), rel=1e-3)
    untrained = evaluate(induction(48, 48, gain=0.0), rows)
    assert untrained.first == pytest.approx(math.log(48))
    assert untrained.second == pytest.approx(math.log(48))


def test_a_short_run_learns_the_second_repeat() -> None:
    told: list[Progress] = []
    settings = InductionTraining(**TINY, steps=250, rows=32, lr=0.02, initial_std=0.2)
    run = train(settings, Session(report=told.append))
    curve = run.training["curve"]
    assert curve["loss"][0] == pytest.approx(math.log(16), abs=1.0)
    assert run.training["loss"] < 1.2 < run.training["loss_first_repeat"]
    assert curve["step"][0] == 0
    assert curve["step"][-1] == 250
    assert [(at.step, at.loss) for at in told] == list(zip(*curve.values(), strict=True))
    assert f"{run.training['loss']:.4f} nats" in run.verdict


def test_the_best_seed_is_kept() -> None:
    run = trained(seeds=3, seed=4)
    assert [row[0] for row in run.rows] == [4, 5, 6]
    assert run.training["loss"] == min(row[1] for row in run.rows)
    assert run.task == {"name": "induction"}
    assert not run.model.training
    assert run.model.check_tokens


def test_the_same_seed_gives_the_same_model_bit_for_bit() -> None:
    first, second, other = (trained(seed=s).model.state_dict() for s in (1, 1, 2))
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])


@pytest.mark.parametrize("variant", sorted(RECIPE.variants))
def test_every_variant_trains(variant: str) -> None:
    run = trained(**RECIPE.variants[variant])
    assert math.isfinite(run.training["loss"])
    assert run.model.cfg.n_layers == (1 if variant == "1-layer" else 2)
    assert run.model.cfg.attn_only == (variant != "mlp")


@pytest.mark.parametrize(
    "settings",
    [
        {"shortest": 9, "longest": 8},
        {"longest": 25},
        {"positions": "rotary", "d_head": 7},
        {"d_vocab": 2},
        {"width": 3},
    ],
)
def test_settings_that_cannot_work_are_refused(settings, texts) -> None:
    with pytest.raises(ValidationError, check=texts):
        InductionTraining(**settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(texts) -> None:
    with pytest.raises(InputError, match="CUDA", check=texts):
        train(InductionTraining(device="cuda"))


@pytest.mark.gpu
def test_it_trains_on_a_gpu() -> None:
    run = trained(device="cuda", steps=20)
    assert run.model.W_E.device.type == "cuda"
    assert math.isfinite(run.training["loss"])
