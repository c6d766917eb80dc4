"""Cutting a relation, not only a head: attention from queries to a relation's targets, taken away.

A head that attends to something need not matter by it. Here only that attention is taken away, in
one head or in several, and the behaviour is measured again (attention knockout; Geva et al. 2023,
"Dissecting Recall of Factual Associations in Auto-Regressive Language Models"). What stands in for
it matters, so there are two ways, and what is claimed must hold in both (`words`):

- "renormalise": the rest of the head's attention is scaled up to fill the place;
- "mean": the attention stays, but what it fetches is the head's mean value vector, over all rows
  and positions.

The control takes away as much attention, query by query, from keys that are no targets, in random
order (all of them where there is less). Edits are made at `hook_z`, to which the change of
attention times values is added, so that bridges of both majors follow them; that `hook_z` is
attention times values, and that edits there reach the output, is checked first. Where a bridge
shows a layer's pattern only after its `hook_z`, the pattern is taken from a pass of its own, with
the cuts of earlier layers made.
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
from interp_toolkit.circuits.behaviour.replacement import capture
from interp_toolkit.circuits.behaviour.task import RowTask
from interp_toolkit.countdown import so_far
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.heads import Head
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of, probe_tokens, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import require_heads
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.running.position_sums import position_sums
from interp_toolkit.models.running.restart import can_restart, entry, run_from
from interp_toolkit.models.weights.parts import visible_pairs
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.models.weights.read import visibility

Way = Literal["renormalise", "mean"]
WAYS: tuple[Way, ...] = ("renormalise", "mean")

LEAST_LEFT = 1e-6  # of a head's attention: less is nothing that could be scaled up
TOLERANCE = 1e-2  # of hook_z: how far attention times values may lie from it, as a share


@dataclass(frozen=True)
class Cut:
    """One relation taken away in some heads.

    Attributes:
        heads: which; none is the intact model.
        relation: name of the relation.
        way: what stands in for the attention.
        control: as much attention from elsewhere, instead of the relation's.
    """

    heads: frozenset[Head] = frozenset()
    relation: str = ""
    way: Way = "renormalise"
    control: bool = False


INTACT = Cut()


@dataclass(frozen=True, eq=False)
class _Intact:
    """A batch without cuts: what the task reads off it, and what enters its layers."""

    reading: Float[np.ndarray, "row column"]
    entering: Mapping[str, Tensor]


def _size(intact: _Intact) -> int:
    """Bytes that it takes."""
    return intact.reading.nbytes + sum(t.nbytes for t in intact.entering.values())


@dataclass(frozen=True, eq=False)
class Cutter:
    """Runs a task's rows with cuts.

    Attributes:
        model: any TransformerLens model whose patterns are softmax.
        task: the rows and what is measured.
        targets: relation -> for some rows, where its targets are, [batch query key].
        memory: bound for the run.
        seed: of the controls.
        progress: told what is being done.
        keeps: whether what enters the layers is kept from one call to the next, for callers that
            ask for a few cuts at a time; as much of it as half the memory holds, the rest is
            computed again.
    """

    model: Model
    task: RowTask
    targets: Mapping[str, Callable[[Int[Tensor, " batch"]], Bool[np.ndarray, "batch q k"]]]
    memory: int | str | None = None
    seed: int = 0
    progress: Callable[[str], None] = field(default=lambda step: None, repr=False)
    keeps: bool = False

    @cached_property
    def _kept(self) -> dict[tuple[int, ...], _Intact]:
        """The intact passes of the batches seen last, where they are kept."""
        return {}

    @cached_property
    def _again(self) -> dict[tuple[int, ...], int]:
        """How often each batch that could not be kept was run without cuts."""
        return {}

    @property
    def repeated(self) -> float:
        """Passes without cuts that were made again, in passes over the task's rows."""
        rows = sum(len(batch) * (times - 1) for batch, times in self._again.items())
        return rows / len(self.task.rows)

    @cached_property
    def _checked(self) -> set[int]:
        """Layers whose attention can be edited."""
        return set()

    @cached_property
    def _means(self) -> dict[int, Float[Tensor, "head d_head"]]:
        """Mean values by layer, as far as they were asked for."""
        return {}

    @cached_property
    def restarts(self) -> bool:
        """Whether a pass can begin at the first layer that is cut."""
        return can_restart(self.model)

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
        layers = sorted({head.layer for cut in cuts for head in cut.heads})
        means = self._mean_values(layers) if any(c.way == "mean" for c in cuts) else {}
        everywhere = range(int(self.model.cfg.n_layers)) if self.keeps else layers
        restarts = [n for n in everywhere if n > 0] if self.restarts else []
        parts: dict[Cut, list[np.ndarray]] = {cut: [] for cut in cuts}
        cfg, n_pos = self.model.cfg, self.task.prompts.n_pos
        kept = len(restarts) * n_pos * int(cfg.d_model) + 6 * int(cfg.n_heads) * n_pos**2
        batches, room = self._batches(rows, kept)
        since = time.monotonic()
        for number, batch in enumerate(batches):
            tokens = self.task.prompts.tokens[batch].to(device_of(self.model))
            intact = self._intact(batch, tokens, restarts, room)
            for i, cut in enumerate(cuts):
                if i % 16 == 0 and not self.keeps:
                    done, total = number * len(cuts) + i, len(batches) * len(cuts)
                    relation = cut.relation or cuts[-1].relation
                    passes = so_far(done, total, since)
                    self.progress(f"cutting attention ({relation}), {passes}")
                if cut.heads:
                    logits = self._cut(cut, batch, tokens, intact.entering, means)
                    parts[cut].append(self.task.read(logits, batch))
                else:
                    parts[cut].append(intact.reading)
        return {cut: np.concatenate(found) for cut, found in parts.items()}

    def _batches(
        self, rows: Int[Tensor, " row"], kept: int
    ) -> tuple[Sequence[Int[Tensor, " _"]], int]:
        """These rows in batches, and how many bytes are left to keep what enters layers."""
        bound, prompts = parse_memory(self.memory), self.task.prompts
        if self.keeps:
            with contextlib.suppress(InputError):  # half of it does not hold a row
                return row_batches(self.model, prompts, rows, kept, bound // 2), bound // 2
        return row_batches(self.model, prompts, rows, kept, bound), 0

    def _intact(
        self,
        batch: Int[Tensor, " batch"],
        tokens: Int[Tensor, "batch pos"],
        layers: Sequence[int],
        room: int,
    ) -> _Intact:
        """The pass without cuts, of this call or of one before; kept where there is room."""
        key = tuple(batch.tolist())
        if key in self._kept:
            return self._kept[key]
        whole, entering = capture(self.model, tokens, [entry(n) for n in layers])
        intact = _Intact(self.task.read(whole, batch), entering)
        held = sum(map(_size, self._kept.values()))
        if self.keeps and held + _size(intact) <= room:
            self._kept[key] = intact
        elif self.keeps:
            self._again[key] = self._again.get(key, 0) + 1
        return intact

    def _cut(
        self,
        cut: Cut,
        batch: Int[Tensor, " batch"],
        tokens: Int[Tensor, "batch pos"],
        seen: Mapping[str, Tensor],
        means: Mapping[int, Float[Tensor, "head d_head"]],
    ) -> Float[Tensor, "batch pos d_vocab"]:
        layers = sorted({head.layer for head in cut.heads})
        live = _Live(self.model, layers)
        targets = torch.from_numpy(self.targets[cut.relation](batch)).to(tokens.device)
        edits = {n: self._edit(live, cut, n, targets, batch, means) for n in layers}
        start = seen.get(entry(layers[0]))

        def go(hooks: list[tuple[Any, Any]]) -> Float[Tensor, "batch pos d_vocab"]:
            if start is None:
                logits = run(self.model, tokens, hooks)
            else:
                logits = run_from(self.model, start, layers[0], tokens, hooks)
            assert logits is not None
            return logits

        if not self.late:
            return go(live.watch(edits))
        for number, layer in enumerate(layers):
            go([*live.watch(only=[layer]), *live.edits({n: edits[n] for n in layers[:number]})])
        return go(live.edits(edits))

    def watching(self, layers: Sequence[int]) -> _Live:
        """What keeps patterns and values of these layers, while hooks of its `watch` are on."""
        return _Live(self.model, layers)

    def change(
        self, live: _Live, targets: Bool[Tensor, "batch query key"], head: Head
    ) -> Float[Tensor, "batch pos d_head"]:
        """What cutting a relation adds at `hook_z` of one head, the rest scaled up.

        Args:
            live: that watched a pass over these rows.
            targets: of the relation.
            head: which.
        """
        pattern = at_least_single(live.pattern(head.layer)[:, head.head])
        visible = visible_pairs(*visibility(self.model, head.layer), targets.shape[1])
        visible, targets = visible.to(pattern.device), targets.to(pattern.device)
        left, _ = _taken(pattern, targets & visible, visible, "renormalise")
        values = live.values(*head)
        return (left - pattern).to(values) @ values

    def _edit(
        self,
        live: _Live,
        cut: Cut,
        layer: int,
        targets: Bool[Tensor, "batch query key"],
        batch: Int[Tensor, " batch"],
        means: Mapping[int, Float[Tensor, "head d_head"]],
    ) -> Callable[..., Tensor]:
        """The hook at `hook_z` that takes the attention of this layer's heads away."""
        seen = visible_pairs(*visibility(self.model, layer), targets.shape[1]).to(targets.device)

        def edit(z: Float[Tensor, "batch pos head d_head"], hook: Any) -> Tensor:
            edited = z.clone()
            for head in sorted(h.head for h in cut.heads if h.layer == layer):
                pattern = at_least_single(live.pattern(layer)[:, head])
                where = targets & seen
                if cut.control:
                    where = self._elsewhere(pattern, where, seen, batch, (layer, head))
                left, stands_in = _taken(pattern, where, seen, cut.way)
                change = (left - pattern).to(z) @ live.values(layer, head).to(z)
                if cut.way == "mean":
                    change = change + stands_in.to(z) * means[layer][head].to(z)
                edited[:, :, head] += change
            return edited

        return edit

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

    def _mean_values(self, layers: Sequence[int]) -> dict[int, Float[Tensor, "head d_head"]]:
        """Each head's mean value vector over all rows and positions of the intact model."""
        wanted = range(int(self.model.cfg.n_layers)) if self.keeps else layers
        missing = [n for n in wanted if n not in self._means]
        if missing:
            names = [f"blocks.{n}.attn.hook_v" for n in missing]
            tokens = self.task.prompts.tokens[self.task.rows]
            sums, counts = position_sums(self.model, tokens, names, memory=self.memory)
            n_heads = int(self.model.cfg.n_heads)
            for layer, total in sums.items():
                mean = total.sum(0) / float(counts.sum())
                self._means[layer] = mean.repeat_interleave(n_heads // len(mean), dim=0)
        return self._means


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
    seen: Bool[Tensor, "query key"],
    way: Way,
) -> tuple[Float[Tensor, "batch query key"], Float[Tensor, "batch query 1"]]:
    """The attention that is left, and how much was taken without anything in its place."""
    left = pattern.masked_fill(where, 0.0)
    remaining, whole = left.sum(-1, keepdim=True), pattern.sum(-1, keepdim=True)
    if way == "mean":
        return left, whole - remaining
    others = (seen & ~where).to(pattern)
    count = others.sum(-1, keepdim=True)
    flat = torch.where(count > 0, others / count.clamp_min(1), pattern)
    scaled = torch.where(
        remaining > LEAST_LEFT, left * (whole / remaining.clamp_min(LEAST_LEFT)), flat * whole
    )
    nothing = torch.zeros_like(remaining)
    return torch.where(where.any(-1, keepdim=True), scaled, pattern), nothing


def _order(
    seed: int, row: Tensor, at: tuple[int, int], shape: Sequence[int]
) -> Float[Tensor, "query key"]:
    """Random numbers that belong to this row and head, whatever batch it runs in."""
    drawn = np.random.SeedSequence([seed, int(row), *at]).generate_state(1)[0]
    generator = torch.Generator().manual_seed(int(drawn))
    return torch.rand(tuple(shape), generator=generator)


class _Live:
    """Attention patterns, values and outputs of some layers, as they pass by."""

    def __init__(self, model: Model, layers: Sequence[int]):
        self._model, self._layers = model, layers
        self._points = hook_points(model)
        self._n_heads = int(model.cfg.n_heads)
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
            pattern[:, head].to(z) @ self.values(layer, head).to(z) for head in range(self._n_heads)
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
        return values[:, :, head * values.shape[2] // self._n_heads]

    def _point(self, part: str, layer: int) -> Any:
        name = f"blocks.{layer}.attn.hook_{part}"
        if name not in self._points:
            raise InterventionError(f"layer {layer} has no hook_{part}, so no relation can be cut")
        return self._points[name]

    def _keep(self, part: str, layer: int) -> Callable[..., None]:
        def keep(value: Any, hook: Any) -> None:
            self._seen[part, layer] = value.detach()

        return keep
