"""Fixed random mixing against plain loops, and what a hook at the pattern sees and does."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import ValidationError
from torch.testing import assert_close

from interp_toolkit.models.transformer.attention import mixing_matrices, mixing_variance
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

VARIANCES = ["1/(d_head m)", "1/(n m)", "1/sqrt(n m)"]
SHAPE = {"n_layers": 2, "d_model": 12, "n_ctx": 7, "d_head": 6, "n_heads": 2, "d_vocab": 11}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def config(**options):
    return TransformerConfig(
        **{"mixing": VARIANCES[0], "attn_only": True, "seed": 0, **SHAPE, **options}
    )


def plain(drawn, causal):
    """I + W less each row's mean, over the keys that the query sees, entry by entry."""
    m = len(drawn)
    mixing = torch.zeros(m, m, dtype=torch.float64)
    for query in range(m):
        keys = range(query + 1) if causal else range(m)
        mean = sum(float(drawn[query][key]) for key in keys) / len(keys)
        for key in keys:
            mixing[query, key] = float(drawn[query][key]) - mean + (1.0 if key == query else 0.0)
    return mixing


@given(
    st.integers(1, 6).flatmap(
        lambda m: hnp.arrays("float64", (m, m), elements=st.floats(-1e3, 1e3))
    ),
    st.booleans(),
)
def test_a_mixing_matrix_is_the_identity_and_what_sums_to_zero(drawn, causal):
    mixing = mixing_matrices(torch.from_numpy(drawn), causal=causal)
    assert_close(mixing, plain(drawn, causal), rtol=1e-12, atol=1e-9)
    assert_close(mixing.sum(-1), torch.ones(len(drawn), dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("variance", VARIANCES)
def test_every_length_has_rows_that_sum_to_one(variance, direction):
    model = Transformer(config(mixing=variance, attention_dir=direction, dtype="float64"))
    for n_pos in range(1, 8):
        _, cache = model.run_with_cache(torch.zeros(3, n_pos, dtype=torch.int64))
        for layer in range(2):
            pattern = cache["pattern", layer]
            assert pattern.shape == (3, 2, n_pos, n_pos)
            assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]), rtol=0, atol=1e-12)
            above = pattern.triu(1)
            assert bool(above.any()) == (direction == "bidirectional" and n_pos > 1)


@pytest.mark.parametrize(
    ("variance", "expected"),
    [("1/(d_head m)", 1 / (8 * 64)), ("1/(n m)", 1 / (128 * 64)), ("1/sqrt(n m)", 1 / 8192**0.5)],
)
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_entries_have_the_variance_that_is_named(variance, expected, direction):
    """Centering over t keys leaves 1 - 1/t of it; 16 heads' 33,000 entries give it to 1 %."""
    cfg = config(
        n_layers=1,
        d_model=128,
        n_ctx=64,
        d_head=8,
        n_heads=16,
        mixing=variance,
        attention_dir=direction,
        dtype="float64",
    )
    assert mixing_variance(cfg) == pytest.approx(expected, rel=1e-12)
    noise = Transformer(cfg).mixing[0] - torch.eye(64)
    seen = torch.ones(64, 64, dtype=torch.bool)
    seen = seen.tril() if direction == "causal" else seen
    keys = seen.sum(-1, keepdim=True).double()
    whole = (noise.square() / (1 - 1 / keys))[:, 1:][:, seen[1:]]
    assert whole.mean().item() == pytest.approx(expected, rel=0.04)
    assert noise[:, 1:].sum(-1).abs().max() < 1e-12


def test_mixing_is_drawn_last_and_from_the_seed():
    """A seed's parameters are those of any model; the matrices are what the generator says next."""
    model = Transformer(config(seed=5, normalization_type="RMS"))
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        if "W_" in name:
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            assert_close(parameter.data, (drawn * model.cfg.initializer_range).float())
    std = mixing_variance(model.cfg) ** 0.5
    for block in model.blocks:
        drawn = torch.randn(2, 7, 7, generator=generator, dtype=torch.float64)
        for mixing, head in zip(block.attn.mixing, drawn * std, strict=True):
            assert_close(mixing, plain(head, causal=True).float())


def test_the_pattern_is_the_mixing_matrix_and_looking_changes_no_bit():
    model = Transformer(config())
    logits, cache = model.run_with_cache(TOKENS)
    assert torch.equal(logits, model(TOKENS))
    for layer in range(2):
        expected = model.mixing[layer, :, :6, :6].expand(2, -1, -1, -1)
        assert torch.equal(cache["pattern", layer], expected)


@pytest.mark.parametrize("n_edited", [1, 2])
def test_an_edit_of_the_pattern_takes_effect(n_edited):
    """In some rows of the batch, by hand: z is the new pattern times the values, head by head."""
    model = Transformer(config(dtype="float64"))
    generator = torch.Generator().manual_seed(1)
    new = torch.randn(2, 6, 6, generator=generator, dtype=torch.float64)

    def edit(pattern, hook):
        pattern[:n_edited] = new
        return pattern

    seen = {}

    def keep(value, hook):
        seen[hook.name] = value.detach()

    before = model.mixing.clone()
    edited = [("blocks.1.attn.hook_pattern", edit)]
    watched = [(f"blocks.1.attn.hook_{name}", keep) for name in ("v", "z")]
    model.run_with_hooks(TOKENS, fwd_hooks=edited + watched)
    assert torch.equal(model.mixing, before)
    v, z = seen["blocks.1.attn.hook_v"], seen["blocks.1.attn.hook_z"]
    for row in range(2):
        for head in range(2):
            matrix = new[head] if row < n_edited else model.mixing[1, head, :6, :6]
            for query in range(6):
                expected = sum(matrix[query, key] * v[row, key, head] for key in range(6))
                assert_close(z[row, query, head], expected, rtol=1e-12, atol=1e-12)


def gradient(model, attach):
    """The gradient of a number at the last layer's pattern, and at every parameter."""
    model.zero_grad()
    seen = {}
    with model.hooks(**attach(seen)):
        model(TOKENS).square().sum().backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    return seen, grads


def test_gradients_flow_to_the_pattern_and_change_no_other():
    model = Transformer(config(dtype="float64"))
    where = "blocks.1.attn.hook_pattern"

    def nothing(seen):
        return {}

    def keep(seen):
        def hook(pattern, hook):
            pattern.retain_grad()
            seen["pattern"] = pattern

        return {"fwd_hooks": [(where, hook)]}

    def backward(seen):
        return {"bwd_hooks": [(where, lambda grad, hook: seen.__setitem__("grad", grad.clone()))]}

    _, expected = gradient(model, nothing)
    kept, grads = gradient(model, keep)
    backwards, same = gradient(model, backward)
    for name, value in expected.items():
        assert torch.equal(grads[name], value), name
        assert torch.equal(same[name], value), name
    found = kept["pattern"].grad
    assert torch.equal(found, backwards["grad"])
    step = torch.zeros_like(found)
    for at in [(0, 0, 3, 1), (1, 1, 5, 5), (1, 0, 2, 4)]:  # the last one, a key that comes later
        step.zero_()[at] = 1e-6
        values = [
            model.run_with_hooks(
                TOKENS, fwd_hooks=[(where, lambda p, hook, sign=sign: p + sign * step)]
            )
            .square()
            .sum()
            for sign in (1, -1)
        ]
        assert_close((values[0] - values[1]).item() / 2e-6, found[at].item(), rtol=1e-6, atol=1e-7)


def test_no_gradient_is_taken_of_the_matrices():
    model = Transformer(config())
    model(TOKENS).sum().backward()
    assert not model.blocks[0].attn.mixing.requires_grad
    assert "blocks.0.attn.mixing" in dict(model.named_buffers())
    assert "blocks.0.attn.mixing" not in dict(model.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_moved_model_is_one_made_so(dtype):
    made, moved = Transformer(config(dtype=dtype)), Transformer(config(dtype="float64")).to(dtype)
    assert moved.cfg.dtype == moved.mixing.dtype == dtype
    assert torch.equal(made.mixing, moved.mixing)
    assert torch.equal(made(TOKENS), moved(TOKENS))
    looked, _ = made.run_with_cache(TOKENS)
    assert torch.equal(looked, made(TOKENS))


def test_there_are_no_queries_and_keys():
    model = Transformer(config(biases=False))
    for name in ("W_Q", "W_K", "b_Q", "b_K", "QK"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(model, name)
    assert model.W_V.shape == (2, 2, 12, 6)
    assert model.b_V.shape == (2, 2, 6)
    assert not hasattr(Transformer(config(mixing=None)), "mixing")
    with pytest.raises(KeyError, match="hook_attn_scores"):
        model.run_with_hooks(
            TOKENS, fwd_hooks=[("blocks.0.attn.hook_attn_scores", lambda x, hook: x)]
        )


@pytest.mark.parametrize(
    "options",
    [
        {"positional_embedding_type": "rotary"},
        {"n_key_value_heads": 1},
        {"attn_scores_soft_cap": 3.0},
        {"mixing": "1/n"},
    ],
)
def test_options_that_mixing_cannot_have_are_refused(options, texts):
    with pytest.raises(ValidationError, check=texts):
        config(**options)


def test_a_copy_has_its_own_matrices_and_a_tied_copy_its_own_embedding():
    model = Transformer(config(tied_embeddings=True))
    other = copy.deepcopy(model)
    expected = model(TOKENS)
    with torch.no_grad():
        other.embed.W_E.mul_(2)
        other.blocks[0].attn.mixing.zero_()
    assert torch.equal(model(TOKENS), expected)
    assert torch.equal(other.W_U, other.W_E.T)
    assert other.unembed.W_U.data_ptr() == other.embed.W_E.data_ptr()
    assert "unembed.W_U" not in other.state_dict()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(TOKENS), expected)


def test_the_unembedding_bias_is_an_option_of_its_own(texts):
    for biases in (True, False):
        for given_bias, expected in ((None, biases), (True, True), (False, False)):
            model = Transformer(config(biases=biases, unembed_bias=given_bias))
            assert ("unembed.b_U" in model.state_dict()) == expected
            assert model.b_U.shape == (11,)
    with pytest.raises(ValidationError, match="gate_biases", check=texts):
        TransformerConfig(**SHAPE, d_mlp=4, act_fn="relu", gate_biases=True)
    with pytest.raises(ValidationError, match="one vocabulary"):
        config(tied_embeddings=True, d_vocab_out=5)


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_unshaped_mixing_is_what_is_drawn(direction):
    """Of variance 1/m on the keys that are seen: no identity, no centering, at every length."""
    cfg = config(n_layers=1, n_ctx=64, n_heads=6, d_head=2, mixing="1/m unshaped", dtype="float64")
    model = Transformer(cfg.model_copy(update={"attention_dir": direction}))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "W_" in name:
            torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    drawn = torch.randn(6, 64, 64, generator=generator, dtype=torch.float64) / 8
    own = drawn.tril() if direction == "causal" else drawn
    assert_close(model.blocks[0].attn.mixing, own)
    _, cache = model.run_with_cache(torch.zeros(1, 5, dtype=torch.int64))
    assert_close(cache["pattern", 0][0], own[:, :5, :5])
