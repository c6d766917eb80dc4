"""`describe` says what a model is; figures counted by hand."""

import pytest
import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from interp_toolkit import load, save
from interp_toolkit.models.about.info import describe
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

SHAPE = {"n_layers": 1, "d_model": 8, "n_ctx": 6, "d_head": 4, "n_heads": 2, "d_vocab": 5}


def test_a_checkpoint(tmp_path):
    cfg = TransformerConfig(**SHAPE, attn_only=True, normalization_type=None, biases=False, seed=0)
    save(Transformer(cfg), tmp_path / "model.pt", task={"name": "xor"})
    info = describe(load(tmp_path / "model.pt"))
    assert info.n_params == 5 * 8 + 6 * 8 + 4 * (2 * 8 * 4) + 8 * 5  # W_E, W_pos, W_Q..W_O, W_U
    assert (info.name, info.kind, info.class_name) == ("model.pt", "checkpoint", "Transformer")
    assert info.path == str(tmp_path / "model.pt")
    assert info.shape["n_heads"] == 2
    assert info.shape["d_mlp"] is None
    assert (info.normalization, info.positions, info.attention) == ("none", "standard", "causal")
    assert info.act_fn is None
    assert (info.dtype, info.device) == ("float32", "cpu")
    assert info.task == {"name": "xor"}
    # embed, pos_embed; q k v z scores pattern; resid_pre attn_out resid_post; unembed in and out
    assert info.n_hooks == 2 + 6 + 3 + 2


def test_assumptions_are_shown(tmp_path):
    cfg = TransformerConfig(**SHAPE, d_mlp=3, act_fn="relu", seed=0, dtype=torch.float64)
    torch.save(Transformer(cfg).state_dict(), tmp_path / "model.pt")
    info = describe(load(tmp_path / "model.pt", act_fn="relu"))
    assert "attention_dir=causal" in info.assumptions
    assert (info.dtype, info.act_fn, info.normalization) == ("float64", "relu", "LN")


@pytest.mark.parametrize("attn_only", [True, False])
def test_a_live_bridge(attn_only):
    cfg = TransformerBridgeConfig(**SHAPE, d_mlp=3, act_fn="gelu", attn_only=attn_only, seed=0)
    info = describe(TransformerBridge.boot_native(cfg))
    mlp = 0 if attn_only else 2 * 8 * 3 + 3 + 8 + 2 * 8  # and its norm
    attention = 4 * (8 * 8 + 8) + 2 * 8
    assert info.n_params == 5 * 8 + 6 * 8 + attention + mlp + 2 * 8 + 8 * 5
    assert (info.kind, info.class_name) == ("live", "TransformerBridge")
    assert info.act_fn == (None if attn_only else "gelu")
