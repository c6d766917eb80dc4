"""Bare state dicts, as people save them, come back as the same function of the tokens."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from interp_toolkit import InputError, load
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SHAPE = {"n_layers": 2, "d_model": 12, "n_ctx": 9, "d_head": 4, "n_heads": 2, "d_vocab": 7}
ATTENTION_ONLY = {"attn_only": True, "normalization_type": None}

# option -> what the user has to give, because the file does not say it
OPTIONS = {
    "attention-only": (ATTENTION_ONLY, {}),
    "one layer": (ATTENTION_ONLY | {"n_layers": 1}, {}),
    "no layers": (ATTENTION_ONLY | {"n_layers": 0}, {}),
    "layer norm": ({"attn_only": True}, {}),
    "MLP": ({"d_mlp": 5, "act_fn": "relu"}, {"act_fn": "relu"}),
    "gelu as a string": ({"d_mlp": 5, "act_fn": "gelu_new"}, {"act_fn": "gelu_new"}),
    "gated, RMS": (
        {"d_mlp": 5, "act_fn": "silu", "gated_mlp": True, "normalization_type": "RMS"},
        {"act_fn": "silu"},
    ),
    "LNPre": (
        {"attn_only": True, "normalization_type": "LNPre"},
        {"normalization_type": "LNPre"},
    ),
    "RMSPre": (
        {"attn_only": True, "normalization_type": "RMSPre"},
        {"normalization_type": "RMSPre"},
    ),
    "final RMS": ({"attn_only": True, "final_rms": True}, {"final_rms": "true"}),
    "own output vocabulary": (ATTENTION_ONLY | {"d_vocab_out": 3}, {}),
    "no biases": (ATTENTION_ONLY | {"biases": False}, {}),
    "grouped queries": (ATTENTION_ONLY | {"n_heads": 4, "n_key_value_heads": 2}, {}),
    "unscaled": (ATTENTION_ONLY | {"use_attn_scale": False}, {"use_attn_scale": "false"}),
    "own scale": (ATTENTION_ONLY | {"attn_scale": 1.5}, {"attn_scale": "1.5"}),
    "bidirectional": (
        ATTENTION_ONLY | {"attention_dir": "bidirectional"},
        {"attention_dir": "bidirectional"},
    ),
    "eps": ({"attn_only": True, "eps": 0.1}, {"eps": "0.1"}),
    "no positions": (
        ATTENTION_ONLY | {"positional_embedding_type": "none"},
        {"positional_embedding_type": "none", "n_ctx": "9"},
    ),
    "float64": (ATTENTION_ONLY | {"dtype": torch.float64}, {}),
    "bfloat16": (ATTENTION_ONLY | {"dtype": torch.bfloat16}, {}),
}


def random_model(**options) -> Transformer:
    model = Transformer(TransformerConfig(**{**SHAPE, **options}, seed=0))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():  # biases and norm weights too
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = (parameter.data + noise.to(parameter.dtype)).contiguous()
    return model.eval()


def tokens(model: Transformer) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, model.cfg.d_vocab, (5, 9), generator=generator)


def with_buffers(model: Transformer) -> dict[str, torch.Tensor]:
    """The state dict as HookedTransformer 1 and 2 saved it: causal masks of the whole context."""
    state = dict(model.state_dict())
    for layer in range(model.cfg.n_layers):
        mask = torch.ones(model.cfg.n_ctx, model.cfg.n_ctx, dtype=torch.bool).tril()
        state[f"blocks.{layer}.attn.mask"] = mask
        state[f"blocks.{layer}.attn.IGNORE"] = torch.tensor(-torch.inf)
    return state


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_comes_back_with_the_same_logits(tmp_path, name):
    options, given = OPTIONS[name]
    model = random_model(**options)
    torch.save(with_buffers(model), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", **given)
    assert not loaded.training
    assert loaded.cfg.dtype == model.cfg.dtype
    assert torch.equal(loaded(tokens(model)), model(tokens(model)))


def rotary_tables(rows, dim, base, adjacent, dtype=torch.float32):
    """TransformerLens's tables, from the definition: angle = position / base^(2i / dim)."""
    i = torch.arange(dim // 2, dtype=torch.float64)
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * base ** (-2 * i / dim)
    angle = angle.repeat_interleave(2, dim=1) if adjacent else angle.repeat(1, 2)
    return angle.sin().to(dtype), angle.cos().to(dtype)


@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize(("base", "dim"), [(10000.0, 8), (500000.0, 8), (77.0, 4)])
def test_rotary_options_are_read_off_the_tables(tmp_path, base, dim, adjacent):
    model = random_model(
        **ATTENTION_ONLY,
        d_head=8,
        positional_embedding_type="rotary",
        rotary_dim=dim,
        rotary_base=base,
        rotary_adjacent_pairs=adjacent,
    )
    sin, cos = rotary_tables(SHAPE["n_ctx"], dim, base, adjacent)
    state = dict(model.state_dict())
    for layer in range(2):
        state[f"blocks.{layer}.attn.rotary_sin"] = sin
        state[f"blocks.{layer}.attn.rotary_cos"] = cos
    torch.save(state, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt")
    assert loaded.cfg.rotary_adjacent_pairs == adjacent
    assert loaded.cfg.rotary_base == pytest.approx(base, rel=1e-6)
    assert loaded.cfg.n_ctx == SHAPE["n_ctx"]
    assert torch.allclose(loaded(tokens(model)), model(tokens(model)), rtol=1e-5, atol=1e-6)
    assert not any("rotary" in phrase for phrase in record_of(loaded).assumptions)


def test_a_rotary_table_of_another_kind_is_refused(tmp_path, texts):
    model = random_model(**ATTENTION_ONLY, d_head=8, positional_embedding_type="rotary")
    sin, cos = rotary_tables(9, 8, 10000.0, adjacent=False)
    stretched = torch.arange(9)[:, None] / 8.0  # linear scaling, as long-context models use
    state = {**model.state_dict(), "blocks.0.attn.rotary_sin": (sin.asin() * stretched).sin()}
    torch.save({**state, "blocks.0.attn.rotary_cos": cos}, tmp_path / "model.pt")
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pt")


def test_without_tables_or_embeddings_positions_must_be_given(tmp_path, texts):
    model = random_model(**ATTENTION_ONLY, positional_embedding_type="rotary", rotary_base=500.0)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"pos_embed\.W_pos", check=texts):
        load(tmp_path / "model.pt")
    given = {"positional_embedding_type": "rotary", "rotary_base": "500"}
    loaded = load(tmp_path / "model.pt", **given)
    assert torch.equal(loaded(tokens(model)), model(tokens(model)))
    phrases = record_of(loaded).assumptions
    assert "rotary_adjacent_pairs=False" in phrases
    assert "n_ctx=2048" in phrases
    assert not any("rotary_base" in phrase for phrase in phrases)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "model."])
def test_wrappers_prefixes_are_seen_through(tmp_path, prefix):
    model = random_model(**ATTENTION_ONLY)
    torch.save({prefix + n: t for n, t in with_buffers(model).items()}, tmp_path / "model.pt")
    assert torch.equal(load(tmp_path / "model.pt")(tokens(model)), model(tokens(model)))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".weights", ""])
@pytest.mark.parametrize("writer", ["zip", "legacy", "safetensors"])
def test_the_content_decides_not_the_suffix(tmp_path, suffix, writer):
    model, path = random_model(**ATTENTION_ONLY), tmp_path / f"model{suffix}"
    if writer == "safetensors":
        save_file({n: t.contiguous() for n, t in model.state_dict().items()}, path)
    else:
        torch.save(model.state_dict(), path, _use_new_zipfile_serialization=writer == "zip")
    assert torch.equal(load(path)(tokens(model)), model(tokens(model)))


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_training_checkpoints_without_a_configuration(tmp_path, key):
    model = random_model(**ATTENTION_ONLY)
    torch.save({key: model.state_dict(), "epoch": 3, "loss": 0.5}, tmp_path / "model.pt")
    assert torch.equal(load(tmp_path / "model.pt")(tokens(model)), model(tokens(model)))


def test_what_was_assumed_is_recorded_and_goes_when_given(tmp_path):
    model = random_model(attn_only=True)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    record = record_of(load(tmp_path / "model.pt"))
    assert record.kind == "state_dict"
    assert record.name == "model.pt"
    assert len(record.sha256) == 64
    assert record.assumptions == (
        "eps=1e-05",
        "attn_scale=2 (sqrt(d_head))",
        "attention_dir=causal",
        "positional_embedding_type=standard (shortformer has pos_embed.W_pos too)",
    )
    settings = {
        "eps": 1e-5,
        "use_attn_scale": True,
        "attention_dir": "causal",
        "positional_embedding_type": "standard",
    }
    assert record_of(load(tmp_path / "model.pt", **settings)).assumptions == ()


def test_no_norm_weights_mean_no_normalisation_and_say_so(tmp_path):
    torch.save(random_model(**ATTENTION_ONLY).state_dict(), tmp_path / "model.pt")
    for given in ({}, {"normalization_type": "none"}):
        loaded = load(tmp_path / "model.pt", **given)
        assert loaded.cfg.normalization_type is None
        told = any("normalization_type" in a for a in record_of(loaded).assumptions)
        assert told == (not given)


def test_dtype_and_device_are_as_asked(tmp_path, texts):
    model = random_model(**ATTENTION_ONLY)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", dtype="float64", device="auto")
    assert loaded.cfg.dtype == torch.float64
    assert all(p.dtype == torch.float64 and p.requires_grad for p in loaded.parameters())
    with pytest.raises(InputError, match="'float8'", check=texts):
        load(tmp_path / "model.pt", dtype="float8")
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pt", device="tpu7")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_an_error(tmp_path, texts):
    torch.save(random_model(**ATTENTION_ONLY).state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="CUDA", check=texts):
        load(tmp_path / "model.pt", device="cuda")


def test_loading_draws_no_random_numbers(tmp_path):
    torch.save(random_model(**ATTENTION_ONLY).state_dict(), tmp_path / "model.pt")
    before = torch.get_rng_state()
    load(tmp_path / "model.pt")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_weights_do_not_hang_on_the_file(tmp_path):
    model = random_model(**ATTENTION_ONLY)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt")
    (tmp_path / "model.pt").write_bytes(b"\0" * (tmp_path / "model.pt").stat().st_size)
    assert torch.equal(loaded(tokens(model)), model(tokens(model)))


# --- a configuration saved beside the weights


def hooked_config(model: Transformer, **changes):
    """What `HookedTransformerConfig.to_dict()` holds for this model (the fields that matter)."""
    cfg = model.cfg.model_dump() | {
        "device": "cuda",
        "n_params": 1234,
        "init_mode": "gpt2",
        "use_hook_tokens": False,
        "parallel_attn_mlp": False,
        "use_local_attn": False,
        "num_experts": None,
        "yarn_factor": 1.0,
        "rotary_scaling_factor": 1.0,
        "use_split_qkv_input": False,
    }
    del cfg["biases"]
    return cfg | changes


@pytest.mark.parametrize("cfg_key", ["cfg", "config"])
@pytest.mark.parametrize("state_key", ["state_dict", "model", "model_state_dict"])
def test_a_configuration_beside_the_weights_leaves_nothing_to_assume(tmp_path, cfg_key, state_key):
    model = random_model(d_mlp=5, act_fn="gelu", eps=0.1, attention_dir="bidirectional")
    saved = {cfg_key: hooked_config(model), state_key: with_buffers(model)}
    torch.save(saved, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt")
    assert torch.equal(loaded(tokens(model)), model(tokens(model)))
    assert record_of(loaded).assumptions == ()


def test_numpy_numbers_in_a_configuration_are_read(tmp_path):
    model = random_model(attn_only=True, attn_scale=math.sqrt(3))
    cfg = hooked_config(model, attn_scale=np.sqrt(3.0), n_layers=np.int64(2), eps=np.float32(1e-5))
    torch.save({"cfg": cfg, "state_dict": model.state_dict()}, tmp_path / "model.pt")
    assert torch.allclose(load(tmp_path / "model.pt")(tokens(model)), model(tokens(model)))


def test_unknown_fields_of_a_configuration_are_reported(tmp_path):
    model = random_model(attn_only=True)
    cfg = hooked_config(model, lr=1e-3, batch_size=32)
    torch.save({"cfg": cfg, "state_dict": model.state_dict()}, tmp_path / "model.pt")
    assert record_of(load(tmp_path / "model.pt")).assumptions == (
        "configuration fields batch_size, lr ignored",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parallel_attn_mlp", True),
        ("use_qk_norm", True),
        ("use_local_attn", True),
        ("num_experts", 4),
        ("clip_qkv", 8.0),
        ("scale_attn_by_inverse_layer_idx", True),
        ("use_normalization_before_and_after", True),
        ("use_NTK_by_parts_rope", True),
        ("use_yarn_rope", True),
        ("use_attention_sinks", True),
        ("post_embedding_ln", True),
        ("positional_embedding_type", "alibi"),
        ("original_architecture", "Olmo2ForCausalLM"),
        ("act_fn", "solu_ln"),
    ],
)
def test_what_the_transformer_lacks_is_refused_by_name(tmp_path, field, value):
    model = random_model(d_mlp=5, act_fn="relu")
    saved = {"cfg": hooked_config(model, **{field: value}), "state_dict": model.state_dict()}
    torch.save(saved, tmp_path / "model.pt")
    with pytest.raises(InputError, match=f"{field}|{value}"):
        load(tmp_path / "model.pt")


def test_a_configuration_that_contradicts_its_weights(tmp_path):
    model = random_model(attn_only=True)
    saved = {"cfg": hooked_config(model, n_layers=3), "state_dict": model.state_dict()}
    torch.save(saved, tmp_path / "model.pt")
    with pytest.raises(InputError, match="n_layers=3 contradicts"):
        load(tmp_path / "model.pt")


# --- settings


@pytest.mark.parametrize(
    "settings",
    [
        {"act": "relu"},
        {"n_layers": "3"},
        {"normalization_type": "none"},
        {"n_heads": "many"},
        {"attention_dir": "sideways"},
        {"act_fn": "relu"},
        {"rotary_base": "100"},
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, texts):
    torch.save(random_model(attn_only=True).state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, check=texts):
        load(tmp_path / "model.pt", **settings)


def test_shortformer_positions_are_a_setting(tmp_path):
    model = random_model(**ATTENTION_ONLY, positional_embedding_type="shortformer")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", positional_embedding_type="shortformer")
    assert torch.equal(loaded(tokens(model)), model(tokens(model)))
    assert not any("positional" in phrase for phrase in record_of(loaded).assumptions)
    with pytest.raises(InputError, match=r"rotary contradicts .* which has pos_embed\.W_pos"):
        load(tmp_path / "model.pt", positional_embedding_type="rotary")


def test_all_that_has_to_be_given_is_asked_for_at_once(tmp_path):
    model = random_model(d_mlp=5, act_fn="relu", positional_embedding_type="none")
    state = dict(model.state_dict())
    del state["unembed.W_U"], state["unembed.b_U"]
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "model.pt")
    for name in ("tied_embeddings=true", "act_fn=relu", "positional_embedding_type=none"):
        assert f"--set {name}" in str(caught.value)


def test_without_an_unembedding_the_outputs_may_be_the_residual_stream(tmp_path):
    model = random_model(attn_only=True)
    state = dict(model.state_dict())
    del state["unembed.W_U"], state["unembed.b_U"]
    torch.save(state, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", tied_embeddings=False)
    _, cache = model.run_with_cache(tokens(model), return_cache_object=False)
    last = cache["ln_final.hook_normalized"] * model.ln_final.w + model.ln_final.b
    assert torch.allclose(loaded(tokens(model)), last, atol=1e-6)
    tied = load(tmp_path / "model.pt", tied_embeddings=True)
    assert torch.allclose(tied(tokens(model)), last @ model.W_E.T, atol=1e-5)


def test_tensors_that_are_no_weights_can_be_left_out(tmp_path, texts):
    model = random_model(attn_only=True)
    state = {**model.state_dict(), "probe.weight": torch.zeros(3), "probe.bias": torch.zeros(3)}
    torch.save({**state, "epoch": 7}, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt", ignore=["probe.*", "epoch"])
    assert torch.equal(loaded(tokens(model)), model(tokens(model)))
    with pytest.raises(InputError, match=r"probe\.bias", check=texts):
        load(tmp_path / "model.pt", ignore=["prob.bias"])


def test_the_last_of_several_state_dicts_is_taken_and_told(tmp_path):
    first, last = random_model(attn_only=True), random_model(attn_only=True)
    last.unembed.b_U.data += 1
    saved = {"state_dicts": [first.state_dict(), last.state_dict()], "epochs": [0, 100]}
    torch.save(saved, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt")
    assert torch.equal(loaded(tokens(last)), last(tokens(last)))
    assert "the last of 2 state dicts" in record_of(loaded).assumptions


def test_an_mlps_activation_has_no_default(tmp_path, texts):
    torch.save(random_model(d_mlp=5, act_fn="relu").state_dict(), tmp_path / "model.pt")
    with pytest.raises(InputError, match="--set act_fn=relu"):
        load(tmp_path / "model.pt")
    with pytest.raises(InputError, match="act_fn=tanh", check=texts):
        load(tmp_path / "model.pt", act_fn="tanh")
