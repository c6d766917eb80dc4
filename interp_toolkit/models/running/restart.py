"""Running a model again from the first layer that an edit changes, instead of from its tokens.

What enters a layer is the same with and without edits at that layer and later, so it is kept from
the intact pass. Whether a model can be started at a layer (and gives the same logits then) is
tried once; where it cannot, every run begins at the tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import (
    StopForwardError,
    attached,
    evaluating,
    probe_tokens,
    run,
)
from interp_toolkit.models.running.hooks import hook_points, keep_in

#: how far logits may lie apart, of their largest: rounding only
SAME = 1e-5


def can_restart(model: Model) -> bool:
    """Whether the model, started at its last layer, gives the logits of a whole pass."""
    points, last = hook_points(model), int(model.cfg.n_layers) - 1
    name = entry(last)
    if last < 1 or name not in points:
        return False
    if "start_at_layer" not in _parameters(model):
        return False
    tokens = probe_tokens(model)
    seen: dict[str, Tensor] = {}
    whole = run(model, tokens, [(points[name], keep_in(seen, name))])
    if whole is None or name not in seen:
        return False
    try:
        again = run_from(model, seen[name], last, tokens)
    except Exception:  # a model that does not take it says so in many ways
        return False
    if again is None or again.shape != whole.shape:
        return False
    return bool((again - whole).abs().max() <= SAME * whole.abs().max().clamp_min(1e-30))


def _parameters(model: Any) -> Collection[str]:
    return inspect.signature(model.forward).parameters


def entry(layer: int) -> str:
    """The hook point of what enters a layer."""
    return f"blocks.{layer}.hook_resid_pre"


def run_from(
    model: Model,
    residual: Float[Tensor, "batch pos d_model"],
    layer: int,
    tokens: Int[Tensor, "batch pos"],
    hooks: Iterable[tuple[Any, Callable[..., Any]]] = (),
) -> Float[Tensor, "batch pos d_vocab"] | None:
    """The logits of a pass that begins at a layer; hooks as `forward.run` takes them.

    Args:
        model: one that `can_restart`.
        residual: what enters the layer.
        layer: where to begin.
        tokens: of the rows; models that read positions off the tokens need them.
        hooks: (hook point, function) pairs, gone afterwards.
    """
    takes_tokens = "tokens" in _parameters(model)
    further = {"tokens": tokens} if takes_tokens else {}
    with torch.no_grad(), evaluating(model), attached(hooks):
        try:
            output = model(residual, start_at_layer=layer, **further)
        except StopForwardError:
            return None
    logits = getattr(output, "logits", output)
    return logits if isinstance(logits, Tensor) else None
