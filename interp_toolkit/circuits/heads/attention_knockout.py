"""Attention knockouts: ablation of the attention from queries to an attention pattern's keys.

A head can attend to a key without any effect on the output. A knockout ablates only that attention,
in one or several heads, and the metric is measured again (Geva et al. 2023, "Dissecting Recall of
Factual Associations in Auto-Regressive Language Models"). The ablation value matters, so there are
four ways (`rule` says which are required):

- "renormalize": the rest of the head's attention is scaled up to sum to 1. If less than LEAST_LEFT
  of it remains, the mean value vector replaces the ablated part.
- "mean": the ablated attention reads the head's mean value vector, over all prompts and positions.
- "resample": the ablated attention reads another prompt's values at random positions.
- "zero": the ablated attention reads nothing. The other three write something in its place, which
  can be louder than what the head wrote; this way only takes away.

The control ablates as much attention of each query to other keys, in random order (the last of
them in part, and all if there is less), in the heads of `elsewhere`. `output` replaces the whole
output of a head by its mean over the other prompts, by another prompt's, or by zero: attention
cannot matter if the whole output can be replaced without effect.

Edits are made at `hook_z`, for the queries that have such keys; TransformerBridge models of both
major versions support this. Two checks come first: `hook_z` must be attention times values, and
edits there must reach the output. If a bridge exposes a layer's pattern only after its `hook_z`,
the pattern comes from a separate pass that includes the edits of earlier layers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.repetition import row_batches
from interp_toolkit.circuits.metrics.replacement import capture, hook_z
from interp_toolkit.circuits.metrics.task import CircuitTask, TaskCheck
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.formatting import so_far
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.forward import (
    can_unembed_at,
    device_of,
    probe_tokens,
    run,
    unembedded_at,
)
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import require_heads
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.running.restart import can_restart, entry, run_from
from interp_toolkit.models.running.stages import Store, not_stored, structured
from interp_toolkit.models.running.streaming import position_sums
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.read import visibility

Way = Literal["renormalize", "mean", "resample", "zero"]
WAYS: tuple[Way, ...] = ("renormalize", "mean", "resample", "zero")
USING_MEANS: tuple[Way, ...] = ("renormalize", "mean")

LEAST_LEFT = 1e-2  # smallest remaining attention that is scaled up
TOLERANCE = 1e-2  # largest relative difference between hook_z and attention times values
LARGE_VOCABULARY = 2**12  # vocabulary size from which computing fewer logits saves time


@dataclass(frozen=True)
class Knockout:
    """Knockout of an attention pattern in some heads, or replacement of heads' whole output.

    Attributes:
        heads: heads in which the pattern is knocked out.
        relation: name of the pattern.
        way: ablation value of the attention, or of the output ("mean", "resample" or "zero").
        elsewhere: other heads in which as much attention to other keys is knocked out instead.
        output: heads whose whole output is replaced.
        beside: another knockout that is made too, in other heads, with its own ablation value.
    """

    heads: frozenset[Head] = frozenset()
    relation: str = ""
    way: Way = "renormalize"
    elsewhere: frozenset[Head] = frozenset()
    output: frozenset[Head] = frozenset()
    beside: Knockout | None = None

    @property
    def key(self) -> str:
        """A text that is the same for equal knockouts in every process."""
        sets = [sorted(map(tuple, part)) for part in (self.heads, self.elsewhere, self.output)]
        beside = None if self.beside is None else self.beside.key
        return f"{sets} {self.relation} {self.way} {beside}"

    @property
    def layers(self) -> list[int]:
        """Layers that the knockout edits, in order."""
        return sorted({head.layer for part in self.parts for head in part.edited})

    @property
    def edited(self) -> frozenset[Head]:
        """Heads that the knockout itself edits, without those of `beside`."""
        return self.heads | self.elsewhere | self.output

    @property
    def parts(self) -> list[Knockout]:
        """This knockout and the one beside it, if there is one."""
        return [self] if self.beside is None else [*self.beside.parts, self]


INTACT = Knockout()


@dataclass(eq=False)
class KnockoutRunner:
    """Runs a task's prompts with knockouts.

    Activations without edits are stored between calls in up to half the memory, and recomputed
    otherwise. A pass starts at the first edited layer. With a large vocabulary, logits are computed
    only at the positions that are read.

    Attributes:
        model: any TransformerLens model whose patterns are softmax.
        task: the prompts and their metric.
        targets: functions from prompt indices to the keys of each pattern, [batch query key].
        memory: memory limit.
        seed: seed of the controls.
        progress: called with a description of each step.
        store: keeps what was measured; see `models.running.stages`.
        rows_run: number of prompts run so far; a pass through half the layers counts half. Passes
            that only recompute activations are not counted: how many there are depends on memory.
    """

    model: Model
    task: CircuitTask
    targets: Mapping[str, Callable[[Int[Tensor, " batch"]], Bool[np.ndarray, "batch q k"]]]
    memory: int | str | None = None
    seed: int = 0
    progress: Callable[[str], None] = field(default=lambda step: None, repr=False)
    store: Store = field(default=not_stored, repr=False)
    rows_run: float = field(default=0.0, init=False)

    @cached_property
    def _stored(self) -> dict[tuple[int, ...], dict[str, Tensor]]:
        """Activations of unedited passes at the hook points, by prompts."""
        return {}

    @cached_property
    def _intact(self) -> dict[tuple[int, ...], Float[np.ndarray, "row 2"]]:
        """Metric and loss of prompts without edits."""
        return {}

    @cached_property
    def _checked(self) -> set[int]:
        """Layers whose attention was checked to be editable."""
        return set()

    @cached_property
    def _donors(self) -> dict[int, int]:
        """Prompt whose values replace those of each prompt."""
        rows = self.task.rows.tolist()
        shift = int(np.random.default_rng(self.seed).integers(1, len(rows)))
        return dict(zip(rows, rows[shift:] + rows[:shift], strict=True))

    @cached_property
    def restarts(self) -> bool:
        """Whether a pass can start at the first edited layer."""
        return can_restart(self.model)

    @cached_property
    def _entries(self) -> list[str]:
        """Hook points at which a pass can start."""
        return [entry(n) for n in range(1, self._n_layers)] if self.restarts else []

    @property
    def _n_layers(self) -> int:
        return int(self.model.cfg.n_layers)

    @cached_property
    def few_logits(self) -> bool:
        """Whether logits are computed only at the positions that are read."""
        large = int(self.model.cfg.d_vocab) >= LARGE_VOCABULARY
        return large and self.restarts and can_unembed_at(self.model)

    @cached_property
    def _totals(self) -> dict[str, Float[Tensor, "pos head d_head"]]:
        """Sums of values and outputs over the task's prompts, by hook point."""
        return {}

    def _total(self, name: str, layer: int) -> Float[Tensor, "pos head d_head"]:
        """Sum over prompts at a hook point; sums of all checked layers come from one pass."""
        if name not in self._totals:
            layers = sorted(self._checked | {layer})
            names = [hook(n) for n in layers for hook in (hook_v, hook_z)]
            names = [hook for hook in names if hook in self.points]
            stored = self._stored_of(self.task.rows, names)
            if stored is None:
                tokens = self.task.prompts.tokens[self.task.rows]
                self._totals.update(position_sums(self.model, tokens, names, memory=self.memory)[0])
            else:
                self._totals.update({n: value.double().sum(0) for n, value in stored.items()})
        return self._totals[name]

    @cached_property
    def points(self) -> Mapping[str, Any]:
        """Hook points of the model, cached because a bridge rebuilds them on each access."""
        return hook_points(self.model)

    @cached_property
    def late(self) -> bool:
        """Whether patterns are exposed only after `hook_z`, so that each layer needs a pass."""
        return _Live(self.model, [0], self.points).late()

    def check(self, heads: Iterable[tuple[int, int]]) -> None:
        """Raise InterventionError if these heads' attention cannot be edited at `hook_z`.

        Each layer is checked once.
        """
        new = [head for head in heads if head[0] not in self._checked]
        if not new:
            return
        require_heads(self.model, new)
        tokens = self.task.prompts.tokens[self.task.rows[:2]]
        live = _Live(self.model, sorted({layer for layer, _ in new}), self.points)
        run(self.model, tokens, live.watch())
        off = live.not_attention_times_values()
        if off is not None:
            raise InterventionError(
                f"hook_z of layer {off} is not attention times values in this "
                f"{type(self.model).__name__}, so their attention cannot be knocked out"
            )
        self._checked.update(layer for layer, _ in new)

    def readings(
        self, knockouts: Sequence[Knockout], rows: Int[Tensor, " row"]
    ) -> dict[Knockout, Float[np.ndarray, "row column"]]:
        """Metric and loss of each prompt under each knockout (see `CircuitTask.read_at`).

        Args:
            knockouts: the knockouts; INTACT is the intact model.
            rows: indices of some of the task's prompts.
        """
        before = self.rows_run

        def measured() -> tuple[list[np.ndarray], float]:
            readings = self._readings(knockouts, rows)
            return [readings[knockout] for knockout in knockouts], self.rows_run - before

        def name() -> str:
            return f"{[knockout.key for knockout in knockouts]} on {rows.tolist()}"

        values, spent = structured(self.store, name, measured)
        self.rows_run = before + spent
        return dict(zip(knockouts, values, strict=True))

    def _readings(
        self, knockouts: Sequence[Knockout], rows: Int[Tensor, " row"]
    ) -> dict[Knockout, Float[np.ndarray, "row column"]]:
        layers = sorted({layer for knockout in knockouts for layer in knockout.layers})
        parts: dict[Knockout, list[np.ndarray]] = {knockout: [] for knockout in knockouts}
        batches, room = self._batches(rows, self._n_stored(layers))
        since = time.monotonic()
        pattern = next((k.relation for k in reversed(knockouts) if k.relation), "")
        what = f"knocking out attention ({pattern})" if pattern else "ablating whole heads"
        for number, batch in enumerate(batches):
            for i, knockout in enumerate(knockouts):
                if i % 16 == 0:
                    done, total = number * len(knockouts) + i, len(batches) * len(knockouts)
                    self.progress(f"{what}, {so_far(done, total, since)}")
                parts[knockout].append(self._reading(knockout, batch))
            self._trim(room)
        total = len(batches) * len(knockouts)
        self.progress(f"{what}, {so_far(total, total, since)}")
        return {knockout: np.concatenate(pieces) for knockout, pieces in parts.items()}

    def _n_stored(self, layers: Collection[int]) -> int:
        """Number of values stored per prompt when these layers are edited."""
        cfg, n_pos = self.model.cfg, self.task.prompts.n_pos
        n_stored = len(self._entries) * n_pos * int(cfg.d_model) + 6 * int(cfg.n_heads) * n_pos**2
        return n_stored + 3 * len(layers) * n_pos * int(cfg.n_heads) * int(cfg.d_head)

    def _batches(
        self, rows: Int[Tensor, " row"], n_stored: int
    ) -> tuple[Sequence[Int[Tensor, " _"]], int]:
        """Batches of these prompts, and the number of bytes left to store activations."""
        bound, prompts = parse_memory(self.memory), self.task.prompts
        with contextlib.suppress(InputError):  # half the memory is too little for a prompt
            return row_batches(self.model, prompts, rows, n_stored, bound // 2), bound // 2
        return row_batches(self.model, prompts, rows, n_stored, bound), 0

    def check_task(self) -> TaskCheck:
        """Task performance of the intact model; activations that knockouts need are stored."""
        rows, names = self.task.rows, [*self._entries, *self._parts]
        try:
            batches, room = self._batches(rows, self._n_stored(range(self._n_layers)))
        except InputError:  # a prompt fits, but not its activations
            names, room = [], 0
            batches = row_batches(self.model, self.task.prompts, rows, 0, self.memory)
        readings = []
        for batch in batches:
            readings.append(self.task.read(self._run_whole(batch, names), batch))
            self.rows_run += len(batch)
            self._trim(room)
        return self.task.check(np.concatenate(readings))

    @cached_property
    def _parts(self) -> list[str]:
        """Hook points of values and outputs; empty unless every layer has them."""
        names = [hook(n) for n in range(self._n_layers) for hook in (hook_v, hook_z)]
        return names if set(names) <= set(self.points) else []

    def _run_whole(
        self, batch: Int[Tensor, " batch"], names: Sequence[str]
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits without edits; activations at these hook points are stored."""
        tokens = self.task.prompts.tokens[batch].to(device_of(self.model))
        logits, values = capture(self.model, tokens, names)
        self._stored.setdefault(tuple(_numbers(batch)), {}).update(values)
        return logits

    def _stored_of(
        self, rows: Int[Tensor, " batch"], names: Sequence[str]
    ) -> dict[str, Tensor] | None:
        """Stored activations of these hook points for these prompts; None unless all are stored."""
        row_numbers = _numbers(rows)
        same_batch = self._stored.get(tuple(row_numbers), {})
        if all(name in same_batch for name in names):
            return {name: same_batch[name] for name in names}
        location: dict[int, tuple[tuple[int, ...], int]] = {}
        for batch, values in self._stored.items():
            if all(name in values for name in names):
                location |= {row: (batch, number) for number, row in enumerate(batch)}
        if not set(row_numbers) <= set(location):
            return None
        at = [location[row] for row in row_numbers]
        return {
            name: torch.stack([self._stored[batch][name][number] for batch, number in at])
            for name in names
        }

    def _unedited(self, batch: Int[Tensor, " batch"], names: Sequence[str]) -> dict[str, Tensor]:
        """Activations of these hook points without edits."""
        values = self._stored_of(batch, names)
        if values is None:
            self._run_whole(batch, names)
            values = self._stored_of(batch, names)
        assert values is not None
        return values

    def _trim(self, room: int) -> None:
        """Drop stored activations, oldest first, until the rest fits."""
        sizes = {
            key: sum(t.nbytes for t in stored.values()) for key, stored in self._stored.items()
        }
        held = sum(sizes.values())
        while held > room and self._stored:
            oldest = next(iter(self._stored))
            del self._stored[oldest]
            held -= sizes[oldest]

    def _reading(
        self, knockout: Knockout, batch: Int[Tensor, " batch"]
    ) -> Float[np.ndarray, "row 2"]:
        """Metric and loss of these prompts under a knockout."""
        layers = knockout.layers
        key = tuple(_numbers(batch))
        if not layers:
            if key not in self._intact:
                self._intact[key] = self._go(batch, self._n_layers - 1, [])
            return self._intact[key]
        live = _Live(self.model, layers, self.points)
        relations = {part.relation for part in knockout.parts if part.heads | part.elsewhere}
        device = device_of(self.model)
        targets = {n: torch.from_numpy(self.targets[n](batch)).to(device) for n in relations}
        edits = {n: self._edits(live, knockout, n, targets, batch) for n in layers}
        if not relations:  # no pattern is read
            return self._go(batch, layers[0], live.edits(edits))
        if not self.late:
            return self._go(batch, layers[0], live.watch(edits))
        for number, layer in enumerate(layers):
            earlier_edits = live.edits({n: edits[n] for n in layers[:number]})
            self._go(batch, layers[0], [*live.watch(only=[layer]), *earlier_edits])
        return self._go(batch, layers[0], live.edits(edits))

    def _go(
        self, batch: Int[Tensor, " batch"], first: int, hooks: list[tuple[Any, Any]]
    ) -> Float[np.ndarray, "row 2"]:
        """Metric and loss of these prompts, with hooks from this layer on."""
        tokens = self.task.prompts.tokens[batch].to(device_of(self.model))
        at = self.task.positions(batch) if self.few_logits else None
        start = None
        if self.restarts and first > 0:
            start = self._unedited(batch, self._entries)[entry(first)]
        with unembedded_at(self.model, at):
            if start is not None:
                logits = run_from(self.model, start, first, tokens, hooks)
                self.rows_run += len(batch) * (1 - first / self._n_layers)
            else:
                logits = run(self.model, tokens, hooks)
                self.rows_run += len(batch)
        assert logits is not None
        if at is None:
            at = torch.arange(tokens.shape[1])
        return self.task.read_at(logits, batch, at)

    def _edits(
        self,
        live: _Live,
        knockout: Knockout,
        layer: int,
        targets: Mapping[str, Bool[Tensor, "batch query key"]],
        batch: Int[Tensor, " batch"],
    ) -> Callable[..., Tensor]:
        """Hook at `hook_z` that applies all parts of a knockout to this layer's heads."""
        edits = [
            self._edit(live, part, layer, targets.get(part.relation), batch)
            for part in knockout.parts
            if any(head.layer == layer for head in part.edited)
        ]
        return lambda z, hook: reduce(lambda edited, edit: edit(edited, hook), edits, z)

    def _edit(
        self,
        live: _Live,
        knockout: Knockout,
        layer: int,
        targets: Bool[Tensor, "batch query key"] | None,
        batch: Int[Tensor, " batch"],
    ) -> Callable[..., Tensor]:
        """Hook at `hook_z` that applies a knockout to this layer's heads."""
        attending = (knockout.heads | knockout.elsewhere) - knockout.output
        heads = sorted(h.head for h in attending if h.layer == layer)
        replaced = sorted(h.head for h in knockout.output if h.layer == layer)
        ablation_values = self._output(knockout.way, layer, batch) if replaced else None
        values = self._donor_values(layer, batch) if heads and knockout.way == "resample" else None
        means = self._mean_values(layer) if heads and knockout.way in USING_MEANS else None
        visible = visible_pairs(*visibility(self.model, layer), self.task.prompts.n_pos)
        visible = visible.to(device_of(self.model))

        def edit(z: Float[Tensor, "batch pos head d_head"], hook: Any) -> Tensor:
            edited = z.clone()
            for head in replaced:
                assert ablation_values is not None
                edited[:, :, head] = ablation_values[:, :, head].to(z)
            if not heads:
                return edited
            assert targets is not None
            for head in heads:
                pattern = at_least_single(live.pattern(layer)[:, head])
                held = targets & visible
                where = held.to(pattern)
                if Head(layer, head) in knockout.elsewhere:
                    where = self._elsewhere(pattern, held, visible, batch, (layer, head))
                left, missing = _taken(pattern, where, knockout.way)
                # computed from scratch, since rounding of a difference to z could break ties
                # between logits
                made = left.to(z) @ live.values(layer, head).to(z)
                if values is not None:
                    other = values[:, :, head * values.shape[2] // live.n_heads]
                    made = made + (pattern * where).to(z) @ other.to(z)
                elif means is not None:
                    mean = means[head * len(means) // live.n_heads]
                    made = made + missing.to(z) * mean.to(z)
                changed = (where > 0).any(-1, keepdim=True)
                edited[:, :, head] = torch.where(changed, made, z[:, :, head])
            return edited

        return edit

    def _output(self, way: Way, layer: int, batch: Int[Tensor, " batch"]) -> Tensor:
        """Ablation values of a layer's head outputs for these prompts."""
        name = hook_z(layer)
        if way == "resample":
            return self._unedited(self._donors_of(batch), [name])[name]
        z = self._unedited(batch, [name])[name]
        if way == "zero":
            return torch.zeros_like(z)
        return ((self._total(name, layer) - z.double()) / (len(self.task.rows) - 1)).to(z)

    def _mean_values(self, layer: int) -> Float[Tensor, "kv_head d_head"]:
        """Mean value vectors of a layer, over all prompts and positions of the intact model."""
        total = self._total(hook_v(layer), layer)
        return total.sum(0) / (len(self.task.rows) * self.task.prompts.n_pos)

    def _donor_values(
        self, layer: int, batch: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch key kv_head d_head"]:
        """Values of another prompt for each of these, with positions in random order."""
        name = hook_v(layer)
        values = self._unedited(self._donors_of(batch), [name])[name]
        n_pos = values.shape[1]
        orders = [_order(self.seed, row, (layer,), (n_pos,)).argsort() for row in _numbers(batch)]
        return torch.stack([own[order] for own, order in zip(values, orders, strict=True)])

    def _donors_of(self, batch: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        return torch.tensor([self._donors[row] for row in _numbers(batch)])

    def _elsewhere(
        self,
        pattern: Float[Tensor, "batch query key"],
        where: Bool[Tensor, "batch query key"],
        visible: Bool[Tensor, "query key"],
        batch: Int[Tensor, " batch"],
        at: tuple[int, int],
    ) -> Float[Tensor, "batch query key"]:
        """Fraction of each key's attention to ablate instead; see `as_much_elsewhere`."""
        numbers = _numbers(batch)
        order = torch.stack([_order(self.seed, row, at, pattern.shape[1:]) for row in numbers])
        return as_much_elsewhere(pattern, where, visible, order.to(pattern.device))


def as_much_elsewhere(
    pattern: Float[Tensor, "batch query key"],
    targets: Bool[Tensor, "batch query key"],
    visible: Bool[Tensor, "query key"],
    order: Float[Tensor, "batch query key"],
) -> Float[Tensor, "batch query key"]:
    """Fraction of the attention to other keys that is as much as the attention to the targets.

    Visible keys of every query with targets are taken in ascending `order`, the last of them only
    in part. If all other keys have less attention than the targets, all are taken.
    """
    target_attention = (pattern * targets).sum(-1, keepdim=True)
    others = visible & ~targets & targets.any(-1, keepdim=True)
    ranked = torch.where(others, order, torch.inf).argsort(-1)
    paid = torch.where(others, pattern, 0.0).gather(-1, ranked)
    before = paid.cumsum(-1) - paid
    part = ((target_attention - before) / paid.clamp_min(1e-30)).clamp(0, 1)
    taken = part * others.gather(-1, ranked)
    return torch.zeros_like(taken).scatter(-1, ranked, taken)


def _taken(
    pattern: Float[Tensor, "batch query key"],
    where: Float[Tensor, "batch query key"],
    way: Way,
) -> tuple[Float[Tensor, "batch query key"], Float[Tensor, "batch query 1"]]:
    """Attention after the knockout, and the ablated attention without a replacement."""
    if way == "renormalize":
        return renormalized(pattern, where)
    left = pattern * (1 - where)
    return left, pattern.sum(-1, keepdim=True) - left.sum(-1, keepdim=True)


def renormalized(
    pattern: Float[Tensor, "... query key"], where: Float[Tensor, "... query key"]
) -> tuple[Float[Tensor, "... query key"], Float[Tensor, "... query 1"]]:
    """Attention scaled up after the knockout; the ablated attention where too little is left."""
    left = pattern * (1 - where)
    remaining, whole = left.sum(-1, keepdim=True), pattern.sum(-1, keepdim=True)
    scalable = remaining > LEAST_LEFT * whole
    scaled = left * torch.where(scalable, whole / remaining.clamp_min(1e-30), 1.0)
    changed = (where > 0).any(-1, keepdim=True)
    missing = torch.where(changed & ~scalable, whole - remaining, 0.0)
    return torch.where(changed, scaled, pattern), missing


def _order(seed: int, row: int, at: tuple[int, ...], shape: Sequence[int]) -> Float[Tensor, "..."]:
    """Random numbers that depend on the prompt and the head, but not on the batch."""
    state = np.random.SeedSequence([seed, row, *at]).generate_state(1)[0]
    generator = torch.Generator().manual_seed(int(state))
    return torch.rand(tuple(shape), generator=generator)


def _numbers(rows: Int[Tensor, " row"]) -> list[int]:
    """Indices of prompts, which are on the host, as numbers."""
    numbers: list[int] = rows.numpy().tolist()
    return numbers


def hook_v(layer: int) -> str:
    """Name of the hook point of a layer's values."""
    return f"blocks.{layer}.attn.hook_v"


class _Live:
    """Attention patterns, values and outputs of some layers in the current pass."""

    def __init__(self, model: Model, layers: Sequence[int], points: Mapping[str, Any]):
        self._model, self._layers, self._points = model, layers, points
        self.n_heads = int(model.cfg.n_heads)
        self._captured: dict[tuple[str, int], Tensor] = {}

    def late(self) -> bool:
        """Whether the first of the layers exposes its pattern only after its output."""
        order: list[str] = []
        hooks = [
            (self._point(part, self._layers[0]), lambda value, hook, part=part: order.append(part))
            for part in ("pattern", "z")
        ]
        run(self._model, probe_tokens(self._model), hooks)
        return order.index("z") < order.index("pattern")

    def watch(
        self,
        edits: Mapping[int, Callable[..., Tensor]] | None = None,
        only: Sequence[int] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Hooks that capture patterns and values, and capture or edit outputs."""
        hooks: list[tuple[Any, Any]] = []
        for layer in self._layers if only is None else only:
            for part in ("pattern", "v"):
                hooks.append((self._point(part, layer), self._keep(part, layer)))
            if edits is None:
                hooks.append((self._point("z", layer), self._keep("z", layer)))
        return hooks + self.edits(edits or {})

    def edits(self, edits: Mapping[int, Callable[..., Tensor]]) -> list[tuple[Any, Any]]:
        """Hooks that edit outputs with the captured patterns."""
        return [(self._point("z", layer), edit) for layer, edit in edits.items()]

    def not_attention_times_values(self) -> int | None:
        """First layer whose `hook_z` is not attention times values; None if there is none."""
        return next((n for n in self._layers if not self._agrees(n)), None)

    def _agrees(self, layer: int) -> bool:
        z, pattern = self._captured["z", layer], self._captured["pattern", layer]
        if pattern.ndim != 4 or z.ndim != 4 or bool((pattern < 0).any()):
            return False
        pattern = self.pattern(layer)
        made = [
            pattern[:, head].to(z) @ self.values(layer, head).to(z) for head in range(self.n_heads)
        ]
        apart = (torch.stack(made, dim=2) - z).abs().max()
        return bool(apart <= TOLERANCE * z.abs().max().clamp_min(1e-12))

    def pattern(self, layer: int) -> Float[Tensor, "batch head query key"]:
        """Captured attention pattern of a layer."""
        pattern = self._captured["pattern", layer]
        values = self._captured["v", layer]
        return pattern.expand(len(values), -1, -1, -1) if len(pattern) == 1 else pattern

    def values(self, layer: int, head: int) -> Float[Tensor, "batch key d_head"]:
        """Captured values of a query head, which other query heads may share."""
        values = self._captured["v", layer]
        return values[:, :, head * values.shape[2] // self.n_heads]

    def _point(self, part: str, layer: int) -> Any:
        name = f"blocks.{layer}.attn.hook_{part}"
        if name not in self._points:
            raise InterventionError(
                f"layer {layer} has no hook_{part}, so its attention cannot be knocked out"
            )
        return self._points[name]

    def _keep(self, part: str, layer: int) -> Callable[..., None]:
        def keep(value: Any, hook: Any) -> None:
            self._captured[part, layer] = value.detach()

        return keep
