"""The compared transformer variants: their weights, and which of them are trained.

All are decoders of the Llama kind: RMSNorm before attention and before a gated MLP with SiLU that
is four times as wide as the model, d_head = d_model / n_heads, rotary positions, no biases.

    standard    all parameters are trained
    frozen-qk   all except W_Q and W_K
    frozen-mlp  all except the MLPs
    mixit       fixed random mixing instead of attention (`models.transformer.attention`);
                positions are learned; all other parameters are trained
    random      only the embedding and the unembedding are trained (Zhong & Andreas 2024)

Source: "Is random attention sufficient for sequence modeling?", section 2.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch

from interp_toolkit.models.transformer.config import MixingVariance, TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer

Variant = Literal["standard", "frozen-qk", "frozen-mlp", "mixit", "random"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
_QUERIES_AND_KEYS = ("attn.W_Q", "attn.W_K", "attn.b_Q", "attn.b_K")
MLP_FACTOR = 4  # neurons over width


def variant_config(
    variant: Variant,
    *,
    n_layers: int,
    n_heads: int,
    d_model: int,
    n_ctx: int,
    d_vocab: int,
    mixing: MixingVariance = "1/(d_head m)",
    biases: bool = False,
    tied_embeddings: bool = False,
    initial_std: float | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int | None = None,
    model_name: str = "custom",
) -> TransformerConfig:
    """The configuration of a variant; it does not say which parameters are frozen.

    Args:
        variant: name of the variant.
        n_layers: number of layers.
        n_heads: heads per layer.
        d_model: the width; d_head is d_model / n_heads.
        n_ctx: number of positions.
        d_vocab: number of tokens.
        mixing: the variance of mixit's matrices.
        biases: biases of all linear maps of attention and MLP; the unembedding has none.
        tied_embeddings: unembed with the embedding's transpose.
        initial_std: standard deviation of the initial weights; None: 1/sqrt(d_model), the source's
            value for W_V.
        dtype: dtype of the weights.
        seed: random seed of the weights.
        model_name: name of the model.
    """
    mixes = variant == "mixit"
    return TransformerConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_ctx=n_ctx,
        d_head=d_model // n_heads,
        n_heads=n_heads,
        d_vocab=d_vocab,
        d_mlp=MLP_FACTOR * d_model,
        gated_mlp=True,
        act_fn="silu",
        biases=biases,
        gate_biases=biases,
        unembed_bias=False,
        tied_embeddings=tied_embeddings,
        mixing=mixing if mixes else None,
        normalization_type="RMS",
        positional_embedding_type="standard" if mixes else "rotary",
        initializer_range=initial_std or 1 / math.sqrt(d_model),
        dtype=dtype,
        seed=seed,
        model_name=model_name,
    )


def variant_model(
    cfg: TransformerConfig, variant: Variant, *, qk_std: float | None = None
) -> Transformer:
    """A new model with the variant's parameters frozen.

    Args:
        cfg: see `variant_config`.
        variant: name of the variant.
        qk_std: standard deviation of the initial W_Q and W_K; None: as for all other weights.
            Frozen weights keep their scale, so it determines how sharp frozen-qk's attention can
            become.
    """
    model = Transformer(cfg)
    if qk_std is not None and cfg.mixing is None:
        for block in model.blocks:
            for weights in (block.attn.W_Q, block.attn.W_K):
                weights.data *= qk_std / cfg.initializer_range
    freeze(model, variant)
    return model


def freeze(model: Transformer, variant: Variant) -> None:
    """Turn off gradients of the parameters that the variant does not train."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name, variant))


def is_trained(name: str, variant: Variant) -> bool:
    """Whether the variant trains the parameter of this name."""
    if variant == "random":
        return name.startswith(("embed.", "unembed."))
    if variant == "frozen-qk":
        return not name.endswith(_QUERIES_AND_KEYS)
    return variant != "frozen-mlp" or ".mlp." not in name


def trainable_parameters(model: Transformer) -> int:
    """The number of trained parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
