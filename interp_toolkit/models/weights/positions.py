"""How positions enter a model: added to the residual stream, by turning, or as a bias of scores.

Learned positions are a tensor. Rotary tables and ALiBi slopes are read from the model's own
modules, each kind of which keeps them elsewhere; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.weights.alibi import Alibi
from interp_toolkit.models.weights.rotation import RotaryTables, Table

#: where positions enter attention and not the residual stream; HookedTransformer keeps a W_pos
_POSITIONS_ELSEWHERE = ("alibi", "shortformer", "relative_positional_bias", "rotary", "none")


def positions(model: Any) -> Tensor | None:
    """W_pos as stored, [pos d_model]; None for models without learned positions."""
    if "pos_embed" not in model._modules:
        return None
    if getattr(model.cfg, "positional_embedding_type", "standard") in _POSITIONS_ELSEWHERE:
        return None
    return read_tensor(model.pos_embed, "W_pos", "the position embedding")


def alibi(attn: Any, cfg: Any) -> Alibi | None:
    """What attention adds for distance; None for models without ALiBi."""
    kind = type(attn).__name__.lower()
    if getattr(cfg, "positional_embedding_type", "standard") != "alibi" and "alibi" not in kind:
        return None
    n_heads, device = int(cfg.n_heads), next(attn.parameters()).device
    if getattr(attn, "original_component", None) is None:  # HookedTransformer
        return Alibi(attn.create_alibi_multipliers(n_heads, device), from_query=True)
    from transformer_lens.model_bridge.generalized_components.alibi_utils import build_alibi_slopes

    return Alibi(build_alibi_slopes(n_heads, device), from_query=False)


def rotary(model: Any, attn: Any, cfg: Any) -> RotaryTables | None:
    """How attention turns queries and keys; None for models without rotary positions."""
    if getattr(cfg, "positional_embedding_type", "standard") != "rotary":
        return None
    adjacent = bool(getattr(cfg, "rotary_adjacent_pairs", False))
    base = getattr(cfg, "rotary_base", None)
    inner = getattr(attn, "original_component", None)
    if hasattr(inner, "rotary"):  # the native bridge always turns adjacent pairs
        adjacent = True
    tables = _tables(model, attn, inner, adjacent)
    dim = tables(1)[0].shape[-1]
    return RotaryTables(dim, adjacent, None if base is None else float(base), tables)


def _tables(model: Any, attn: Any, inner: Any, adjacent: bool) -> Table:
    """A function of the number of positions that gives the model's own cosines and sines."""
    if inner is None and hasattr(attn, "rotary_cos"):  # HookedTransformer

        def from_buffers(n_pos: int) -> tuple[Tensor, Tensor]:
            if n_pos > len(attn.rotary_cos):
                attn._extend_rotary_embeddings(n_pos)
            return attn.rotary_cos[:n_pos], attn.rotary_sin[:n_pos]

        return from_buffers
    if inner is None:  # the toolkit's

        def from_own(n_pos: int) -> tuple[Tensor, Tensor]:
            sin, cos = attn.rotary.tables(n_pos, attn.W_Q)
            return cos, sin

        return from_own
    if hasattr(inner, "rotary"):  # the native bridge

        def from_native(n_pos: int) -> tuple[Tensor, Tensor]:
            end = len(inner.rotary.cos_cached)
            if n_pos > end:
                raise InputError(
                    f"there is no position {n_pos - 1}; the model has positions 0 to {end - 1}"
                )
            return inner.rotary.cos_cached[:n_pos], inner.rotary.sin_cached[:n_pos]

        return from_native
    module = getattr(inner, "rotary_emb", None) or getattr(model, "rotary_emb", None)
    module = getattr(module, "original_component", module)
    if module is None:
        raise InputError("the rotary positions of this architecture cannot be read")

    def from_transformers(n_pos: int) -> tuple[Tensor, Tensor]:
        like = next(iter(model.parameters()))
        try:
            with torch.no_grad():
                cos, sin = module(like, torch.arange(n_pos, device=like.device)[None])
        except TypeError as error:
            raise InputError(f"rotary positions that differ by layer: {error}") from error
        return _full_width(cos[0], adjacent), _full_width(sin[0], adjacent)

    return from_transformers


def _full_width(table: Tensor, adjacent: bool) -> Tensor:
    """Side by side for adjacent pairs what transformers repeats in halves."""
    return table[:, : table.shape[1] // 2].repeat_interleave(2, -1) if adjacent else table


def read_tensor(module: Any, name: str, what: str) -> Tensor:
    """A plain floating-point tensor of a module. Raises InputError when there is none."""
    try:
        value = getattr(module, name)
    except Exception as error:  # accessors of bridges refuse in many ways
        raise InputError(f"{what} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise InputError(f"{what} cannot be read as a plain tensor (quantised?)")
    return value.detach()
