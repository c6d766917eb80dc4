"""Test whether an edit at a hook point reaches the model's output.

Some hook points only report: on a native bridge the attention pattern is exposed after it was used,
and an edit there is silently ignored. So before any intervention a tiny input is run, and autograd
shows for all hook points at once whether the output depends on the edited value. If it does not (or
a model keeps no graph), the input is run with the edited entries replaced by NaN. NaN propagates to
all dependent values, also through zero weights: editing a head that writes nothing is still an
edit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InterventionError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import attached, evaluating, probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points

#: a function that marks the entries of a hook's value that an intervention may change, in place
Mark = Callable[[Tensor], None]


def require_effect(model: Model, marks: dict[str, Mark]) -> None:
    """Check that edits at each of these hook points change the logits.

    Args:
        model: any TransformerLens model.
        marks: hook name -> a function that sets the entries to be edited to 1 in a tensor of
            zeros shaped like the hook's value.

    Raises:
        InterventionError: names the first hook point whose edits have no effect.
    """
    plain = run(model, probe_tokens(model))
    if plain is None or bool(plain.isnan().any()):
        raise InterventionError("the model's own output is NaN, so no edit can be checked")
    points = hook_points(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TransformerLens 4 warns where this raises
        connected = _connected(model, {name: (points[name], mark) for name, mark in marks.items()})
        for name, mark in marks.items():
            if name not in connected and not _spoils(model, points[name], mark, plain):
                raise InterventionError(
                    f"edits at {name} do not reach the output of this {type(model).__name__}; "
                    "heads can be edited at hook_z"
                )


def everything(marked: Tensor) -> None:
    """Mark every entry."""
    marked.fill_(1)


def _spoils(
    model: Model, point: Any, mark: Mark, plain: Float[Tensor, "batch pos d_vocab"]
) -> bool:
    def spoil(value: Any, hook: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        marked = torch.zeros(value.shape, device=value.device)
        mark(marked)
        if not value.is_floating_point():  # token ids: replace them by another one
            return torch.where(marked.bool(), (value + 1) % int(model.cfg.d_vocab), value)
        return value.masked_fill(marked.bool(), torch.nan)

    edited = run(model, probe_tokens(model), [(point, spoil)])
    return edited is not None and not torch.equal(edited, plain)


def _connected(model: Model, marks: dict[str, tuple[Any, Mark]]) -> set[str]:
    """The hook points whose marked entries the output depends on, by autograd."""
    leaves: dict[str, Tensor] = {}

    def tap(name: str, mark: Mark) -> Callable[..., Any]:
        def hook_fn(value: Any, hook: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return None
            marked = torch.zeros(value.shape, device=value.device)
            mark(marked)
            leaves[name] = torch.zeros_like(value, requires_grad=True)
            return value + leaves[name] * marked.to(value.dtype)

        return hook_fn

    hooks = [(point, tap(name, mark)) for name, (point, mark) in marks.items()]
    with torch.enable_grad():
        with evaluating(model), attached(model, hooks):
            output = model(probe_tokens(model))
        logits = getattr(output, "logits", output)
        if not leaves or not logits.requires_grad:
            return set()
        names, inputs = list(leaves), list(leaves.values())
        try:
            gradients = torch.autograd.grad(logits.sum(), inputs, allow_unused=True)
        except RuntimeError:  # a part is not differentiable
            return set()
    return {name for name, gradient in zip(names, gradients, strict=True) if gradient is not None}
