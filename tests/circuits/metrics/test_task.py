"""Tasks: what rows ask, what chance is, and whether a model performs the task."""

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.metrics.prompts import prompts_from_data, repeated_prompts
from interp_toolkit.circuits.metrics.task import (
    AnswerTask,
    RepeatTask,
    TaskCheck,
    check_task,
    task_of,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.stats import estimate
from interp_toolkit.toys.hand_set.induction import decoy, induction
from interp_toolkit.toys.hand_set.untrained import random_model


def rows_asking(model, answers=None, rows=40):
    prompts = repeated_prompts(model, rows=rows, n_pos=24)
    tokens = prompts.tokens[:, :-1].numpy()
    answers = prompts.tokens[:, -2:].numpy() if answers is None else answers
    return FeatureData(
        tokens,
        np.zeros((rows, 0), bool),
        (),
        answers=answers,
        answer_positions=np.array([-2, -1][-answers.shape[1] :]),
    )


def test_accuracy_and_loss_are_those_of_the_asked_places():
    model = induction()
    prompts = prompts_from_data(rows_asking(model), model)
    task, reason = task_of(model, prompts)
    assert isinstance(task, AnswerTask)
    assert reason is None
    with torch.no_grad():
        logits = model(prompts.tokens)
    read = task.read(logits, torch.arange(len(prompts)))
    assert sorted(task.rows.tolist()) == list(range(len(prompts)))
    for row in range(len(prompts)):
        places, answers = prompts.answer_positions[row], prompts.answers[row]
        losses = -logits[row, places].log_softmax(-1)[torch.arange(2), answers]
        right = (logits[row, places].argmax(-1) == answers).double()
        assert read[row, 0] == pytest.approx(float(right.mean()))
        assert read[row, 1] == pytest.approx(float(losses.mean()), abs=1e-5)


def test_some_places_are_enough_to_read_value_and_loss():
    model = induction()
    asking, repeating = prompts_from_data(rows_asking(model), model), repeated_prompts(model)
    for prompts in (asking, repeating):
        task, _ = task_of(model, prompts)
        rows = task.rows[[5, 0, 3]]
        with torch.no_grad():
            logits = model(prompts.tokens[rows])
        places = task.positions(rows)
        assert len(places) < prompts.n_pos
        some = task.read_at(logits[:, places], rows, places)
        np.testing.assert_allclose(some, task.read(logits, rows)[:, :2], atol=1e-5)


def test_chance_is_the_best_guess_without_the_row():
    model = induction()
    answers = np.array([[3]] * 30 + [[4]] * 10)
    task, _ = task_of(model, prompts_from_data(rows_asking(model, answers), model))
    assert task.guesses().mean() == pytest.approx(0.75)
    by_place = np.stack([np.full(40, 5), np.arange(40) % 10], axis=1)
    task, _ = task_of(model, prompts_from_data(rows_asking(model, by_place), model))
    assert task.guesses().mean() == pytest.approx((1 + 0.1) / 2, abs=0.05)


def test_chance_is_not_fitted_to_the_rows_it_is_judged_on():
    """The commonest of many answers is commoner on its own rows than on others."""
    model = induction()
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        answers = rng.integers(0, model.cfg.d_vocab, (40, 1))
        task, _ = task_of(model, prompts_from_data(rows_asking(model, answers), model))
        found.append(task.guesses().mean())
    error = np.std(found) / len(found) ** 0.5
    assert abs(np.mean(found) - 1 / model.cfg.d_vocab) < 4 * error


def test_no_more_than_all_of_an_accuracy_can_be_lost():
    model = induction()
    checked = check_task(model, task_of(model, prompts_from_data(rows_asking(model), model))[0])
    lost = checked.above + 0.2  # below chance: certain of something wrong
    found = checked.fraction(lost, 0.95)
    assert (found.mean, found.high) == (1, 1)
    assert found.low > 0.9
    half = checked.fraction(checked.above / 2, 0.95)
    assert half.low <= 0.5 <= half.high < 1


def test_fractions_of_the_metric_hold_as_often_as_they_say():
    """A head's effect is a ratio of means, whose denominator is estimated too."""
    rng, covered, wider = np.random.default_rng(1), 0, 0
    draws, n, right, keeps = 400, 120, 0.8, 0.5
    truth = right * keeps / (right - 0.1)
    for _ in range(draws):
        value = (rng.random(n) < right).astype(float)
        guess = (rng.random(n) < 0.1).astype(float)
        lost = value * (rng.random(n) < keeps)
        checked = TaskCheck(True, estimate(value), 0.1, 0.0, "", "", value - guess, 1.0)
        found = checked.fraction(lost, 0.95)
        covered += found.low <= truth <= found.high
        wider += found.high - found.low
    assert 0.9 <= covered / draws <= 0.99
    assert wider / draws < 0.35


def test_the_task_is_performed_where_the_answers_are_known_and_not_where_they_are_shuffled(texts):
    model = induction()
    data = rows_asking(model)
    checked = check_task(model, task_of(model, prompts_from_data(data, model))[0])
    assert checked.yes
    assert checked.value.mean == pytest.approx(1.0)
    assert 0 < checked.value.low < checked.value.high <= 1
    shuffled = np.random.default_rng(0).permutation(np.asarray(data.answers))
    away = check_task(
        model, task_of(model, prompts_from_data(rows_asking(model, shuffled), model))[0]
    )
    assert not away.yes
    texts(away.summary)


def test_repetition_is_a_task_where_it_is_used():
    for model, yes in ((induction(), True), (decoy(), False), (random_model(0), False)):
        task, _ = task_of(model, repeated_prompts(model))
        assert isinstance(task, RepeatTask)
        assert check_task(model, task).yes is yes


def test_why_repetition_does_not_count_is_what_the_readings_show(texts):
    task, _ = task_of(induction(), repeated_prompts(induction()))
    spread = np.linspace(-1, 1, 16) / 1000
    repeated = 3 + spread
    for advantage, preferred, reason in (
        (0.005, 0.02, "and less than 0.01 nats does not count"),
        (0.5, 0.005, "the loss on the correct next token is less than 0.01 nats below that"),
        (0.5, -0.005, "the correct next token is not significantly likelier"),
    ):
        columns = [-repeated, repeated, 3 + advantage - spread, 3 + preferred - spread]
        summary = task.check(np.stack([*columns, np.zeros(16)], axis=1)).summary
        assert reason in summary
        texts(summary)
        assert ("likelier" in summary) == (preferred < 0)


def test_an_answer_that_the_model_cannot_give_is_one_line(texts):
    model = induction()
    answers = np.full((40, 1), model.cfg.d_vocab)
    with pytest.raises(InputError, match="model's", check=texts):
        task_of(model, prompts_from_data(rows_asking(model, answers), model))


@pytest.mark.parametrize(
    "given",
    [
        {"answers": np.zeros((3, 1), int)},
        {"answers": np.full((2, 1), -1)},
        {"answers": np.zeros((2, 2), int)},
        {"answers": np.zeros(2, int), "answer_positions": np.array([9])},
        {"answer_positions": np.array([0])},
        {"answers": np.zeros((2, 2), int), "answer_positions": np.zeros((2, 3), int)},
    ],
)
def test_answers_that_do_not_fit_their_rows(given, texts):
    with pytest.raises(InputError, check=texts):
        FeatureData([np.array([1, 2]), np.array([3, 4])], np.zeros((2, 0), bool), (), **given)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_advantage_that_is_only_rounding_is_not_reported_as_one(dtype, texts):
    """The loss of a model with equal logits is the same everywhere, up to rounding."""
    model = decoy()
    task, _ = task_of(model, repeated_prompts(model, rows=64))
    rng = np.random.default_rng(0)
    eps = torch.finfo(dtype).eps
    shape = (len(task.rows), task.prompts.n_pos, int(model.cfg.d_vocab))
    # logits that are equal up to one rounding step, and more so on repeated tokens
    logits = 1 + eps * torch.from_numpy(rng.random(shape)).round()
    logits = logits.to(dtype)
    readings = task.read(logits, task.rows)
    step = eps * np.abs(rng.normal(1, 0.1, len(readings)))
    readings[:, 2] = readings[:, 1] + step  # a significant advantage of one rounding step
    found = task.check(readings)
    texts(found.summary)
    assert "likelier" not in found.summary
    assert not found.yes or dtype == torch.bfloat16
    readings[:, 2] = readings[:, 1] + 100 * readings[:, 4] + step
    texts(task.check(readings).summary)


def test_the_rounding_of_a_loss_follows_from_the_precision_and_the_size_of_the_logits():
    model = decoy()
    task, _ = task_of(model, repeated_prompts(model, rows=4))
    logits = torch.zeros(4, task.prompts.n_pos, int(model.cfg.d_vocab), dtype=torch.float64)
    eps, guess = torch.finfo(torch.float64).eps, np.log(int(model.cfg.d_vocab))
    np.testing.assert_allclose(task.read(logits, task.rows)[:, 4], 2 * eps * guess)
    np.testing.assert_allclose(task.read(logits + 100, task.rows)[:, 4], 2 * eps * (200 + guess))
    single = task.read(logits.float(), task.rows)[:, 4]
    np.testing.assert_allclose(single, 2 * torch.finfo(torch.float32).eps * guess, rtol=1e-6)


def test_the_decoy_has_no_advantage_but_rounding(texts):
    model = decoy()
    task, _ = task_of(model, repeated_prompts(model, rows=64))
    found = check_task(model, task)
    assert not found.yes
    texts(found.summary)
