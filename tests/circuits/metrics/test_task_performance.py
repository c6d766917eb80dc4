"""Whether a model does a behaviour at all: told with its interval, or refused with it."""

import dataclasses

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.task_check import task_performance
from interp_toolkit.errors import InputError
from interp_toolkit.toys.hand_set.induction import induction
from interp_toolkit.toys.hand_set.untrained import random_model


def copying(model, rows=32, *, corrupted=True):
    """Repeats that ask for their next token; corrupted: it is another one in the first segment."""
    whole = repeated_prompts(model, rows=rows, n_pos=25).tokens.numpy()
    tokens, answers = whole[:, :-1], whole[:, -1:]
    free = [np.setdiff1d(np.arange(model.cfg.d_vocab), row)[0] for row in whole]
    wrong = tokens[:, 1:2]
    wrong = np.where(wrong == answers, tokens[:, 2:3], wrong)
    changed = np.where(tokens == answers, np.array(free)[:, None], tokens)
    prompts = repeated_prompts(model, rows=rows, n_pos=24)
    return dataclasses.replace(
        prompts,
        tokens=torch.from_numpy(tokens),
        answers=torch.from_numpy(answers),
        answer_positions=torch.full((rows, 1), 23),
        wrong=torch.from_numpy(wrong),
        corrupted=torch.from_numpy(changed) if corrupted else None,
    )


def test_a_model_that_does_it_is_told_with_its_corrupted_prompts(texts):
    model = induction()
    performance = task_performance(model, copying(model))
    assert performance.clean.yes
    assert performance.clean.value.mean == 1.0
    assert performance.corrupted is not None
    assert performance.corrupted.value.mean < 0.7
    texts(performance.summary)
    alone = task_performance(model, copying(model, corrupted=False))
    assert alone.corrupted is None
    assert alone.summary == alone.clean.summary


def test_a_model_that_does_not_is_refused_with_its_figure(texts):
    model = random_model(0)
    with pytest.raises(InputError, check=texts):
        task_performance(model, copying(model))


def test_rows_without_answers_are_refused(texts):
    model = induction()
    with pytest.raises(InputError, check=texts):
        task_performance(model, repeated_prompts(model))
