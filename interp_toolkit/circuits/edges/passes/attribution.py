"""Effects of edges, estimated from gradients, and activation patching by layer and position.

*Edge attribution patching with integrated gradients* (EAP-IG; Hanna, Pezzelle & Belinkov 2024,
arXiv 2403.17806) estimates the effect of ablating each edge to first order: the gradient of the
metric at the target's input, averaged while the input goes from its own value to its ablation
value, times the change that the ablation would cause there. A single gradient at the prompt's own
input would miss the queries and keys of heads with saturated attention.

The gradient at the input of *one* channel of *one* head is that at its query (key, value), pulled
back through its own weights and the preceding norm: one backward pass serves all readers.

*Activation patching* replaces the residual stream before a layer, at one position, with that of the
corrupted counterpart. The effect is a fraction of the corrupted prompt's own effect: 1 where the
position holds everything that distinguishes the two (Meng et al. 2022, arXiv 2202.05262;
Heimersheim & Nanda 2024, arXiv 2404.15255). It is exact, on a few prompts: every layer would cost
half a pass per position, so layers are sampled at equal steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit import plots
from interp_toolkit.circuits.edges.passes.patched_pass import (
    Pass,
    PatchedModel,
    Reference,
    at_positions,
)
from interp_toolkit.circuits.metrics.metrics import AnswerMetric
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.memory import rows_that_fit
from interp_toolkit.results import Figure

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
    positions: Int[Tensor, "row position"] | None = None,
    steps: int = STEPS,
) -> Float[Tensor, "row edge"]:
    """First-order estimates of the change of a metric when each edge is ablated.

    Args:
        engine: the model.
        whole: the pass of the prompts with no edge ablated.
        reference: the ablation values, as in `PatchedModel.logits`.
        value: the metric as a function of the logits at these positions, one number per prompt.
        positions: the positions whose logits the metric reads; None: all.
        steps: number of gradients that are averaged.

    Raises:
        InputError: a metric without a gradient.
    """
    writes = whole.trace.writes
    alone = torch.eye(len(writes), dtype=torch.bool)
    changes = engine.changes(writes, reference, range(len(writes)), alone)
    gradients: list[Tensor] = []
    for i in range(steps):
        start = writes[0] + (i + 0.5) / steps * changes[0]
        for number, gradient in enumerate(_gradients(engine, start, value, positions)):
            if i == 0:
                gradients.append(gradient.clone())  # of its own, where it is a view of a tap's
            else:
                gradients[number] += gradient
    columns = [
        _products(gradient / steps, changes[: stage.n_sources])
        for stage, gradient in zip(engine.wiring.stages, gradients, strict=True)
    ]
    return torch.cat(columns, dim=1)


def _products(gradient: Gradient, sources: Float[Tensor, "source row pos d_model"]) -> Tensor:
    """Inner products of each reader's gradient with each source's change, for each prompt."""
    readers = gradient.transpose(0, 1).flatten(2)
    products = readers @ sources.transpose(0, 1).flatten(2).transpose(1, 2)
    return products.flatten(1)


def _gradients(
    engine: PatchedModel,
    start: Stream,
    value: Callable[[Tensor], Tensor],
    positions: Int[Tensor, "row position"] | None,
) -> Iterator[Gradient]:
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
                write = blocks.heads(stage.layer, read, projected, None, apart=False)
                total = total + engine.added(stage, write)
                continue
            tap = read.clone()  # this reader's own, apart from what else reads the stream
            taps.append(tap)
            if stage.kind != "logits":
                total = total + blocks.node(stage, tap, None)
        metric = value(blocks.unembed(at_positions(taps[-1], positions))).sum()
        if not metric.requires_grad:
            raise InputError(
                "the metric has no gradient, so effects cannot be estimated; raise max_edges to "
                "ablate every edge, or give a differentiable metric"
            )
        at = iter(torch.autograd.grad(metric, taps))
    for stage, read in zip(engine.wiring.stages, reads, strict=True):
        if stage.kind == "attention":
            yield blocks.pulled_back(stage.layer, read, [next(at) for _ in range(3)])
        else:
            yield next(at)[None]


ROWS = 4  # that are patched
MOST_LAYERS = 10  # at which


@dataclass(frozen=True, eq=False)
class Patching:
    """The effect of patching the residual stream.

    Attributes:
        layers: the layers before which the stream is patched.
        effect: fraction of the corrupted prompt's effect, mean over prompts.
        tokens: the token at each position, if all prompts have the same there; else None.
        n_rows: number of prompts.
    """

    layers: Sequence[int]
    effect: Float[np.ndarray, "layer pos"]
    tokens: Sequence[int | None]
    n_rows: int


def patched_stream(
    engine: PatchedModel,
    prompts: Prompts,
    metric: AnswerMetric,
    memory: int,
    progress: Callable[[str], None] = lambda step: None,
) -> Patching | None:
    """Patch the residual stream at every position, before some layers.

    Args:
        engine: the model.
        prompts: prompts with corrupted counterparts; ROWS of them are used, evenly spaced.
        metric: the metric on each prompt.
        memory: bytes to hold at once, in addition to the weights.
        progress: called with a description of each step.

    Returns:
        None if the prompts have no corrupted counterparts, or these have no effect.
    """
    if prompts.corrupted is None:
        return None
    rows = torch.linspace(0, len(prompts) - 1, min(ROWS, len(prompts))).round().long()
    tokens, corrupted = prompts.tokens[rows], prompts.corrupted[rows]
    positions = metric.positions(rows)
    clean, other = engine.whole(tokens, positions), engine.whole(corrupted, positions)
    intact, gone = (metric(p.logits, rows) for p in (clean, other))
    whole = float((intact - gone).mean())
    if whole <= 0:
        return None
    n_pos, n = prompts.n_pos, engine.wiring.n_layers
    layers = sorted({round(i) for i in np.linspace(0, n - 1, min(n, MOST_LAYERS))})
    stages = enumerate(engine.wiring.stages)
    at_layer = {s.layer: i for i, s in stages if s.kind in ("attention", "mixer")}
    effect = np.empty((len(layers), n_pos))
    row_bytes = len(rows) * engine.bytes_from_stream(n_pos)
    at_once = min(rows_that_fit(memory, row_bytes, n_pos), n_pos)
    for i, layer in enumerate(layers):
        progress(f"patching the residual stream before layer {layer}")
        stage = at_layer[layer]
        stream, patch = clean.trace.totals[stage], other.trace.totals[stage]
        for some in torch.split(torch.arange(n_pos), at_once):
            patched = stream.repeat(len(some), 1, 1)
            for number, position in enumerate(some.tolist()):
                part = slice(number * len(rows), (number + 1) * len(rows))
                patched[part, position] = patch[:, position]
            logits = engine.from_stream(stage, patched, positions.repeat(len(some), 1))
            values = metric(logits, rows.repeat(len(some))).reshape(len(some), len(rows))
            lost = (intact - values).mean(1) / whole
            effect[i, some.numpy()] = lost.double().cpu().numpy()
    return Patching(layers, effect, _shared(tokens), len(rows))


def patching_figure(patching: Patching, words: Callable[[int], str]) -> Figure:
    """A heat map, layers from bottom to top; `words` maps a token id to its text."""
    names = [
        str(i) if token is None else f"{i} {words(token)}"
        for i, token in enumerate(patching.tokens)
    ]
    cells = [plots.rounded(row) for row in patching.effect]
    reach = max(1.0, float(np.abs(patching.effect).max()))
    data = plots.heatmap(None, None, cells, "share", low=-reach, high=reach)
    across = plots.axis("position") | plots.ticks(range(len(names)), names)
    up = plots.axis("before layer") | plots.ticks(
        range(len(patching.layers)), map(str, patching.layers)
    )
    caption = (
        "Activation patching: effect of replacing the residual stream at one position with that "
        "of the corrupted prompt, as a fraction of the corrupted prompt's effect; mean over "
        f"{patching.n_rows} prompts (exact passes; too few prompts for intervals)."
    )
    layout = plots.layout(across, up) | plots.NO_LEGEND
    return Figure(
        "Activation patching by layer and position", caption, [data | plots.TILES], layout
    )


def _shared(tokens: Tensor) -> list[int | None]:
    same = (tokens == tokens[:1]).all(0)
    return [int(t) if s else None for t, s in zip(tokens[0], same, strict=True)]
