"""One streaming pass gives the same sums as every pattern kept, on every kind of model."""

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.heads.controls import matched_controls
from interp_toolkit.circuits.heads.detectors import (
    DUPLICATE_TOKEN,
    FIRST_TOKEN,
    INDUCTION,
    PREVIOUS_TOKEN,
)
from interp_toolkit.circuits.heads.patterns import _checked, pattern_sums
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.streaming import collect

KINDS = ["own", "own-rotary", "own-bare", "hooked", "native", "gpt2", "llama", "neox", "gemma2"]
ALL = [INDUCTION, DUPLICATE_TOKEN, PREVIOUS_TOKEN, FIRST_TOKEN]


def places(model, causal=True, memory=None):
    prompts, d_model = repeated_prompts(model, rows=5), int(model.cfg.d_model)
    return matched_controls(prompts, ALL, causal=causal, d_model=d_model, memory=memory)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_whole_patterns(zoo, kind, count_hooks):
    model = zoo(kind)
    found = places(model, causal=kind != "own-bare")
    sums = pattern_sums(model, found)
    assert set(sums.kinds) == {"softmax"}
    assert count_hooks(model) == 0
    for layer in range(2):
        name = f"blocks.{layer}.attn.hook_pattern"
        pattern = collect(model, found.tokens, name, "all")[name].double().numpy()
        expected = np.zeros(sums.sums.shape[1:])
        sets = zip(
            found.sets().entries.T, found.sets().which_set, found.sets().weights, strict=True
        )
        for (row, query, key), look, weight in sets:
            expected[row, :, look] += weight * pattern[row, :, query, key]
        np.testing.assert_allclose(sums.sums[layer], expected, atol=2e-6)


def test_batches_change_nothing(zoo):
    model = zoo("own")
    found = places(model)
    whole = pattern_sums(model, found).sums
    said = []
    small = pattern_sums(model, found, memory=400_000, progress=said.append).sums
    assert len(said) > 1
    np.testing.assert_allclose(whole, small, atol=1e-6)
    parts = places(model, memory=4 * found.row_bytes)
    looked: dict[int, int] = {}
    small = pattern_sums(
        model, parts, memory=400_000, look=lambda p, n: looked.setdefault(n, len(p)) and None
    ).sums
    np.testing.assert_allclose(whole, small, atol=1e-6)
    assert max(looked.values()) <= parts.n_prompts


def test_patterns_that_are_no_softmax_are_shares_and_named(zoo):
    """MixiT-like mixing, signed, and a pattern whose rows do not sum to 1."""
    model = zoo("own")
    found = places(model)
    plain = pattern_sums(model, found).sums
    point = model.hook_dict["blocks.0.attn.hook_pattern"]
    with model.hooks(fwd_hooks=[(point.name, lambda value, hook: value * 3)]):
        tripled = pattern_sums(model, found)
    assert tripled.kinds[0] == "unnormalised"
    np.testing.assert_allclose(tripled.sums[0], plain[0], atol=1e-5)
    mask = torch.ones(found.tokens.shape[1], found.tokens.shape[1]).tril()
    mix = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    with model.hooks(fwd_hooks=[(point.name, lambda value, hook: mix.expand_as(value))]):
        signed = pattern_sums(model, found)
    assert signed.kinds[0] == "signed"
    shares = (mix / mix.abs().sum(-1, keepdim=True)).numpy()
    target = found.families[0].target
    row, query, key = found.sets().entries[:, found.sets().which_set == target]
    expected = shares[query[row == 0], key[row == 0]].sum()
    np.testing.assert_allclose(signed.sums[0, 0, :, target], expected, atol=1e-6)


def test_hooks_are_gone_when_a_model_fails(zoo, count_hooks):
    model = zoo("own")
    found = places(model)
    point = model.hook_dict["blocks.1.attn.hook_pattern"]

    def fail(value, hook):
        raise RuntimeError("on purpose")

    point.add_hook(fail, prepend=True)
    try:
        with pytest.raises(RuntimeError, match="on purpose"):
            pattern_sums(model, found)
        assert count_hooks(model) == 2  # the test's own, as handle and as hook
    finally:
        model.reset_hooks()


def test_memory_too_small_is_said(zoo):
    with pytest.raises(InputError, match="memory"):
        pattern_sums(zoo("own"), places(zoo("own")), memory=100)


@pytest.mark.parametrize("kind", ["own", "native", "gpt2"])
def test_weights_that_are_not_finite_are_said(zoo, kind, count_hooks, texts):
    model = zoo(kind)

    def spoil(value, hook):
        value = value.clone()
        value[:, :, 2] = torch.nan
        return value

    point = model.hook_dict["blocks.1.attn.hook_q"]
    point.add_hook(spoil)
    before = count_hooks(model)
    try:
        with pytest.raises(InputError, check=texts):
            pattern_sums(model, places(model))
        assert count_hooks(model) == before
    finally:
        model.reset_hooks()


def test_mixing_that_does_not_depend_on_the_input_is_that_of_every_row():
    mix = torch.rand(1, 2, 3, 3)
    assert torch.equal(_checked(mix, 5, 2, 3), mix.expand(5, 2, 3, 3))
    with pytest.raises(InputError, match="shape"):
        _checked(torch.rand(4, 2, 3, 3), 5, 2, 3)
