"""The causal check of roles: ablate heads at the answer's position and measure the metric again.

A head's output at the answer's position is replaced by its mean over the other prompts, and the
model is run from that layer on. The loss is reported as a fraction of the logit difference, with
intervals that are simultaneous over all ablated heads. For a possible S-inhibition head, three more
numbers are measured: its direct effect on the logits, its effect through later layers, and whether
the name movers then attend more to the wrong token and less to the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.heads.patterns import pattern_points
from interp_toolkit.circuits.metrics.causal_words import CausalWord, causal_word
from interp_toolkit.circuits.metrics.replacement import hook_z
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.circuits.roles.reading import Queries, Writing, preference
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.interventions import require_heads
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    itemsize_of,
    parse_memory,
    rows_that_fit,
)
from interp_toolkit.models.running.restart import can_restart, entry, run_from
from interp_toolkit.models.running.stages import Store, not_stored
from interp_toolkit.models.weights.precision import at_least_single
from interp_toolkit.stats import COVERAGE, UNSEEN, Estimate, Share, estimate

HeadSet = frozenset[Head]


@dataclass(frozen=True)
class RoleCheck:
    """The effect of ablating some heads on the preference for the answer.

    Attributes:
        heads: the ablated heads.
        loss: fraction of the logit difference that is lost.
        direct: fraction that is lost directly at the logits.
        downstream: fraction that is lost through later layers.
        shift: rise of (the name movers' attention to the wrong token minus their attention to the
            answer); None without name movers in later layers.
        word: the causal word of the loss.
    """

    heads: tuple[Head, ...]
    loss: Share
    direct: Share
    downstream: Share
    shift: Share | None
    word: CausalWord


@dataclass(frozen=True, eq=False)
class RoleChecks:
    """Runs prompts with sets of heads ablated.

    Attributes:
        model: any TransformerLens model.
        writing: direct effects in the intact model.
        movers: name movers, whose attention is recorded.
        memory: bound for a batch.
        progress: called with a description of each step.
        store: keeps the effects of each set on each batch.
    """

    model: Model
    writing: Writing
    movers: Sequence[Head]
    memory: int | str | None = None
    progress: Callable[[str], None] = field(default=lambda step: None, repr=False)
    store: Store = field(default=not_stored, repr=False)

    @torch.no_grad()
    def of(self, sets: Sequence[HeadSet]) -> list[RoleCheck]:
        """The effects of ablating each set of heads.

        Raises InterventionError if the model ignores edits of its heads.
        """
        if not sets:
            return []
        require_heads(self.model, sorted(frozenset[Head]().union(*sets)))
        queries, n = self.writing.queries, len(self.writing.queries)
        ablation_value = _means_of_others(self.writing.reading.z, queries)
        lost, shifts = np.empty((len(sets), n)), np.full((len(sets), n), np.nan)
        intact = self.writing.difference()
        restart = can_restart(self.model)
        for start in range(0, n, self._size()):
            at = slice(start, min(start + self._size(), n))
            entries = self._entries(sets, at) if restart else {}
            for number, out in enumerate(sets):
                self.progress(f"ablating sets of heads, {number + 1} of {len(sets)}")
                name = f"without {sorted(out)}, watching {sorted(self.movers)}, {at}"
                effects = partial(self._effects, out, at, intact, ablation_value, entries)
                lost[number, at], shifts[number, at] = self.store(name, effects)
        direct = np.stack([self._direct(out, ablation_value) for out in sets])
        return _conclude(queries, sets, intact, lost, direct, shifts)

    def _effects(
        self,
        out: HeadSet,
        at: slice,
        intact: Float[np.ndarray, " query"],
        ablation_value: Tensor,
        entries: dict[str, Tensor],
    ) -> Float[np.ndarray, "effect some"]:
        """Losses, and shifts of the movers' attention, without these heads."""
        final, patterns = self._without(out, at, ablation_value, entries)
        lost = intact[at] - self.writing.difference_of(final, at)
        return np.stack([lost, np.broadcast_to(self._watched(out, patterns, at), lost.shape)])

    def _size(self) -> int:
        n_pos = self.writing.queries.tokens.shape[1]
        itemsize = itemsize_of(self.model)
        n_stored = self.writing.view.n_layers * self.writing.view.d_model * n_pos
        row = bytes_per_row(self.model.cfg, n_pos, itemsize, logits=True, n_stored=n_stored)
        return rows_that_fit(parse_memory(self.memory), row, n_pos)

    def _tokens(self, at: slice) -> Tensor:
        return torch.from_numpy(self.writing.queries.tokens[at])

    def _entries(self, sets: Sequence[HeadSet], at: slice) -> dict[str, Tensor]:
        """Inputs of the first layer of each set in the intact model, from one pass."""
        points = hook_points(self.model)
        names = sorted({entry(min(out).layer) for out in sets})
        entries: dict[str, Tensor] = {}

        def keep(value: Tensor, hook: Any, *, name: str) -> None:
            entries[name] = value.detach().clone()
            if len(entries) == len(names):
                raise StopForwardError

        run(self.model, self._tokens(at), [(points[n], partial(keep, name=n)) for n in names])
        return entries

    def _without(
        self, out: HeadSet, at: slice, ablation_value: Tensor, entries: dict[str, Tensor]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """The final residual stream at the answer position, and the movers' attention there."""
        points, patterns = hook_points(self.model), pattern_points(self.model)
        positions = torch.from_numpy(self.writing.queries.position[at])
        first = min(out).layer
        hooks: list[tuple[Any, Callable[..., Any]]] = []
        for layer in sorted({head.layer for head in out}):
            heads = sorted(head.head for head in out if head.layer == layer)
            values = ablation_value[layer, at][:, heads]
            put = partial(_put, positions=positions, heads=heads, values=values)
            hooks.append((points[hook_z(layer)], put))
        last = f"blocks.{self.writing.view.n_layers - 1}.hook_resid_post"
        ends: list[Tensor] = []
        by_layer: dict[int, Tensor] = {}
        for layer in {mover.layer for mover in self._behind(out)}:
            hooks.append(
                (
                    patterns[layer],
                    partial(_keep, patterns=by_layer, layer=layer, positions=positions),
                )
            )
        hooks.append((points[last], partial(_end, ends=ends, positions=positions)))
        tokens = self._tokens(at)
        if entry(first) in entries:
            run_from(self.model, entries[entry(first)], first, tokens, hooks)
        else:
            run(self.model, tokens, hooks)
        return ends[0], by_layer

    def _behind(self, out: HeadSet) -> list[Head]:
        """The name movers in layers after those of the ablated heads."""
        last = max(out).layer
        return [mover for mover in self.movers if mover.layer > last and mover not in out]

    def _watched(
        self, out: HeadSet, patterns: dict[int, Tensor], at: slice
    ) -> Float[np.ndarray, " query"]:
        """Rise of the movers' attention to the wrong token minus the rise of that to the answer."""
        queries, behind = self.writing.queries, self._behind(out)
        if queries.wrong is None or not behind:
            return np.full(at.stop - at.start, np.nan)
        weight = (queries.holding(queries.wrong).astype(float) - queries.holding(queries.answer))[
            at
        ]
        rises = []
        for layer, head in behind:
            now = patterns[layer][:, head].numpy()
            before = self.writing.reading.attention[layer, head, at]
            rises.append(((now - before) * weight).sum(-1))
        mean: np.ndarray = np.mean(rises, axis=0)
        return mean

    def _direct(self, out: HeadSet, ablation_value: Tensor) -> Float[np.ndarray, " query"]:
        """The direct effect of the ablation on the logit difference."""
        queries, hand = self.writing.queries, self.writing.queries.at_hand
        total = np.zeros(len(queries))
        for layer, head in sorted(out):
            change = self.writing.reading.z[layer] - ablation_value[layer]
            written = self.writing.of_heads(layer, change)
            total += preference(self.writing.on(written, hand), hand, queries)[:, head]
        return total


def logit_difference_check(difference: Float[np.ndarray, " row"]) -> TaskCheck:
    """The logit difference as a task's metric, with chance 0; effects are fractions of it."""
    value = estimate(difference)
    text = f"the logit difference is {value.mean:.3g}"
    return TaskCheck(value.low > 0, value, 0.0, float("nan"), text, "logits")


def _means_of_others(
    z: Float[Tensor, "layer query head d_head"], queries: Queries
) -> Float[Tensor, "layer query head d_head"]:
    """For each query, the mean over the same query of the other prompts."""
    by_slot = z.double().reshape(len(z), -1, queries.slots, *z.shape[2:])
    others = (by_slot.sum(1, keepdim=True) - by_slot) / (by_slot.shape[1] - 1)
    flat: Tensor = others.flatten(1, 2).to(z)
    return flat


def _put(z: Tensor, hook: Any, *, positions: Tensor, heads: list[int], values: Tensor) -> Tensor:
    edited = z.clone()
    rows = torch.arange(len(z), device=z.device)[:, None]
    values = values[..., : z.shape[-1]].to(z)
    edited[rows, positions.to(z.device)[:, None], torch.tensor(heads, device=z.device)] = values
    return edited


def _keep(
    pattern: Tensor, hook: Any, *, patterns: dict[int, Tensor], layer: int, positions: Tensor
) -> None:
    rows = torch.arange(len(pattern), device=pattern.device)
    at = pattern.detach().movedim(2, 1)[rows, positions.to(pattern.device)]
    patterns[layer] = at.to(torch.promote_types(at.dtype, torch.float32)).cpu()


def _end(stream: Tensor, hook: Any, *, ends: list[Tensor], positions: Tensor) -> None:
    """Hook that records the unembedding's input at the answer position and stops the pass."""
    rows = torch.arange(len(stream), device=stream.device)
    ends.append(at_least_single(stream.detach()[rows, positions.to(stream.device)]).cpu())
    raise StopForwardError


def _conclude(
    queries: Queries,
    sets: Sequence[HeadSet],
    intact: Float[np.ndarray, " query"],
    lost: Float[np.ndarray, "set query"],
    direct: Float[np.ndarray, "set query"],
    shifts: Float[np.ndarray, "set query"],
) -> list[RoleCheck]:
    task_check = logit_difference_check(queries.by_row(intact))
    coverage = 1 - (1 - COVERAGE) / max(len(sets), 1)

    def over_rows(values: Float[np.ndarray, " query"]) -> Estimate:
        return estimate(queries.by_row(values), coverage, UNSEEN)

    checks = []
    for out, loss, at_once, shift in zip(sets, lost, direct, shifts, strict=True):
        share = task_check.share(over_rows(loss))
        moved = None if bool(np.isnan(shift).any()) else over_rows(shift)
        checks.append(
            RoleCheck(
                heads=tuple(sorted(out)),
                loss=share,
                direct=task_check.share(over_rows(at_once)),
                downstream=task_check.share(over_rows(loss - at_once)),
                shift=None if moved is None else Share(moved.mean, moved.low, moved.high),
                word=causal_word([[share]]),
            )
        )
    return checks
