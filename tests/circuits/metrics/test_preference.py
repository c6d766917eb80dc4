"""Answers beside wrong ones: the preference, its chance, and what models are judged by there."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from interp_toolkit.circuits.metrics.metrics import (
    METRICS,
    InContextAdvantage,
    KLDivergence,
    LogitDifference,
    LogProbability,
    RepeatedTokens,
)
from interp_toolkit.circuits.metrics.prompts import prompts_from_data, repeated_prompts
from interp_toolkit.circuits.metrics.task import (
    AnswerTask,
    PreferenceTask,
    check_task,
    fixed_preferences,
    metric_for,
    task_of,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.toys.hand_set.induction import decoy, induction


def pairs(model, rows=40, *, swap=False, wrong=True):
    """Repeats that ask for the next token; wrong is another token of the row."""
    tokens = repeated_prompts(model, rows=rows, n_pos=24).tokens.numpy()
    clean, answers = tokens[:, :-1], tokens[:, -2:]
    others = clean[:, [2, 3]]
    others = np.where(others == answers, clean[:, [4, 5]], others)
    corrupted = clean.copy()
    corrupted[:, -1] = clean[:, 0]
    corrupted[:, 0] = np.where(corrupted[:, 0] == 1, 2, 1)
    if swap:
        answers, others = others, answers
    return FeatureData(
        clean,
        np.zeros((rows, 0), bool),
        (),
        answers=answers,
        answer_positions=np.array([-2, -1]),
        wrong=others if wrong else None,
        corrupted=corrupted,
    )


def test_prompts_carry_pairs_and_choices_of_rows_keep_them():
    model = induction()
    data = pairs(model)
    prompts = prompts_from_data(data, model)
    np.testing.assert_array_equal(prompts.wrong, data.wrong)
    np.testing.assert_array_equal(prompts.corrupted, np.stack(data.corrupted))
    some = prompts.at(np.array([3, 1]))
    np.testing.assert_array_equal(some.wrong, data.wrong[[3, 1]])
    np.testing.assert_array_equal(some.corrupted, np.stack(data.corrupted)[[3, 1]])


def test_rows_of_several_lengths_are_refused_with_the_lengths():
    model = induction()
    data = FeatureData([[1, 2, 3], [4, 5], [6, 7]], np.zeros((3, 0), bool), ())
    with pytest.raises(InputError, match=r"tokens \(prompts\): 2 \(2\), 3 \(1\); .* such as 2"):
        prompts_from_data(data, model)
    ragged = [np.arange(1, length) for length in range(3, 13)]
    many = FeatureData(ragged, np.zeros((10, 0), bool), ())
    with pytest.raises(InputError, match="and 4 more"):
        prompts_from_data(many, model)


def test_corrupted_tokens_that_the_model_has_not_are_refused():
    model = induction()
    rows = [[1, 2, 3], [4, 5, 6]]
    data = FeatureData(
        rows,
        np.zeros((2, 0), bool),
        (),
        answers=np.array([1, 2]),
        corrupted=[[1, 2, 999], [4, 5, 7]],
    )
    with pytest.raises(InputError, match="outside the vocabulary"):
        prompts_from_data(data, model)


def test_a_preference_is_the_share_of_places_with_the_larger_logit():
    model = induction()
    prompts = prompts_from_data(pairs(model), model)
    task, reason = task_of(model, prompts)
    assert isinstance(task, PreferenceTask)
    assert reason is None
    noise = torch.randn(40, 23, model.cfg.d_vocab, generator=torch.Generator().manual_seed(0))
    noise[0, 21:] = 0.0  # equal logits: no preference either way
    rows = torch.arange(40).flip(0)
    read = task.read(noise[rows], rows)
    for row in range(40):
        share, loss = read[39 - row]
        preferred, losses = [], []
        for place, answer, wrong in zip(
            (21, 22), prompts.answers[row], prompts.wrong[row], strict=True
        ):
            logits = noise[row, place]
            good, bad = float(logits[answer]), float(logits[wrong])
            preferred.append(0.5 if good == bad else float(good > bad))
            losses.append(float(torch.logsumexp(logits, 0) - logits[answer]))
        assert share == np.mean(preferred)
        assert loss == pytest.approx(np.mean(losses), abs=1e-5)


def test_the_task_is_performed_by_the_exact_interval_and_away_where_answers_are_swapped(texts):
    model = induction()
    checked, away = (
        check_task(model, task_of(model, prompts_from_data(pairs(model, swap=s), model))[0])
        for s in (False, True)
    )
    assert checked.yes
    assert checked.chance == away.chance == 0.5
    assert (checked.value.mean, away.value.mean) == (1.0, 0.0)
    assert checked.value.low == pytest.approx(0.025 ** (1 / 40))
    assert not away.yes
    texts(checked.summary)
    assert "chance is 50 %" in checked.summary


def test_the_interval_of_some_right_is_exact():
    model = induction()
    task, _ = task_of(model, prompts_from_data(pairs(model), model))
    readings = np.array([[1.0, 0.0]] * 27 + [[0.0, 0.0]] * 13)
    value, exact = task.check(readings).value, binomtest(27, 40).proportion_ci(0.95, "exact")
    assert (value.mean, value.low, value.high) == pytest.approx((27 / 40, exact.low, exact.high))


def test_a_model_without_the_behaviour_does_not_perform_the_task():
    model = decoy()
    prompts = prompts_from_data(pairs(model, rows=64), model)
    checked = check_task(model, task_of(model, prompts)[0])
    assert not checked.yes
    assert checked.value.low <= 0.5 <= checked.value.high


def test_a_wrong_answer_that_the_model_cannot_give_is_one_line(texts):
    model = induction()
    prompts = prompts_from_data(pairs(model), model)
    far = dataclasses.replace(prompts, wrong=prompts.wrong + model.cfg.d_vocab)
    with pytest.raises(InputError, match="model's", check=texts):
        task_of(model, far)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda p: p[0] != p[1]),
        min_size=2,
        max_size=12,
    )
)
def test_a_fixed_preference_is_judged_on_rows_it_has_not_seen(drawn):
    answers, wrong = (np.array(ids)[:, None] for ids in zip(*drawn, strict=True))
    expected = []
    for i in range(len(drawn)):
        others = drawn[:i] + drawn[i + 1 :]
        worth = [
            sum(a == token for a, _ in others) - sum(w == token for _, w in others)
            for token in drawn[i]
        ]
        expected.append(1.0 if worth[0] > worth[1] else 0.5 if worth[0] == worth[1] else 0.0)
    assert fixed_preferences(answers * 1000, wrong * 1000).mean() == pytest.approx(
        np.mean(expected)
    )


def test_a_fixed_preference_is_told_only_where_it_beats_chance(texts):
    model = induction()
    data = pairs(model)
    same = dataclasses.replace(data, answers=np.full((40, 2), 3), wrong=np.full((40, 2), 4))
    said = check_task(model, task_of(model, prompts_from_data(same, model))[0]).summary
    texts(said)
    rng = np.random.default_rng(0)
    drawn = [fixed_preferences(*draw_pairs(rng)).mean() for _ in range(50)]
    assert np.mean(drawn) < 0.55


def draw_pairs(rng):
    drawn = np.stack([rng.choice(20, 2, replace=False) for _ in range(64)])
    return drawn[:, :1], drawn[:, 1:]


def test_what_judges_is_chosen_by_what_the_rows_have():
    model = induction()
    both = prompts_from_data(pairs(model), model)
    alone = prompts_from_data(pairs(model, wrong=False), model)
    assert isinstance(metric_for(model, both)[0], LogitDifference)
    assert isinstance(metric_for(model, alone)[0], LogProbability)
    assert isinstance(task_of(model, alone)[0], AnswerTask)
    assert metric_for(model, repeated_prompts(model))[0].name == "in-context advantage"


def test_the_logit_difference_is_that_of_the_asked_places():
    model = induction()
    prompts = prompts_from_data(pairs(model), model)
    judged, checked = metric_for(model, prompts, metric="logit-difference")
    assert checked is not None
    assert checked.yes
    rows = torch.tensor([5, 2])
    logits = torch.randn(2, 23, model.cfg.d_vocab, generator=torch.Generator().manual_seed(0))
    value = judged.from_full_logits(logits, rows)
    for got, row, logit in zip(value.tolist(), rows.tolist(), logits, strict=True):
        differences = [
            float(logit[place, prompts.answers[row, i]] - logit[place, prompts.wrong[row, i]])
            for i, place in enumerate((21, 22))
        ]
        assert got == pytest.approx(np.mean(differences), abs=1e-5)


def test_metrics_by_name():
    model = induction()
    prompts = prompts_from_data(pairs(model), model)
    kinds = [type(metric_for(model, prompts, metric=metric)[0]) for metric in METRICS]
    assert kinds == [LogitDifference, LogProbability, KLDivergence]
    default = metric_for(model, prompts_from_data(pairs(model, wrong=False), model))[0]
    assert metric_for(model, prompts, metric="log-probability")[0].floor == default.floor
    with torch.no_grad():
        logits = model(prompts.tokens)
    kl = metric_for(model, prompts, metric="kl")[0](logits, torch.arange(40), logits)
    assert kl.abs().max() == pytest.approx(0, abs=1e-6)


def test_a_function_is_a_metric(texts):
    model = induction()
    prompts = prompts_from_data(pairs(model), model)

    def largest(logits, rows, whole):
        """The largest logit at the end.

        And more of it.
        """
        return logits[:, -1].amax(-1)

    judged, checked = metric_for(model, prompts, metric=largest)
    assert checked is not None
    assert judged.name == "largest"
    texts(judged.definition)
    logits = torch.arange(24.0).reshape(2, 3, 4)
    assert judged(logits, torch.arange(2), logits).tolist() == [11.0, 23.0]
    assert metric_for(model, repeated_prompts(model), metric=largest)[1] is None


@pytest.mark.parametrize(
    "metric",
    [
        "logit-diference",
        "logit-difference",
        lambda logits, rows, whole: logits.mean(),
        lambda logits, rows, whole: 1.0,
        lambda logits, rows, whole: logits[:, 0, 0] / 0,
    ],
)
def test_a_metric_that_is_none_is_one_line(metric, texts):
    model = induction()
    prompts = prompts_from_data(pairs(model, wrong=False), model)
    logits = torch.zeros(40, 23, 4)
    with pytest.raises(InputError, check=texts):
        metric_for(model, prompts, metric=metric)[0](logits, torch.arange(40), logits)


def test_a_metric_of_answers_needs_answers(texts):
    model = induction()
    for metric in ("logit-difference", "log-probability"):
        with pytest.raises(InputError, check=texts):
            metric_for(model, repeated_prompts(model), metric=metric)


def test_logits_at_other_positions_are_refused():
    model = induction()
    prompts = prompts_from_data(pairs(model), model)
    with pytest.raises(InputError, match=r"answer positions, \[2, 2, d_vocab\], not \[2, 23, 5\]"):
        LogitDifference(prompts)(torch.zeros(2, 23, 5), torch.arange(2))


def test_losses_of_logits_at_other_positions_are_refused():
    prompts = repeated_prompts(model := induction(), rows=3, n_pos=12)
    rows, logits = torch.arange(3), torch.randn(3, 12, model.cfg.d_vocab)
    metric = RepeatedTokens(prompts)
    count = metric.positions(rows).shape[1]
    assert metric.from_full_logits(logits, rows).shape == (3,)
    with pytest.raises(InputError, match=rf"repeated tokens, \[3, {count}, d_vocab\], not"):
        metric(logits, rows)
    with pytest.raises(InputError, match=r"at all positions, \[3, 12, d_vocab\], not \[3, 5, "):
        InContextAdvantage(prompts)(logits[:, :5], rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_no_preference(dtype):
    model = induction()
    prompts = prompts_from_data(pairs(model), model)
    task, _ = task_of(model, prompts)
    rows = torch.arange(40)
    logits = torch.zeros(40, 23, model.cfg.d_vocab, dtype=dtype)
    logits += 0.1
    ids = (rows[:, None], torch.tensor([21, 22]), prompts.answers)
    rounding = float(torch.finfo(dtype).eps) * 0.1
    logits[ids] = 0.1 + 2 * rounding
    assert set(task.read(logits, rows)[:, 0]) == {0.5}
    logits[ids] = 0.1 + 16 * rounding
    assert set(task.read(logits, rows)[:, 0]) == {1.0}
