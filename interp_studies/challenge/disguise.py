"""The same function with other weights: rotated, widened, heads and neurons in another order.

A hand-set model has one dimension per feature. A random rotation of the residual stream, random
bases inside each head, and a random order of heads and neurons hide these dimensions without
changing the function. For models without norms, grouped-query attention and rotary positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros


@torch.no_grad()
def disguised(
    model: Transformer,
    seed: int,
    width: int | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Transformer, Mapping[Head, Head], Float[Tensor, "d_model width"]]:
    """The same function with other weights; record and ground truth are not copied.

    Args:
        model: model without norms, grouped-query attention and rotary positions.
        seed: random seed of the rotation, the bases and the orders.
        width: width of the new residual stream, at least that of the model; None: that of the
            model.
        dtype: dtype of the parameters; None: that of the model.

    Returns:
        The new model; the place of each head in it; and the rotation: a residual stream `x` of the
            model is `x @ rotation` in the new model.

    Raises:
        InputError: the model has norms, grouped-query attention or rotary positions, or the width
            is too small.
    """
    cfg = model.cfg
    width = cfg.d_model if width is None else width
    rotary = cfg.positional_embedding_type == "rotary"
    if cfg.normalization_type is not None or cfg.n_key_value_heads is not None or rotary:
        raise InputError("models with norms, grouped heads or rotary positions cannot be rotated")
    if width < cfg.d_model:
        raise InputError(f"width {width} is smaller than the model's {cfg.d_model}")
    rng = np.random.default_rng([seed, 0xD15])
    turn = rotation(width, rng)[: cfg.d_model]
    changes = {"d_model": width, "dtype": dtype or cfg.dtype}
    new = zeros(cfg.model_copy(update=changes))
    source = {name: value.double() for name, value in model.state_dict().items()}
    target = dict(new.named_parameters())
    places: dict[Head, Head] = {}
    for name, value in source.items():
        if not name.startswith("blocks."):
            value = value @ turn if name in ("embed.W_E", "pos_embed.W_pos") else value
            target[name].copy_(turn.T @ value if name == "unembed.W_U" else value)
    for layer in range(cfg.n_layers):
        order = rng.permutation(cfg.n_heads)  # of the new heads, which old one each is
        places |= {Head(layer, int(old)): Head(layer, i) for i, old in enumerate(order)}
        _turn_heads(source, target, f"blocks.{layer}.attn.", turn, order, rng)
        if not cfg.attn_only:
            _turn_mlp(source, target, f"blocks.{layer}.mlp.", turn, rng)
    return new.eval(), places, turn


def rotation(size: int, rng: np.random.Generator) -> Float[Tensor, "size size"]:
    """A random orthogonal matrix in float64."""
    drawn = torch.from_numpy(rng.standard_normal((size, size)))
    turn: Tensor = torch.linalg.qr(drawn)[0]
    return turn


def _turn_heads(
    source: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    prefix: str,
    turn: Tensor,
    order: np.ndarray,
    rng: np.random.Generator,
) -> None:
    d_head = source[f"{prefix}W_Q"].shape[-1]
    for new, old in enumerate(order.tolist()):
        compared, carried = rotation(d_head, rng), rotation(d_head, rng)
        for part, basis in (("Q", compared), ("K", compared), ("V", carried)):
            target[f"{prefix}W_{part}"][new] = turn.T @ source[f"{prefix}W_{part}"][old] @ basis
            if f"{prefix}b_{part}" in source:
                target[f"{prefix}b_{part}"][new] = source[f"{prefix}b_{part}"][old] @ basis
        target[f"{prefix}W_O"][new] = carried.T @ source[f"{prefix}W_O"][old] @ turn
    if f"{prefix}b_O" in source:
        target[f"{prefix}b_O"].copy_(source[f"{prefix}b_O"] @ turn)


def _turn_mlp(
    source: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    prefix: str,
    turn: Tensor,
    rng: np.random.Generator,
) -> None:
    order = torch.from_numpy(rng.permutation(source[f"{prefix}W_in"].shape[1]))
    target[f"{prefix}W_in"].copy_(turn.T @ source[f"{prefix}W_in"][:, order])
    target[f"{prefix}W_out"].copy_(source[f"{prefix}W_out"][order] @ turn)
    if f"{prefix}b_in" in source:
        target[f"{prefix}b_in"].copy_(source[f"{prefix}b_in"][order])
        target[f"{prefix}b_out"].copy_(source[f"{prefix}b_out"] @ turn)
