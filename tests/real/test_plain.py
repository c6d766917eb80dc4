"""The toolkit's interventions are those that hooks on transformers' own modules make."""

import pytest
import torch

import interp_toolkit as it

pytestmark = pytest.mark.real

HEADS = [(0, 3), (12, 7), (29, 0)]


def last(model, tokens):
    with torch.no_grad():
        return model(tokens)[:, -1]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_without_output(bridge, plain_model, tokens, head):
    with it.ablate(bridge, heads=[head], how="zero"):
        found = last(bridge, tokens)
    expected = plain_model.logits(tokens, [plain_model.zero(*head)])[:, -1]
    assert (found - expected).abs().max() < 1e-3
    assert (expected - plain_model.logits(tokens)[:, -1]).abs().max() > 1e-2


def test_heads_at_their_mean(bridge, plain_model, tokens):
    with it.ablate(bridge, heads=HEADS, how="mean", reference=tokens):
        found = last(bridge, tokens)
    edits = [plain_model.mean(*head, tokens) for head in HEADS]
    assert (found - plain_model.logits(tokens, edits)[:, -1]).abs().max() < 1e-3


def test_one_position_alone(plain_model, tokens):
    there = plain_model.logits(tokens, [plain_model.zero(5, 2, positions=[4])])
    clean = plain_model.logits(tokens)
    assert torch.equal(there[:, :4], clean[:, :4])
    assert not torch.allclose(there[:, 4], clean[:, 4])


def test_outputs_and_patterns_of_heads(bridge, plain_model, tokens):
    names = ["blocks.12.attn.hook_z", "blocks.12.attn.hook_pattern"]
    with torch.no_grad():
        _, cache = bridge.run_with_cache(tokens, names_filter=names)
    assert torch.allclose(cache[names[0]], plain_model.heads(tokens)[12], atol=1e-4)
    assert torch.allclose(cache[names[1]], plain_model.patterns(tokens)[12], atol=1e-4)
