"""Path patching: the effect on a later head of not reading one earlier head.

Only the direct path through the residual stream is ablated, and only for one input of one query
head: an edge (see `patched_pass`), with the writer's mean output over the other rows as ablation
value. The head's pattern is computed from the altered input, and the rest of the model is run
(Wang et al. 2022, "Interpretability in the Wild", arXiv 2211.00593; Goldowsky-Dill et al. 2023,
arXiv 2304.05969). Heads that share keys and values with the reader keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.edges.passes.edge_ablation import prompts_at_once
from interp_toolkit.circuits.edges.passes.patched_pass import Pass, PatchedModel
from interp_toolkit.circuits.edges.wiring import CHANNELS, Channel, Edge, Node, Wiring
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.task import CircuitTask, RepeatTask, task_of
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ProgressEstimate, ShortRepr
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.weights.view import ModelWeights


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
            the wrong order, or a model that `PatchedModel` does not take.
    """
    sources, target = [Head(*writer) for writer in writers], Head(*reader)
    if task is None:
        task, reason = task_of(model, prompts)
        if task is None:
            raise InputError(str(reason))
    engine = PatchedModel(model, view)
    _check(engine.wiring, sources, target)
    engine.check_on(task.prompts.tokens[task.rows[:1]])
    limit = parse_memory(memory)
    batches = torch.split(task.rows, prompts_at_once(engine, task.prompts.n_pos, limit)[0])
    patching = _PathPatching(engine, task, sources, target, channel, batches)
    progress(f"path patching, {len(sources)} paths")
    shares = [patching.shares(batch) for batch in batches]
    intact, without = (np.concatenate(parts, axis=-1) for parts in zip(*shares, strict=True))
    drop, losses = intact - without, None
    if value:
        largest = np.argsort(-drop.mean(1), kind="stable").tolist()
        chosen = largest if value is True else largest[:value]
        count = ProgressEstimate(progress, len(chosen) * len(batches), "path patching")
        losses = np.full(drop.shape, np.nan)
        losses[chosen] = np.hstack([patching.lost(batch, chosen, count) for batch in batches])
    return PathEffects(sources, target, channel, intact, drop, losses)


def _check(wiring: Wiring, writers: Sequence[Head], reader: Head) -> None:
    """Raise InputError unless these heads exist, in this order."""
    for layer, head in (*writers, reader):
        if Node("head", layer, head) not in wiring.index:
            raise InputError(f"there is no head {head} in layer {layer}")
    if not writers:
        raise InputError("give at least one head at which paths begin")
    late = [writer for writer in writers if writer.layer >= reader.layer]
    if late:
        raise InputError(
            f"head {tuple(late[0])} is not in an earlier layer than the head {tuple(reader)} "
            "that reads it"
        )


class _PathPatching:
    """Paths to one reader, ablated batch by batch; the last batch's pass is kept."""

    def __init__(
        self,
        engine: PatchedModel,
        task: CircuitTask,
        writers: Sequence[Head],
        reader: Head,
        channel: Channel,
        batches: Sequence[Int[Tensor, " row"]],
    ):
        self._engine, self._task, self._reader = engine, task, reader
        self._channel = CHANNELS.index(channel)
        target = Node("head", *reader)
        self._edges = [Edge(Node("head", *writer), target, channel) for writer in writers]
        self._of = [engine.wiring.index[edge.source] for edge in self._edges]
        self._stage = engine.wiring.stage_at(target)
        self._passes: tuple[Int[Tensor, " row"], Pass] | None = None
        self._n = len(task.rows)
        self._sums: dict[int, Tensor] = {}
        for batch in batches:
            writes = self._whole(batch).trace.writes
            for i in self._of:
                self._sums[i] = self._sums.get(i, 0) + writes[i].double().sum(0)

    def _whole(self, rows: Int[Tensor, " row"]) -> Pass:
        if self._passes is None or self._passes[0] is not rows:
            self._passes = rows, self._engine.whole(self._task.prompts.tokens[rows])
        return self._passes[1]

    def _others(self, whole: Pass) -> Mapping[int, Tensor]:
        """The mean of each writer over the other prompts."""
        own = {i: whole.trace.writes[i] for i in self._of}
        return {i: ((self._sums[i] - w.double()) / (self._n - 1)).to(w) for i, w in own.items()}

    def shares(
        self, rows: Int[Tensor, " row"]
    ) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, "writer row"]]:
        """The reader's induction attention, intact and without each path."""
        whole, (layer, head), engine = self._whole(rows), self._reader, self._engine
        writes, x = whole.trace.writes, whole.trace.reads[self._stage]
        own = [part[:, :, [head]] for part in whole.trace.projected[layer]]
        others, alone = self._others(whole), torch.ones(1, 1, dtype=torch.bool)
        without = []
        for i in self._of:
            read = x + engine.changes(writes, others, [i], alone)
            parts = list(own)
            parts[self._channel] = torch.stack(
                engine.blocks.project(layer, read, [(self._channel, head, 0)]), 2
            )
            without.append(self._share(parts, rows))
        return self._share(own, rows), np.stack(without)

    def lost(
        self, rows: Int[Tensor, " row"], numbers: Sequence[int], count: ProgressEstimate
    ) -> Float[np.ndarray, "path row"]:
        """The loss of the metric without each of some paths."""
        whole = self._whole(rows)
        others, intact = self._others(whole), self._task.read(whole.logits, rows)[:, 0]
        losses = []
        for number in numbers:
            logits = self._engine.logits(whole, others, [self._edges[number]])
            losses.append(intact - self._task.read(logits, rows)[:, 0])
            count.step()
        return np.stack(losses)

    def _share(self, parts: Sequence[Tensor], rows: Int[Tensor, " row"]) -> np.ndarray:
        """Attention to the induction keys, each prompt's mean over its scored queries."""
        layer, head = self._reader
        pattern = self._engine.blocks.pattern(layer, parts, head)
        prompts = self._task.prompts
        keys = induction_keys(prompts, rows).to(pattern.device)
        repeats = isinstance(self._task, RepeatTask)
        scored = (prompts.repeated()[rows] if repeats else keys.any(-1)).to(pattern.device)
        paid = (pattern * keys).sum(-1) * scored
        share: np.ndarray = (paid.sum(1) / scored.sum(1).clamp_min(1)).double().cpu().numpy()
        return share


def induction_keys(prompts: Prompts, rows: Int[Tensor, " row"]) -> Bool[Tensor, "row query key"]:
    """Earlier keys that follow the query's own token."""
    tokens = prompts.tokens[rows]
    keys = torch.zeros(*tokens.shape, prompts.n_pos, dtype=torch.bool)
    first = prompts.first
    keys[:, :, first + 1 :] = tokens[:, :, None] == tokens[:, None, first:-1]
    return keys.tril(-1)
