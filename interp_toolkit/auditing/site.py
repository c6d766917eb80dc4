"""A site in the forward pass: its activations on some prompts, and runs with them edited.

A site is one position per prompt of one hook point, as a flat vector. At a hook with an entry per
head, the site is one head, or all heads concatenated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.circuits.metrics.metrics import Metric
from interp_toolkit.circuits.metrics.repetition import row_batches
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.effect import everything, require_effect
from interp_toolkit.models.running.forward import attached, device_of, evaluating, run
from interp_toolkit.models.running.hooks import expand_hooks, hook_points
from interp_toolkit.models.running.streaming import collect

Rows = Int[Tensor, " row"]
_QUERY_BY_KEY = ("hook_pattern", "hook_attn_scores")
#: (activations at the site, rows) -> new activations, [row d]
Change = Callable[[Float[Tensor, "row d"], Rows], Float[Tensor, "row d"]]


@dataclass(frozen=True, eq=False)
class VectorSite:
    """Activations at one hook point and one position per prompt.

    Attributes:
        context: the audit's.
        hook: its name.
        positions: the site's position in each prompt, counted from the prompt's start.
        head: at a hook with one entry per head; None: all heads.
    """

    context: AuditContext
    hook: str
    positions: Int[np.ndarray, " row"]
    head: int | None

    def read(self, tokens: Int[Tensor, "row pos"]) -> Float[Tensor, "row d"]:
        """Activations at `positions` of these rows, on the CPU, in float64.

        Raises InputError if they are not finite, or if the hook has no such head.
        """
        data = _Placed(tokens.cpu().numpy(), self.positions)
        model, memory = self.context.model, self.context.memory
        vectors = self._flat(collect(model, data, self.hook, None, memory=memory)[self.hook])
        if not bool(vectors.isfinite().all()):
            raise InputError(f"the activations at {self.hook} are not finite on these prompts")
        return vectors.double()

    def require_effect(self) -> None:
        """Raise InterventionError if edits at the hook do not reach the logits."""
        require_effect(self.context.model, {self.hook: everything})

    def values(
        self, metric: Metric, tokens: Int[Tensor, "row pos"], change: Change | None = None
    ) -> Float[np.ndarray, " row"]:
        """The metric of each prompt, with the site edited or intact.

        Raises InputError if it is not finite.
        """
        values = []
        for rows in self._batches():
            hooks = [] if change is None else [(self._point, self._edit(change, rows))]
            logits = run(self.context.model, tokens[rows], hooks)
            assert logits is not None
            values.append(metric.from_full_logits(logits, rows).double().cpu().numpy())
        joined: np.ndarray = np.concatenate(values)
        if not np.isfinite(joined).all():
            raise InputError(f"the logits are not finite after this edit at {self.hook}")
        return joined

    def gradients(
        self,
        metric: Metric,
        tokens: Int[Tensor, "row pos"],
        rows: Int[Tensor, " chosen"],
        x: Float[Tensor, "chosen d"],
    ) -> Float[Tensor, "chosen d"]:
        """Gradient of the metric with respect to the activation at the site, evaluated at x."""
        parts: list[Tensor] = []
        size = max(1, self._batches()[0].numel() // 4)
        for batch, here in zip(torch.split(rows, size), torch.split(x, size), strict=True):
            leaf = here.detach().clone().requires_grad_()

            def put(_: Tensor, rows: Rows, leaf: Tensor = leaf) -> Tensor:
                return leaf

            model = self.context.model
            hooks = [(self._point, self._edit(put, batch))]
            with torch.enable_grad(), evaluating(model), attached(model, hooks):
                output = model(tokens[batch].to(device_of(model)))
                logits = getattr(output, "logits", output)
                total = metric.from_full_logits(logits, batch).sum()
                (gradient,) = torch.autograd.grad(total, leaf)
            parts.append(gradient.double().cpu())
        return torch.cat(parts)

    @property
    def _point(self) -> Any:
        return hook_points(self.context.model)[self.hook]

    def _batches(self) -> list[Rows]:
        prompts = self.context.prompts
        order = torch.arange(len(prompts))
        return list(row_batches(self.context.model, prompts, order, 0, self.context.memory))

    def _flat(self, value: Tensor) -> Tensor:
        if self.head is not None:
            if value.ndim < 3 or self.head >= value.shape[1]:
                raise InputError(f"{self.hook} has no head {self.head}; leave head out")
            value = value[:, self.head]
        return value.flatten(1)

    def _edit(self, change: Change, rows: Rows) -> Callable[..., Tensor]:
        at = torch.from_numpy(self.positions[rows.numpy()])

        def edit(value: Tensor, hook: Any) -> Tensor:
            number, positions = torch.arange(len(rows), device=value.device), at.to(value.device)
            here = value[number, positions]
            part = here if self.head is None else here[:, self.head]
            new = change(part.flatten(1).double(), rows).to(part).reshape(part.shape)
            edited = value.clone()
            if self.head is None:
                edited[number, positions] = new
            else:
                edited[number, positions, self.head] = new
            return edited

        return edit


def site_of(
    context: AuditContext, hook: str, position: int | None, head: int | None, d: int
) -> VectorSite:
    """The site of a claim.

    Args:
        context: the audit's context, with prompts.
        hook: a name, or an alias.
        position: negative positions count from the end; None: the data's own, or the last.
        head: at a hook with one entry per head.
        d: number of components of the claim's direction.

    Raises:
        InputError: no such hook, several hooks of that name, a hook of attention patterns or
            scores, a position outside a prompt, no such head, or another number of components.
    """
    names = expand_hooks(context.model, hook)
    if len(names) > 1:
        raise InputError(f"{hook} names {len(names)} hooks, such as {names[0]}; give one")
    if names[0].rpartition(".")[2] in _QUERY_BY_KEY:
        raise InputError(f"{names[0]} does not hold one vector per position; give a hook that does")
    prompts = context.prompts
    own_positions = None if context.data is None else context.data.positions
    if position is None and own_positions is not None:
        positions = np.asarray(own_positions, dtype=np.int64)
    else:
        index = -1 if position is None else position
        if not -prompts.n_pos <= index < prompts.n_pos:
            raise InputError(f"prompts of {prompts.n_pos} tokens have no position {index}")
        positions = np.full(len(prompts), index % prompts.n_pos, dtype=np.int64)
    site = VectorSite(context, names[0], positions, head)
    width = replace(site, positions=positions[:2]).read(prompts.tokens[:2])
    if width.shape[1] != d:
        raise InputError(f"the direction has {d} components; {names[0]} has {width.shape[1]}")
    return site


@dataclass(frozen=True)
class _Placed:
    """Tokens with the position to read in each row, as `collect` takes them."""

    tokens: np.ndarray
    positions: np.ndarray
