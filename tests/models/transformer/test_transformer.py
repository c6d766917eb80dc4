"""`Transformer` by itself: what leaves no trace, what is refused, what equals what."""

import copy
import pickle

import pytest
import torch
from pydantic import ValidationError
from torch.testing import assert_close

from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.attention import softmax_of_keys
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SHAPE = {"n_layers": 2, "d_model": 12, "n_ctx": 9, "d_head": 6, "n_heads": 4, "d_vocab": 11}
RICH = {
    "d_mlp": 10,
    "act_fn": "silu",
    "gated_mlp": True,
    "normalization_type": "RMS",
    "positional_embedding_type": "rotary",
    "n_key_value_heads": 2,
    "use_attn_result": True,
}
PLAIN = {"d_mlp": 10, "act_fn": "gelu"}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
each_kind = pytest.mark.parametrize("options", [PLAIN, RICH], ids=["plain", "rich"])


def random_model(**options):
    """A model whose every parameter is random, biases and norms too."""
    model = Transformer(TransformerConfig(**{**SHAPE, "dtype": "float64", **options}))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.4 * noise + (1 if name.endswith(".w") else 0))
    return model


def loaded(state, **options):
    model = Transformer(TransformerConfig(**{**SHAPE, "dtype": "float64", **options}))
    model.load_state_dict(state, strict=True)
    return model


# Hooks


@each_kind
def test_attaching_hooks_changes_no_bit(options):
    model = random_model(**options)
    watched = [(name, lambda x, hook: None) for name in model.hook_dict]
    assert torch.equal(model.run_with_hooks(TOKENS, fwd_hooks=watched), model(TOKENS))


def test_hooks_are_gone_after_an_error_inside_a_run():
    def fail(x, hook):
        raise ZeroDivisionError

    model = random_model(**PLAIN)
    before = model(TOKENS)
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: 0 * z), ("blocks.1.hook_resid_pre", fail)]
    with pytest.raises(ZeroDivisionError):
        model.run_with_hooks(TOKENS, fwd_hooks=hooks)
    assert not any(point._forward_hooks for point in model.hook_dict.values())
    assert torch.equal(model(TOKENS), before)


def test_pytorchs_own_hooks_fire_too():
    model, seen = random_model(**PLAIN), []
    point = model.blocks[0].hook_resid_mid
    handle = point.register_forward_hook(lambda module, args, output: seen.append(output))
    model(TOKENS)
    handle.remove()
    model(TOKENS)
    assert len(seen) == 1


def test_hook_points_that_would_never_fire_do_not_exist():
    model = random_model(attn_only=True, normalization_type=None, positional_embedding_type="none")
    _, cache = model.run_with_cache(TOKENS, return_cache_object=False)
    assert set(cache) == set(model.hook_dict)
    for name in ("attn.hook_result", "attn.hook_rot_q", "hook_resid_mid", "ln1.hook_scale"):
        assert f"blocks.0.{name}" not in cache
    assert "hook_pos_embed" not in cache


def test_the_cache_is_transformer_lenss():
    model = random_model(**PLAIN)
    _, cache = model.run_with_cache(TOKENS)
    assert_close(cache["pattern", 1].sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))
    components = cache.decompose_resid(layer=2, mode="all")
    assert_close(components.sum(0), cache["resid_post", 1])
    _, one = model.run_with_cache(TOKENS[:1], remove_batch_dim=True)
    assert_close(one["resid_post", 1], cache["resid_post", 1][0])


# Options that change parameters, not the mathematics


@each_kind
def test_no_biases_is_the_same_as_zero_biases(options):
    without = random_model(**options, biases=False)
    assert not any(
        name.split(".")[-1].lstrip("_").startswith("b_") for name in without.state_dict()
    )
    zeros = Transformer(TransformerConfig(**SHAPE, **options, dtype="float64"))
    missing, unexpected = zeros.load_state_dict(without.state_dict(), strict=False)
    assert not unexpected
    assert missing
    assert_close(without(TOKENS), zeros(TOKENS), atol=1e-12, rtol=0)
    for name in ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U"):
        assert torch.equal(getattr(without, name), getattr(zeros, name)), name


def test_no_positions_is_the_same_as_zero_positions():
    without = random_model(**PLAIN, positional_embedding_type="none")
    assert not hasattr(without, "pos_embed")
    zeros = torch.zeros(9, 12, dtype=torch.float64)
    standard = loaded({**without.state_dict(), "pos_embed.W_pos": zeros}, **PLAIN)
    assert torch.equal(without(TOKENS), standard(TOKENS))


@each_kind
def test_grouped_heads_are_the_same_as_repeated_ones(options):
    grouped = random_model(**{**options, "n_key_value_heads": 2})
    state = {}
    for name, tensor in grouped.state_dict().items():
        head, _, last = name.rpartition(".")
        repeated = last in ("_W_K", "_W_V", "_b_K", "_b_V")
        state[f"{head}.{last.lstrip('_')}"] = tensor[[0, 0, 1, 1]] if repeated else tensor
    full = loaded(state, **{**options, "n_key_value_heads": None})
    assert_close(grouped(TOKENS), full(TOKENS), atol=1e-12, rtol=0)
    for name in ("W_K", "W_V", "b_K", "b_V"):
        assert torch.equal(getattr(grouped, name), getattr(full, name))


def test_results_sum_to_what_the_heads_write():
    state = random_model(**PLAIN).state_dict()
    one, other = (loaded(state, **PLAIN, use_attn_result=use) for use in (True, False))
    assert_close(one(TOKENS), other(TOKENS), atol=1e-12, rtol=0)


def test_rotary_scores_depend_on_the_distance_only():
    model = random_model(**{**RICH, "n_layers": 1})
    _, cache = model.run_with_cache(torch.full((1, 9), 4))
    scores = cache["attn_scores", 0][0]
    for distance in range(3):
        diagonal = scores.diagonal(-distance, 1, 2)
        assert_close(diagonal, diagonal[:, :1].expand_as(diagonal))


# Layers, losses


def test_running_in_two_parts_is_running_once():
    model = random_model(**PLAIN)
    resid = model(TOKENS, stop_at_layer=1)
    assert torch.equal(model(resid, start_at_layer=1), model(TOKENS))
    assert model(TOKENS, return_type=None) is None


def test_loss_is_the_mean_surprise_at_the_next_token():
    model = random_model(**PLAIN)
    logits, loss = model(TOKENS, return_type="both")
    chances = logits.softmax(-1)
    each = torch.stack([-chances[b, p, TOKENS[b, p + 1]].log() for b in (0, 1) for p in range(5)])
    assert_close(loss, each.mean())
    found = model(TOKENS, return_type="loss", loss_per_token=True)
    assert_close(found, each.view(2, 5))


# Dtypes, devices, copies


@each_kind
def test_a_moved_model_computes_like_one_made_in_that_dtype(options):
    model = random_model(**options, dtype="float32")
    model(TOKENS)  # rotary tables in float32 must not be what float64 uses
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    moved = model.to(torch.float64)
    assert moved.cfg.dtype == torch.float64
    assert torch.equal(moved(TOKENS), loaded(state, **options)(TOKENS))


@each_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_lower_precision_agrees_within_its_rounding(options, dtype):
    model = random_model(**options).to(dtype)
    expected = copy.deepcopy(model).double()(TOKENS)
    assert model(TOKENS).dtype == dtype
    error = (model(TOKENS).double() - expected).norm() / expected.norm()
    assert error < 8 * torch.finfo(dtype).eps


@pytest.mark.gpu
@each_kind
def test_a_model_moves_to_the_gpu_and_back(options):
    model = random_model(**options)
    expected = model(TOKENS)
    assert_close(model.cuda()(TOKENS.cuda()).cpu(), expected, atol=1e-10, rtol=0)
    assert_close(model.cpu()(TOKENS), expected, atol=1e-10, rtol=0)


@each_kind
def test_copies_are_whole_and_independent(options):
    model = random_model(**options)
    expected = model(TOKENS)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(TOKENS), expected)
        twin.add_perma_hook("blocks.0.hook_resid_pre", lambda x, hook: 0 * x)
        twin.W_E.data.zero_()
    assert torch.equal(model(TOKENS), expected)


def test_a_model_first_run_in_inference_mode_can_be_trained():
    model = random_model(**RICH)
    with torch.inference_mode():
        model(TOKENS)
    model(TOKENS, return_type="loss").backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_many_models_run_at_once_under_vmap():
    models = [
        random_model(**RICH),
        Transformer(TransformerConfig(**SHAPE, **RICH, dtype="float64")),
    ]
    parameters, _ = torch.func.stack_module_state(models)
    models[0].check_tokens = False

    def run(parameters, tokens):
        return torch.func.functional_call(models[0], parameters, (tokens,))

    batches = torch.stack([TOKENS, 10 - TOKENS])
    together = torch.func.vmap(run)(parameters, batches)
    for model, batch, logits in zip(models, batches, together, strict=True):
        assert_close(logits, model(batch), atol=1e-10, rtol=0)

    def loss(parameters, tokens):
        return run(parameters, tokens).square().mean()

    gradients = torch.func.vmap(torch.func.grad(loss))(parameters, batches)
    torch.func.vmap(loss)(parameters, batches).sum().backward()
    for n, (model, batch) in enumerate(zip(models, batches, strict=True)):
        model(batch).square().mean().backward()
        for name, parameter in model.named_parameters():
            assert_close(gradients[name][n], parameter.grad, atol=1e-9, rtol=1e-7)
            assert_close(parameters[name].grad[n], parameter.grad, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("point", ["hook_q", "hook_k", "hook_attn_scores"])
@pytest.mark.parametrize("grad", [True, False])
def test_scores_without_a_number_attend_to_nothing(point, grad):
    model, seen = random_model(**PLAIN), {}

    def spoil(value, hook):
        value = value.clone()
        value[..., 0] = float("nan")
        return value

    def look(value, hook):
        seen["pattern"] = value.detach().clone()

    hooks = [(f"blocks.0.attn.{point}", spoil), ("blocks.0.attn.hook_pattern", look)]
    with torch.set_grad_enabled(grad):
        logits = model.run_with_hooks(TOKENS, fwd_hooks=hooks)
    assert not seen["pattern"].isnan().any()
    assert (seen["pattern"].sum(-1) == 0).any()
    assert not logits.isnan().any()


# Initialization


@pytest.mark.parametrize("n_keys", [1, 2, 15, 16, 17])
def test_the_softmax_of_few_keys_is_the_softmax(n_keys):
    generator = torch.Generator().manual_seed(n_keys)
    scores = torch.randn(3, 2, 4, n_keys, generator=generator) * 20
    scores[0, 0, 0, 1:] = -torch.inf
    scores[0, 0, 1] = -torch.inf  # no number, as with PyTorch's
    upstream = torch.randn(scores.shape, generator=generator)
    found, expected = scores.clone().requires_grad_(), scores.double().requires_grad_()
    ours, exact = softmax_of_keys(found), expected.softmax(-1)
    ours.backward(upstream)
    exact.backward(upstream.double())
    assert_close(ours, exact.float(), rtol=1e-5, atol=1e-7, equal_nan=True)
    assert_close(found.grad, expected.grad.float(), rtol=1e-4, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("length", [3, 20])
def test_hooks_see_patterns_that_lie_as_transformer_lenss_do(length):
    cfg = TransformerConfig(
        n_layers=1, d_model=8, n_ctx=20, d_head=4, n_heads=2, d_vocab=5, attn_only=True, seed=0
    )
    _, cache = Transformer(cfg).run_with_cache(torch.arange(length)[None] % 5)
    pattern = cache["blocks.0.attn.hook_pattern"]
    assert pattern.view(1, 2, -1).shape == (1, 2, length * length)


def test_initialisation_is_gpt2s():
    cfg = TransformerConfig(**{**SHAPE, **PLAIN, "d_model": 64, "d_vocab": 400}, seed=5)
    model = Transformer(cfg)
    assert cfg.initializer_range == 0.8 / 8
    for name, parameter in model.named_parameters():
        if "W_" in name:
            assert_close(parameter.std().item(), 0.1, rtol=0.15, atol=0)
        else:
            assert torch.all(parameter == (1.0 if name.endswith(".w") else 0.0)), name
    assert_close(model.W_E.std().item(), 0.1, rtol=0.02, atol=0)


def test_a_seed_decides_the_weights_and_leaves_the_global_generator_alone():
    cfg = TransformerConfig(**SHAPE, **PLAIN, seed=5)
    before = torch.get_rng_state()
    one, two = Transformer(cfg), Transformer(cfg)
    other = Transformer(cfg.model_copy(update={"seed": 6}))
    precise = Transformer(cfg.model_copy(update={"dtype": torch.float64}))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.W_Q, two.W_Q)
    assert not torch.equal(one.W_Q, other.W_Q)
    assert torch.equal(one.W_Q, precise.W_Q.float())
    one.init_weights(6)
    assert torch.equal(one.W_Q, other.W_Q)
    two.init_weights(torch.Generator().manual_seed(6))
    assert torch.equal(two.W_Q, other.W_Q)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_weights_follow_pytorchs():
    cfg = TransformerConfig(**SHAPE, **PLAIN)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        one, two = Transformer(cfg), Transformer(cfg)
        torch.manual_seed(3)
        three = Transformer(cfg)
    assert torch.equal(one.W_Q, three.W_Q)
    assert not torch.equal(one.W_Q, two.W_Q)


# What is refused


BAD_INPUTS = {
    "text": ("when Mary and John", "no tokenizer"),
    "a list": ([[1, 2]], "no tokenizer"),
    "floats": (TOKENS.float(), "integers"),
    "booleans": (TOKENS > 3, "integers"),
    "one dimension": (TOKENS[0], r"\[batch, pos\], got \[6\]"),
    "three dimensions": (TOKENS[None], r"\[batch, pos\]"),
    "no positions": (TOKENS[:, :0], r"\[batch, pos\]"),
    "too long": (TOKENS.repeat(1, 2), "12 positions are more than the model's context, 9"),
    "a negative id": (TOKENS - 2, "token id -1 is outside the model's vocabulary, 0 to 10"),
    "an id too high": (TOKENS + 2, "token id 11 is outside"),
}


@pytest.mark.parametrize(("given", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_an_input_that_is_not_token_ids_of_this_model_is_refused(given, message):
    with pytest.raises(InputError, match=message) as error:
        random_model(**PLAIN)(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        TOKENS,
        torch.zeros(2, 6, 11),
        torch.zeros(2, 10, 12),
    ],
)
def test_a_start_at_a_layer_needs_a_residual_stream(given, texts):
    with pytest.raises(InputError, check=texts):
        random_model(**PLAIN)(given, start_at_layer=1)


def test_a_loss_that_cannot_be_computed_is_refused(texts):
    model = random_model(**PLAIN)
    with pytest.raises(InputError, match="at least 2 positions"):
        model(TOKENS[:, :1], return_type="loss")
    with pytest.raises(InputError, match="tokens="):
        model(model(TOKENS, stop_at_layer=1), return_type="loss", start_at_layer=1)
    narrow = random_model(**PLAIN, d_vocab_out=5)
    with pytest.raises(InputError, check=texts):
        narrow(TOKENS, return_type="loss")
    assert narrow(TOKENS[:, :4] % torch.tensor([9, 5, 5, 5]), return_type="loss") > 0
    with pytest.raises(InputError, match="return_type"):
        model(TOKENS, return_type="losses")


def test_small_integer_types_are_token_ids_too():
    model = random_model(**PLAIN)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert torch.equal(model(TOKENS.to(dtype)), model(TOKENS))
    assert model(TOKENS[:0]).shape == (0, 6, 11)


def test_weights_a_model_does_not_have_are_no_attributes():
    model = random_model(attn_only=True, positional_embedding_type="none", biases=False)
    for name in ("W_in", "W_out", "b_in", "b_out", "W_pos"):
        assert not hasattr(model, name), name
    assert model.W_gate is None


BAD_CONFIGS = {
    "unknown option": ({"parallel_attn_mlp": True}, "parallel_attn_mlp"),
    "alibi": ({"positional_embedding_type": "alibi"}, "positional_embedding_type"),
    "activation": ({"act_fn": "solu_ln"}, "act_fn"),
    "no activation": ({"act_fn": None}, "act_fn must be given"),
    "no width": ({"d_mlp": None}, "d_mlp must be given"),
    "heads": ({"n_key_value_heads": 3}, "not a multiple"),
    "no heads": ({"n_key_value_heads": 0}, "n_key_value_heads"),
    "odd rotary": ({"positional_embedding_type": "rotary", "rotary_dim": 3}, "even"),
    "wide rotary": ({"positional_embedding_type": "rotary", "rotary_dim": 8}, "at most d_head"),
    "scale": ({"attn_scale": 0.0}, "attn_scale"),
    "output": ({"d_vocab_out": 0}, "d_vocab_out"),
    "dtype name": ({"dtype": "float8"}, "float8"),
    "dtype": ({"dtype": torch.int64}, "int64"),
    "shape": ({"d_head": None}, "d_head"),
}


@pytest.mark.parametrize(("options", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_a_configuration_that_cannot_be_represented_is_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        TransformerConfig(**{**SHAPE, **PLAIN, **options})


@each_kind
def test_a_configuration_survives_being_written_out(options):
    cfg = TransformerConfig(**SHAPE, **options, dtype="bfloat16")
    assert TransformerConfig.model_validate_json(cfg.model_dump_json()) == cfg
    assert cfg.attn_scale == 6**0.5
    with pytest.raises(ValidationError, match="frozen"):
        cfg.d_head = 3


@pytest.mark.parametrize("vast", [("n_heads", "d_head"), ("d_vocab", "d_model")])
def test_weights_beyond_what_can_be_counted_are_refused(vast, texts) -> None:
    sizes = dict.fromkeys(("n_layers", "n_heads", "d_head", "d_model", "d_vocab", "n_ctx"), 4)
    sizes |= {"d_mlp": 4, "act_fn": "relu"}
    for one in vast:
        assert TransformerConfig(**sizes | {one: 2**31 - 1}).n_layers == 4
    with pytest.raises(ValueError, check=texts):
        TransformerConfig(**sizes | dict.fromkeys(vast, 2**31 - 1))
