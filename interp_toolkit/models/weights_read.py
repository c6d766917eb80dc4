"""Reading the parts of a model's weights, whatever kind of model it is; nothing is checked here.

`HookedTransformer` and the toolkit's transformer keep tensors under the same names; bridges wrap
modules of other shapes and read TransformerLens's names off them, keys and values not repeated.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.rotation import Rotary, Table
from interp_toolkit.models.weights_parts import Direction, LayerWeights, MLPWeights, Norm

#: where positions enter attention and not the residual stream; HookedTransformer keeps a W_pos
_POSITIONS_ELSEWHERE = ("alibi", "shortformer", "relative_positional_bias", "rotary", "none")


def embedding(model: Any) -> Tensor:
    """W_E as stored, [d_vocab d_model]."""
    return _tensor(getattr(model, "embed", None), "W_E", "the token embedding")


def positions(model: Any) -> Tensor | None:
    """W_pos as stored, [pos d_model]; None for models without learned positions."""
    if "pos_embed" not in model._modules:
        return None
    if getattr(model.cfg, "positional_embedding_type", "standard") in _POSITIONS_ELSEWHERE:
        return None
    return _tensor(model.pos_embed, "W_pos", "the position embedding")


def unembedding(model: Any) -> tuple[Tensor, Tensor]:
    """W_U [d_model d_vocab] and b_U [d_vocab]."""
    W_U = _tensor(getattr(model, "unembed", None), "W_U", "the unembedding")
    return W_U, _bias(model.unembed, "b_U", W_U.new_zeros(W_U.shape[1]))


def norm(owner: Any, name: str, cfg: Any) -> Norm:
    """The norm of this name in a module; kind None when there is none."""
    module = owner._modules.get(name)
    inner = getattr(module, "original_component", None)
    if module is None or isinstance(module if inner is None else inner, torch.nn.Identity):
        return Norm(None)
    if inner is None:
        centred = getattr(module, "centre", not type(module).__name__.startswith("RMS"))
        return Norm(
            "LN" if centred else "RMS",
            getattr(module, "w", None),
            getattr(module, "b", None),
            float(module.eps),
        )
    rms, w = bool(module.uses_rms_norm), getattr(inner, "weight", None)
    if w is not None and getattr(cfg, "rmsnorm_uses_offset", False):
        w = 1 + w
    eps = getattr(inner, "eps", getattr(inner, "variance_epsilon", None)) if rms else None
    b = None if rms else getattr(inner, "bias", None)
    return Norm("RMS" if rms else "LN", w, b, float(cfg.eps if eps is None else eps))


def layer(model: Any, layer: int) -> LayerWeights:
    """The attention weights of a layer, unchecked."""
    cfg, block = model.cfg, model.blocks[layer]
    attn = block._modules.get("attn")
    if attn is None:
        raise InputError(f"layer {layer} has no attention")
    _refuse_attention(attn, cfg, layer)
    heads, d_model, d_head = int(cfg.n_heads), int(cfg.d_model), int(cfg.d_head)
    tensors: dict[str, Tensor] = {}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        shape = (d_head, d_model) if name == "W_O" else (d_model, d_head)
        what = f"{name} of layer {layer}"
        tensors[name] = _per_query_head(_tensor(attn, name, what), heads, shape, what)
    for name in ("b_Q", "b_K", "b_V"):
        value = _bias(attn, name, tensors["W_Q"].new_zeros(heads, d_head))
        tensors[name] = _per_query_head(value, heads, (d_head,), f"{name} of layer {layer}")
    return LayerWeights(
        **tensors,
        b_O=_bias(attn, "b_O", tensors["W_O"].new_zeros(d_model)),
        attn_scale=_scale(attn, cfg, layer),
        soft_cap=_soft_cap(attn, cfg),
        rotary=_rotary(model, attn, cfg),
        direction=_direction(attn, cfg),
        window=_window(attn, cfg, layer),
        norm=norm(block, "ln1", cfg),
        post_norm=norm(block, "ln1_post", cfg),
        parallel=bool(getattr(cfg, "parallel_attn_mlp", False)),
    )


def mlp(model: Any, layer: int) -> MLPWeights | None:
    """The MLP weights of a layer, unchecked; None where there is no MLP."""
    cfg, block = model.cfg, model.blocks[layer]
    mlp = block._modules.get("mlp")
    if mlp is None:
        return None
    if _has_experts(mlp, cfg):
        raise InputError(f"layer {layer} is a mixture of experts, which has no single MLP")
    W_in = _tensor(mlp, "W_in", f"W_in of layer {layer}")
    gated = isinstance(getattr(mlp, "W_gate", None), Tensor)
    zero = W_in.new_zeros(W_in.shape[1])
    b_in = _bias(mlp, "b_in", zero)
    bridge = getattr(mlp, "original_component", None) is not None
    after = gated and not bridge  # HookedTransformer adds b_in behind the product
    before = "ln2" if "ln2" in block._modules else "ln1"
    return MLPWeights(
        W_in=W_in,
        b_in=zero if after else b_in,
        W_gate=mlp.W_gate if gated else None,
        b_gate=_bias(mlp, "b_gate", zero) if gated else None,
        b_post=b_in if after else zero,
        W_out=_tensor(mlp, "W_out", f"W_out of layer {layer}"),
        b_out=_bias(mlp, "b_out", W_in.new_zeros(W_in.shape[0])),
        act_fn=str(cfg.act_fn),
        norm=norm(block, before, cfg),
        post_norm=norm(block, "ln2_post", cfg),
    )


def positive(value: Any) -> float | None:
    """The number, or None where TransformerLens writes -1 (or nothing) for "not used"."""
    return float(value) if value is not None and float(value) > 0 else None


def _refuse_attention(attn: Any, cfg: Any, layer: int) -> None:
    """Name what makes attention more than scores and values. Raises InputError if anything does."""
    kind, inner = type(attn).__name__.lower(), getattr(attn, "original_component", attn)
    positions = getattr(cfg, "positional_embedding_type", "standard")
    reasons = {
        "ALiBi positions": positions == "alibi" or "alibi" in kind,
        "multi-head latent attention": "mla" in kind,
        f"{positions} positions": positions not in ("standard", "none", "rotary"),
        "query-key norms": any(_has(attn, n) for n in ("q_norm", "k_norm")),
        "attention sinks": isinstance(getattr(inner, "sinks", None), Tensor),
        "clipped queries and keys": getattr(cfg, "clip_qkv", None) is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(f"layer {layer} has {reason}, which no weights view can give exactly")


def _has_experts(mlp: Any, cfg: Any) -> bool:
    """Whether an MLP is a mixture; bridges of mixtures may have layers that are dense."""
    if getattr(mlp, "original_component", None) is None:
        return bool(getattr(cfg, "num_experts", None))
    return "moe" in type(mlp).__name__.lower() and not getattr(mlp, "bound_dense", False)


def _has(module: Any, name: str) -> bool:
    return module._modules.get(name) is not None


def _tensor(module: Any, name: str, what: str) -> Tensor:
    try:
        value = getattr(module, name)
    except Exception as error:  # accessors of bridges refuse in many ways
        raise InputError(f"{what} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise InputError(f"{what} cannot be read as a plain tensor (quantised?)")
    return value.detach()


def _bias(module: Any, name: str, zero: Tensor) -> Tensor:
    value = getattr(module, name, None)
    return value.detach() if isinstance(value, Tensor) else zero


def _per_query_head(value: Tensor, n_heads: int, shape: tuple[int, ...], what: str) -> Tensor:
    if value.ndim != len(shape) + 1 or value.shape[1:] != shape or n_heads % value.shape[0]:
        raise InputError(f"{what} has shape {tuple(value.shape)}, not {(n_heads, *shape)}")
    if value.shape[0] == n_heads:
        return value
    return value.repeat_interleave(n_heads // value.shape[0], dim=0)


def _scale(attn: Any, cfg: Any, layer: int) -> float:
    """What scores are divided by."""
    inner = getattr(attn, "original_component", None)
    if inner is None:  # HookedTransformer, the toolkit's
        return float(attn.attn_scale if hasattr(attn, "attn_scale") else attn.scale)
    if isinstance(getattr(inner, "scaling", None), float):  # transformers' factor
        return 1.0 / float(inner.scaling)
    if isinstance(getattr(inner, "scale", None), float):  # the native bridge's divisor
        return float(inner.scale)
    if not getattr(inner, "scale_attn_weights", True):
        return 1.0
    scale = positive(cfg.attn_scale) or math.sqrt(cfg.d_head)
    by_layer = getattr(inner, "scale_attn_by_inverse_layer_idx", False)
    return scale * (layer + 1) if by_layer else scale


def _soft_cap(attn: Any, cfg: Any) -> float | None:
    inner = getattr(attn, "original_component", None)
    own = getattr(inner, "attn_logit_softcapping", None)
    return positive(getattr(cfg, "attn_scores_soft_cap", None) if own is None else own)


def _direction(attn: Any, cfg: Any) -> Direction:
    override = getattr(attn, "_attention_dir_override", None)
    direction = override or getattr(cfg, "attention_dir", "causal")
    if not getattr(attn, "is_causal", True):
        direction = "bidirectional"
    return "bidirectional" if direction == "bidirectional" else "causal"


def _window(attn: Any, cfg: Any, layer: int) -> int | None:
    """How far back a sliding-window layer sees."""
    inner = getattr(attn, "original_component", None)
    if inner is not None:
        window = getattr(inner, "sliding_window", None)
        kinds = getattr(cfg, "layer_types", None)
        slides = kinds is None or kinds[layer] == "sliding_attention"
        return int(window) if isinstance(window, int) and slides else None
    if getattr(attn, "attn_type", "global") == "local":
        return int(cfg.window_size)
    return None


def _rotary(model: Any, attn: Any, cfg: Any) -> Rotary | None:
    if getattr(cfg, "positional_embedding_type", "standard") != "rotary":
        return None
    adjacent = bool(getattr(cfg, "rotary_adjacent_pairs", False))
    base = getattr(cfg, "rotary_base", None)
    inner = getattr(attn, "original_component", None)
    if hasattr(inner, "rotary"):  # the native bridge always turns adjacent pairs
        adjacent = True
    tables = _tables(model, attn, inner, adjacent)
    dim = tables(1)[0].shape[-1]
    return Rotary(dim, adjacent, None if base is None else float(base), tables)


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
