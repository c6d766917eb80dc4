"""Attribution to edges: what cutting each would change, to first order, from a few gradients.

Edge attribution patching with integrated gradients (EAP-IG; Hanna, Pezzelle & Belinkov 2024, arXiv
2403.17806): the gradient of a value at what an edge's target reads, averaged while the input goes
from its own to its reference, times what the cut would change there. One gradient at the row's own
input would miss the queries and keys of a head whose attention is saturated.

The gradient at what *one* channel of *one* head reads is that at its query (key, value), pulled
back through its own weights and the norm in front: one backward pass serves all readers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.passes.blocks import Blocks
from interp_toolkit.circuits.edges.passes.patched_pass import (
    Pass,
    PatchedModel,
    Reference,
    at_positions,
)
from interp_toolkit.circuits.edges.wiring import Stage
from interp_toolkit.errors import InputError
from interp_toolkit.models.weights.parts import NormWeights

STEPS = 8  # of the integral over the input; EAP-IG's authors use 5

Stream = Float[Tensor, "row pos d_model"]
#: the gradient of the value at what each reader of a stage reads
Gradient = Float[Tensor, "reader row pos d_model"]


@torch.no_grad()
def attribute(
    engine: PatchedModel,
    whole: Pass,
    reference: Reference,
    value: Callable[[Tensor], Tensor],
    positions: Int[Tensor, "row place"] | None = None,
    steps: int = STEPS,
) -> Float[Tensor, "row edge"]:
    """A first-order estimate of how much cutting each edge would add to a value.

    Args:
        engine: the model.
        whole: the pass of the rows with no edge cut.
        reference: what is read over a cut edge, as `PatchedModel.logits` takes it.
        value: a function of the logits at these places, one number a row.
        positions: where the value reads logits, positions; None: everywhere.
        steps: gradients that are averaged.

    Raises:
        InputError: a value that has no gradient.
    """
    writes = whole.trace.writes
    changes = torch.stack([there - own for there, own in zip(reference, writes, strict=True)])
    gradients: list[Tensor] = []
    for i in range(steps):
        start = writes[0] + (i + 0.5) / steps * changes[0]
        at = _gradients(engine, start, value, positions)
        gradients = [a + b for a, b in zip(gradients, at, strict=True)] if gradients else at
    columns = [
        _products(gradient / steps, changes[: stage.n_sources])
        for stage, gradient in zip(engine.wiring.stages, gradients, strict=True)
    ]
    return torch.cat(columns, dim=1)


def _products(gradient: Gradient, sources: Float[Tensor, "source row pos d_model"]) -> Tensor:
    """The inner product of each reader's gradient with each source's change, row by row."""
    readers = gradient.transpose(0, 1).flatten(2)
    products = readers @ sources.transpose(0, 1).flatten(2).transpose(1, 2)
    return products.flatten(1)


def _gradients(
    engine: PatchedModel,
    start: Stream,
    value: Callable[[Tensor], Tensor],
    positions: Int[Tensor, "row place"] | None,
) -> list[Gradient]:
    """Gradients of the metric with respect to each node's input, stage by stage."""
    blocks, taps, reads = engine.blocks, list[Tensor](), list[Tensor]()
    with torch.enable_grad():
        read = total = start.detach().requires_grad_()
        for stage in engine.wiring.stages:
            if not engine.wiring.beside_attention(stage):
                read = total
            reads.append(read.detach())
            if stage.kind == "attention":
                projected = blocks.projected(stage.layer, read)
                taps.extend(projected)
                write = blocks.heads(stage.layer, read, projected, None, apart=False)[0]
                total = total + write + blocks.layers[stage.layer].b_O
                continue
            tap = read.clone()  # this reader's own, apart from what else reads the stream
            taps.append(tap)
            if stage.kind == "mlp":
                total = total + blocks.mlp(stage.layer, tap, None)
        metric = value(blocks.unembed(at_positions(taps[-1], positions))).sum()
        if not metric.requires_grad:
            raise InputError(
                "the metric has no gradient, so effects cannot be estimated; raise max_edges to "
                "cut every edge, or give a metric that changes smoothly"
            )
        at = iter(torch.autograd.grad(metric, taps))
    return [
        _pulled_back(blocks, stage, read, [next(at) for _ in range(3)])
        if stage.kind == "attention"
        else next(at)[None]
        for stage, read in zip(engine.wiring.stages, reads, strict=True)
    ]


def _pulled_back(blocks: Blocks, stage: Stage, read: Stream, at: list[Tensor]) -> Gradient:
    """From the gradients at queries, keys and values to those at what each head reads by them."""
    w = blocks.layers[stage.layer]
    behind = [
        torch.einsum("bphd,hmd->hbpm", gradient, W)
        for gradient, W in zip(at, (w.W_Q, w.W_K, w.W_V), strict=True)
    ]
    return _through(w.norm, read, torch.cat(behind))


def _through(norm: NormWeights, x: Stream, behind: Gradient) -> Gradient:
    """The gradient in front of a norm, from that behind it."""
    if norm.kind is None:
        return behind
    pull = torch.func.vjp(norm, x)[1]
    in_front: Tensor = torch.vmap(lambda gradient: pull(gradient)[0])(behind)
    return in_front
