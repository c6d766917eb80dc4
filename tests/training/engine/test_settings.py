"""Schedules and settings, against closed forms."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from interp_toolkit.errors import InputError
from interp_toolkit.registry import find
from interp_toolkit.training.engine.settings import (
    Plateau,
    TrainingSettings,
    configure,
    learning_rate,
)

NAMES = ["constant", "linear", "cosine", "exponential"]


def rates(**settings) -> list[float]:
    config = TrainingSettings(**settings)
    return [learning_rate(config, step) for step in range(config.steps + 1)]


@given(
    schedule=st.sampled_from(NAMES),
    steps=st.integers(1, 200),
    lr=st.floats(1e-6, 10),
    share=st.floats(1e-6, 1),
    warm_up=st.integers(0, 250),
)
def test_rates_start_at_lr_fall_and_end_at_final_lr(schedule, steps, lr, share, warm_up) -> None:
    settings = {"schedule": schedule, "steps": steps, "lr": lr, "final_lr": lr * share}
    cold = rates(**settings)
    assert cold[0] == pytest.approx(lr)
    assert cold[-1] == pytest.approx(lr if schedule == "constant" else lr * share)
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(cold))
    warm = rates(**settings, warm_up=warm_up)
    for step, (a, b) in enumerate(zip(warm, cold, strict=True)):
        assert a == pytest.approx(b * min(1, (step + 1) / max(1, warm_up)))


def test_half_way_each_schedule_is_where_its_formula_says() -> None:
    half = {name: rates(schedule=name, steps=100, lr=1.0, final_lr=0.01)[50] for name in NAMES}
    assert half == pytest.approx(
        {"constant": 1.0, "linear": 0.505, "cosine": 0.505, "exponential": 0.1}
    )
    quarter = rates(schedule="cosine", steps=100, lr=1.0)[25]
    assert quarter == pytest.approx((1 + math.sqrt(0.5)) / 2)


def test_a_linear_fall_to_nothing_after_a_warm_up() -> None:
    found = rates(schedule="linear", steps=10, lr=0.5, warm_up=4)
    assert found[:5] == pytest.approx([0.125, 0.225, 0.3, 0.35, 0.3])
    assert found[10] == 0


def test_a_plateau_lowers_the_rate_by_half_a_decade_when_the_loss_stops_falling() -> None:
    settings = TrainingSettings(steps=100, lr=1e-3, final_lr=1e-4, schedule="plateau")
    plateau = Plateau(settings)
    for loss in (1.0, 0.9, 0.8):
        plateau.measured(loss)
    seen = []
    for _ in range(40):
        plateau.measured(0.795)  # falls by less than 1 %
        seen.append(learning_rate(settings, 50, plateau))
    assert seen[9] == pytest.approx(1e-3)
    assert seen[10] == pytest.approx(1e-3 * 10**-0.5)
    assert seen[-1] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("checkpoints", "kept"),
    [
        (0, []),
        (1, [1000]),
        (2, [0, 1000]),
        (5, [0, 1, 10, 100, 1000]),
        ("5", [0, 1, 10, 100, 1000]),
        ("0,100,1000", [0, 100, 1000]),
        ("7,", [7]),
        ([3, 3], [3]),
    ],
)
def test_the_kept_steps(checkpoints, kept: list[int]) -> None:
    assert sorted(TrainingSettings(steps=1000, checkpoints=checkpoints).steps_to_save()) == kept


def test_many_kept_steps_of_a_short_run_are_all_of_them() -> None:
    assert sorted(TrainingSettings(steps=3, checkpoints=3).steps_to_save()) == [0, 1, 3]


def test_how_often_things_happen() -> None:
    long, short = TrainingSettings(steps=5000), TrainingSettings(steps=7)
    assert (long.log_interval(), long.save_interval()) == (50, 250)
    assert (short.log_interval(), short.save_interval()) == (1, 1)
    given_ = TrainingSettings(log_every=3, save_every=4)
    assert (given_.log_interval(), given_.save_interval()) == (3, 4)


def test_settings_come_as_text_and_are_recorded_as_json() -> None:
    settings = TrainingSettings(betas="0.9, 0.98", steps="20", checkpoints="0,4")
    assert settings.betas == (0.9, 0.98)
    record = settings.recorded()
    assert (record["betas"], record["checkpoints"], record["steps"]) == ([0.9, 0.98], [0, 4], 20)
    assert TrainingSettings(**record) == settings


@pytest.mark.parametrize(
    "settings",
    [
        {"final_lr": 0.1, "lr": 0.01},
        {"schedule": "exponential"},
        {"betas": (0.9, 1.0)},
        {"betas": "0.9"},
        {"checkpoints": "0,6", "steps": 5},
        {"checkpoints": -1},
        {"checkpoints": "often"},
        {"optimiser": "sgd"},
        {"steps": 0},
        {"stesp": 5},
    ],
)
def test_settings_that_cannot_work_are_refused(settings, texts) -> None:
    with pytest.raises(ValidationError, check=texts):
        TrainingSettings(**settings)


def test_a_value_that_does_not_fit_is_said_in_one_clause() -> None:
    recipe = find("recipes", "retrieval")
    for value, says in (("x", "'x': it must be a valid number"), (None, "null: it must be a")):
        with pytest.raises(InputError, match=rf"^retrieval: lr = {says}[\w ]*$"):
            configure(recipe, None, "small", {"lr": value})
