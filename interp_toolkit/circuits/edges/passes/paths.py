"""Path patching: the effect on a later head of not reading one earlier head.

Only the direct path through the residual stream is ablated, and only for one input of one query
head. In the residual stream that the reader's query, key or value input reads, the writer's output
is replaced by its mean over the other rows, and everything else is unchanged:

    r' = r - (z_writer - mean z_writer) W_O,    k' = norm(r') W_K + b_K    (channel "k").

The head's pattern and output are then recomputed from `LayerWeights`, and the rest of the model is
run (Wang et al. 2022, "Interpretability in the Wild", arXiv 2211.00593; Goldowsky-Dill et al. 2023,
arXiv 2304.05969). Since the output of a single query head is edited, heads that share its keys and
values keep theirs. The pattern without ablation is first compared with the model's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.wiring import Channel
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.repetition import row_batches
from interp_toolkit.circuits.metrics.replacement import OtherRows, capture, hook_z
from interp_toolkit.circuits.metrics.task import CircuitTask, RepeatTask, task_of
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.forward import probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import put_heads, require_heads
from interp_toolkit.models.running.restart import can_restart, run_from
from interp_toolkit.models.weights.parts import LayerWeights, projected
from interp_toolkit.models.weights.precision import agrees, at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights


@dataclass(frozen=True, eq=False)
class PathEffects(ShortRepr):
    """Effects on one reader of ablating the path from each of several writers.

    Attributes:
        writers: (layer, head) pairs.
        reader, channel: the reading head, and which of its inputs.
        attention: the intact reader's induction attention on each prompt: the fraction of its
            attention on keys that follow the same token, from positions where the prompt repeats
            (in prompts with answers: from all that have such keys).
        attention_drop: loss of this attention.
        value_drop: loss of the metric; NaN for writers it was not measured for, None if it was
            not requested.
    """

    writers: Sequence[Head]
    reader: Head
    channel: Channel
    attention: Float[np.ndarray, " row"]
    attention_drop: Float[np.ndarray, "writer row"]
    value_drop: Float[np.ndarray, "writer row"] | None


@torch.no_grad()
def path_effects(
    model: Any,
    prompts: Prompts,
    writers: Sequence[tuple[int, int]],
    reader: tuple[int, int],
    channel: Channel = "k",
    *,
    task: CircuitTask | None = None,
    value: bool | int = True,
    view: ModelWeights | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> PathEffects:
    """Ablate the path from each of these heads into one later head, one path at a time.

    Args:
        model: any TransformerLens model.
        prompts: prompts with answers, or prompts that repeat.
        writers: (layer, head) pairs of layers before the reader's.
        reader: (layer, query head) of the reading head.
        channel: "q", "k" or "v": its query, key or value input.
        task: the task of the prompts; None: that of `task_of`.
        value: whether to measure the metric too, with one forward pass from the reader on for each
            writer; a number: for as many writers, those with the largest loss of attention. The
            attention alone takes one pass for all.
        view: `weights(model)`, if it was computed before.
        memory: bound for the run (see `models.running.memory`).
        progress: called with a description of each step.

    Raises:
        InputError: the prompts define no task (see `task_of`), heads that do not exist or are in
            the wrong order, layers whose heads do not add up (norms after attention or on the
            residual stream), weights that cannot be given exactly.
        InterventionError: the model ignores edits of the reader.
    """
    sources, target = [Head(*writer) for writer in writers], Head(*reader)
    if task is None:
        task, reason = task_of(model, prompts)
        if task is None:
            raise InputError(str(reason))
    if value:
        require_heads(model, [target])
    view = _checked(model, sources, target, view)
    layers = sorted({layer for layer, _ in sources})
    patching = _PathPatching(model, task, view, target, channel, layers, memory)
    intact, drops, losses = [], [], []

    def lost(batch: _Batch, which: Collection[int]) -> None:
        loss = np.full((len(sources), len(batch.value)), np.nan)
        for number, i in enumerate(which):
            progress(f"path patching, path {number + 1} of {len(which)}")
            loss[i] = batch.value - batch.value_with(batch.without(sources[i])[1])
        losses.append(loss)

    for n, batch in enumerate(patching.batches()):
        progress(f"path patching, {len(sources)} paths, batch {n + 1}")
        share = batch.share(batch.pattern)
        intact.append(share)
        drop = [share - batch.share(batch.without(source)[0]) for source in sources]
        drops.append(np.reshape(drop, (len(sources), len(share))))
        if value is True:
            lost(batch, range(len(sources)))
    attention_drop = np.concatenate(drops, axis=1)
    if value is not True and value:
        largest = np.argsort(-attention_drop.mean(1), kind="stable")[:value].tolist()
        for again in [batch] if len(drops) == 1 else patching.batches():
            lost(again, largest)
    return PathEffects(
        sources,
        target,
        channel,
        np.concatenate(intact),
        attention_drop,
        np.concatenate(losses, axis=1) if value else None,
    )


def _checked(
    model: Any, writers: Sequence[Head], reader: Head, view: ModelWeights | None
) -> ModelWeights:
    """The view of the weights; raises InputError unless all these paths can be ablated."""
    for layer, head in (*writers, reader):
        if not (0 <= layer < int(model.cfg.n_layers) and 0 <= head < int(model.cfg.n_heads)):
            raise InputError(f"there is no head {head} in layer {layer}")
    if not writers:
        raise InputError("give at least one head at which paths begin")
    late = [writer for writer in writers if writer[0] >= reader[0]]
    if late:
        raise InputError(
            f"head {tuple(late[0])} is not in an earlier layer than the head {tuple(reader)} "
            "that reads it"
        )
    view = weights(model) if view is None else view
    for layer in {layer for layer, _ in writers}:
        if not view.layer(layer).additive:
            raise InputError(
                f"layer {layer} normalizes the output of its heads, so the output of a single "
                "head is not defined and no path from it can be ablated"
            )
    _require_stream(model, range(min(writers)[0], reader[0]))
    return view


def _require_stream(model: Any, layers: Sequence[int]) -> None:
    """Check that blocks only add to the residual stream.

    Raises InputError if they do not (scaled branches, norms on the stream).
    """
    points = hook_points(model)
    kinds = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out")
    names = [f"blocks.{n}.{kind}" for n in layers for kind in kinds]
    names += [f"blocks.{n + 1}.hook_resid_pre" for n in layers]
    _, recorded = capture(
        model, probe_tokens(model), [n for n in dict.fromkeys(names) if n in points]
    )
    for n in layers:
        before, after = (recorded[f"blocks.{m}.hook_resid_pre"] for m in (n, n + 1))
        added = recorded[f"blocks.{n}.hook_attn_out"] + recorded.get(f"blocks.{n}.hook_mlp_out", 0)
        if not agrees(before + added, after):
            raise InputError(
                f"layer {n} does more than add to the residual stream, so a head's output "
                "reaches later heads changed and no path from it can be ablated"
            )


@dataclass(frozen=True, eq=False)
class _PathPatching:
    """The batches in which paths to one reader are ablated."""

    model: Any
    task: CircuitTask
    view: ModelWeights
    reader: Head
    channel: Channel
    layers: Sequence[int]
    memory: int | str | None

    @cached_property
    def restarts(self) -> bool:
        """Whether a pass can begin at the reader's layer."""
        return can_restart(self.model)

    def batches(self) -> Iterator[_Batch]:
        layer, head = self.reader
        view, prompts, attn = self.view, self.task.prompts, f"blocks.{layer}.attn"
        everyone = prompts.tokens[self.task.rows]
        names = [*(hook_z(n) for n in self.layers), hook_z(layer), f"{attn}.hook_pattern"]
        names.append(f"blocks.{layer}.hook_resid_pre")
        width = (len(self.layers) + 2) * view.n_heads * view.d_head + 4 * view.d_model
        n_stored = (width + (view.n_heads + 4) * prompts.n_pos) * prompts.n_pos
        w = _one_head(view.layer(layer), head)
        batches = row_batches(self.model, prompts, self.task.rows, n_stored, self.memory)
        means: OtherRows | None = None
        for rows in batches:
            logits, recorded = capture(self.model, prompts.tokens[rows], names)
            if means is None:
                at_hand = recorded if len(batches) == 1 else None
                means = OtherRows(self.model, everyone, self.layers, self.memory, at_hand)
            batch = _Batch(self, rows, logits, recorded, w, means)
            batch.check()
            yield batch


class _Batch:
    """Intact activations of some prompts, from which paths are ablated."""

    def __init__(
        self,
        patching: _PathPatching,
        rows: Int[Tensor, " row"],
        logits: Tensor,
        recorded: dict[str, Tensor],
        w: LayerWeights,
        means: OtherRows,
    ):
        self._patching, self._rows, self._recorded = patching, rows, recorded
        self._w, self._means = w, means
        self._residual = at_least_single(recorded[f"blocks.{patching.reader[0]}.hook_resid_pre"])
        prompts = patching.task.prompts
        self._keys = induction_keys(prompts, rows).to(logits.device)
        repeats = isinstance(patching.task, RepeatTask)
        scored = prompts.repeated()[rows] if repeats else self._keys.any(-1)
        self._scored = scored.to(logits.device)
        self.value = patching.task.read(logits, rows)[:, 0]
        self.pattern, self._z = self._attend(self._residual)

    def check(self) -> None:
        """Raise InputError if the recomputed pattern is not the model's own."""
        layer, head = self._patching.reader
        actual = self._recorded[f"blocks.{layer}.attn.hook_pattern"][:, head]
        if not agrees(self.pattern, actual):
            raise InputError(
                f"the attention of head {head} in layer {layer} cannot be computed from its "
                "weights, so no path into it can be ablated"
            )

    def without(self, writer: Head) -> tuple[Tensor, Tensor]:
        """The reader's pattern and output at `hook_z`, without the path from a writer."""
        layer, head = writer
        z = self._recorded[hook_z(layer)]
        moved = (z - self._means.mean(layer, z))[:, :, head].to(self._residual)
        W_O = self._patching.view.layer(layer).W_O[head].to(self._residual)
        pattern, output = self._attend(self._residual - moved @ W_O)
        own = self._recorded[hook_z(self._patching.reader[0])][:, :, self._patching.reader[1]]
        return pattern, own + (output - self._z).to(own)

    def share(self, pattern: Float[Tensor, "row query key"]) -> Float[np.ndarray, " row"]:
        """Attention to the induction keys, each prompt's mean over its scored queries."""
        paid = (pattern * self._keys).sum(-1) * self._scored
        share: np.ndarray = (paid.sum(1) / self._scored.sum(1).clamp_min(1)).double().cpu().numpy()
        return share

    def value_with(self, z: Tensor) -> Float[np.ndarray, " row"]:
        """The metric with this output of the reader at `hook_z`."""
        patching, layer = self._patching, self._patching.reader.layer
        tokens, restarts = patching.task.prompts.tokens[self._rows], patching.restarts
        with put_heads(patching.model, {patching.reader: z}):
            if restarts:
                residual = self._recorded[f"blocks.{layer}.hook_resid_pre"]
                logits = run_from(patching.model, residual, layer, tokens)
            else:
                logits = run(patching.model, tokens)
        assert logits is not None
        values: np.ndarray = patching.task.read(logits, self._rows)[:, 0]
        return values

    def _attend(self, altered: Tensor) -> tuple[Tensor, Tensor]:
        """The reader's pattern and output when its channel reads an altered residual stream."""
        w = self._w
        q, k, v = (
            projected(w.norm(x), W, b)
            for x, W, b in (
                (altered if self._patching.channel == "q" else self._residual, w.W_Q, w.b_Q),
                (altered if self._patching.channel == "k" else self._residual, w.W_K, w.b_K),
                (altered if self._patching.channel == "v" else self._residual, w.W_V, w.b_V),
            )
        )
        pattern = w.pattern(w.scores(q, k)[:, 0])
        return pattern, pattern @ v[:, :, 0]


def induction_keys(prompts: Prompts, rows: Int[Tensor, " row"]) -> Bool[Tensor, "row query key"]:
    """Earlier keys that follow the query's own token."""
    tokens = prompts.tokens[rows]
    keys = torch.zeros(*tokens.shape, prompts.n_pos, dtype=torch.bool)
    first = prompts.first
    keys[:, :, first + 1 :] = tokens[:, :, None] == tokens[:, None, first:-1]
    return keys.tril(-1)


def _one_head(w: LayerWeights, head: int) -> LayerWeights:
    """The layer with this head alone, in float32 at least."""
    own: dict[str, Any] = {
        f.name: at_least_single(value[head : head + 1])
        for f in dataclasses.fields(w)
        if f.name != "b_O" and isinstance(value := getattr(w, f.name), Tensor)
    }
    if w.alibi is not None:
        own["alibi"] = dataclasses.replace(w.alibi, slopes=w.alibi.slopes[head : head + 1])
    return dataclasses.replace(w, **own)
