"""The doctor finds faults of the methods that users call, and of which hook points there are."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformer_lens.hook_points import HookPoint

import interp_toolkit as it
from interp_toolkit.diagnosis.sections.firing import FREE, THERE
from interp_toolkit.diagnosis.sections.methods import CACHE, EDITS, GONE

Z, POST = "blocks.1.attn.hook_z", "blocks.1.hook_resid_post"


def hooks_ignored(model):
    """`run_with_hooks` runs the model and nothing else."""
    model.run_with_hooks = lambda tokens, *args, **kwargs: model(tokens)


def hooks_watch_only(model):
    """`run_with_hooks` shows values to hooks and drops what they return."""
    whole = model.run_with_hooks

    def deaf(tokens, fwd_hooks=(), **kwargs):
        def watching(hook_function):
            def watch(value, hook):
                hook_function(value, hook=hook)

            return watch

        return whole(tokens, fwd_hooks=[(name, watching(f)) for name, f in fwd_hooks], **kwargs)

    model.run_with_hooks = deaf


def hooks_elsewhere(model):
    """`run_with_hooks` takes queries for keys."""
    whole = model.run_with_hooks

    def elsewhere(tokens, fwd_hooks=(), **kwargs):
        swapped = [(name.replace("hook_q", "hook_k"), f) for name, f in fwd_hooks]
        return whole(tokens, fwd_hooks=swapped, **kwargs)

    model.run_with_hooks = elsewhere


def hooks_stay(model):
    """`run_with_hooks` leaves its hooks on."""
    whole = model.run_with_hooks
    model.run_with_hooks = lambda *args, **kwargs: whole(*args, reset_hooks_end=False, **kwargs)


def hooks_refused(model):
    def refuse(*args, **kwargs):
        raise RuntimeError("no hooks today")

    model.run_with_hooks = refuse


def _cache_changed(model, change):
    whole = model.run_with_cache

    def changed(*args, **kwargs):
        output, cache = whole(*args, **kwargs)
        return output, change(dict(cache.items()))

    model.run_with_cache = changed


def cache_of_zeros(model):
    _cache_changed(model, lambda cache: {n: torch.zeros_like(v) for n, v in cache.items()})


def cache_lacks(model):
    _cache_changed(model, lambda cache: {n: v for n, v in cache.items() if n != POST})


def cache_in_other_rows(model):
    _cache_changed(model, lambda cache: {n: v.flip(0) for n, v in cache.items()})


def cache_with_other_logits(model):
    whole = model.run_with_cache

    def changed(*args, **kwargs):
        output, cache = whole(*args, **kwargs)
        return 2 * getattr(output, "logits", output), cache

    model.run_with_cache = changed


class Twice(HookPoint):
    """A hook point that the model calls twice in a row."""

    def __call__(self, x, *args, **kwargs):
        return super().__call__(super().__call__(x, *args, **kwargs), *args, **kwargs)


def fires_twice(model):
    model.hook_dict[POST].__class__ = Twice


def replaced_by_identity(model):
    model.blocks[1].attn.hook_z = nn.Identity()
    model.setup()


def _without(model, names):
    """`hook_dict` without these names."""
    whole = type(model).hook_dict.fget

    class Lacking(type(model)):
        hook_dict = property(lambda self: {n: p for n, p in whole(self).items() if n not in names})

    Lacking.__name__ = type(model).__name__
    model.__class__ = Lacking


def not_listed(model):
    """A hook point under none of its names."""
    point = model.hook_dict[Z]
    names = [name for name, other in model.hook_dict.items() if other is point]
    if hasattr(model, "original_model"):  # a bridge, which makes the dictionary when asked
        _without(model, names)
        return
    for name in names:
        del model.hook_dict[name]


def usual_name_lost(model):
    """A hook point under another name of its own only."""
    _without(model, [Z])


def hook_left(model):
    model.hook_dict[POST].add_hook(lambda value, hook: value * 1.5, is_permanent=True)


EVERYWHERE = ("own", "hooked", "gpt2", "native")
TWO = ("own", "gpt2")
#: the fault, the models, and the check that has to fail
PLANTED = [
    (hooks_ignored, EVERYWHERE, EDITS),
    (hooks_watch_only, TWO, EDITS),
    (hooks_elsewhere, TWO, EDITS),
    (hooks_refused, TWO, EDITS),
    (hooks_stay, EVERYWHERE, GONE),
    (cache_of_zeros, EVERYWHERE, CACHE),
    (cache_lacks, TWO, CACHE),
    (cache_in_other_rows, TWO, CACHE),
    (cache_with_other_logits, TWO, CACHE),
    (fires_twice, EVERYWHERE, "hook_resid_post fires once"),
    (replaced_by_identity, ("own", "hooked"), THERE),
    (not_listed, EVERYWHERE, THERE),
    (usual_name_lost, ("gpt2", "native"), THERE),
    (hook_left, EVERYWHERE, FREE),
]
CASES = [
    pytest.param(fault, kind, check, id=f"{fault.__name__}-{kind}")
    for fault, kinds, check in PLANTED
    for kind in kinds
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "kind", "check"), CASES)
def test_a_planted_fault_is_found(made, fault, kind, check) -> None:
    model = made(kind)
    fault(model)
    result = it.doctor(model)
    assert result.status == "faults_found"
    assert check in [found.name for found in result.faults], result.faults
    assert result.evidence.bare_passes < 20


def test_a_hook_left_behind_is_named_with_its_number(made, texts) -> None:
    model = made("own")
    for _ in range(2):
        hook_left(model)
    result = it.doctor(model)
    found = next(check for check in result.faults if check.name == FREE)
    texts(found.summary)
    assert len(model.hook_dict[POST].fwd_hooks) == 2  # the model is left as it was


def test_a_hook_that_only_watches_is_told_and_is_no_fault(made) -> None:
    model = made("own")
    model.hook_dict[POST].add_hook(lambda value, hook: None)
    result = it.doctor(model)
    assert result.status == "sound"
    found = next(check for check in result.checks if check.name == FREE)
    assert (found.answer, list(found.locations)) == ("differs", [POST])
    assert len(model.hook_dict[POST].fwd_hooks) == 1


def test_what_breaks_and_is_left_out_is_not_missing(made, texts) -> None:
    model = made("own")

    def fail(*args):
        raise RuntimeError("no")

    class Breaking(HookPoint):
        def add_hook(self, *args, **kwargs):
            super().add_hook(fail)

    model.hook_dict[Z].__class__ = Breaking
    result = it.doctor(model)
    answers = {check.name: check.answer for check in result.checks}
    assert answers["the model runs with hooks"] == "failed"
    assert answers[THERE] == "passed"
