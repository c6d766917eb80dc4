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

from interp_toolkit.circuits.behaviour.advantage import row_batches
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.behaviour.replacement import OtherRows, capture, hook_z
from interp_toolkit.circuits.behaviour.task import RepeatTask, RowTask, task_of
from interp_toolkit.circuits.edges.wiring import Channel
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.forward import probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import put_heads, require_heads
from interp_toolkit.models.running.restart import can_restart, run_from
from interp_toolkit.models.weights.parts import LayerWeights, projected
from interp_toolkit.models.weights.precision import agrees, at_least_single
from interp_toolkit.models.weights.view import ModelWeights, weights


@dataclass(frozen=True, eq=False)
class PathEffects(Brief):
    """Effects on one reader of ablating the path from each of several writers.

    Attributes:
        writers: (layer, head) pairs.
        reader, channel: the head that reads, and by which input.
        attention: the intact reader's induction attention, a row: of its attention from where a row
            repeats (of rows with answers: wherever there are such keys), the share on keys that
            follow the same token.
        attention_drop: how much of it is lost.
        value_drop: of the task's value lost, NaN for writers that were not run on; None if that
            was not asked for.
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
    task: RowTask | None = None,
    value: bool | int = True,
    view: ModelWeights | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> PathEffects:
    """Cut the path from each of these heads into one later head, one path at a time.

    Args:
        model: any TransformerLens model.
        prompts: rows with answers, or rows that repeat.
        writers: (layer, head) pairs of layers before the reader's.
        reader: the (layer, query head) that reads.
        channel: "q", "k" or "v": its query, key or value input.
        task: what is measured on the rows; None: as `task_of`.
        value: whether to run the model on from the cut and measure the task's value, one forward
            pass for each writer; a number: for as many, those that cost most attention. Attention
            alone takes one pass for all.
        view: `weights(model)`, if it is at hand.
        memory: bound for the run (see `models.running.memory`).
        progress: called with a description of each step.

    Raises:
        InputError: the behavior cannot be measured (see `task_of`), heads that are not
            there or in the wrong order, layers whose heads do not add up (norms behind attention or
            on the residual stream), weights that cannot be given exactly.
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
    cutter = _Cutter(model, task, view, target, channel, layers, memory)
    intact, drops, losses = [], [], []

    def lost(cut: _Batch, which: Collection[int]) -> None:
        loss = np.full((len(sources), len(cut.value)), np.nan)
        for number, i in enumerate(which):
            progress(f"path patching, path {number + 1} of {len(which)}")
            loss[i] = cut.value - cut.value_with(cut.without(sources[i])[1])
        losses.append(loss)

    for n, cut in enumerate(cutter.batches()):
        progress(f"path patching, {len(sources)} paths, batch {n + 1}")
        share = cut.share(cut.pattern)
        intact.append(share)
        drop = [share - cut.share(cut.without(source)[0]) for source in sources]
        drops.append(np.reshape(drop, (len(sources), len(share))))
        if value is True:
            lost(cut, range(len(sources)))
    attention_drop = np.concatenate(drops, axis=1)
    if value is not True and value:
        largest = np.argsort(-attention_drop.mean(1), kind="stable")[:value].tolist()
        for again in [cut] if len(drops) == 1 else cutter.batches():
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
    """The view of the weights; raises InputError unless all these paths can be cut."""
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

    Raises InputError where they do not (scaled branches, norms on the stream).
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
class _Cutter:
    """Makes the batches in which paths to one reader are cut."""

    model: Any
    task: RowTask
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
    """Some rows, intact; paths are cut from here."""

    def __init__(
        self,
        cutter: _Cutter,
        rows: Int[Tensor, " row"],
        logits: Tensor,
        recorded: dict[str, Tensor],
        w: LayerWeights,
        means: OtherRows,
    ):
        self._cutter, self._rows, self._recorded = cutter, rows, recorded
        self._w, self._means = w, means
        self._residual = at_least_single(recorded[f"blocks.{cutter.reader[0]}.hook_resid_pre"])
        prompts = cutter.task.prompts
        self._keys = induction_keys(prompts, rows).to(logits.device)
        repeats = isinstance(cutter.task, RepeatTask)
        scored = prompts.repeated()[rows] if repeats else self._keys.any(-1)
        self._scored = scored.to(logits.device)
        self.value = cutter.task.read(logits, rows)[:, 0]
        self.pattern, self._z = self._attend(self._residual)

    def check(self) -> None:
        """Raises InputError where the recomputed pattern is not the model's own."""
        layer, head = self._cutter.reader
        actual = self._recorded[f"blocks.{layer}.attn.hook_pattern"][:, head]
        if not agrees(self.pattern, actual):
            raise InputError(
                f"the attention of head {head} in layer {layer} cannot be computed from its "
                "weights, so no path into it can be ablated"
            )

    def without(self, writer: Head) -> tuple[Tensor, Tensor]:
        """The reader's pattern and what it holds at `hook_z`, with the path from a writer cut."""
        layer, head = writer
        z = self._recorded[hook_z(layer)]
        moved = (z - self._means.mean(layer, z))[:, :, head].to(self._residual)
        W_O = self._cutter.view.layer(layer).W_O[head].to(self._residual)
        pattern, output = self._attend(self._residual - moved @ W_O)
        own = self._recorded[hook_z(self._cutter.reader[0])][:, :, self._cutter.reader[1]]
        return pattern, own + (output - self._z).to(own)

    def share(self, pattern: Float[Tensor, "row query key"]) -> Float[np.ndarray, " row"]:
        """Attention to the induction keys, a row's mean over the queries that know what is next."""
        paid = (pattern * self._keys).sum(-1) * self._scored
        share: np.ndarray = (paid.sum(1) / self._scored.sum(1).clamp_min(1)).double().cpu().numpy()
        return share

    def value_with(self, z: Tensor) -> Float[np.ndarray, " row"]:
        """The task's value when the reader holds this at `hook_z`."""
        cutter, layer = self._cutter, self._cutter.reader.layer
        tokens, restarts = cutter.task.prompts.tokens[self._rows], cutter.restarts
        with put_heads(cutter.model, {cutter.reader: z}):
            if restarts:
                residual = self._recorded[f"blocks.{layer}.hook_resid_pre"]
                logits = run_from(cutter.model, residual, layer, tokens)
            else:
                logits = run(cutter.model, tokens)
        assert logits is not None
        values: np.ndarray = cutter.task.read(logits, self._rows)[:, 0]
        return values

    def _attend(self, altered: Tensor) -> tuple[Tensor, Tensor]:
        """The reader's pattern and output when its channel reads an altered residual stream."""
        w = self._w
        q, k, v = (
            projected(w.norm(x), W, b)
            for x, W, b in (
                (altered if self._cutter.channel == "q" else self._residual, w.W_Q, w.b_Q),
                (altered if self._cutter.channel == "k" else self._residual, w.W_K, w.b_K),
                (altered if self._cutter.channel == "v" else self._residual, w.W_V, w.b_V),
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
    """The layer as if it had this head alone, in float32 at least."""
    own: dict[str, Any] = {
        f.name: at_least_single(value[head : head + 1])
        for f in dataclasses.fields(w)
        if f.name != "b_O" and isinstance(value := getattr(w, f.name), Tensor)
    }
    if w.alibi is not None:
        own["alibi"] = dataclasses.replace(w.alibi, slopes=w.alibi.slopes[head : head + 1])
    return dataclasses.replace(w, **own)
