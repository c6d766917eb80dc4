"""Which heads to cut first: the effect of every cut to first order, from one backward pass.

At `hook_z` a cut (see `cuts`) adds a change to what a head holds; the gradient of the behaviour's
log-probabilities there, times that change, is what the cut costs to first order (attribution
patching; Nanda 2023). All heads and relations come from the same pass forwards and backwards. It is
a hint for choosing what is cut and never evidence: behind a softmax that is sure of its answer
gradients vanish, and heads that stand in for each other are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.task import RowTask
from interp_toolkit.circuits.heads.cuts import Cutter
from interp_toolkit.models.heads import Head
from interp_toolkit.models.running.forward import attached, device_of, evaluating
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)

COPIES = 4  # of the logits, that the loss and its gradient take


def first_order(
    cutter: Cutter, relations: Mapping[str, Sequence[Head]]
) -> dict[tuple[str, Head], float]:
    """What cutting each head's attention to each relation costs to first order, summed over rows.

    Args:
        cutter: with the rows and the relations' targets.
        relations: by name, the heads that are asked about.
    """
    found: dict[tuple[str, Head], float] = {
        (name, head): 0.0 for name, heads in relations.items() for head in heads
    }
    layers = sorted({head.layer for _, head in found})
    for batch in torch.split(cutter.task.rows, _rows_at_once(cutter)):
        gradients, live = _gradients(cutter, batch, layers)
        for name, heads in relations.items():
            targets = torch.from_numpy(cutter.targets[name](batch))
            for head in heads:
                change = cutter.change(live, targets, head)
                lost = -(gradients[head.layer][:, :, head.head] * change).sum()
                found[name, head] += float(lost)
    return found


def _gradients(
    cutter: Cutter, batch: Int[Tensor, " batch"], layers: Sequence[int]
) -> tuple[dict[int, Float[Tensor, "batch pos head d_head"]], Any]:
    """By layer, the gradient at `hook_z`; and the patterns and values of the pass."""
    model, added = cutter.model, dict[int, Tensor]()

    def adding(layer: int) -> Callable[..., Tensor]:
        def add(z: Tensor, hook: Any) -> Tensor:
            added[layer] = torch.zeros_like(z, requires_grad=True)
            return z + added[layer]

        return add

    live = cutter.watching(layers)
    hooks = live.watch({layer: adding(layer) for layer in layers})
    tokens = cutter.task.prompts.tokens[batch].to(device_of(model))
    with torch.enable_grad(), evaluating(model), attached(hooks):
        output = model(tokens)
        logits = getattr(output, "logits", output)
        value = likelihood(cutter.task, logits, batch)
        found = torch.autograd.grad(value, [added[layer] for layer in layers])
    return dict(zip(layers, found, strict=True)), live


def likelihood(
    task: RowTask, logits: Float[Tensor, "batch pos d_vocab"], rows: Int[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Log-probability of the answers, or of the tokens that a row repeats: each row's mean, added.

    Args:
        task: whose rows these are.
        logits: of them.
        rows: which.
    """
    prompts = task.prompts
    if prompts.answers is not None and prompts.answer_positions is not None:
        at = prompts.answer_positions[rows].to(logits.device)
        asked = logits[torch.arange(len(rows), device=logits.device)[:, None], at]
        wanted = prompts.answers[rows].to(logits.device)
        return _told(asked, wanted).mean(1).sum()
    known = prompts.known()[rows, :-1].to(logits.device)
    told = _told(logits[:, :-1], prompts.tokens[rows, 1:].to(logits.device))
    return ((told * known).sum(1) / known.sum(1).clamp_min(1)).sum()


def _told(
    logits: Float[Tensor, "batch asked d_vocab"], wanted: Int[Tensor, "batch asked"]
) -> Float[Tensor, "batch asked"]:
    own: Tensor = logits.gather(-1, wanted[..., None])[..., 0] - logits.logsumexp(-1)
    return own


def _rows_at_once(cutter: Cutter) -> int:
    """Rows whose activations of all layers fit in memory."""
    cfg, n_pos = cutter.model.cfg, cutter.task.prompts.n_pos
    itemsize = itemsize_of(cutter.model)
    layer = bytes_per_row(cfg, n_pos, itemsize, logits=False, kept=0)
    logits = COPIES * itemsize * n_pos * int(cfg.d_vocab)
    row = layer * int(cfg.n_layers) + logits
    return rows_that_fit(max(parse_memory(cutter.memory), row), row, n_pos)
