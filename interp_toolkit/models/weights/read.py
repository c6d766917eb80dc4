"""Read the parts of any model's weights; nothing is checked here.

`HookedTransformer` and the toolkit's transformer store tensors under the same names; bridges wrap
modules of other shapes and expose them under TransformerLens's names, with keys and values not
repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import device_of, is_latent
from interp_toolkit.models.weights.parts import (
    Direction,
    Division,
    LayerWeights,
    MLPWeights,
    NormWeights,
    OutputWeights,
    OVWeights,
)
from interp_toolkit.models.weights.positions import alibi, read_tensor, rotary

Read = TypeVar("Read", bound=Callable[..., Any])


def on_one_device(read: Read) -> Read:
    """Wrap a reader so that its result is on the device of the model's first parameter."""

    @wraps(read)
    def moved(model: Any, *args: Any) -> Any:
        return _moved(read(model, *args), device_of(model))

    return cast("Read", moved)


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, tuple):
        return tuple(_moved(one, device) for one in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    parts = {field.name: getattr(part, field.name) for field in fields(part)}
    new = {name: _moved(one, device) for name, one in parts.items()}
    changed = {name: one for name, one in new.items() if one is not parts[name]}
    return replace(part, **changed) if changed else part


@on_one_device
def embedding(model: Any) -> Tensor:
    """W_E as stored, [d_vocab d_model]."""
    return read_tensor(getattr(model, "embed", None), "W_E", "the token embedding")


@on_one_device
def embedding_norm(model: Any) -> NormWeights:
    """The norm after the sum of token and position embeddings (Bloom, BERT); usually kind None."""
    if "embed_ln" in model._modules:
        return norm(model, "embed_ln", model.cfg)
    if type(getattr(model, "original_model", None)).__name__.startswith("NanoChat"):
        return final_norm(model)  # the same norm, which has no gain, is before the layers
    return norm(model.embed, "ln", model.cfg)  # HookedTransformer's post_embedding_ln


@on_one_device
def token_type(model: Any) -> Tensor | None:
    """Embedding of the first token type (BERT's default); None without types."""
    module = model._modules.get("token_type_embed")
    if module is None:
        return None
    return read_tensor(module, "W_E", "the token type embedding")[0]


@on_one_device
def unembedding(model: Any) -> tuple[Tensor, Tensor]:
    """W_U [d_model d_vocab] and b_U [d_vocab]."""
    if "mlm_head" in model._modules:
        raise InputError(
            "the unembedding follows a masked-language-modeling head (a layer and an "
            "activation), which no weights view can represent exactly"
        )
    if "unembed" not in model._modules:
        raise InputError("this model has no head, so it has no unembedding")
    W_U = read_tensor(model.unembed, "W_U", "the unembedding")
    return W_U, _bias(model.unembed, "b_U", W_U.new_zeros(W_U.shape[1]))


@on_one_device
def final_norm(model: Any) -> NormWeights:
    """The norm before the unembedding; kind None if there is none."""
    return norm(model, "ln_final", model.cfg)


def norm(owner: Any, name: str, cfg: Any) -> NormWeights:
    """The norm of this name in a module; kind None if there is none."""
    module = owner._modules.get(name)
    inner = getattr(module, "original_component", None)
    if module is None or isinstance(module if inner is None else inner, torch.nn.Identity):
        return NormWeights(None)
    if inner is None:
        centred = getattr(module, "centre", not type(module).__name__.startswith("RMS"))
        return NormWeights(
            "LN" if centred else "RMS",
            getattr(module, "w", None),
            getattr(module, "b", None),
            float(module.eps),
        )
    rms, w = _is_rms(module, inner), getattr(inner, "weight", None)
    eps = getattr(inner, "eps", getattr(inner, "variance_epsilon", None)) if rms else None
    eps = float(cfg.eps if eps is None else eps)
    if w is not None:
        w = _gain(inner, w, eps, centred=not rms)
    b = None if rms else getattr(inner, "bias", None)
    return NormWeights("RMS" if rms else "LN", w, b, eps)


def _is_rms(module: Any, inner: torch.nn.Module) -> bool:
    """Whether a norm divides by the root mean square, without subtracting the mean."""
    named = "rms" in type(inner).__name__.lower()
    return bool(getattr(module, "uses_rms_norm", named) or named)


def _gain(norm: torch.nn.Module, w: Tensor, eps: float, *, centred: bool) -> Tensor:
    """What a norm multiplies with: its weight, or one more (Gemma, Qwen3-Next, Nemotron).

    Configurations of bridges do not say it for every family, so the norm is asked.
    """
    x = torch.linspace(-1, 2, len(w), dtype=w.dtype, device=w.device)
    unit = NormWeights("LN" if centred else "RMS", eps=eps)(x)
    bias = getattr(norm, "bias", None)
    with torch.no_grad():
        out = norm(x[None, None]).flatten() - (0 if bias is None else bias)
        return min(w, 1 + w, key=lambda gain: float((out - unit * gain).abs().max()))


#: how queries and keys are turned, and scores divided, if not as the configuration says
Variant = tuple[Literal["own", "flipped", "reversed", "none"], Literal["own", "none"]]
VARIANTS: tuple[Variant, ...] = (
    ("own", "own"),
    ("own", "none"),
    ("flipped", "own"),
    ("reversed", "own"),
    ("none", "own"),
)


@on_one_device
def layer(model: Any, layer: int, variant: Variant = VARIANTS[0]) -> LayerWeights:
    """The attention weights of a layer, unchecked."""
    values, attn, cfg = ov(model, layer), _attention(model, layer), model.cfg
    if mixes(model, layer):
        raise InputError(
            f"the heads of layer {layer} mix by fixed matrices and have no queries or keys"
        )
    _refuse_attention(attn, cfg, layer)
    q_latent = None
    if is_latent(attn):
        W_Q, q_latent = _latent_queries(attn, cfg, layer, values.norm)
        W_K, _ = _from_latent(attn, cfg, layer, values.norm, "K")
        b_Q, b_K = (W.new_zeros(W.shape[0], W.shape[-1]) for W in (W_Q, W_K))
    else:
        W_Q, b_Q = _projection(attn, cfg, layer, "Q")
        W_K, b_K = _projection(attn, cfg, layer, "K")
    turn, divide = variant
    return LayerWeights(
        **vars(values),
        W_Q=W_Q,
        W_K=W_K,
        b_Q=b_Q,
        b_K=b_K,
        q_latent=q_latent,
        attn_scale=_scale(attn, cfg, layer) if divide == "own" else 1.0,
        soft_cap=_soft_cap(attn, cfg),
        rotary=None if turn == "none" else rotary(model, attn, cfg, turn),
        alibi=alibi(attn, cfg),
        q_norm=_head_norm(attn, "q_norm", cfg),
        k_norm=_head_norm(attn, "k_norm", cfg),
        sinks=_sinks(attn),
    )


def _gated(attn: Any) -> bool:
    """Whether a query projection holds a gate beside each head's query (Qwen3-Next)."""
    inner = getattr(attn, "original_component", None)
    q, o = (getattr(inner, f"{name}_proj", None) for name in "qo")
    wide, d_z = getattr(q, "out_features", None), getattr(o, "in_features", None)
    return wide is not None and d_z is not None and wide == 2 * d_z


def _head_norm(attn: Any, name: str, cfg: Any) -> NormWeights:
    """The norm of queries or keys, with weights for all query heads if it is over all heads."""
    of = norm(attn, name, cfg)
    d_head, heads = int(cfg.d_head), int(cfg.n_heads)
    if of.w is None or len(of.w) == d_head:
        return of
    shared = heads * d_head // len(of.w)  # query heads that share a key head
    w = of.w.reshape(-1, d_head).repeat_interleave(shared, dim=0).flatten()
    return replace(of, w=w)


def _sinks(attn: Any) -> Tensor | None:
    """The heads' sinks (GPT-OSS); None without them."""
    sinks = getattr(getattr(attn, "original_component", attn), "sinks", None)
    return sinks.detach() if isinstance(sinks, Tensor) else None


@on_one_device
def outputs(model: Any, layer: int) -> OutputWeights:
    """What a layer makes of its heads' outputs, unchecked."""
    cfg, block, attn = model.cfg, model.blocks[layer], _attention(model, layer)
    heads, d_model = int(cfg.n_heads), int(cfg.d_model)
    W_O, what = _output_matrix(attn), f"W_O of layer {layer}"
    if W_O is None:
        W_O = _per_query_head(
            read_tensor(attn, "W_O", what), heads, (int(cfg.d_head), d_model), what
        )
    else:
        W_O = W_O.reshape(heads, -1, d_model)
    behind = _normalises_sums(block)
    return OutputWeights(
        W_O=W_O,
        b_O=_bias(attn, "b_O", W_O.new_zeros(d_model)),
        post_norm=norm(block, _behind(block, "ln1"), cfg),
        residual_norm=norm(block, "ln1", cfg) if behind else NormWeights(None),
    )


def _output_matrix(attn: Any) -> Tensor | None:
    """The output projection of latent attention, [head · d_value, d_model]; else None.

    TransformerLens gives it the shape that `d_head` asks for, which is not that of the values.
    """
    if not is_latent(attn):
        return None
    inner = getattr(attn._modules.get("o"), "original_component", None)
    return read_tensor(inner, "weight", "the output projection").T


@on_one_device
def ov(model: Any, layer: int) -> OVWeights:
    """The value and output weights of a layer, unchecked."""
    cfg, block, attn = model.cfg, model.blocks[layer], _attention(model, layer)
    before, kv_latent = _norm_before(block, "ln1", cfg), None
    if is_latent(attn):
        W_V, kv_latent = _from_latent(attn, cfg, layer, before, "V")
        b_V = W_V.new_zeros(W_V.shape[0], W_V.shape[-1])
    else:
        W_V, b_V = _projection(attn, cfg, layer, "V")
    return OVWeights(
        **vars(outputs(model, layer)),
        W_V=W_V,
        b_V=b_V,
        direction=_direction(attn, cfg),
        window=_window(attn, cfg, layer),
        norm=before,
        parallel=bool(getattr(cfg, "parallel_attn_mlp", False)),
        gated=_gated(attn),
        kv_latent=kv_latent,
    )


def _from_latent(
    attn: Any, cfg: Any, layer: int, before: NormWeights, which: Literal["K", "V"]
) -> tuple[Tensor, Division]:
    """Weights of keys, with their rotated coordinates first, or of values, and their latent."""
    inner, heads = attn.original_component, int(cfg.n_heads)
    plain, rank = int(inner.qk_nope_head_dim), int(inner.kv_lora_rank)
    down = _latent_weight(inner, "kv_a_proj_with_mqa", layer)
    up = _latent_weight(inner, "kv_b_proj", layer).reshape(rank, heads, -1).movedim(1, 0)
    up = up[..., :plain] if which == "K" else up[..., plain:]
    W, latent = _latent(attn, "kv_a_layernorm", down[:, :rank], up, cfg, before, layer)
    if which == "K":
        W = torch.cat([down[:, rank:].expand(heads, -1, -1), W], -1)
    return W, replace(latent, last=plain)


def _latent_queries(
    attn: Any, cfg: Any, layer: int, before: NormWeights
) -> tuple[Tensor, Division | None]:
    """Weights of queries, with their rotated coordinates first, and their latent, if any."""
    inner, latent = attn.original_component, None
    plain, heads = int(inner.qk_nope_head_dim), int(cfg.n_heads)
    if getattr(inner, "q_lora_rank", None) is None:
        W = _latent_weight(inner, "q_proj", layer)
    else:
        down, up = (_latent_weight(inner, f"q_{name}_proj", layer) for name in "ab")
        W, latent = _latent(attn, "q_a_layernorm", down, up, cfg, before, layer)
    W = W.reshape(len(W), heads, -1).movedim(1, 0)
    return torch.cat([W[..., plain:], W[..., :plain]], -1), latent


def _latent(
    attn: Any, name: str, down: Tensor, up: Tensor, cfg: Any, before: NormWeights, layer: int
) -> tuple[Tensor, Division]:
    """Weights through a latent, and what is left of its norm."""
    inside = norm(attn, name, cfg)
    if inside.kind is None or inside.b is not None or before.b is not None:
        raise InputError(f"norms with biases around the latents of layer {layer} are not read")
    read = down if before.w is None else before.w[:, None] * down
    unit = float(read.detach().double().square().sum() / down.shape[1]) ** 0.5 or 1.0
    up = up if inside.w is None else inside.w.detach()[:, None] * up
    return down @ up / unit, Division(down, inside.bare, unit)


def _latent_weight(inner: Any, name: str, layer: int) -> Tensor:
    """The matrix of a projection, [in out]; raises InputError for one with a bias."""
    module, what = getattr(inner, name), f"{name} of layer {layer}"
    module = getattr(module, "original_component", module)
    if getattr(module, "bias", None) is not None:
        raise InputError(f"{what} has a bias inside latent attention, which is not read")
    return read_tensor(module, "weight", what).T


def mixes(model: Any, layer: int) -> bool:
    """Whether fixed matrices replace attention in a layer (`transformer.attention`)."""
    return isinstance(getattr(_attention(model, layer), "mixing", None), Tensor)


def _attention(model: Any, layer: int) -> Any:
    attn = model.blocks[layer]._modules.get("attn")
    if attn is None:
        raise InputError(f"layer {layer} has no attention")
    return attn


def _projection(attn: Any, cfg: Any, layer: int, which: str) -> tuple[Tensor, Tensor]:
    """`W_Q` and `b_Q`, or those of keys or values, one per query head."""
    heads, d_model, d_head = int(cfg.n_heads), int(cfg.d_model), int(cfg.d_head)
    what = f"W_{which} of layer {layer}"
    if which == "Q" and _gated(attn):  # each head's query, then its gate
        q = attn.original_component.q_proj
        W = read_tensor(q, "weight", what).reshape(heads, 2, d_head, d_model)[:, 0].mT
        b = _bias(q, "bias", W.new_zeros(2 * heads * d_head)).reshape(heads, 2, d_head)[:, 0]
        return W, b
    W = _per_query_head(read_tensor(attn, f"W_{which}", what), heads, (d_model, d_head), what)
    b = _bias(attn, f"b_{which}", W.new_zeros(heads, d_head))
    return W, _per_query_head(b, heads, (d_head,), f"b_{which} of layer {layer}")


@on_one_device
def mlp(model: Any, layer: int) -> MLPWeights | None:
    """The MLP weights of a layer, unchecked; None without an MLP."""
    cfg, block = model.cfg, model.blocks[layer]
    mlp = block._modules.get("mlp")
    if mlp is None:
        return None
    if _has_experts(mlp, cfg):
        raise InputError(f"layer {layer} is a mixture of experts, which has no single MLP")
    W_in = read_tensor(mlp, "W_in", f"W_in of layer {layer}")
    gated = isinstance(getattr(mlp, "W_gate", None), Tensor)
    zero = W_in.new_zeros(W_in.shape[1])
    b_in = _bias(mlp, "b_in", zero)
    bridge = getattr(mlp, "original_component", None) is not None
    b_gate = getattr(mlp, "b_gate", None)
    after = gated and not bridge and b_gate is None  # HookedTransformer adds b_in after the product
    before = "ln2" if "ln2" in block._modules else "ln1"
    return MLPWeights(
        W_in=W_in,
        b_in=zero if after else b_in,
        W_gate=mlp.W_gate if gated else None,
        b_gate=_bias(mlp, "b_gate", zero) if gated else None,
        b_post=b_in if after else zero,
        W_out=read_tensor(mlp, "W_out", f"W_out of layer {layer}"),
        b_out=_bias(mlp, "b_out", W_in.new_zeros(W_in.shape[0])),
        act_fn=_act_fn(mlp, cfg),
        norm=_norm_before(block, before, cfg),
        post_norm=norm(block, _behind(block, "ln2"), cfg),
        residual_norm=norm(block, before, cfg) if _normalises_sums(block) else NormWeights(None),
    )


def visibility(model: Any, layer: int) -> tuple[Direction, int | None]:
    """Attention direction and window of a layer (None: unlimited), unchecked."""
    attn = model.blocks[layer]._modules.get("attn")
    if attn is None:  # a mixer, whose reach is unknown; nothing masks it
        return "causal", None
    return _direction(attn, model.cfg), _window(attn, model.cfg, layer)


def positive(value: Any) -> float | None:
    """The number, or None if TransformerLens writes -1 (or nothing) for "not used"."""
    return float(value) if value is not None and float(value) > 0 else None


def _refuse_attention(attn: Any, cfg: Any, layer: int) -> None:
    """Raise InputError, naming the feature, for attention that is more than scores and values."""
    positions = getattr(cfg, "positional_embedding_type", "standard")
    reasons = {
        "sparse latent attention": hasattr(getattr(attn, "original_component", None), "indexer"),
        f"{positions} positions": positions not in ("standard", "none", "rotary", "alibi"),
        "clipped queries and keys": getattr(cfg, "clip_qkv", None) is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"layer {layer} has {reason}, which no weights view can represent exactly"
            )


def _normalises_sums(block: Any) -> bool:
    """Whether norms follow the additions to the residual stream (BERT), by their position."""
    first, attn = (getattr(block._modules.get(part), "name", None) for part in ("ln1", "attn"))
    return first is not None and attn is not None and str(first).startswith(f"{attn}.")


def _behind(block: Any, norm: str) -> str:
    """The norm behind a branch.

    Bridges of TransformerLens 3 call OLMo 2's `ln1` and `ln2`, and OLMo hybrid's `ln2`, `ln2_post`.
    """
    of_branch = {"ln1": "post_attention", "ln2": "post_feedforward"}[norm]
    first = "ln2" if norm == "ln1" and "ln1" not in block._modules else norm
    name = str(getattr(block._modules.get(first), "name", ""))
    return first if name.startswith(of_branch) else f"{norm}_post"


def _norm_before(block: Any, name: str, cfg: Any) -> NormWeights:
    """The norm in front of a branch."""
    if _normalises_sums(block) or name in (_behind(block, "ln1"), _behind(block, "ln2")):
        return NormWeights(None)
    return norm(block, name, cfg)


def _act_fn(mlp: Any, cfg: Any) -> str:
    """TransformerLens's name of the activation; its configs lack Bloom's."""
    inner = getattr(mlp, "original_component", None)
    return "gelu_new" if type(inner).__name__ == "BloomMLP" else str(cfg.act_fn)


def _has_experts(mlp: Any, cfg: Any) -> bool:
    """Whether an MLP is a mixture of experts; a model of mixtures may have dense layers."""
    if getattr(mlp, "original_component", None) is None:
        return bool(getattr(cfg, "num_experts", None))
    return "moe" in type(mlp).__name__.lower() and not getattr(mlp, "bound_dense", False)


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
    """The divisor of attention scores."""
    inner = getattr(attn, "original_component", None)
    if inner is None:  # HookedTransformer or the toolkit's transformer
        return float(attn.attn_scale if hasattr(attn, "attn_scale") else attn.scale)
    if isinstance(getattr(inner, "scaling", None), float):  # transformers' factor
        return 1.0 / (float(inner.scaling) * float(getattr(inner, "key_multiplier", 1.0)))
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
    inner = getattr(attn, "original_component", attn)
    inside = getattr(inner, "self", inner)  # BERT's attention wraps another
    if not (getattr(attn, "is_causal", True) and getattr(inside, "is_causal", True)):
        direction = "bidirectional"
    return "bidirectional" if direction == "bidirectional" else "causal"


def _window(attn: Any, cfg: Any, layer: int) -> int | None:
    """The window of a sliding-window layer."""
    inner = getattr(attn, "original_component", None)
    if inner is not None:
        layers = getattr(getattr(inner, "config", None), "attention_layers", None)
        if layers is not None:  # GPT-Neo
            return int(inner.config.window_size) if layers[layer] == "local" else None
        holder = inner if hasattr(inner, "sliding_window") else getattr(inner, "config", None)
        window = getattr(holder, "sliding_window", None)  # of the config: Mistral, Phi-3
        kinds = getattr(cfg, "layer_types", None)
        slides = kinds is None or kinds[layer] == "sliding_attention"
        return int(window) if isinstance(window, int) and slides else None
    if getattr(attn, "attn_type", "global") == "local":
        return int(cfg.window_size)
    return None
