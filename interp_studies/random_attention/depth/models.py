"""Untrained random transformers and MixiT, with one of three initializations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from interp_toolkit.models.transformer.config import MixingVariance
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.random_attention.variants import MLP_FACTOR, Variant, variant_config

MAIN = "0.02 everywhere"
INITIALISATIONS = (MAIN, "1/sqrt(n) everywhere", "PyTorch's defaults")


@dataclass(frozen=True)
class DepthSizes:
    """Sizes of a preset.

    Attributes:
        d_model, n_heads: sizes of the models.
        n_ctx, d_vocab: positions per prompt, and number of tokens.
        rows: number of prompts of random tokens.
        seeds: number of seeds.
    """

    d_model: int
    n_heads: int
    n_ctx: int
    d_vocab: int
    rows: int
    seeds: int


def untrained(
    variant: Variant,
    depth: int,
    sizes: DepthSizes,
    initialisation: str,
    seed: int,
    mixing: MixingVariance = "1/(d_head m)",
) -> Transformer:
    """An untrained model of this depth."""
    n = sizes.d_model
    std = {MAIN: 0.02, "1/sqrt(n) everywhere": n**-0.5}.get(initialisation, (3 * n) ** -0.5)
    cfg = variant_config(
        variant,
        n_layers=depth,
        n_heads=sizes.n_heads,
        d_model=n,
        n_ctx=sizes.n_ctx,
        d_vocab=sizes.d_vocab,
        mixing=mixing,
        initial_std=std,
        seed=seed,
    )
    model = Transformer(cfg)
    if initialisation == "PyTorch's defaults":
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(("W_E", "W_pos")):
                    parameter /= std
                if name.endswith("mlp.W_out"):
                    parameter /= math.sqrt(MLP_FACTOR)
    model.eval()
    return model
