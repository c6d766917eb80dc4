"""Run a model again from the first layer that an edit changes, instead of from its tokens.

The input of that layer is the same with and without the edit, so it is kept from the intact pass.
Models that accept `start_at_layer` are started there. Others (a `TransformerBridge`, whose wrapped
model runs the loop over layers) run from their tokens, but the blocks before the layer only return
the stored value, so that just embeddings and the later layers are computed. A test on first use
decides whether a model can be started at a layer with the same logits. If not, every run begins at
the tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import (
    StopForwardError,
    attached,
    device_of,
    evaluating,
    probe_tokens,
    run,
    same,
)
from interp_toolkit.models.running.hooks import hook_points, store_in
from interp_toolkit.state import once


@once
def can_restart(model: Model) -> bool:
    """Whether passes started at the second and at the last layer give a full pass's logits."""
    points, last = hook_points(model), int(model.cfg.n_layers) - 1
    starts = sorted({1, last})
    if last < 1 or any(entry(layer) not in points for layer in starts):
        return False
    if not (_takes_layers(model) or _blocks(model)):
        return False
    tokens = probe_tokens(model)
    values: dict[str, Tensor] = {}
    names = [entry(layer) for layer in starts]
    whole = run(model, tokens, [(points[name], store_in(values, name)) for name in names])
    if whole is None or any(name not in values for name in names):
        return False
    return all(_same(model, values[entry(layer)], layer, tokens, whole) for layer in starts)


def _same(model: Model, residual: Tensor, layer: int, tokens: Tensor, whole: Tensor) -> bool:
    """Whether a pass that begins at this layer gives these logits."""
    try:
        again = run_from(model, residual, layer, tokens)
    except Exception:  # models that do not support it raise many types
        return False
    return again is not None and same(again, whole)


def _parameters(model: Any) -> Collection[str]:
    return inspect.signature(model.forward).parameters


def _wraps(model: Any) -> bool:
    """Whether a wrapped model runs the loop over layers."""
    return hasattr(model, "original_model")


def _takes_layers(model: Any) -> bool:
    return not _wraps(model) and "start_at_layer" in _parameters(model)


def _blocks(model: Any) -> list[nn.Module]:
    """The layers that a wrapped model runs in sequence; empty if they are unknown."""
    blocks = getattr(model, "blocks", None)
    if not (_wraps(model) and isinstance(blocks, nn.ModuleList)):
        return []
    return list(blocks) if len(blocks) == int(model.cfg.n_layers) else []


def entry(layer: int) -> str:
    """The hook point at a layer's input."""
    return f"blocks.{layer}.hook_resid_pre"


def run_from(
    model: Model,
    residual: Float[Tensor, "batch pos d_model"],
    layer: int,
    tokens: Int[Tensor, "batch pos"],
    hooks: Iterable[tuple[Any, Callable[..., Any]]] = (),
    *,
    graph: bool = False,
) -> Float[Tensor, "batch position d_vocab"] | None:
    """The logits of a pass that begins at a layer; hooks as `forward.run` takes them.

    Args:
        model: one that `can_restart`.
        residual: the layer's input.
        layer: where to begin; the number of layers: the unembedding alone.
        tokens: tokens of the rows; models that derive positions from the tokens need them.
        hooks: (hook point, function) pairs, removed afterwards; those before the layer do not fire.
        graph: as in `forward.run`.
    """
    if not _takes_layers(model):
        if not layer:  # no block before it that could hand it on
            put = (hook_points(model)[entry(0)], lambda value, hook: residual)
            return run(model, tokens.to(device_of(model)), [put, *hooks], graph=graph)
        with _handing_on(_blocks(model)[:layer], _returned(model, residual)):
            return run(model, tokens.to(device_of(model)), hooks, graph=graph)
    takes_tokens = "tokens" in _parameters(model)
    further = {"tokens": tokens} if takes_tokens else {}
    recording = nullcontext() if graph else torch.no_grad()
    with recording, evaluating(model), attached(model, hooks):
        try:
            output = model(residual, start_at_layer=layer, **further)
        except StopForwardError:
            return None
    logits = getattr(output, "logits", output)
    return logits.to(device_of(model)) if isinstance(logits, Tensor) else None


@contextmanager
def _handing_on(blocks: Iterable[nn.Module], returned: Any) -> Iterator[None]:
    """Make these blocks return this value without computing; they are restored afterwards.

    A bridge's block forwards attributes to the module that it wraps, so `forward` is set directly
    in the block's own dictionary.
    """
    before: list[tuple[nn.Module, Any]] = []
    try:
        for block in blocks:
            before.append((block, block.__dict__.get("forward")))
            block.__dict__["forward"] = lambda *args, **kwargs: returned
        yield
    finally:
        for block, own in before:
            if own is None:
                block.__dict__.pop("forward", None)
            else:
                block.__dict__["forward"] = own


#: model -> length of the tuple that its first block returns; 0 for a bare tensor
_FORMS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def _returned(model: Any, residual: Tensor) -> Any:
    """The residual stream in the form that blocks of this model return: alone, or in a tuple.

    The tuple's other items (attention weights, a cache) are None.
    """
    if model not in _FORMS:
        _FORMS[model] = _form(model)
    count = _FORMS[model]
    return (residual, *([None] * (count - 1))) if count else residual


def _form(model: Any) -> int:
    calls: list[int] = []

    def look(block: nn.Module, args: Any, output: Any) -> None:
        calls.append(len(output) if isinstance(output, tuple) else 0)
        raise StopForwardError

    handle = _blocks(model)[0].register_forward_hook(look)
    try:
        run(model, probe_tokens(model))
    finally:
        handle.remove()
    return calls[0] if calls else 0
