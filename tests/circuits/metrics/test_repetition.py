import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from interp_toolkit.circuits.metrics.metrics import require_finite, token_losses
from interp_toolkit.circuits.metrics.prompts import Prompts, prompts_from_tokens, repeated_prompts
from interp_toolkit.circuits.metrics.repetition import (
    RepetitionLosses,
    repetition_losses,
    why_not_measurable,
)
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.interventions import edit
from interp_toolkit.toys.hand_set.induction import GAIN, decoy, induction


def by_hand(model, prompts):
    """Rows of (known, unknown, others, accuracy), one position at a time."""
    with torch.no_grad():
        log_probs = model(prompts.tokens).double().log_softmax(-1)
    rows = []
    for row, (tokens, period) in enumerate(
        zip(prompts.tokens.tolist(), prompts.periods, strict=True)
    ):
        segment = set(tokens[prompts.first : prompts.first + period])
        known, unknown, others, right = [], [], [], []
        for place in range(prompts.first, prompts.n_pos - 1):
            loss = -log_probs[row, place]
            told = tokens[place + 1]
            if place >= prompts.first + period:
                known.append(float(loss[told]))
                others += [float(loss[token]) for token in segment - {told}]
                right.append(int(loss.argmin()) == told)
            elif place < prompts.first + period - 1:
                unknown.append(float(loss[told]))
        rows.append([np.mean(values) for values in (known, unknown, others, right)])
    return np.array(rows)


def arrays(found):
    return np.stack(
        [found.loss_repeated, found.loss_unrepeated, found.loss_others, found.accuracy_repeated],
        axis=1,
    )


@pytest.mark.parametrize("bos", [None, 0])
def test_losses_are_those_computed_one_position_at_a_time(zoo, bos):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=5, bos=bos)
    found = repetition_losses(model, prompts)
    assert np.allclose(arrays(found), by_hand(model, prompts), atol=1e-5)
    assert np.allclose(found.advantage, found.loss_unrepeated - found.loss_repeated)


def test_the_hand_set_circuit_knows_the_second_time_round():
    model = induction()
    found = repetition_losses(model, repeated_prompts(model))
    assert np.allclose(found.loss_repeated, math.log(1 + 63 * math.exp(-GAIN)), atol=1e-4)
    assert (found.accuracy_repeated == 1).all()
    assert found.uses_repetition()


def test_a_uniform_model_has_no_behaviour():
    model = decoy()
    found = repetition_losses(model, repeated_prompts(model))
    for loss in (found.loss_repeated, found.loss_unrepeated, found.loss_others):
        assert np.allclose(loss, math.log(64))
    assert not found.uses_repetition()


def test_an_advantage_that_the_context_does_not_give_is_none():
    """Flatter logits late in a row lower all losses there, whatever the tokens."""
    rng = np.random.default_rng(0)
    later, earlier = 2 + 0.1 * rng.random(16), 3 + 0.1 * rng.random(16)
    accuracy, losses = np.zeros(16), later[:, None]
    rest = accuracy, losses, np.zeros(16)
    assert not RepetitionLosses(later, earlier, later + 0.001, *rest).uses_repetition()
    assert RepetitionLosses(later, earlier, earlier, *rest).uses_repetition()


def test_rows_that_do_not_repeat_are_left_out(zoo):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4, bos=None)
    odd = torch.arange(prompts.n_pos)[None] % 11
    mixed = prompts_from_tokens(torch.cat([prompts.tokens[:2], odd, prompts.tokens[2:]]), model)
    assert np.allclose(
        arrays(repetition_losses(model, mixed)), arrays(repetition_losses(model, prompts))
    )


def test_memory_changes_nothing(zoo):
    model = zoo("gpt2")
    prompts = repeated_prompts(model, rows=7)
    small = repetition_losses(model, prompts, memory=50_000)
    assert np.allclose(arrays(small), arrays(repetition_losses(model, prompts)), atol=1e-6)
    with pytest.raises(InputError, match="one row of 12 tokens needs about"):
        repetition_losses(model, prompts, memory=100)


def test_on_every_kind_of_model(model, request):
    prompts = repeated_prompts(model, rows=4)
    if request.node.callspec.params["model"] in ("own-bare", "bert"):
        assert "bidirectional" in why_not_measurable(model, prompts)
        return
    assert np.allclose(
        arrays(repetition_losses(model, prompts)), by_hand(model, prompts), atol=1e-4
    )


def test_why_there_is_none(zoo, texts):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4)
    assert why_not_measurable(model, prompts) is None
    assert "bidirectional" in why_not_measurable(zoo("own-bare"), prompts)
    still = Prompts(prompts.tokens, 0, np.zeros(4, dtype=np.int64), "none repeats")
    texts(why_not_measurable(model, still))
    with pytest.raises(InputError, check=texts):
        repetition_losses(model, still)


def test_seeing_ahead_is_found_whatever_the_configuration_says(zoo):
    model = zoo("own")
    prompts = repeated_prompts(model, rows=4)
    with edit(model, {"blocks.0.hook_resid_post": lambda value, hook: value + value.flip(1)}):
        assert "bidirectional" in why_not_measurable(model, prompts)


def test_other_outputs_are_no_next_tokens():
    from interp_toolkit.models.transformer.config import TransformerConfig
    from interp_toolkit.models.transformer.transformer import Transformer

    sizes = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 12, "d_vocab": 11}
    model = Transformer(TransformerConfig(**sizes, d_vocab_out=5, attn_only=True))
    prompts = repeated_prompts(model, rows=4)
    assert "not next-token logits" in why_not_measurable(model, prompts)


class Made(TorchDispatchMode):
    """Bytes of the largest tensor that is made, views left out."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        for one in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in given:
                self.largest = max(self.largest, one.untyped_storage().nbytes())
        return found


def test_losses_and_checks_of_a_batch_copy_no_more_than_a_row() -> None:
    """In doubles the logits of a language model's batch were several times its memory."""
    logits = torch.randn(16, 12, 500, generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(500, (16, 12), generator=torch.Generator().manual_seed(1))
    with Made() as made:
        losses = token_losses(logits[:, :-1], tokens[:, 1:], torch.ones(16, 11, dtype=torch.bool))
        require_finite(logits)
    row = 12 * 500 * torch.finfo(torch.float64).bits // 8
    assert 0 < made.largest <= row
    wanted = -logits[:, :-1].double().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(losses, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_one_logit_that_is_not_finite_is_told(wrong) -> None:
    logits = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(0))
    require_finite(logits)
    logits[1, 2, 7] = wrong
    with pytest.raises(InputError, match="not finite"):
        require_finite(logits)
