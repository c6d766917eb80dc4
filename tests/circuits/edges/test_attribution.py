"""Attribution to edges against what ablating them changes, where first order is exact."""

import pytest
import torch

from interp_toolkit.circuits.edges.passes.attribution import attribute
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import Node

KINDS = ("own", "own-rotary", "own-bare", "hooked-parallel", "llama", "neox", "alibi")
SMALL = 3e-3  # of the writes: second order is then a few thousandths of first


def _value(logits):
    return logits[:, -1, 4] - logits[:, -1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_small_changes_have_the_effect_that_is_estimated(zoo, tokens, kind):
    engine = PatchedModel(zoo(kind))
    whole = engine.whole(tokens)
    generator = torch.Generator().manual_seed(3)
    reference = [
        w + SMALL * w.std() * torch.randn(w.shape, generator=generator) for w in whole.trace.writes
    ]
    estimates = attribute(engine, whole, reference, _value, steps=1)
    assert estimates.shape == (len(tokens), len(engine.wiring.edges))
    effects = torch.stack(
        [
            _value(engine.logits(whole, reference, [e])) - _value(whole.logits)
            for e in engine.wiring.edges
        ],
        dim=1,
    )
    scale = float(effects.abs().max())
    rounding = 1e-6 * float(whole.logits.abs().max())
    torch.testing.assert_close(estimates, effects, atol=0.05 * scale + rounding, rtol=0)
    assert torch.corrcoef(torch.stack([estimates.flatten(), effects.flatten()]))[0, 1] > 0.99


def test_attribution_is_exact_where_the_model_is_linear(zoo, tokens):
    """Without a norm, what the logits read enters them linearly: estimates are effects."""
    engine = PatchedModel(zoo("own-bare"))
    whole = engine.whole(tokens)
    reference = [w.mean(0) for w in whole.trace.writes]
    estimates = attribute(engine, whole, reference, _value)
    found = 0
    for i, edge in enumerate(engine.wiring.edges):
        if edge.target == Node("logits"):
            effect = _value(engine.logits(whole, reference, [edge])) - _value(whole.logits)
            torch.testing.assert_close(estimates[:, i], effect, atol=1e-5, rtol=1e-4)
            found += 1
    assert found == len(engine.wiring.writers)


def test_places_are_where_the_value_reads(zoo, tokens):
    engine = PatchedModel(zoo("llama"))
    whole = engine.whole(tokens)
    reference = [w.mean(0) for w in whole.trace.writes]
    last = torch.full((len(tokens), 1), tokens.shape[1] - 1)
    everywhere = attribute(engine, whole, reference, _value, steps=2)
    there = attribute(engine, whole, reference, _value, last, steps=2)
    torch.testing.assert_close(there, everywhere, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("attn_only", [True, False])
def test_it_is_what_hooks_give(attn_only, benchmarks):
    """EAP-IG's own way, with TransformerLens' hooks: the same numbers, edge by edge."""
    lens = pytest.importorskip("transformer_lens")
    pytest.importorskip(
        "transformer_lens.HookedTransformer", reason="TransformerLens 4 has no HookedTransformer"
    )
    torch.manual_seed(0)
    cfg = lens.HookedTransformerConfig(
        n_layers=2,
        d_model=24,
        n_ctx=8,
        d_head=6,
        n_heads=4,
        d_vocab=11,
        d_mlp=32,
        act_fn="gelu",
        attn_only=attn_only,
        normalization_type="LN",
        device="cpu",
    )
    model = lens.HookedTransformer(cfg)
    model.cfg.use_split_qkv_input = model.cfg.use_attn_result = model.cfg.use_hook_mlp_in = True
    clean, corrupted = torch.randint(0, 11, (2, 3, 6), generator=torch.Generator().manual_seed(1))
    engine = PatchedModel(model)
    reference = engine.whole(corrupted).trace.writes
    ours = attribute(engine, engine.whole(clean), reference, _value, steps=3)
    theirs = benchmarks("plain_attribution").hooked_attribution(model, clean, corrupted, _value, 3)
    assert set(theirs) == {edge.eap_name for edge in engine.wiring.edges}
    expected = torch.stack([theirs[edge.eap_name].detach() for edge in engine.wiring.edges], dim=1)
    torch.testing.assert_close(ours, expected, atol=2e-5 * float(expected.abs().max()), rtol=1e-3)
