"""Are the heads responsible? Each is taken out, and the in-context advantage measured again.

For every head, in nats per row and paired over rows:

- its effect: the intact model's advantage less the advantage without the head;
- what it restores: with all heads of the group taken out, and the rest of their kind with them, the
  advantage that this one alone brings back. A head with a redundant twin has no effect by itself;
  here it shows.

Both stand beside the effects of other heads, drawn at random. A head is taken out at `hook_z` by
the mean of the other rows, another row's values, or zero (see `passes`).

The rule (`verdict`). MATERIAL of the intact advantage is a material effect, LEAST_ADVANTAGE at
least. A head is
- "confirmed" if the intact model has an in-context advantage (`Behaviour.is_there`), and the head's
  effect, or what it restores, is significant (t test over rows, Holm's correction over both figures
  of all heads, LEVEL), material, and reached by at most one of the other heads, or OTHERS_AS_LARGE
  of them if that is more;
- "refuted" if the confidence intervals of both lie below a material effect, and the group's heads
  together have none either or one of them is confirmed to have it;
- "undecided" otherwise.
Effects on losses do not add up over heads: two heads in a row each have all of the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.behaviour.advantage import (
    LEAST_ADVANTAGE,
    Behaviour,
    Estimate,
    estimate,
    joined,
    measured,
    repeating,
    row_batches,
    why_none,
)
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.behaviour.replacement import OtherRows, capture, hook_z
from interp_toolkit.errors import InputError
from interp_toolkit.models.heads import Head
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.interventions import HOWS, put_heads, require_heads
from interp_toolkit.stats import LEVEL, holm

Verdict = Literal["confirmed", "refuted", "undecided"]

MATERIAL = 0.05  # share of the intact advantage
OTHERS_AS_LARGE = 0.1  # share of the other heads that may do as much: partners can be among them
N_OTHERS = 10


@dataclass(frozen=True)
class HeadAblation:
    """What the behaviour loses without a head.

    Attributes:
        layer, head: which.
        effect, low, high: nats of advantage lost without it, with its 95 % confidence interval.
        p_value: two-sided t test of the effect against zero.
        p_adjusted: Holm's, over the effects and restored advantages of all heads of the group.
        restored, restored_low, restored_high: nats that it alone brings back when the whole group
            and its kin are out; the effect itself where the head is the only one.
        restored_p_adjusted: as p_adjusted.
        others_mean, others_max: effects of other heads drawn at random; NaN without any.
        others_as_large: how many of them have at least this head's effect.
        accuracy_known_intact, accuracy_known_ablated: with and without this head, mean over rows.
        verdict: see the module's rule.
    """

    layer: int
    head: int
    effect: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    restored: float
    restored_low: float
    restored_high: float
    restored_p_adjusted: float
    others_mean: float
    others_max: float
    others_as_large: int
    accuracy_known_intact: float
    accuracy_known_ablated: float
    verdict: Verdict


@dataclass(frozen=True, eq=False)
class Ablations:
    """The causal check of a group of heads.

    Attributes:
        heads: one entry for each, in the order given.
        intact: the behaviour of the whole model.
        advantage: its in-context advantage.
        joint: effect of all heads of the group and their kin together; None for an empty group.
        others: effects of the other heads, nats.
        how: what heads were replaced with.
        notes: what limits the check, a sentence each.
    """

    heads: Sequence[HeadAblation]
    intact: Behaviour
    advantage: Estimate
    joint: Estimate | None
    others: Mapping[Head, float]
    how: str
    notes: Sequence[str]


def ablation_effects(
    model: Model,
    prompts: Prompts,
    heads: Iterable[tuple[int, int]],
    *,
    kin: Iterable[tuple[int, int]] = (),
    others: Iterable[tuple[int, int]] | None = None,
    how: str = "mean",
    n_others: int = N_OTHERS,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Ablations:
    """What the in-context advantage loses without each of these heads.

    Args:
        model: any TransformerLens model.
        prompts: rows that repeat.
        heads: (layer, query head) pairs, judged as one group.
        kin: more heads of their kind, not judged, but taken out wherever the whole group is: left
            in, they would do what a redundant head restores.
        others: pool to draw other heads from, such as those that no detector found; None: all.
            Heads of the group and their kin are left out of it.
        how: replace with the "mean" of the other rows, "resample" another row's values, or "zero".
        n_others: how many to draw, from the group's layers first.
        seed: of the draws.
        memory: bound for the run (see `models.running.memory`).
        progress: told what is being done.

    Raises:
        InputError: the behaviour cannot be measured (see `behaviour.why_none`), or heads the model
            does not have.
        InterventionError: the model ignores edits of its heads.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import repeated_prompts
        >>> model = it.load("toy:induction")
        >>> found = ablation_effects(model, repeated_prompts(model, n_pos=24), [(1, 0)])
        >>> [head.verdict for head in found.heads]
        ['confirmed']
    """
    require_how(how)
    reason = why_none(model, prompts)
    if reason is not None:
        raise InputError(reason)
    group = list(dict.fromkeys(Head(int(layer), int(head)) for layer, head in heads))
    kind = frozenset([*group, *(Head(int(layer), int(head)) for layer, head in kin)])
    drawn = _draw(_pool(model, others), group, kind, n_others, seed) if group else []
    without = _without(group, kind, drawn)
    if group:
        require_heads(model, [*kind, *drawn])
    measure = _Measure(model, prompts, how, seed, memory, progress)
    found = measure.behaviours(without)
    return _conclude(group, kind, drawn, found, how, n_others)


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


def _without(group: list[Head], kind: frozenset[Head], drawn: list[Head]) -> list[frozenset[Head]]:
    """Every set of heads to take out; the empty one is the intact model."""
    sets = [frozenset[Head]()]
    sets += [frozenset([head]) for head in (*group, *drawn)]
    sets += [kind - {head} for head in group]
    sets.append(kind)
    return list(dict.fromkeys(sets))


@dataclass(frozen=True, eq=False)
class _Measure:
    """Runs the prompts with sets of heads taken out."""

    model: Model
    prompts: Prompts
    how: str
    seed: int
    memory: int | str | None
    progress: Callable[[str], None] = field(repr=False)

    def behaviours(self, without: Sequence[frozenset[Head]]) -> dict[frozenset[Head], Behaviour]:
        cfg = self.model.cfg
        layers = sorted({layer for out in without for layer, _ in out})
        kept = 2 * len(layers) * int(cfg.n_heads) * int(cfg.d_head) * self.prompts.n_pos
        rows = repeating(self.prompts)
        means = None
        if self.how == "mean" and layers:
            means = OtherRows(self.model, self.prompts.tokens[rows], layers, self.memory)
        shift = int(np.random.default_rng(self.seed).integers(1, len(rows)))
        donors = dict(zip(rows.tolist(), rows.roll(shift).tolist(), strict=True))
        parts: dict[frozenset[Head], list[Behaviour]] = {out: [] for out in without}
        batches = row_batches(self.model, self.prompts, kept, self.memory)
        for n, batch in enumerate(batches):
            tokens = self.prompts.tokens[batch]
            logits, z = capture(self.model, tokens, [hook_z(layer) for layer in layers])
            stand_in = self._stand_ins(batch, z, layers, means, donors)
            for i, out in enumerate(without):
                self.progress(
                    f"ablation {i + 1} of {len(without)}, batch {n + 1} of {len(batches)}"
                )
                if out:
                    with put_heads(self.model, {(a, b): stand_in[a][:, :, b] for a, b in out}):
                        edited = run(self.model, tokens)
                    assert edited is not None
                else:
                    edited = logits
                parts[out].append(measured(edited, self.prompts, batch))
        return {out: joined(found) for out, found in parts.items()}

    def _stand_ins(
        self,
        batch: Int[Tensor, " row"],
        z: Mapping[str, Tensor],
        layers: Sequence[int],
        means: OtherRows | None,
        donors: Mapping[int, int],
    ) -> dict[int, Float[Tensor, "batch pos head d_head"]]:
        """What the heads of these rows are to hold when taken out."""
        if means is not None:
            return {layer: means.mean(layer, z[hook_z(layer)]) for layer in layers}
        if self.how == "zero" or not layers:
            return {layer: z[hook_z(layer)].new_zeros(z[hook_z(layer)].shape) for layer in layers}
        rows = [donors[row] for row in batch.tolist()]
        _, other = capture(self.model, self.prompts.tokens[rows], [hook_z(n) for n in layers])
        return {layer: other[hook_z(layer)] for layer in layers}


def _conclude(
    group: list[Head],
    kind: frozenset[Head],
    drawn: list[Head],
    found: Mapping[frozenset[Head], Behaviour],
    how: str,
    n_others: int,
) -> Ablations:
    intact, bare = found[frozenset()], found[kind]
    advantage = estimate(intact.advantage)
    effects = [estimate(intact.advantage - found[frozenset([head])].advantage) for head in group]
    restored = [estimate(found[kind - {head}].advantage - bare.advantage) for head in group]
    joint = estimate(intact.advantage - bare.advantage)
    of_others = {
        head: float((intact.advantage - found[frozenset([head])].advantage).mean())
        for head in drawn
    }
    return Ablations(
        heads=_judged(group, effects, restored, joint, found, list(of_others.values())),
        intact=intact,
        advantage=advantage,
        joint=joint if group else None,
        others=of_others,
        how=how,
        notes=_notes(intact, len(group), len(drawn), n_others),
    )


def _judged(
    group: list[Head],
    effects: list[Estimate],
    restored: list[Estimate],
    joint: Estimate,
    found: Mapping[frozenset[Head], Behaviour],
    others: list[float],
) -> list[HeadAblation]:
    alone = len(group) == 1 and restored == effects
    looks = effects if alone else [*effects, *restored]
    adjusted = holm(np.array([look.p_value for look in looks]))
    intact = found[frozenset()]
    material = max(MATERIAL * float(intact.advantage.mean()), LEAST_ADVANTAGE)
    verdicts = [
        _verdict(
            ((effects[i], adjusted[i]), (restored[i], adjusted[i - len(group)])),
            material,
            others,
            intact.is_there(),
        )
        for i in range(len(group))
    ]
    unexplained = joint.high >= material and "confirmed" not in verdicts
    judged = []
    for i, head in enumerate(group):
        effect, back = effects[i], restored[i]
        p, back_p = float(adjusted[i]), float(adjusted[i - len(group)])
        judged.append(
            HeadAblation(
                layer=head.layer,
                head=head.head,
                effect=effect.mean,
                low=effect.low,
                high=effect.high,
                p_value=effect.p_value,
                p_adjusted=p,
                restored=back.mean,
                restored_low=back.low,
                restored_high=back.high,
                restored_p_adjusted=back_p,
                others_mean=float(np.mean(others)) if others else float("nan"),
                others_max=max(others, default=float("nan")),
                others_as_large=_as_large(others, effect.mean),
                accuracy_known_intact=float(intact.accuracy_known.mean()),
                accuracy_known_ablated=float(found[frozenset([head])].accuracy_known.mean()),
                verdict="undecided" if unexplained else verdicts[i],
            )
        )
    return judged


def _verdict(
    figures: Sequence[tuple[Estimate, float]], material: float, others: list[float], there: bool
) -> Verdict:
    """The module's rule; `there`: whether the intact model has an advantage at all."""
    allowed = max(1, int(OTHERS_AS_LARGE * len(others)))
    for figure, p_adjusted in figures:
        large = figure.mean >= material and _as_large(others, figure.mean) <= allowed
        if there and large and p_adjusted <= LEVEL:
            return "confirmed"
    return "refuted" if all(figure.high < material for figure, _ in figures) else "undecided"


def _as_large(others: list[float], effect: float) -> int:
    return sum(other >= effect for other in others)


def _notes(intact: Behaviour, n_heads: int, n_drawn: int, n_others: int) -> list[str]:
    notes = []
    if not intact.is_there():
        notes.append(
            "the model shows no in-context advantage on these prompts that is certain, so no head "
            "can be confirmed as responsible for one"
        )
    if n_heads and n_drawn < n_others:
        notes.append(f"only {n_drawn} other heads to compare ablations with")
    return notes
