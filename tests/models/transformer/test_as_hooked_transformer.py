"""`Transformer` against `HookedTransformer` itself: every hook's value, option by option."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

try:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
except ImportError:
    pytest.skip("TransformerLens 4 has no HookedTransformer", allow_module_level=True)

#: fields of TransformerConfig that HookedTransformerConfig does not have
OWN = ("biases", "final_norm", "gate_biases", "unembed_bias", "tied_embeddings", "mixing")
BUFFERS = ("mask", "IGNORE", "rotary_sin", "rotary_cos")
SHAPE = {"n_layers": 2, "d_model": 12, "n_ctx": 9, "d_head": 6, "n_heads": 4, "d_vocab": 11}
MLP = {"d_mlp": 10, "act_fn": "gelu"}
ROTARY = {"positional_embedding_type": "rotary"}
SHORTFORMER = {"positional_embedding_type": "shortformer"}
NORMS = ["LN", "LNPre", "RMS", "RMSPre", None]
ACTIVATIONS = ["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu"]
OPTIONS = {
    "defaults": {},
    "attention only": {"attn_only": True},
    **{f"norm {kind}": {"normalization_type": kind} for kind in NORMS},
    **{f"final rms {kind}": {"normalization_type": kind, "final_rms": True} for kind in NORMS},
    "eps": {"eps": 0.5},
    **{f"mlp {name}": {"act_fn": name} for name in ACTIVATIONS},
    **{f"gated {name}": {"act_fn": name, "gated_mlp": True} for name in ACTIVATIONS},
    "rotary": ROTARY,
    "rotary adjacent": dict(**ROTARY, rotary_adjacent_pairs=True),
    "rotary partial": dict(**ROTARY, rotary_dim=4),
    "rotary partial adjacent": dict(**ROTARY, rotary_dim=2, rotary_adjacent_pairs=True),
    "rotary base": dict(**ROTARY, rotary_base=100.0),
    "shortformer": SHORTFORMER,
    "shortformer grouped": dict(n_key_value_heads=2, **SHORTFORMER),
    "bidirectional": {"attention_dir": "bidirectional"},
    "grouped": {"n_key_value_heads": 2},
    "one key-value head": {"n_key_value_heads": 1},
    "groups of one": {"n_key_value_heads": 4},
    "grouped rotary": dict(n_key_value_heads=2, **ROTARY),
    "unscaled": {"use_attn_scale": False},
    "scale": {"attn_scale": 0.7},
    "scores soft cap": {"attn_scores_soft_cap": 0.5},
    "logits soft cap": {"output_logits_soft_cap": 0.5},
    "result": {"use_attn_result": True},
    "grouped result": {"use_attn_result": True, "n_key_value_heads": 2},
    "other output vocabulary": {"d_vocab_out": 17},
    "one layer": {"n_layers": 1},
    "no layer": {"n_layers": 0},
}


def config(**options):
    return TransformerConfig(**{"dtype": "float64", **SHAPE, **MLP, **options})


def hooked_transformer(cfg):
    """A HookedTransformer of this configuration; every parameter random, so that it matters."""
    given = {k: v for k, v in cfg.model_dump().items() if k not in OWN}
    model = HookedTransformer(
        HookedTransformerConfig(**{**given, "dtype": cfg.dtype}, device="cpu")
    )
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.4 * noise + (1 if name.endswith(".w") else 0))
    return model


def parameters_of(model):
    return {k: v for k, v in model.state_dict().items() if k.split(".")[-1] not in BUFFERS}


def both(cfg):
    theirs = hooked_transformer(cfg)
    ours = Transformer(cfg)
    ours.load_state_dict(parameters_of(theirs), strict=True)
    return theirs, ours


def tokens_for(cfg, n_pos=7, batch=3):
    return torch.randint(cfg.d_vocab, (batch, n_pos), generator=torch.Generator().manual_seed(1))


def assert_same_values(theirs, ours, atol):
    """The same names in the same order, each with the same dtype, shape and values."""
    assert list(ours) == list(theirs)
    for name in theirs:
        assert_close(
            ours[name], theirs[name], atol=atol, rtol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_equivalent(cfg):
    theirs, ours = both(cfg)
    tokens = tokens_for(cfg)
    for return_type in ("logits", "loss"):
        expected, their_cache = theirs.run_with_cache(
            tokens, return_type=return_type, return_cache_object=False
        )
        found, our_cache = ours.run_with_cache(
            tokens, return_type=return_type, return_cache_object=False
        )
        assert_close(found, expected, atol=1e-10, rtol=1e-10)
        assert_same_values(their_cache, our_cache, atol=1e-10)
        assert_close(ours(tokens, return_type), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_hook_has_the_value_of_hooked_transformer(option):
    assert_equivalent(config(**OPTIONS[option]))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    normalization_type=st.sampled_from(NORMS),
    final_rms=st.booleans(),
    positional_embedding_type=st.sampled_from(["standard", "shortformer", "rotary"]),
    rotary_dim=st.sampled_from([2, 4, 6]),
    rotary_adjacent_pairs=st.booleans(),
    attn_only=st.booleans(),
    gated_mlp=st.booleans(),
    act_fn=st.sampled_from(ACTIVATIONS),
    n_key_value_heads=st.sampled_from([None, 1, 2, 4]),
    attention_dir=st.sampled_from(["causal", "bidirectional"]),
    use_attn_scale=st.booleans(),
    attn_scale=st.sampled_from([-1.0, 0.3]),
    attn_scores_soft_cap=st.sampled_from([-1.0, 0.8]),
    output_logits_soft_cap=st.sampled_from([-1.0, 3.0]),
    use_attn_result=st.booleans(),
)
def test_options_combine_as_in_hooked_transformer(**options):
    assert_equivalent(config(**options))


def test_rotary_tables_grow_with_the_sequence():
    cfg = config(**ROTARY, n_ctx=2100, n_layers=1, n_heads=1, attn_only=True)
    theirs, ours = both(cfg)
    for n_pos in (5, 2080):
        tokens = tokens_for(cfg, n_pos=n_pos, batch=1)
        assert_close(ours(tokens), theirs(tokens), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    "options", [{}, {**ROTARY, "n_key_value_heads": 2, "gated_mlp": True, "attn_only": False}]
)
def test_our_state_dict_loads_into_hooked_transformer(options):
    cfg = config(**options)
    ours = Transformer(cfg)
    theirs = hooked_transformer(cfg)
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not unexpected
    assert {name.split(".")[-1] for name in missing} <= set(BUFFERS)
    assert set(ours.state_dict()) == set(parameters_of(theirs))
    tokens = tokens_for(cfg)
    assert_close(theirs(tokens), ours(tokens), atol=1e-10, rtol=1e-10)


EDITED = {
    "plain": {},
    "rich": dict(
        **ROTARY,
        rotary_dim=4,
        normalization_type="RMS",
        gated_mlp=True,
        n_key_value_heads=2,
        use_attn_result=True,
        attn_scores_soft_cap=2.0,
        output_logits_soft_cap=2.0,
    ),
}


@pytest.mark.parametrize("options", EDITED.values(), ids=EDITED)
@pytest.mark.parametrize("in_place", [False, True])
def test_an_edit_at_any_hook_has_the_effect_it_has_there(options, in_place):
    def edit(x, hook):
        generator = torch.Generator().manual_seed(2)
        change = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        if in_place:
            x += change
            return None
        return 0.5 * x + change

    theirs, ours = both(config(**options))
    tokens = tokens_for(ours.cfg)
    before = ours(tokens)
    _, cache = ours.run_with_cache(tokens)
    with torch.no_grad():
        for name in cache:
            found = ours.run_with_hooks(tokens, fwd_hooks=[(name, edit)])
            expected = theirs.run_with_hooks(tokens, fwd_hooks=[(name, edit)])
            assert_close(found, expected, atol=1e-10, rtol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
            assert (found - before).abs().max() > 1e-4, name


def test_a_query_that_sees_nothing_gets_a_zero_pattern():
    def blind(scores, hook):
        scores[:, :, 3] = -torch.inf
        return scores

    theirs, ours = both(config())
    tokens, hooks = tokens_for(ours.cfg), [("blocks.0.attn.hook_attn_scores", blind)]
    with ours.hooks(hooks), theirs.hooks(hooks):
        found, cache = ours.run_with_cache(tokens)
        assert_close(found, theirs(tokens), atol=1e-10, rtol=1e-10)
    assert torch.equal(cache["pattern", 0][:, :, 3], torch.zeros(3, 4, 7, dtype=torch.float64))


@pytest.mark.parametrize("options", EDITED.values(), ids=EDITED)
def test_gradients_of_parameters(options):
    theirs, ours = both(config(**options))
    tokens = tokens_for(ours.cfg)
    theirs(tokens, return_type="loss").backward()
    ours(tokens, return_type="loss").backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert_close(parameter.grad, expected[name].grad, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("options", EDITED.values(), ids=EDITED)
def test_gradients_at_hooks(options):
    theirs, ours = both(config(**options))
    caches = []
    for model in (theirs, ours):
        _, cache = model.run_with_cache(
            tokens_for(ours.cfg), return_type="loss", incl_bwd=True, return_cache_object=False
        )
        # HookedTransformer runs ln1 three times and keeps one of the three gradients.
        caches.append({k: v for k, v in sorted(cache.items()) if ".ln1." not in k})
    assert sum(name.endswith("_grad") for name in caches[0]) > 20
    assert_same_values(*caches, atol=1e-10)


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}


@pytest.mark.parametrize("options", EDITED.values(), ids=EDITED)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_lower_precision_agrees_hook_by_hook_within_its_rounding(options, dtype):
    """The dtypes are the same too: norms hand their hooks float32 and round afterwards."""
    theirs, ours = both(config(**options, dtype=dtype))
    tokens = tokens_for(ours.cfg)
    expected, their_cache = theirs.run_with_cache(tokens, return_cache_object=False)
    found, our_cache = ours.run_with_cache(tokens, return_cache_object=False)
    assert found.dtype == dtype
    assert_close(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert our_cache["blocks.0.ln1.hook_scale"].dtype == torch.float32
    for name in their_cache:
        assert our_cache[name].dtype == their_cache[name].dtype, name
        # Relative to the layer's largest value; -inf scores are equal.
        size = float(their_cache[name].nan_to_num(neginf=0).abs().max().clamp(min=1))
        assert_close(our_cache[name], their_cache[name], atol=size * TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize(
    "range_", [{}, {"stop_at_layer": 0}, {"stop_at_layer": 1}, {"stop_at_layer": -1}]
)
def test_stopping_early_gives_the_residual_stream(range_):
    theirs, ours = both(config(n_layers=3))
    tokens = tokens_for(ours.cfg)
    assert_close(ours(tokens, **range_), theirs(tokens, **range_), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("start", [0, 1, -1, 3])
def test_starting_late_takes_a_residual_stream(start):
    theirs, ours = both(config(n_layers=3))
    tokens = tokens_for(ours.cfg)
    resid = ours(tokens, stop_at_layer=1)
    options = {"start_at_layer": start, "tokens": tokens, "return_type": "both"}
    found, expected = ours(resid, **options), theirs(resid, **options)
    assert_close(found.logits, expected.logits, atol=1e-10, rtol=1e-10)
    assert_close(found.loss, expected.loss, atol=1e-10, rtol=1e-10)
    assert_close(
        ours(resid, start_at_layer=start, stop_at_layer=2),
        theirs(resid, start_at_layer=start, stop_at_layer=2),
        atol=1e-10,
        rtol=0,
    )


def test_loss_per_token():
    theirs, ours = both(config())
    tokens = tokens_for(ours.cfg)
    options = {"return_type": "loss", "loss_per_token": True}
    assert ours(tokens, **options).shape == (3, 6)
    assert_close(ours(tokens, **options), theirs(tokens, **options), atol=1e-10, rtol=1e-10)


NAMES = ["W_E", "W_U", "b_U", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"]
MLP_NAMES = ["W_in", "W_gate", "W_out", "b_in", "b_out"]


@pytest.mark.parametrize("options", EDITED.values(), ids=EDITED)
def test_stacked_weights(options):
    theirs, ours = both(config(**options))
    for name in NAMES + MLP_NAMES:
        expected, found = getattr(theirs, name), getattr(ours, name)
        assert (found is None) if expected is None else torch.equal(found, expected), name
    assert torch.equal(ours.QK.AB, theirs.QK.AB)
    assert torch.equal(ours.OV.AB, theirs.OV.AB)
