"""Tables against the model itself: the same logits, the same gradients, and no hook passed over."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.models.running import forward
from interp_toolkit.models.running.interventions import put_heads
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.models.transformer.collapsed import (
    collapses,
    read_logits,
    table_logits,
    tables_pay,
)
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer


def model_of(**options) -> Transformer:
    given = {
        "n_layers": 1,
        "d_model": 12,
        "n_ctx": 7,
        "d_head": 5,
        "n_heads": 2,
        "d_vocab": 6,
        "d_vocab_out": 4,
        "attn_only": True,
        "normalization_type": None,
        "dtype": torch.float64,
        "seed": 3,
    }
    model = Transformer(TransformerConfig(**{**given, **options}))
    with torch.no_grad():  # biases start at zero, where a mistake would not show
        generator = torch.Generator().manual_seed(4)
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise.to(parameter.dtype))
    return model


def some_rows(n_rows: int = 50, n_pos: int = 7, d_vocab: int = 6) -> torch.Tensor:
    return torch.randint(d_vocab, (n_rows, n_pos), generator=torch.Generator().manual_seed(5))


KINDS = {
    "causal": {},
    "bidirectional": {"attention_dir": "bidirectional"},
    "no biases": {"biases": False},
    "no positions": {"positional_embedding_type": "none"},
    "no attention scale": {"use_attn_scale": False},
    "grouped-query": {"n_heads": 4, "n_key_value_heads": 2},
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tables_give_the_models_logits_and_gradients(kind: str) -> None:
    model, tokens = model_of(**KINDS[kind]), some_rows()
    read = torch.randint(2, 6, (50, 3), generator=torch.Generator().manual_seed(6))
    weight = torch.randn(50, 3, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    whole = model(tokens).gather(1, read[:, :, None].expand(-1, -1, 4))
    (whole * weight).sum().backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    ours = table_logits(model, tokens, read, range(2, 6))
    torch.testing.assert_close(ours, whole, rtol=1e-12, atol=1e-12)
    (ours * weight).sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, wanted[name], rtol=1e-10, atol=1e-10)


@settings(max_examples=40)
@given(
    n_rows=st.integers(1, 60),
    n_pos=st.integers(1, 7),
    heads=st.integers(1, 3),
    causal=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_reading_is_the_forward_pass_gathered(n_rows, n_pos, heads, causal, seed) -> None:
    direction = "causal" if causal else "bidirectional"
    model = model_of(n_heads=heads, attention_dir=direction)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(6, (n_rows, n_pos), generator=generator)
    read = torch.randint(n_pos, (n_rows, 2), generator=generator)
    expected = model(tokens).gather(1, read[:, :, None].expand(-1, -1, 4))
    torch.testing.assert_close(read_logits(model, tokens, read), expected, rtol=1e-10, atol=1e-10)


def test_float32_agrees_to_its_precision() -> None:
    model, tokens = model_of(dtype=torch.float32), some_rows(200)
    read = torch.full((200, 1), 6)
    assert tables_pay(model, 200)
    expected = model(tokens)[:, 6:]
    torch.testing.assert_close(read_logits(model, tokens, read), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"n_layers": 2},
        {"normalization_type": "LN"},
        {"attn_only": False, "d_mlp": 8, "act_fn": "relu"},
        {"positional_embedding_type": "rotary", "d_head": 4},
        {"attn_scores_soft_cap": 5.0},
        {"output_logits_soft_cap": 5.0},
    ],
)
def test_what_is_not_two_tables_runs_as_a_whole(options) -> None:
    model, tokens = model_of(**options), some_rows()
    assert not collapses(model)
    read = torch.full((50, 1), 4)
    torch.testing.assert_close(read_logits(model, tokens, read), model(tokens)[:, 4:5])


def test_a_hook_is_not_passed_over() -> None:
    model, tokens, read = model_of(), some_rows(), torch.full((50, 1), 4)
    plain = read_logits(model, tokens, read)
    with model.hooks([("blocks.0.attn.hook_z", lambda z, hook: 0 * z)]):
        assert not collapses(model)
        ablated = read_logits(model, tokens, read)
    assert not torch.allclose(plain, ablated)
    assert collapses(model)


def test_tables_larger_than_the_scores_are_not_made() -> None:
    model = model_of()
    assert tables_pay(model, 36)
    assert not tables_pay(model, 35)


@pytest.mark.parametrize("bad", [-1, 6])
def test_tokens_outside_the_vocabulary_are_refused_as_ever(bad: int, texts) -> None:
    from interp_toolkit.errors import InputError

    tokens = some_rows()
    tokens[3, 2] = bad
    with pytest.raises(InputError, match="model's", check=texts):
        read_logits(model_of(), tokens, torch.full((50, 1), 4))


@pytest.mark.parametrize("n_rows", [0, 1, 5, 50])
def test_batches_for_the_caches_change_no_logit(n_rows: int, monkeypatch) -> None:
    model, tokens = model_of(normalization_type="LN"), some_rows(n_rows)
    read = torch.tensor([[6, 2]]).expand(n_rows, -1)
    whole = read_logits(model, tokens, read)
    monkeypatch.setattr(forward, "CACHED_TOKENS", 21)
    assert len(forward.cached_batches(model, tokens)) == max(-(-n_rows // 3), 1)
    torch.testing.assert_close(read_logits(model, tokens, read), whole)


def test_what_is_attached_sees_all_rows_at_once(monkeypatch) -> None:
    """It may have something for each of them, as a head's output patched from other rows."""
    model, tokens = model_of(normalization_type="LN"), some_rows()
    read = torch.full((50, 1), 6)
    other = collect(model, tokens.flip(0), "*.hook_z", "all")["blocks.0.attn.hook_z"]
    monkeypatch.setattr(forward, "CACHED_TOKENS", 21)
    with put_heads(model, {(0, 0): other[:, :, 0], (0, 1): other[:, :, 1]}):
        patched = read_logits(model, tokens, read)
    assert patched.shape == (50, 1, 4)
