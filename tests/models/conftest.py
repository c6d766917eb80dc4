"""Folders of sparse autoencoders with random weights, as SAELens lays them out."""

import json
import warnings

import pytest
import torch
from safetensors.torch import save_file

VECTORS = {
    "standard": ["b_enc"],
    "topk": ["b_enc"],
    "jumprelu": ["b_enc", "threshold"],
    "gated": ["b_gate", "b_mag", "r_mag"],
}


@pytest.fixture
def sae_folder(tmp_path):
    """`sae_folder("topk", k=3, ...)` writes one and returns where."""

    def make(
        architecture="standard", *, d_in=16, n=24, weights=None, hook="hook_embed", **settings
    ):
        generator = torch.Generator().manual_seed(7)

        def random(*shape):
            return torch.randn(shape, generator=generator)

        tensors = {"W_enc": random(d_in, n), "W_dec": random(n, d_in), "b_dec": random(d_in)}
        tensors |= {name: 0.5 * random(n) for name in VECTORS.get(architecture, [])}
        if architecture == "topk":
            settings.setdefault("k", 5)
        metadata = {"hook_name": hook, "sae_lens_version": "6.54.0"}
        cfg = {"d_in": d_in, "d_sae": n, "dtype": "float32", "device": "cpu"}
        cfg |= {"apply_b_dec_to_input": True, "normalize_activations": "none"}
        cfg |= {"reshape_activations": "none", "architecture": architecture}
        cfg |= {"metadata": metadata} | settings
        folder = tmp_path / "sae"
        folder.mkdir(exist_ok=True)
        (folder / "cfg.json").write_text(json.dumps(cfg))
        save_file(tensors | (weights or {}), folder / "sae_weights.safetensors")
        return folder

    return make


@pytest.fixture(scope="session")
def sae_lens():
    """SAELens, where it is installed and fits this TransformerLens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TransformerLens, while importing
        return pytest.importorskip("sae_lens", exc_type=ImportError)
