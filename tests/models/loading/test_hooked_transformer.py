"""Files that `HookedTransformer` itself wrote, against its own logits (TransformerLens 3.9)."""

import pytest
import torch

from interp_toolkit import load
from interp_toolkit.models.about.record import record_of

try:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
except ImportError:
    pytest.skip("HookedTransformer is gone in TransformerLens 4", allow_module_level=True)

SHAPE = {"n_layers": 2, "d_model": 12, "n_ctx": 9, "d_head": 4, "n_heads": 3, "d_vocab": 7}
MLP = {"d_mlp": 5, "act_fn": "gelu_new"}
ACT = {"act_fn": "gelu_new"}

CASES = {
    "attention-only": ({"attn_only": True, "normalization_type": None}, {}),
    "layer norm": ({"attn_only": True}, {}),
    "MLP": (MLP, ACT),
    "RMS, gated, rotary": (
        MLP
        | {"normalization_type": "RMS", "gated_mlp": True, "positional_embedding_type": "rotary"},
        ACT,
    ),
    "rotary, neighbours, partly": (
        {
            "attn_only": True,
            "positional_embedding_type": "rotary",
            "rotary_dim": 2,
            "rotary_adjacent_pairs": True,
        },
        {},
    ),
    "rotary, neighbors, half of the head": (
        {
            "attn_only": True,
            "d_head": 8,
            "positional_embedding_type": "rotary",
            "rotary_dim": 4,
            "rotary_adjacent_pairs": True,
        },
        {},
    ),
    "rotary, another base": (
        {"attn_only": True, "positional_embedding_type": "rotary", "rotary_base": 500000},
        {},
    ),
    "rotary, long context": (
        {"attn_only": True, "positional_embedding_type": "rotary", "n_ctx": 5000},
        {},
    ),
    "grouped queries": (MLP | {"n_heads": 4, "n_key_value_heads": 2}, ACT),
    "one key head": ({"attn_only": True, "n_heads": 4, "n_key_value_heads": 1}, {}),
    "LNPre": (MLP | {"normalization_type": "LNPre"}, ACT | {"normalization_type": "LNPre"}),
    "final RMS": ({"attn_only": True, "final_rms": True}, {"final_rms": True}),
    "shortformer": (
        {"attn_only": True, "positional_embedding_type": "shortformer"},
        {"positional_embedding_type": "shortformer"},
    ),
    "bidirectional": (
        {"attn_only": True, "attention_dir": "bidirectional"},
        {"attention_dir": "bidirectional"},
    ),
    "own outputs": ({"attn_only": True, "d_vocab_out": 3}, {}),
    "float64": (MLP | {"dtype": torch.float64}, ACT),
    "bfloat16": ({"attn_only": True, "dtype": torch.bfloat16}, {}),
}


def hooked(options):
    torch.manual_seed(0)
    cfg = HookedTransformerConfig(**{**SHAPE, **options}, device="cpu", seed=0)
    model = HookedTransformer(cfg)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, dtype=torch.float64)
        parameter.data += 0.5 * noise.to(parameter.dtype)
    return model.eval()


def same_logits(ours, theirs) -> bool:
    tokens = torch.randint(0, 7, (6, 9), generator=torch.Generator().manual_seed(1))
    expected = theirs(tokens)  # in bfloat16 either is 0.09 from the exact logits
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[expected.dtype]
    error = (ours(tokens) - expected).abs().max() / expected.abs().max()
    return bool(error <= tolerance)


@pytest.mark.parametrize("name", CASES)
def test_bare_state_dict(tmp_path, name):
    options, given = CASES[name]
    model = hooked(options)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert same_logits(load(tmp_path / "model.pt", **given), model)


@pytest.mark.parametrize("name", CASES)
def test_with_its_configuration(tmp_path, name):
    options, _ = CASES[name]
    model = hooked(options)
    saved = {"cfg": model.cfg.to_dict(), "state_dict": model.state_dict()}
    torch.save(saved, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt")
    assert record_of(loaded).assumptions == ()
    assert loaded.cfg.n_ctx == model.cfg.n_ctx
    assert same_logits(loaded, model)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_pickled_model_is_read_as_data(tmp_path, zipped, texts):
    model = hooked(MLP)
    torch.save(model, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    loaded = load(tmp_path / "model.pt")
    assert same_logits(loaded, model)
    (told,) = record_of(loaded).assumptions
    texts(told)


def test_a_pickled_config_object_is_read_as_data(tmp_path):
    model = hooked({"attn_only": True, "attn_scale": 3.0})
    torch.save({"cfg": model.cfg, "state_dict": model.state_dict()}, tmp_path / "model.pt")
    loaded = load(tmp_path / "model.pt")
    assert same_logits(loaded, model)
    assert record_of(loaded).assumptions == ()


def test_a_live_model_comes_back_itself():
    model = hooked({"attn_only": True}).train()
    assert load(model) is model
    assert model.training
    assert record_of(model).kind == "live"
    assert record_of(model).config["n_heads"] == 3


@pytest.mark.parametrize(
    "options",
    [
        {"parallel_attn_mlp": True},
        {"use_qk_norm": True},
        {"positional_embedding_type": "alibi"},
        {"use_local_attn": True, "window_size": 3, "attn_types": ["local", "global"]},
        {"scale_attn_by_inverse_layer_idx": True},
        {"act_fn": "solu_ln"},
    ],
)
def test_what_the_own_transformer_lacks_is_refused(tmp_path, options):
    model = hooked(MLP | options)
    saved = {"cfg": model.cfg.to_dict(), "state_dict": model.state_dict()}
    torch.save(saved, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=next(iter(options))):
        load(tmp_path / "model.pt")
