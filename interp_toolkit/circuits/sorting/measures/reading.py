"""What a model does on lists: its logits and its attention at the positions that are read.

Passes over rows made by the layout, kept only where the sorted list's items are read. Works on
any one-layer TransformerLens model; attention is the pattern, so that masks, norms, rotary
positions and soft caps are all in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import ListLayout, ListRows
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import cached_batches, device_of, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.transformer.collapsed import at_positions
from interp_toolkit.models.weights.view import ModelWeights, weights

RESID = "blocks.0.hook_resid_post"
HOOK_Z = "blocks.0.attn.hook_z"


@dataclass(frozen=True, eq=False)
class ListReading:
    """A model's answers to some lists.

    Attributes:
        layout, lists, rows: what was asked.
        logits: of the values, at each item.
        undivided: the logits before a final norm's division, without the biases behind it; without
            such a norm, the logits. Sums over attention are sums here.
        scale: what that norm divides by; 1 without one.
        pattern: attention paid where each item is read.
        outside: the largest logit of a token that is no value; None where all are.
    """

    layout: ListLayout
    lists: Lists
    rows: ListRows
    logits: Float[Tensor, "row item value"]
    undivided: Float[Tensor, "row item value"]
    scale: Float[Tensor, "row item"]
    pattern: Float[Tensor, "row head item pos"]
    outside: Float[Tensor, "row item"] | None = None

    @property
    def at_list(self) -> Float[Tensor, "row head item place"]:
        """Attention to the list's own places, in the list's order."""
        start = len(self.layout.before)
        return self.pattern[..., start : start + self.layout.longest]

    @property
    def answers(self) -> Int[Tensor, "row item"]:
        """The value with the largest logit; n_values where another token has a larger one."""
        best, answers = self.logits.max(-1)
        if self.outside is None:
            return answers
        return answers.masked_fill(self.outside > best, self.layout.n_values)


def require_one_layer(model: Model) -> None:
    """Raise InputError for a model of several layers."""
    if int(model.cfg.n_layers) != 1:
        raise InputError(
            f"the sorting analysis reads one-layer models; this one has {model.cfg.n_layers} layers"
        )


@torch.no_grad()
def read(model: Model, layout: ListLayout, lists: Lists) -> ListReading:
    """One reading of these lists, a batch at a time, on the CPU in float64 afterwards.

    Raises:
        InputError: for a model of several layers, or whose attention patterns cannot be seen.
    """
    require_one_layer(model)
    view = weights(model)
    rows = layout.rows(lists.to(device_of(model)))
    batches = cached_batches(model, rows.tokens)
    seen = [_pass(model, view, layout, ListRows(*(part[b] for part in rows))) for b in batches]
    logits, scale, pattern, outside = (torch.cat(parts) for parts in zip(*seen, strict=True))
    constant = view.b_U if view.final_norm.b is None else view.b_U + view.final_norm.b @ view.W_U
    behind = constant[list(layout.values)].double().cpu()
    return ListReading(
        layout,
        lists.to("cpu"),
        ListRows(*(part.cpu() for part in rows)),
        logits,
        logits if view.final_norm.kind is None else (logits - behind) * scale[..., None],
        scale,
        pattern,
        outside[..., 0] if outside.shape[-1] else None,
    )


class _Seen(NamedTuple):
    """Of one batch, as in a reading; `outside` with an axis of one entry, or of none."""

    logits: Float[Tensor, "row item value"]
    scale: Float[Tensor, "row item"]
    pattern: Float[Tensor, "row head item pos"]
    outside: Float[Tensor, "row item any"]


def _pass(model: Model, view: ModelWeights, layout: ListLayout, rows: ListRows) -> _Seen:
    seen: dict[str, Tensor] = {}

    def keep(pattern: Tensor, hook: Any) -> None:
        at = rows.read[:, None, :, None].expand(-1, pattern.shape[1], -1, pattern.shape[3])
        seen["pattern"] = pattern.gather(2, at).double().cpu()

    def divide(x: Tensor, hook: Any) -> None:
        x = at_positions(x, rows.read).double()
        x = x - x.mean(-1, keepdim=True) if view.final_norm.kind == "LN" else x
        seen["scale"] = (x.pow(2).mean(-1) + view.final_norm.eps).sqrt().cpu()

    hooks: list[tuple[Any, Callable[..., None]]] = [(pattern_points(model)[0], keep)]
    if view.final_norm.kind is not None:
        hooks.append((hook_points(model)[RESID], divide))
    logits = run(model, rows.tokens, hooks)
    assert logits is not None
    at_read = at_positions(logits, rows.read).double().cpu()
    others = sorted(set(range(at_read.shape[-1])) - set(layout.values))
    ones = torch.ones(at_read.shape[:2], dtype=torch.float64)
    return _Seen(
        at_read[..., list(layout.values)],
        seen.get("scale", ones),
        seen["pattern"],
        at_read[..., others].amax(-1, keepdim=True) if others else at_read[..., :0],
    )
