"""Started in the middle, every kind of model gives what a whole pass gives."""

import pytest
import torch

from interp_toolkit.models.running.forward import can_unembed_at, run, unembedded_at
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.restart import can_restart, entry, run_from

BRIDGES = ("native", "native-rotary", "gpt2", "gpt2-folded", "llama", "mistral", "neox", "gemma2")


def whole(model, tokens, layer):
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens, names_filter=entry(layer))
    return getattr(logits, "logits", logits), cache[entry(layer)]


@pytest.fixture(params=[*BRIDGES, "bloom", "own", "hooked-rotary"])
def started(request, zoo):
    return zoo(request.param)


def test_every_bridge_gives_the_logits_of_a_whole_pass(started, tokens):
    assert can_restart(started)
    logits, residual = whole(started, tokens, 1)
    again = run_from(started, residual, 1, tokens)
    torch.testing.assert_close(again, logits, atol=1e-4, rtol=1e-4)


def test_hooks_of_later_layers_fire_and_of_earlier_ones_do_not(started, tokens, count_hooks):
    before, points, fired = count_hooks(started), hook_points(started), []
    _, residual = whole(started, tokens, 1)
    hooks = [
        (points[f"blocks.{n}.attn.hook_z"], lambda value, hook, n=n: fired.append(n))
        for n in (0, 1)
    ]
    run_from(started, residual, 1, tokens, hooks)
    assert fired == [1]
    assert count_hooks(started) == before


def test_what_enters_the_layer_is_what_was_given(started, tokens):
    _, residual = whole(started, tokens, 1)
    seen, point = [], hook_points(started)[entry(1)]
    run_from(started, residual + 1, 1, tokens, [(point, lambda v, hook: seen.append(v.clone()))])
    torch.testing.assert_close(seen[0], residual + 1)


def test_an_exception_leaves_the_model_as_it_was(started, tokens, count_hooks):
    before, (logits, residual) = count_hooks(started), whole(started, tokens, 1)
    own = [dict(block.__dict__) for block in started.blocks]

    def fail(value, hook):
        raise RuntimeError("on purpose")

    point = hook_points(started)["blocks.1.attn.hook_z"]
    with pytest.raises(RuntimeError, match="on purpose"):
        run_from(started, residual, 1, tokens, [(point, fail)])
    assert [block.__dict__.keys() for block in started.blocks] == [o.keys() for o in own]
    assert count_hooks(started) == before
    torch.testing.assert_close(whole(started, tokens, 1)[0], logits)


def test_logits_of_some_places_are_those_of_a_whole_pass(started, tokens, count_hooks):
    assert can_unembed_at(started)
    before, whole_pass = count_hooks(started), run(started, tokens)
    at = torch.tensor([0, 3, 4])
    with unembedded_at(started, at):
        some = run(started, tokens)
    torch.testing.assert_close(some, whole_pass[:, at], atol=1e-5, rtol=1e-5)
    assert torch.equal(run(started, tokens), whole_pass)
    assert count_hooks(started) == before


def test_a_model_that_mixes_positions_after_the_last_layer_is_not_unembedded_in_part(zoo):
    model = zoo("own")

    def mixed(module, args, logits):
        return logits - logits.mean(1, keepdim=True)

    handle = model.unembed.register_forward_hook(mixed)
    assert not can_unembed_at(model)
    handle.remove()
