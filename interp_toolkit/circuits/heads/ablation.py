"""Effects of ablating heads: alone, with the other heads of the group ablated, and jointly.

The metric is that of the task (`metrics.task`), one value per prompt: the fraction of answers that
are right, or minus the loss in nats for prompts that repeat. Effects are paired over prompts. Each
head has two effects:

- its single-head effect: the value of the intact model minus the value with the head ablated;
- the restored value: all heads of the group and of the same type are ablated, and this head alone
  is restored. A redundant head has no single-head effect, but restores a part of the metric.

For comparison, other heads are drawn at random and ablated. A head is ablated at `hook_z`; the
ablation value is the mean over the other prompts, another prompt's values, or zero (see
`metrics.replacement`). Intervals are simultaneous over both effects of all heads (Bonferroni). The
causal word follows from them by `metrics.causal_words`, with effects as fractions of the metric. If
the group has an effect together, but no head alone, the word "negligible" becomes "undecided".
Effects do not add up over heads: two heads in series can each have all of the effect.
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
from interp_toolkit.formatting import ProgressEstimate
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
        layer, head: layer and index of the head.
        effect, low, high: drop of the metric when the head is ablated, with its interval.
        restored, restored_low, restored_high: rise of the metric when the head alone is restored,
            with the whole group and heads of the same type ablated; equal to the effect for a
            single head.
        others_mean, others_max: effects of other heads drawn at random; NaN without any.
        loss_intact, loss_ablated: loss in nats with and without this head.
        word: causal word; see the module.
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
    """Effects of ablating a group of heads.

    Attributes:
        heads: one entry per head, in the order of the arguments.
        task_check: task performance of the intact model.
        intact: metric of the intact model for each prompt.
        joint: effect of ablating all heads of the group and of the same type; None for an empty
            group.
        others: effects of other heads drawn at random, in units of the metric.
        how: ablation value: "mean", "resample" or "zero".
        notes: limits of the test.
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
    """Effects on the metric of ablating each of these heads.

    Args:
        model: any TransformerLens model.
        prompts: prompts with answers, or prompts that repeat.
        heads: (layer, query head) pairs, tested as one group.
        task: metric on the prompts; None: accuracy on the answers, or the loss if prompts repeat.
        same_type: more heads of the same type. They have no verdict, but are ablated whenever the
            whole group is, since they could do the work that a redundant head restores.
        others: heads to draw from for comparison; None: all. Heads of the group and of the same
            type are excluded.
        how: ablation value: the "mean" over the other prompts, "resample" (another prompt's
            values), or "zero".
        n_others: number of other heads to draw, from the group's layers first.
        seed: seed of the draws.
        memory: memory limit (see `models.running.memory`).
        progress: called with a description of each step.

    Raises:
        InputError: the metric cannot be measured (see `task_of`), or the model lacks a head.
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
    """Raise InputError unless `how` is one of the three ablation values."""
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
    """Draw heads at random, from the layers of the group first."""
    candidates = sorted(set(pool) - kind)
    order = np.random.default_rng(seed).permutation(len(candidates))
    shuffled = [candidates[i] for i in order]
    layers = {layer for layer, _ in group}
    return sorted(shuffled, key=lambda head: head.layer not in layers)[:n]


def _without(
    group: list[Head], kind: frozenset[Head], random_heads: list[Head]
) -> list[frozenset[Head]]:
    """Every set of heads to ablate; the empty set is the intact model."""
    sets = [frozenset[Head]()]
    sets += [frozenset([head]) for head in (*group, *random_heads)]
    sets += [kind - {head} for head in group]
    sets.append(kind)
    return list(dict.fromkeys(sets))


@dataclass(frozen=True, eq=False)
class _Measure:
    """Runs a task's prompts with sets of heads ablated."""

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
        count = ProgressEstimate(self.progress, len(batches) * len(without), "ablation")
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
        """Metric readings of one batch, for each set of ablated heads."""
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
        """Logits, from the stored input of layer `first` if there is one."""
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
        """Ablation values of the heads of each layer for these prompts."""
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
    """Causal words of the heads; see the module."""
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
            f"{task_check.failure} ({task_check.summary}), so the effects of its heads cannot be "
            "tested"
        )
    if n_heads and n_random < n_others:
        notes.append(f"only {n_random} other heads to compare ablations with")
    return notes
