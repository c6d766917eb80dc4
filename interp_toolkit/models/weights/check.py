"""Check on one tiny forward pass that the view of the weights computes the same as the model.

Each part is compared separately, computed from the model's own input to it, so that a part that the
view cannot represent (experts, latent attention, ...) does not affect the others:

- embedding: `W_E[token] * scale + W_pos` against the first residual stream, with token type and
  norm if there are any (BERT). The scale is fitted if there is no norm; Gemma's is sqrt(d_model).
- values and output of each layer's attention; its queries, keys and pattern.
- MLP of each layer: input and output of the activation, and the MLP's output computed from that.
- residual streams that are normalized after each addition (BERT): the stream after attention, which
  bridges show at `hook_attn_out`, and after the MLP.
- unembedding: the logits from the last residual stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import by_head, probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points, layer_of, store_in
from interp_toolkit.models.running.layers import layer_parts
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.parts import (
    LayerWeights,
    mixed,
    plain_activation,
    residual_hook,
    soft_capped,
)
from interp_toolkit.models.weights.positions import positions
from interp_toolkit.models.weights.precision import agrees

LOGARITHM = 1 / 8  # of the tolerance: log-probabilities are accurate to 4 units in the last place

Problems = dict[tuple[str, int], str]
Scales = dict[tuple[str, int], float]
Activations = dict[str, Tensor]

_WATCHED = (
    *("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out"),
    *("hook_q", "hook_k", "hook_v", "hook_z", "hook_pattern"),
    *("hook_pre", "hook_pre_linear", "hook_post"),
)


class _DisagreementError(Exception):
    """A difference between the view's result and the model's activation."""


def check(model: Model) -> tuple[Problems, Scales, dict[int, read.Variant]]:
    """Check every part: failures by part and layer, multipliers unlike 1, variants of attention.

    Raises InputError for a model without `embed` or `blocks`.
    """
    for part in ("embed", "blocks"):
        if part not in getattr(model, "_modules", {}):
            raise InputError(f"{a_kind(model)} has no {part}, so its weights cannot be read")
    tokens = probe_tokens(model)
    activations: Activations = {}
    watched = [
        (point, store_in(activations, name))
        for name, point in hook_points(model).items()
        if name.rpartition(".")[2] in _WATCHED and layer_of(name) is not None
    ]
    logits = _logits(model, tokens, watched)
    problems: Problems = {}
    scales: Scales = {}
    variants: dict[int, read.Variant] = {}
    tests: list[tuple[str, int, Callable[[], float | None]]] = [
        ("embedding", -1, partial(_embedding_scale, model, tokens, activations)),
        ("unembedding", -1, partial(_check_unembedding, model, activations, logits)),
    ]
    for layer in range(int(model.cfg.n_layers)):
        tests.append(("added", layer, partial(_added, model, layer, activations)))
        tests.append(("outputs", layer, partial(_check_outputs, model, layer, activations)))
        tests.append(("ov", layer, partial(_check_ov, model, layer, activations)))
        attention = partial(_check_attention, model, layer, activations, variants)
        tests.append(("attention", layer, attention))
        tests.append(("mlp", layer, partial(_check_mlp, model, layer, activations)))
    with torch.no_grad():
        for part, layer, test in tests:
            try:
                scale = test()
                if scale is not None and scale != 1.0:
                    scales[part, layer] = scale
            except (InputError, _DisagreementError) as error:
                problems[part, layer] = str(error)
    return problems, scales, variants


def _multiplier(ours: Tensor, actual: Tensor, *plain: float) -> float:
    """The multiplier with which ours is nearest to the model's; one of the plain ones if near."""
    if ours.shape != actual.shape:
        return 1.0
    ours, actual = ours.double(), actual.double()
    size = float(ours.pow(2).sum())
    fitted = float((actual * ours).sum()) / size if size else 1.0
    return next((s for s in (1.0, *plain) if math.isclose(s, fitted, rel_tol=1e-3)), fitted)


def _logits(model: Any, tokens: Tensor, watched: list[Any]) -> Tensor | None:
    """The logits of one pass that fires the hooks; None for a model without a head."""
    try:
        return run(model, tokens, watched)
    except InputError:
        if "unembed" in model._modules:
            raise
        return None


def _embedding_scale(model: Model, tokens: Tensor, activations: Activations) -> float:
    residual = _get(activations, "blocks.0.hook_resid_pre")
    W_pos = positions(model)
    embedded, token_type = read.embedding(model)[tokens], read.token_type(model)
    norm = read.embedding_norm(model)
    added = torch.zeros_like(embedded)
    if W_pos is not None:
        added = added + W_pos[: tokens.shape[1]]
    if token_type is not None:
        added = added + token_type
    if norm.kind is not None:
        _agree("the embedding", residual, norm(embedded + added))
        return 1.0
    residual = residual - added
    scale = _multiplier(embedded, residual, math.sqrt(int(model.cfg.d_model)))
    _agree("the embedding", residual, embedded * scale)
    return scale


def _added(model: Model, layer: int, activations: Activations) -> float:
    """What attention's output is multiplied with before it is added (Falcon-H1)."""
    names = (f"blocks.{layer}.hook_{name}" for name in ("resid_pre", "attn_out", "resid_mid"))
    before, out, middle = (activations.get(name) for name in names)
    if before is None or out is None or middle is None or agrees(before + out, middle):
        return 1.0
    return layer_parts(model)[layer].factor or 1.0


def _check_outputs(model: Model, layer: int, activations: Activations) -> float:
    w, where = read.outputs(model, layer), f"blocks.{layer}"
    z = by_head(_get(activations, f"{where}.attn.hook_z"), len(w.W_O))
    out = w.post_norm(w.written(z))
    if w.residual_norm.kind is not None:
        out = w.residual_norm(_get(activations, f"{where}.hook_resid_pre") + out)
    actual = _get(activations, f"{where}.hook_attn_out")
    scale = _multiplier(out, actual) if w.additive else 1.0
    _agree(f"hook_attn_out of layer {layer}", actual, scale * out)
    return scale


def _check_ov(model: Model, layer: int, activations: Activations) -> None:
    w, attn = read.ov(model, layer), f"blocks.{layer}.attn"
    residual = _get(activations, f"blocks.{layer}.hook_resid_pre")
    v = _agree_projection(activations, layer, "v", w.values(w.norm(residual)))
    pattern, z = _get(activations, f"{attn}.hook_pattern"), _get(activations, f"{attn}.hook_z")
    ours = mixed(pattern, v)
    if w.gated:
        queries = by_head(_get(activations, f"{attn}.hook_q"), len(w.W_V))
        ours = ours * queries[..., w.W_V.shape[-1] :].sigmoid()
    _agree(f"hook_z of layer {layer}", z, ours)
    _check_outputs(model, layer, activations)


def _check_attention(
    model: Model, layer: int, activations: Activations, variants: dict[int, read.Variant]
) -> None:
    w = read.layer(model, layer)
    _check_ov(model, layer, activations)
    x = w.norm(_get(activations, f"blocks.{layer}.hook_resid_pre"))
    q, k = w.queries_and_keys(x)
    if w.kv_latent is None:  # whose hooks are behind the rotation, and in another order
        _agree_projection(activations, layer, "q", q)
        _agree_projection(activations, layer, "k", k)
    pattern = _get(activations, f"blocks.{layer}.attn.hook_pattern")
    disagreement: _DisagreementError | None = None
    for variant in read.VARIANTS:
        if variant != read.VARIANTS[0]:
            w = read.layer(model, layer, variant)
        try:
            _agree_pattern(layer, w, pattern, w.scores(q, k))
        except _DisagreementError as error:
            disagreement = disagreement or error
        else:
            variants[layer] = variant
            return
    assert disagreement is not None
    raise disagreement


def _agree_projection(activations: Activations, layer: int, name: str, ours: Tensor) -> Tensor:
    actual = _get(activations, f"blocks.{layer}.attn.hook_{name}")
    if actual.shape[2] > ours.shape[2]:  # queries and gates
        actual = by_head(actual, ours.shape[2])[..., : ours.shape[3]]
    group = ours.shape[2] // actual.shape[2]
    _agree(f"hook_{name} of layer {layer}", actual, ours[:, :, ::group])
    return ours


def _agree_pattern(layer: int, w: LayerWeights, pattern: Tensor, scores: Tensor) -> None:
    """Compare log-probabilities with scores, both centered over the keys that a query may see.

    Not every model hooks scores (native bridges do not), and patterns of small scores are nearly
    uniform for any positions.
    """
    wide = torch.promote_types(pattern.dtype, torch.float32)
    ours, actual = w.pattern(scores.to(wide)), pattern.to(wide)
    _agree(f"the pattern of layer {layer}", actual, ours, pattern.dtype)
    clear = (ours > 1e-4) & (actual > 1e-4)
    count = clear.sum(-1, keepdim=True).clamp(min=1)
    centred = []
    for values in (actual.clamp(min=1e-30).log(), ours.clamp(min=1e-30).log()):
        values = values.masked_fill(~clear, 0)
        centred.append((values - values.sum(-1, keepdim=True) / count).masked_fill(~clear, 0))
    if float(centred[1].abs().max()) > max(100 * torch.finfo(pattern.dtype).eps, 1e-9):
        what = f"the scores of layer {layer}"
        _agree(what, centred[0], centred[1], pattern.dtype, summed=LOGARITHM)


def _check_mlp(model: Model, layer: int, activations: Activations) -> float:
    w = read.mlp(model, layer)
    if w is None:
        return 1.0
    where = f"blocks.{layer}"
    residual = _get(activations, residual_hook(model, layer, w))
    x = w.norm(residual)
    pre, linear = x @ w.W_in + w.b_in, None
    if w.W_gate is not None and w.b_gate is not None:
        pre, linear = x @ w.W_gate + w.b_gate, pre
        actual = _get(activations, f"{where}.mlp.hook_pre_linear")
        _agree(f"hook_pre_linear of layer {layer}", actual, linear)
    _agree(f"hook_pre of layer {layer}", _get(activations, f"{where}.mlp.hook_pre"), pre)
    post = _get(activations, f"{where}.mlp.hook_post")
    if plain_activation(w.act_fn) is not None:
        _agree(f"hook_post of layer {layer}", post, w.post(pre, linear))
    out, actual = w.post_norm(post @ w.W_out + w.b_out), _get(activations, f"{where}.hook_mlp_out")
    scale = _multiplier(out, actual) if w.post_norm.kind is None else 1.0
    _agree(f"hook_mlp_out of layer {layer}", actual, scale * out)
    if w.residual_norm.kind is not None:
        after = _get(activations, f"{where}.hook_resid_post")
        _agree(f"the residual stream behind layer {layer}", after, w.residual_norm(residual + out))
    return scale


def _check_unembedding(model: Model, activations: Activations, logits: Tensor | None) -> float:
    W_U, b_U = read.unembedding(model)
    norm = read.final_norm(model)
    last = f"blocks.{int(model.cfg.n_layers) - 1}.hook_resid_post"
    cap = read.positive(getattr(model.cfg, "output_logits_soft_cap", None))
    ours = norm(_get(activations, last)) @ W_U + b_U
    assert logits is not None
    scale = _multiplier(ours, logits) if cap is None else 1.0
    _agree("the logits", logits, soft_capped(scale * ours, cap))
    return scale


def _get(activations: Activations, name: str) -> Tensor:
    if name not in activations:
        raise _DisagreementError(f"{name} does not fire, so the weights there cannot be checked")
    return activations[name]


def _agree(
    what: str,
    actual: Tensor,
    ours: Tensor,
    dtype: torch.dtype | None = None,
    *,
    summed: float = 0.0,
) -> None:
    if not agrees(ours, actual, dtype, summed=summed):
        raise _DisagreementError(
            f"{what} cannot be computed from the model's weights as TransformerLens defines them; "
            "this architecture does something else there"
        )
