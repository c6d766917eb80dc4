"""Training on two bits: what one head cannot do, what two can, and that it repeats."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.separability import check_separability
from interp_toolkit.registry import Progress, Session
from interp_toolkit.training.xor import XorTraining, batch, loss_floor, train

SITE = "blocks.0.hook_resid_post"


def updates(model: torch.nn.Module, config: XorTraining) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, answers = batch(config)
    _, cache = model.run_with_cache(tokens)
    resid = cache[SITE][:, -1]
    return resid[answers == 1], resid[answers == 0]


def test_two_heads_solve_it_and_are_separable_in_every_dtype() -> None:
    config = XorTraining(heads=2, seeds=3)
    run = train(config)
    assert run.training["loss"] < 1e-2
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        verdict = check_separability(*updates(run.model.to(dtype), config))
        assert verdict.status == "separable", dtype


@pytest.mark.parametrize(
    ("positions", "floor"),
    [(True, 0.346574), (False, 0.477386)],
)
def test_one_head_comes_down_to_its_floor_and_not_below(positions: bool, floor: float) -> None:
    config = XorTraining(heads=1, seeds=1, steps=700, positions=positions, dtype="float64")
    assert loss_floor(config) == pytest.approx(floor, abs=1e-6)
    run = train(config)
    losses = torch.tensor(run.training["curve"]["loss"])
    assert losses.min() >= loss_floor(config)
    assert run.training["loss"] == pytest.approx(floor, abs=5e-3)
    assert run.rows[0][3] <= 0.75
    verdict = check_separability(*updates(run.model, config))
    assert verdict.status == "not_separable"


def test_the_floor_is_only_claimed_where_it_holds() -> None:
    assert loss_floor(XorTraining(heads=2)) is None
    assert loss_floor(XorTraining(heads=1, d_mlp=4)) is None
    assert loss_floor(XorTraining(heads=1, normalization="LN")) is None
    assert loss_floor(XorTraining(heads=1, table="0111")) is None
    assert loss_floor(XorTraining(heads=1, table="1001")) == math.log(2) / 2


def test_the_same_seed_gives_the_same_model_bit_for_bit() -> None:
    config = XorTraining(seeds=1, steps=50, target=0)
    first, second = (train(config).model.state_dict() for _ in range(2))
    other = train(config.model_copy(update={"seed": 1})).model.state_dict()
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_the_best_seed_is_kept_and_progress_is_told() -> None:
    told: list[Progress] = []
    run = train(XorTraining(heads=1, d_mlp=8, seeds=3, steps=120), Session(report=told.append))
    assert run.training["loss"] == min(row[2] for row in run.rows)
    assert [row[0] for row in run.rows] == [0, 1, 2]
    assert {(at.seed, at.number, at.seeds) for at in told} == {(0, 1, 3), (1, 2, 3), (2, 3, 3)}
    assert told[-1].loss == run.rows[-1][2]


def test_other_functions_and_settings() -> None:
    run = train(XorTraining(table="0111", heads=1, seeds=1))
    assert run.training["loss"] < 1e-2
    assert run.task["function"] == "0111"
    with pytest.raises(ValidationError, match="0110"):
        XorTraining(table="0000")
    with pytest.raises(ValidationError, match="extra"):
        XorTraining(width=3)  # type: ignore[call-arg]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(texts) -> None:
    with pytest.raises(InputError, match="CUDA", check=texts):
        train(XorTraining(device="cuda"))


@pytest.mark.parametrize("setting", [{"lr": float("inf")}, {"seed": -1}, {"d_model": 10**9}])
def test_settings_that_cannot_work_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        XorTraining(**setting)
