"""Are the heads responsible? Each is taken out, and the behaviour measured again.

The behaviour is the task's value (`metrics.task`): the share of the rows' answers that are right,
or minus the loss in nats where rows repeat, a number a row, paired over rows. For every head:

- its effect: the intact model's value less the value without the head;
- what it restores: with all heads of the group taken out, and the rest of their kind with them, the
  value that this one alone brings back. A head with a redundant twin has no effect by itself; here
  it shows.

Both stand beside the effects of other heads, drawn at random. A head is taken out at `hook_z` by
the mean of the other rows, another row's values, or zero (see `metrics.replacement`). Intervals
are simultaneous, over both figures of all heads (Bonferroni); the causal word follows from them by
the one rule of `metrics.causal_words`, each figure as a share of the metric. Where no head of the
group contributes alone and the group together does, "no effect found" would mislead: undecided.
Effects do not add up over heads: two heads in a row each have all of the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.metrics.causal_words import CausalWord, causal_word, matters
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.repetition import row_batches
from interp_toolkit.circuits.metrics.replacement import OtherRows, capture, hook_z
from interp_toolkit.circuits.metrics.task import CircuitTask, TaskCheck, task_of
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Countdown
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.forward import device_of, run
from interp_toolkit.models.running.interventions import HOWS, put_heads, require_heads
from interp_toolkit.models.running.restart import can_restart, entry, run_from
from interp_toolkit.stats import COVERAGE, Estimate

N_OTHERS = 10


@dataclass(frozen=True)
class HeadAblation:
    """The effect of ablating one head.

    Attributes:
        layer, head: which.
        effect, low, high: of the behaviour's value, lost without it, with its interval.
        restored, restored_low, restored_high: what it alone brings back when the whole group and
            heads of the same type are out; the effect itself where the head is the only one.
        others_mean, others_max: effects of other heads drawn at random; NaN without any.
        loss_intact, loss_ablated: nats at the asked places, with and without this head.
        word: see the module's rule.
    """

    layer: int
    head: int
    effect: float
    low: float
    high: float
    restored: float
    restored_low: float
    restored_high: float
    others_mean: float
    others_max: float
    loss_intact: float
    loss_ablated: float
    word: CausalWord


@dataclass(frozen=True, eq=False)
class Ablations:
    """The causal check of a group of heads.

    Attributes:
        heads: one entry for each, in the order given.
        task_check: what the whole model does on these rows.
        intact: its value, row by row.
        joint: effect of all heads of the group and of the same type together; None: an empty group.
        others: effects of the other heads, nats.
        how: what heads were replaced with.
        notes: what limits the check, a sentence each.
    """

    heads: Sequence[HeadAblation]
    task_check: TaskCheck
    intact: Float[np.ndarray, " row"]
    joint: Estimate | None
    others: Mapping[Head, float]
    how: str
    notes: Sequence[str]


def ablation_effects(
    model: Model,
    prompts: Prompts,
    heads: Iterable[tuple[int, int]],
    *,
    task: CircuitTask | None = None,
    same_type: Iterable[tuple[int, int]] = (),
    others: Iterable[tuple[int, int]] | None = None,
    how: str = "mean",
    n_others: int = N_OTHERS,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Ablations:
    """The effect on the metric of ablating each of these heads.

    Args:
        model: any TransformerLens model.
        prompts: rows with answers, or rows that repeat.
        heads: (layer, query head) pairs, judged as one group.
        task: what is measured on them; None: accuracy on the answers, or the loss where
            rows repeat.
        same_type: more heads of their kind, not judged, but taken out wherever the whole group is:
            left in, they would do what a redundant head restores.
        others: pool to draw other heads from, such as those that no detector found; None: all.
            Heads of the group and those of the same type are left out of it.
        how: replace with the "mean" of the other rows, "resample" another row's values, or "zero".
        n_others: how many to draw, from the group's layers first.
        seed: of the draws.
        memory: bound for the run (see `models.running.memory`).
        progress: told what is being done.

    Raises:
        InputError: the behaviour cannot be measured (see `task_of`), or heads the model does not
            have.
        InterventionError: the model ignores edits of its heads.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import repeated_prompts
        >>> model = it.load("toy:induction")
        >>> ablations = ablation_effects(model, repeated_prompts(model, n_pos=24), [(1, 0)])
        >>> [head.word for head in ablations.heads]
        ['major']
    """
    require_how(how)
    if task is None:
        task, reason = task_of(model, prompts)
        if task is None:
            raise InputError(str(reason))
    group = list(dict.fromkeys(Head(int(layer), int(head)) for layer, head in heads))
    kind = frozenset([*group, *(Head(int(layer), int(head)) for layer, head in same_type)])
    random_heads = _draw(_pool(model, others), group, kind, n_others, seed) if group else []
    without = _without(group, kind, random_heads)
    if group:
        require_heads(model, [*kind, *random_heads])
    readings = _Measure(model, task, how, seed, memory, progress).readings(without)
    return _conclude(task, group, kind, random_heads, readings, how, n_others)


def require_how(how: str) -> None:
    """Raises InputError for another way to replace a head than the three there are."""
    if how not in HOWS:
        raise InputError(f'how is {how!r}; it must be "mean", "zero" or "resample"')


def _pool(model: Model, others: Iterable[tuple[int, int]] | None) -> list[Head]:
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    if others is None:
        return [Head(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    return list(dict.fromkeys(Head(int(layer), int(head)) for layer, head in others))


def _draw(
    pool: list[Head], group: list[Head], kind: frozenset[Head], n: int, seed: int
) -> list[Head]:
    """At random, from the layers of the group first."""
    candidates = sorted(set(pool) - kind)
    order = np.random.default_rng(seed).permutation(len(candidates))
    shuffled = [candidates[i] for i in order]
    layers = {layer for layer, _ in group}
    return sorted(shuffled, key=lambda head: head.layer not in layers)[:n]


def _without(
    group: list[Head], kind: frozenset[Head], random_heads: list[Head]
) -> list[frozenset[Head]]:
    """Every set of heads to take out; the empty one is the intact model."""
    sets = [frozenset[Head]()]
    sets += [frozenset([head]) for head in (*group, *random_heads)]
    sets += [kind - {head} for head in group]
    sets.append(kind)
    return list(dict.fromkeys(sets))


@dataclass(frozen=True, eq=False)
class _Measure:
    """Runs a task's rows with sets of heads taken out."""

    model: Model
    task: CircuitTask
    how: str
    seed: int
    memory: int | str | None
    progress: Callable[[str], None] = field(repr=False)

    def readings(
        self, without: Sequence[frozenset[Head]]
    ) -> dict[frozenset[Head], Float[np.ndarray, "row column"]]:
        """Metric readings per prompt, for each set of ablated heads."""
        layers = sorted({layer for out in without for layer, _ in out})
        tokens_of, rows = self.task.prompts.tokens, self.task.rows
        means = None
        if self.how == "mean" and layers:
            means = OtherRows(self.model, tokens_of[rows], layers, self.memory)
        shift = int(np.random.default_rng(self.seed).integers(1, len(rows)))
        donors = dict(zip(rows.tolist(), rows.roll(shift).tolist(), strict=True))
        parts: dict[frozenset[Head], list[np.ndarray]] = {out: [] for out in without}
        cfg = self.model.cfg
        n_stored = 2 * len(layers) * int(cfg.n_heads) * int(cfg.d_head) * self.task.prompts.n_pos
        starts = [n for n in layers if n > 0] if can_restart(self.model) else []
        n_stored += len(starts) * int(cfg.d_model) * self.task.prompts.n_pos
        batches = row_batches(self.model, self.task.prompts, rows, n_stored, self.memory)
        self.progress("ablation")
        count = Countdown(self.progress, len(batches) * len(without), "ablation")
        for batch in batches:
            for out, read in self._of_batch(batch, without, layers, starts, means, donors):
                parts[out].append(read)
                count.step()
        return {out: np.concatenate(pieces) for out, pieces in parts.items()}

    def _of_batch(
        self,
        batch: Int[Tensor, " row"],
        without: Sequence[frozenset[Head]],
        layers: Sequence[int],
        starts: Sequence[int],
        means: OtherRows | None,
        donors: Mapping[int, int],
    ) -> Iterator[tuple[frozenset[Head], Float[np.ndarray, "row column"]]]:
        """Metric readings of these prompts; nothing else of a pass is stored."""
        tokens = self.task.prompts.tokens[batch].to(device_of(self.model))
        names = [*(hook_z(layer) for layer in layers), *(entry(layer) for layer in starts)]
        logits, z = capture(self.model, tokens, names)
        intact = self.task.read(logits, batch)
        del logits
        ablation_values = self._ablation_values(batch, z, layers, means, donors)
        for out in without:
            if not out:
                yield out, intact
                continue
            with put_heads(self.model, {(a, b): ablation_values[a][:, :, b] for a, b in out}):
                first = min(layer for layer, _ in out)
                start = z[entry(first)] if first in starts else None
                read = self.task.read(self._run(tokens, first, start), batch)
            yield out, read

    def _run(
        self, tokens: Int[Tensor, "row pos"], first: int, start: Tensor | None
    ) -> Float[Tensor, "row pos d_vocab"]:
        """The logits, from what enters a layer where that is known."""
        if start is None:
            logits = run(self.model, tokens)
        else:
            logits = run_from(self.model, start, first, tokens)
        assert logits is not None
        return logits

    def _ablation_values(
        self,
        batch: Int[Tensor, " row"],
        z: Mapping[str, Tensor],
        layers: Sequence[int],
        means: OtherRows | None,
        donors: Mapping[int, int],
    ) -> dict[int, Float[Tensor, "batch pos head d_head"]]:
        """The ablation values of the heads for these prompts."""
        if means is not None:
            return {layer: means.mean(layer, z[hook_z(layer)]) for layer in layers}
        if self.how == "zero" or not layers:
            return {layer: z[hook_z(layer)].new_zeros(z[hook_z(layer)].shape) for layer in layers}
        rows = [donors[row] for row in batch.tolist()]
        _, other = capture(self.model, self.task.prompts.tokens[rows], [hook_z(n) for n in layers])
        return {layer: other[hook_z(layer)] for layer in layers}


def _conclude(
    task: CircuitTask,
    group: list[Head],
    kind: frozenset[Head],
    random_heads: list[Head],
    readings_of: Mapping[frozenset[Head], Float[np.ndarray, "row column"]],
    how: str,
    n_others: int,
) -> Ablations:
    task_check = task.check(readings_of[frozenset()])
    values = {out: readings[:, 0] for out, readings in readings_of.items()}
    intact, bare = values[frozenset()], values[kind]
    coverage = 1 - (1 - COVERAGE) / max(2 * len(group), 1)
    effects = [task.interval(intact - values[frozenset([h])], coverage) for h in group]
    restored = [task.interval(values[kind - {h}] - bare, coverage) for h in group]
    joint = task.interval(intact - bare, coverage) if group else None
    of_others = {h: float((intact - values[frozenset([h])]).mean()) for h in random_heads}
    words = _words(task_check, effects, restored, joint)
    losses = {out: float(readings[:, 1].mean()) for out, readings in readings_of.items()}
    others = list(of_others.values())
    heads = [
        HeadAblation(
            layer=head.layer,
            head=head.head,
            effect=effect.mean,
            low=effect.low,
            high=effect.high,
            restored=back.mean,
            restored_low=back.low,
            restored_high=back.high,
            others_mean=float(np.mean(others)) if others else float("nan"),
            others_max=max(others, default=float("nan")),
            loss_intact=losses[frozenset()],
            loss_ablated=losses[frozenset([head])],
            word=word,
        )
        for head, effect, back, word in zip(group, effects, restored, words, strict=True)
    ]
    return Ablations(
        heads=heads,
        task_check=task_check,
        intact=intact,
        joint=joint,
        others=of_others,
        how=how,
        notes=_notes(task_check, len(group), len(random_heads), n_others),
    )


def _words(
    task_check: TaskCheck, effects: list[Estimate], restored: list[Estimate], joint: Estimate | None
) -> list[CausalWord]:
    """The causal words; see the module."""
    if not task_check.yes or joint is None:
        return ["not_tested"] * len(effects)
    words = [
        causal_word([[task_check.share(effect)], [task_check.share(back)]])
        for effect, back in zip(effects, restored, strict=True)
    ]
    together = causal_word([[task_check.share(joint)]])
    unexplained = together != "negligible" and not any(map(matters, words))
    silent = "negligible"
    return ["undecided" if unexplained and word == silent else word for word in words]


def _notes(task_check: TaskCheck, n_heads: int, n_random: int, n_others: int) -> list[str]:
    notes = []
    if not task_check.yes:
        notes.append(
            f"the model is not shown to perform the task ({task_check.summary}), so the effects of "
            "its heads cannot be tested"
        )
    if n_heads and n_random < n_others:
        notes.append(f"only {n_random} other heads to compare ablations with")
    return notes
