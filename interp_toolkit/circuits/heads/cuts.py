"""Attention knockouts: attention from queries to an attention pattern's keys, taken away.

A head that attends to something need not matter by it. Here only that attention is taken away, in
one head or in several, and the metric is measured again (Geva et al. 2023, "Dissecting Recall of
Factual Associations in Auto-Regressive Language Models"). What stands in its place matters, so
there are three ways (see `rule` for what must hold in which):

- "renormalize": the rest of the head's attention is scaled up; where less than LEAST_LEFT of it
  remains there is nothing to scale, and the mean value stands in;
- "mean": the attention stays, but reads the head's mean value vector, over all rows and positions;
- "resample": the attention stays, but reads what another row has at random positions.

The control takes away as much attention, query by query, from other keys, in random order (all of
it where there is less). `output` replaces all that a head writes, by its mean over the other rows
or by another row's: attention whose output can be replaced at no cost does nothing.
Edits are made at `hook_z`, at the queries that have such keys, so that bridges
of both majors follow them; that `hook_z` is attention times values, and that edits there reach the
output, is checked first. Where a bridge shows a layer's pattern only after its `hook_z`, it is
taken from a pass of its own, with the edits of earlier layers made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import row_batches
from interp_toolkit.circuits.behaviour.replacement import OtherRows, capture, hook_z
from interp_toolkit.circuits.behaviour.task import RowTask
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.formatting import so_far
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.forward import device_of, probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import require_heads
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.running.restart import can_restart, entry, run_from
from interp_toolkit.models.running.streaming import position_sums
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.read import visibility

Way = Literal["renormalize", "mean", "resample"]
WAYS: tuple[Way, ...] = ("renormalize", "mean", "resample")

LEAST_LEFT = 1e-2  # of a head's attention: less is nothing that could be scaled up
TOLERANCE = 1e-2  # of hook_z: how far attention times values may lie from it, as a share


@dataclass(frozen=True)
class Cut:
    """One attention pattern knocked out in some heads, or all that some heads write replaced.

    Attributes:
        heads: in which the pattern is knocked out.
        relation: name of the pattern.
        way: what stands in for the attention, or for the output ("mean" or "resample").
        control: as much attention to other keys, instead of the pattern's.
        output: heads all of whose output is replaced.
    """

    heads: frozenset[Head] = frozenset()
    relation: str = ""
    way: Way = "renormalize"
    control: bool = False
    output: frozenset[Head] = frozenset()

    @property
    def layers(self) -> list[int]:
        """Layers that it edits, in order."""
        return sorted({head.layer for head in self.heads | self.output})


INTACT = Cut()


@dataclass(eq=False)
class _Pass:
    """A batch without edits: what the task reads off it, and what some hook points carried."""

    reading: Float[np.ndarray, "row column"]
    values: dict[str, Tensor]

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self.reading.nbytes + sum(t.nbytes for t in self.values.values())


@dataclass(frozen=True, eq=False)
class Cutter:
    """Runs a task's rows with knockouts.

    What hook points carry without edits is kept from one call to the next, as far as half the
    memory goes; the rest is computed again.

    Attributes:
        model: any TransformerLens model whose patterns are softmax.
        task: the rows and what is measured.
        targets: name of a pattern -> for some rows, its keys, [batch query key].
        memory: bound for the run.
        seed: of the controls.
        progress: told what is being done.
    """

    model: Model
    task: RowTask
    targets: Mapping[str, Callable[[Int[Tensor, " batch"]], Bool[np.ndarray, "batch q k"]]]
    memory: int | str | None = None
    seed: int = 0
    progress: Callable[[str], None] = field(default=lambda step: None, repr=False)

    @cached_property
    def _kept(self) -> dict[tuple[int, ...], _Pass]:
        """Passes without edits, by their rows."""
        return {}

    @cached_property
    def _checked(self) -> set[int]:
        """Layers whose attention can be edited."""
        return set()

    @cached_property
    def _means(self) -> dict[int, Float[Tensor, "head d_head"]]:
        """Mean values by layer, as far as they were needed."""
        return {}

    @cached_property
    def _outputs(self) -> dict[int, OtherRows]:
        """Means of what heads write over the other rows, by layer, as far as they were needed."""
        return {}

    @cached_property
    def _donors(self) -> dict[int, int]:
        """The row whose values stand in for each row's."""
        rows = self.task.rows.tolist()
        shift = int(np.random.default_rng(self.seed).integers(1, len(rows)))
        return dict(zip(rows, rows[shift:] + rows[:shift], strict=True))

    @cached_property
    def restarts(self) -> bool:
        """Whether a pass can begin at the first layer that is edited."""
        return can_restart(self.model)

    @cached_property
    def _entries(self) -> list[str]:
        """Hook points that a pass can begin at."""
        n_layers = int(self.model.cfg.n_layers)
        return [entry(n) for n in range(1, n_layers)] if self.restarts else []

    @cached_property
    def late(self) -> bool:
        """Whether patterns are shown after they were used, so that each layer takes a pass."""
        return _Live(self.model, [0]).late()

    def check(self, heads: Iterable[tuple[int, int]]) -> None:
        """Raise InterventionError where these heads' attention cannot be edited at `hook_z`.

        A layer is looked at once.
        """
        new = [head for head in heads if head[0] not in self._checked]
        if not new:
            return
        require_heads(self.model, new)
        tokens = self.task.prompts.tokens[self.task.rows[:2]]
        live = _Live(self.model, sorted({layer for layer, _ in new}))
        run(self.model, tokens, live.watch())
        off = live.not_attention_times_values()
        if off is not None:
            raise InterventionError(
                f"what the heads of layer {off} hold is not their attention times their "
                f"values in this {type(self.model).__name__}, so no relation of theirs can be cut"
            )
        self._checked.update(layer for layer, _ in new)

    def readings(
        self, cuts: Sequence[Cut], rows: Int[Tensor, " row"]
    ) -> dict[Cut, Float[np.ndarray, "row column"]]:
        """What the task reads off each row, under each cut (see `RowTask.read`).

        Args:
            cuts: any; INTACT among them is the whole model.
            rows: some of the task's.
        """
        layers = sorted({layer for cut in cuts for layer in cut.layers})
        if any(cut.heads for cut in cuts):
            self._add_mean_values(layers)
        parts: dict[Cut, list[np.ndarray]] = {cut: [] for cut in cuts}
        cfg, n_pos = self.model.cfg, self.task.prompts.n_pos
        kept = len(self._entries) * n_pos * int(cfg.d_model) + 6 * int(cfg.n_heads) * n_pos**2
        kept += 3 * len(layers) * n_pos * int(cfg.n_heads) * int(cfg.d_head)
        batches, room = self._batches(rows, kept)
        since = time.monotonic()
        for number, batch in enumerate(batches):
            for i, cut in enumerate(cuts):
                if i % 16 == 0:
                    done, total = number * len(cuts) + i, len(batches) * len(cuts)
                    relation = cut.relation or cuts[-1].relation
                    passes = so_far(done, total, since)
                    self.progress(f"knocking out attention ({relation}), {passes}")
                parts[cut].append(self._reading(cut, batch))
            self._trim(room)
        return {cut: np.concatenate(found) for cut, found in parts.items()}

    def _batches(
        self, rows: Int[Tensor, " row"], kept: int
    ) -> tuple[Sequence[Int[Tensor, " _"]], int]:
        """These rows in batches, and how many bytes are left to keep passes."""
        bound, prompts = parse_memory(self.memory), self.task.prompts
        with contextlib.suppress(InputError):  # half of it does not hold a row
            return row_batches(self.model, prompts, rows, kept, bound // 2), bound // 2
        return row_batches(self.model, prompts, rows, kept, bound), 0

    def _unedited(self, batch: Int[Tensor, " batch"], names: Sequence[str] = ()) -> _Pass:
        """The pass without edits, with what these hook points carry."""
        key = tuple(batch.tolist())
        kept = self._kept.get(key)
        missing = [name for name in names if kept is None or name not in kept.values]
        if kept is None or missing:
            tokens = self.task.prompts.tokens[batch].to(device_of(self.model))
            logits, values = capture(self.model, tokens, missing)
            reading = self.task.read(logits, batch) if kept is None else kept.reading
            kept = _Pass(reading, (kept.values if kept else {}) | values)
            self._kept[key] = kept
        return kept

    def _trim(self, room: int) -> None:
        """Drop kept passes, the oldest first, until what is left fits."""
        held = sum(one.size for one in self._kept.values())
        while held > room and self._kept:
            held -= self._kept.pop(next(iter(self._kept))).size

    def _reading(self, cut: Cut, batch: Int[Tensor, " batch"]) -> Float[np.ndarray, "row column"]:
        """What the task reads off these rows under a cut."""
        layers = cut.layers
        if not layers:
            return self._unedited(batch, self._entries).reading
        start = entry(layers[0]) if self.restarts and layers[0] > 0 else None
        own = self._unedited(batch, self._entries)
        tokens = self.task.prompts.tokens[batch].to(device_of(self.model))
        live = _Live(self.model, layers)
        targets = None
        if cut.heads:
            targets = torch.from_numpy(self.targets[cut.relation](batch)).to(tokens.device)
        edits = {n: self._edit(live, cut, n, targets, batch) for n in layers}

        def go(hooks: list[tuple[Any, Any]]) -> Float[Tensor, "batch pos d_vocab"]:
            if start is None:
                logits = run(self.model, tokens, hooks)
            else:
                logits = run_from(self.model, own.values[start], layers[0], tokens, hooks)
            assert logits is not None
            return logits

        if not self.late:
            return self.task.read(go(live.watch(edits)), batch)
        for number, layer in enumerate(layers):
            go([*live.watch(only=[layer]), *live.edits({n: edits[n] for n in layers[:number]})])
        return self.task.read(go(live.edits(edits)), batch)

    def _edit(
        self,
        live: _Live,
        cut: Cut,
        layer: int,
        targets: Bool[Tensor, "batch query key"] | None,
        batch: Int[Tensor, " batch"],
    ) -> Callable[..., Tensor]:
        """The hook at `hook_z` that makes a cut in this layer's heads."""
        heads = sorted(h.head for h in cut.heads - cut.output if h.layer == layer)
        replaced = sorted(h.head for h in cut.output if h.layer == layer)
        stand_in = self._output(cut.way, layer, batch) if replaced else None
        values = self._donor_values(layer, batch) if heads and cut.way == "resample" else None

        def edit(z: Float[Tensor, "batch pos head d_head"], hook: Any) -> Tensor:
            edited = z.clone()
            for head in replaced:
                assert stand_in is not None
                edited[:, :, head] = stand_in[:, :, head].to(z)
            if not heads:
                return edited
            assert targets is not None
            seen = visible_pairs(*visibility(self.model, layer), targets.shape[1])
            seen = seen.to(targets.device)
            for head in heads:
                pattern = at_least_single(live.pattern(layer)[:, head])
                where = targets & seen
                if cut.control:
                    where = self._elsewhere(pattern, where, seen, batch, (layer, head))
                left, missing = _taken(pattern, where, cut.way)
                # made anew, not as a change to z: what rounding leaves of a difference could
                # decide between logits that are otherwise equal
                made = left.to(z) @ live.values(layer, head).to(z)
                if values is not None:
                    other = values[:, :, head * values.shape[2] // live.n_heads]
                    made = made + (pattern * where).to(z) @ other.to(z)
                else:
                    made = made + missing.to(z) * self._means[layer][head].to(z)
                changed = where.any(-1, keepdim=True)
                edited[:, :, head] = torch.where(changed, made, z[:, :, head])
            return edited

        return edit

    def _output(self, way: Way, layer: int, batch: Int[Tensor, " batch"]) -> Tensor:
        """What stands in for all that the heads of a layer write in these rows."""
        name = hook_z(layer)
        if way == "resample":
            return self._unedited(self._donors_of(batch), [name]).values[name]
        if layer not in self._outputs:
            tokens = self.task.prompts.tokens[self.task.rows]
            self._outputs[layer] = OtherRows(self.model, tokens, [layer], self.memory)
        return self._outputs[layer].mean(layer, self._unedited(batch, [name]).values[name])

    def _donor_values(
        self, layer: int, batch: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch key kv_head d_head"]:
        """Values of another row for each of these, its positions in random order."""
        name = f"blocks.{layer}.attn.hook_v"
        values = self._unedited(self._donors_of(batch), [name]).values[name]
        n_pos = values.shape[1]
        orders = [_order(self.seed, row, (layer,), (n_pos,)).argsort() for row in batch]
        return torch.stack([own[order] for own, order in zip(values, orders, strict=True)])

    def _donors_of(self, batch: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        return torch.tensor([self._donors[row] for row in batch.tolist()])

    def _elsewhere(
        self,
        pattern: Float[Tensor, "batch query key"],
        where: Bool[Tensor, "batch query key"],
        seen: Bool[Tensor, "query key"],
        batch: Int[Tensor, " batch"],
        at: tuple[int, int],
    ) -> Bool[Tensor, "batch query key"]:
        """Keys that are no targets, in random order, until they hold as much attention."""
        order = torch.stack([_order(self.seed, row, at, pattern.shape[1:]) for row in batch])
        return as_much_elsewhere(pattern, where, seen, order.to(pattern.device))

    def _add_mean_values(self, layers: Sequence[int]) -> None:
        """Each head's mean value vector over all rows and positions of the intact model."""
        missing = [n for n in layers if n not in self._means]
        if not missing:
            return
        names = [f"blocks.{n}.attn.hook_v" for n in missing]
        tokens = self.task.prompts.tokens[self.task.rows]
        sums, counts = position_sums(self.model, tokens, names, memory=self.memory)
        n_heads = int(self.model.cfg.n_heads)
        for layer, total in sums.items():
            mean = total.sum(0) / float(counts.sum())
            self._means[layer] = mean.repeat_interleave(n_heads // len(mean), dim=0)


def as_much_elsewhere(
    pattern: Float[Tensor, "batch query key"],
    targets: Bool[Tensor, "batch query key"],
    seen: Bool[Tensor, "query key"],
    order: Float[Tensor, "batch query key"],
) -> Bool[Tensor, "batch query key"]:
    """For every query with targets, other visible keys, by order, until they hold as much.

    The last key taken may go beyond; where all others hold less, all are taken.
    """
    wanted = (pattern * targets).sum(-1, keepdim=True)
    others = seen & ~targets & targets.any(-1, keepdim=True)
    ranked = torch.where(others, order, torch.inf).argsort(-1)
    paid = torch.where(others, pattern, 0.0).gather(-1, ranked)
    before = paid.cumsum(-1) - paid
    taken = (before < wanted) & others.gather(-1, ranked)
    return torch.zeros_like(taken).scatter(-1, ranked, taken)


def _taken(
    pattern: Float[Tensor, "batch query key"],
    where: Bool[Tensor, "batch query key"],
    way: Way,
) -> tuple[Float[Tensor, "batch query key"], Float[Tensor, "batch query 1"]]:
    """The attention that is left, and how much was taken without anything in its place."""
    left = pattern.masked_fill(where, 0.0)
    remaining, whole = left.sum(-1, keepdim=True), pattern.sum(-1, keepdim=True)
    if way != "renormalize":
        return left, whole - remaining
    scalable = remaining > LEAST_LEFT * whole
    scaled = left * torch.where(scalable, whole / remaining.clamp_min(1e-30), 1.0)
    changed = where.any(-1, keepdim=True)
    missing = torch.where(changed & ~scalable, whole - remaining, 0.0)
    return torch.where(changed, scaled, pattern), missing


def _order(
    seed: int, row: Tensor, at: tuple[int, ...], shape: Sequence[int]
) -> Float[Tensor, "..."]:
    """Random numbers that belong to this row and head, whatever batch it runs in."""
    drawn = np.random.SeedSequence([seed, int(row), *at]).generate_state(1)[0]
    generator = torch.Generator().manual_seed(int(drawn))
    return torch.rand(tuple(shape), generator=generator)


class _Live:
    """Attention patterns, values and outputs of some layers, as they pass by."""

    def __init__(self, model: Model, layers: Sequence[int]):
        self._model, self._layers = model, layers
        self._points = hook_points(model)
        self.n_heads = int(model.cfg.n_heads)
        self._seen: dict[tuple[str, int], Tensor] = {}

    def late(self) -> bool:
        """Whether the first of the layers shows its pattern only after its output."""
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
        """Hooks that keep patterns and values, and outputs or edits of them."""
        found: list[tuple[Any, Any]] = []
        for layer in self._layers if only is None else only:
            for part in ("pattern", "v"):
                found.append((self._point(part, layer), self._keep(part, layer)))
            if edits is None:
                found.append((self._point("z", layer), self._keep("z", layer)))
        return found + self.edits(edits or {})

    def edits(self, edits: Mapping[int, Callable[..., Tensor]]) -> list[tuple[Any, Any]]:
        """Hooks that edit outputs, of patterns seen before."""
        return [(self._point("z", layer), edit) for layer, edit in edits.items()]

    def not_attention_times_values(self) -> int | None:
        """The first layer whose output is something else; None where there is none."""
        return next((n for n in self._layers if not self._agrees(n)), None)

    def _agrees(self, layer: int) -> bool:
        z, pattern = self._seen["z", layer], self._seen["pattern", layer]
        if pattern.ndim != 4 or z.ndim != 4 or bool((pattern < 0).any()):
            return False
        pattern = self.pattern(layer)
        made = [
            pattern[:, head].to(z) @ self.values(layer, head).to(z) for head in range(self.n_heads)
        ]
        apart = (torch.stack(made, dim=2) - z).abs().max()
        return bool(apart <= TOLERANCE * z.abs().max().clamp_min(1e-12))

    def pattern(self, layer: int) -> Float[Tensor, "batch head query key"]:
        """Of this pass."""
        pattern = self._seen["pattern", layer]
        values = self._seen["v", layer]
        return pattern.expand(len(values), -1, -1, -1) if len(pattern) == 1 else pattern

    def values(self, layer: int, head: int) -> Float[Tensor, "batch key d_head"]:
        """A query head's values; several may share them."""
        values = self._seen["v", layer]
        return values[:, :, head * values.shape[2] // self.n_heads]

    def _point(self, part: str, layer: int) -> Any:
        name = f"blocks.{layer}.attn.hook_{part}"
        if name not in self._points:
            raise InterventionError(f"layer {layer} has no hook_{part}, so no relation can be cut")
        return self._points[name]

    def _keep(self, part: str, layer: int) -> Callable[..., None]:
        def keep(value: Any, hook: Any) -> None:
            self._seen[part, layer] = value.detach()

        return keep
