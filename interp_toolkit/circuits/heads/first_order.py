"""First-order estimates of attention knockouts: every head and pattern from one backward pass.

A knockout changes a head's output by a known amount: the attention that is left, times the values,
minus the output itself. Its effect on the metric is this change times the metric's gradient at
`hook_z`, as far as the later layers are linear (attribution patching; Nanda 2023, Kramár et al.
2024, arXiv 2403.00745). The gradients of all heads come from one backward pass, so that the
estimates of all patterns cost about two forward passes. They rank heads for exact knockouts and
decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.heads.attention_knockout import KnockoutRunner, hook_v, renormalized
from interp_toolkit.circuits.metrics.metrics import logits_at
from interp_toolkit.circuits.metrics.repetition import row_batches
from interp_toolkit.circuits.metrics.replacement import hook_z
from interp_toolkit.models.running.forward import device_of, run, unembedded_at
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.read import visibility

STORED = 12  # tensors of a layer's width that the gradient of one layer needs, roughly


def estimated_effects(
    runner: KnockoutRunner, patterns: Sequence[str], rows: Int[Tensor, " row"]
) -> dict[str, Float[Tensor, "layer head"]]:
    """Estimated mean drop of minus the loss (nats) when each head's attention is knocked out.

    The ablation value is that of "renormalize".

    Args:
        runner: runner with the patterns' keys; its model's attention has been checked.
        patterns: names of patterns.
        rows: indices of some of the task's prompts.
    """
    model, task = runner.model, runner.task
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    n_stored = (
        n_layers
        * task.prompts.n_pos
        * (STORED * int(model.cfg.d_model) + 2 * n_heads * task.prompts.n_pos)
    )
    effects = {name: torch.zeros(n_layers, n_heads, dtype=torch.float64) for name in patterns}
    for batch in row_batches(model, task.prompts, rows, n_stored, runner.memory):
        outputs, captured = _with_gradients(runner, batch)
        held = {name: torch.from_numpy(runner.targets[name](batch)) for name in patterns}
        for layer, (z, gradient) in enumerate(outputs):
            visible = visible_pairs(*visibility(model, layer), task.prompts.n_pos).to(z.device)
            pattern = captured["pattern", layer].expand(len(z), -1, -1, -1)
            values = captured["v", layer].transpose(1, 2)
            values = values.repeat_interleave(n_heads // values.shape[1], 1)
            for name, targets in held.items():
                where = (targets.to(z.device) & visible)[:, None]
                change = _change(at_least_single(pattern), values, z.transpose(1, 2), where)
                drop = -(change * gradient.transpose(1, 2)).sum((0, 2, 3))
                effects[name][layer] += drop.double().cpu() / len(rows)
    return effects


def _change(
    pattern: Float[Tensor, "batch head query key"],
    values: Float[Tensor, "batch head key d_head"],
    z: Float[Tensor, "batch head query d_head"],
    where: Bool[Tensor, "batch 1 query key"],
) -> Float[Tensor, "batch head query d_head"]:
    """The change of every head's output when its attention to these keys is knocked out."""
    left, missing = renormalized(pattern, where.to(pattern))
    made = left.to(z) @ values + missing.to(z) * values.mean((0, 2), keepdim=True)
    return torch.where(where.any(-1, keepdim=True), made - z, 0.0)


def _with_gradients(
    runner: KnockoutRunner, batch: Int[Tensor, " batch"]
) -> tuple[list[tuple[Tensor, Tensor]], dict[tuple[str, int], Tensor]]:
    """Each layer's head outputs with the metric's gradient there; patterns and values."""
    model, task = runner.model, runner.task
    points, n_layers = runner.points, int(model.cfg.n_layers)
    captured: dict[tuple[str, int], Tensor] = {}
    outputs: dict[int, Tensor] = {}

    def keep(part: str, layer: int) -> Any:
        def hook(value: Tensor, hook: Any) -> None:
            captured[part, layer] = value.detach()

        return hook

    def tap(layer: int) -> Any:
        def hook(z: Tensor, hook: Any) -> Tensor:
            outputs[layer] = z if z.requires_grad else z.detach().requires_grad_()
            return outputs[layer]

        return hook

    hooks: list[tuple[Any, Any]] = []
    for layer in range(n_layers):
        hooks.append((points[f"blocks.{layer}.attn.hook_pattern"], keep("pattern", layer)))
        hooks.append((points[hook_v(layer)], keep("v", layer)))
        hooks.append((points[hook_z(layer)], tap(layer)))
    tokens = task.prompts.tokens[batch].to(device_of(model))
    at = task.positions(batch) if runner.few_logits else None
    with torch.enable_grad(), unembedded_at(model, at):
        logits = run(model, tokens, hooks, graph=True)
        assert logits is not None
        available = torch.arange(tokens.shape[1]) if at is None else at
        read = logits_at(logits, torch.searchsorted(available, task.metric.positions(batch)))
        metric = task.log_probability(read, batch).sum()
        zs = [outputs[layer] for layer in range(n_layers)]
        gradients = torch.autograd.grad(metric, zs)
    runner.rows_run += 2 * len(batch)
    return [(z.detach(), g) for z, g in zip(zs, gradients, strict=True)], captured
