"""Prompts on which a model performs the task: first token, length, and where its loss rises."""

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.repetition import repetition_losses
from interp_toolkit.circuits.metrics.task_check import (
    FEWEST_AFTER,
    prompts_in,
    rising_position,
    synthetic_prompts,
)
from interp_toolkit.toys.hand_set.induction import induction
from interp_toolkit.toys.hand_set.untrained import random_model


def needs_first_token(token=5, **sizes):
    """The induction toy, whose logits are lost unless the row begins with this token."""
    model = induction(**sizes)
    first = {}

    def look(tokens, hook=None):
        first["right"] = tokens[:, 0] == token

    model.embed.register_forward_pre_hook(lambda module, args: look(args[0]))

    def spoil(value, hook):
        return value * first["right"][:, None, None].to(value)

    model.unembed.hook_in.add_hook(spoil, is_permanent=True)
    return model


def test_a_model_that_performs_the_task_gets_the_plain_prompts():
    model = induction(n_ctx=40)
    prompts, prompt_format, note = synthetic_prompts(model)
    assert (prompt_format.first, prompt_format.n_pos, note) == (None, 40, None)
    assert torch.equal(prompts.tokens, repeated_prompts(model).tokens)


def test_the_first_token_it_needs_is_found():
    model = needs_first_token(token=0, n_ctx=40)
    prompts, prompt_format, note = synthetic_prompts(model)
    assert prompt_format.first == 0
    assert (prompts.tokens[:, 0] == 0).all()
    assert "first token 0" in note
    kept, prompt_format, note = synthetic_prompts(model, bos=None)
    assert (prompt_format.first, note) == (None, None)
    assert kept.first == 0


def test_rows_are_no_longer_than_the_model_knows(texts):
    model = induction(n_ctx=64)

    def forget(value, hook):
        return value * (torch.arange(value.shape[1]) < 40)[None, :, None].to(value)

    model.unembed.hook_in.add_hook(forget, is_permanent=True)
    prompts, prompt_format, note = synthetic_prompts(model)
    assert 30 <= prompt_format.n_pos <= 42
    assert prompts.n_pos == prompt_format.n_pos
    texts(note)
    whole, prompt_format, note = synthetic_prompts(model, length=64)
    assert (whole.n_pos, note) == (64, None)


def test_the_losses_are_those_of_told_tokens():
    model = induction(n_ctx=24)
    prompts = repeated_prompts(model, rows=4)
    losses = repetition_losses(model, prompts).losses
    repeated = prompts.repeated().numpy()
    assert np.isnan(losses[~repeated]).all()
    with torch.no_grad():
        logits = model(prompts.tokens)[:, :-1].log_softmax(-1)
    want = -logits.gather(-1, prompts.tokens[:, 1:, None])[..., 0].numpy()
    np.testing.assert_allclose(losses[:, :-1][repeated[:, :-1]], want[repeated[:, :-1]], atol=1e-5)


@pytest.mark.parametrize("place", [10, 20, 30])
def test_a_planted_rise_is_found_at_its_place(place):
    rng = np.random.default_rng(place)
    losses = rng.normal(0.5, 0.2, (16, 40))
    losses[:, :5] = np.nan
    losses[:, place:] += 3
    assert rising_position(losses) == place


def test_noise_and_short_tails_are_no_rise():
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert rising_position(rng.normal(2, 1, (16, 40))) is None
    losses = np.zeros((16, 40))
    losses[:, -FEWEST_AFTER + 1 :] = 9
    assert rising_position(losses) is None or rising_position(losses) <= 40 - FEWEST_AFTER


def test_an_untrained_model_performs_the_task_nowhere():
    prompts, prompt_format, note = synthetic_prompts(random_model(1, d_vocab=20, n_ctx=24))
    assert note is None
    assert prompts.n_pos == prompt_format.n_pos == 24


def test_a_context_without_room_gives_random_rows(texts):
    prompts, _, note = synthetic_prompts(random_model(1, d_vocab=20, n_ctx=4))
    assert prompts.n_pos == 4
    assert (prompts.periods == 0).all()
    texts(note)


def test_ids_can_be_kept_out():
    model = induction(n_ctx=30)
    _, prompt_format, _ = synthetic_prompts(model)
    some = prompts_in(model, prompt_format.__class__(None, 30, tuple(range(10, 40))))
    assert some.tokens.min() >= 10
    assert some.tokens.max() < 40
