"""The previous-token partner of an induction head: whose writing makes its keys.

An induction head finds keys that follow its query's token. Its keys must therefore hold the token
before, which an earlier head has written there (K-composition; Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"). For every head of earlier layers two independent figures:

- from weights: the K-composition score (see `composition`);
- from the metric: the path from its output to the reader's keys is ablated (`edges.passes.paths`),
  and the reader's induction attention and the task's value are measured again.

The partner named is the candidate whose ablation costs most attention, if that is significant (t
test over rows, Holm's correction over candidates, LEVEL) and at least EFFECT_THRESHOLD of what the
reader has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from interp_toolkit.circuits.edges.passes.paths import path_effects
from interp_toolkit.circuits.metrics.prompts import Prompts
from interp_toolkit.circuits.metrics.task import EFFECT_THRESHOLD, CircuitTask
from interp_toolkit.circuits.weights.composition import MODES, CompositionScores, composition_scores
from interp_toolkit.errors import takes
from interp_toolkit.models.model import Model, check_model
from interp_toolkit.models.weights.view import ModelWeights
from interp_toolkit.stats import LEVEL, Estimate, estimate, holm

RUNS = 5  # candidates whose ablation is also measured on the task: a forward pass each


@dataclass(frozen=True)
class Partner:
    """A candidate: an earlier head, and what ablating its path to the reader's keys costs.

    Attributes:
        layer, head: which.
        k_composition: the Frobenius ratio; NaN where it cannot be computed.
        attention: the intact reader's induction attention, mean over rows.
        attention_drop, low, high: how much of it is lost, with its 95 % confidence interval.
        p_value, p_adjusted: t test of the drop against zero; Holm's over the candidates.
        value_drop, value_low, value_high: of the task's value lost; None where not measured (only
            RUNS candidates with the largest attention drops are).
        named: whether this is the reader's partner by the module's rule; at most one is.
    """

    layer: int
    head: int
    k_composition: float
    attention: float
    attention_drop: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    value_drop: float | None
    value_low: float | None
    value_high: float | None
    named: bool


@takes(model=check_model)
def partners(
    model: Model,
    prompts: Prompts,
    head: tuple[int, int],
    *,
    task: CircuitTask | None = None,
    candidates: Iterable[tuple[int, int]] | None = None,
    most: int | None = None,
    runs: int = RUNS,
    composition: CompositionScores | None = None,
    view: ModelWeights | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> list[Partner]:
    """The candidates, those whose ablation costs most attention first.

    Args:
        model: any TransformerLens model.
        prompts: rows with answers, or rows that repeat.
        head: the (layer, query head) whose keys are asked about.
        task: what is measured on them; None: as `task_of`.
        candidates: (layer, head) pairs of earlier layers; None: all of them, of which a head of
            layer 0 has none.
        most: how many of them, those with the most K-composition; None: all.
        runs: candidates whose ablation is also measured on the task, the largest drops first.
        composition: `composition_scores(model)`, if it is at hand; its null is not needed.
        view: `weights(model)`, if it is at hand.
        memory: bound for the run (see `models.running.memory`).
        progress: told what is being done.

    Raises:
        InputError: as `path_effects` and `composition_scores` do.
        InterventionError: the model ignores edits of the head.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import repeated_prompts
        >>> model = it.load("toy:induction")
        >>> ranked = partners(model, repeated_prompts(model, n_pos=24), (1, 0))
        >>> [(head.layer, head.head) for head in ranked if head.named]
        [(0, 1)]
    """
    n_heads = int(model.cfg.n_heads)
    if candidates is None:
        candidates = [(layer, h) for layer in range(head[0]) for h in range(n_heads)]
    writers = list(dict.fromkeys((int(layer), int(h)) for layer, h in candidates))
    if not writers:
        return []

    @cache
    def scores() -> CompositionScores:
        return composition or composition_scores(
            model, memory, [head[0]], modes=["K"], null=False, view=view
        )

    if most is not None:
        writers = sorted(writers, key=lambda at: -_score(scores(), at, head))[:most]
    effects = path_effects(
        model,
        prompts,
        writers,
        head,
        task=task,
        value=runs,
        view=view,
        memory=memory,
        progress=progress,
    )
    drops = [estimate(drop) for drop in effects.attention_drop]
    adjusted = holm(np.array([drop.p_value for drop in drops]))
    order = sorted(range(len(writers)), key=lambda i: -drops[i].mean)
    losses = effects.value_drop
    assert losses is not None
    advantages = {i: estimate(loss) for i, loss in enumerate(losses) if np.isfinite(loss).all()}
    attention = float(effects.attention.mean())
    return [
        _partner(
            writers[i],
            _score(scores(), writers[i], head),
            attention,
            drops[i],
            float(adjusted[i]),
            advantages.get(i),
            may_be_named=i == order[0],
        )
        for i in order
    ]


def _score(
    composition: CompositionScores, writer: tuple[int, int], reader: tuple[int, int]
) -> float:
    return float(composition.score[(MODES.index("K"), *writer, *reader)])


def _partner(
    writer: tuple[int, int],
    k_composition: float,
    attention: float,
    drop: Estimate,
    p_adjusted: float,
    advantage: Estimate | None,
    *,
    may_be_named: bool,
) -> Partner:
    above_threshold = drop.mean > 0 and drop.mean >= EFFECT_THRESHOLD * attention
    return Partner(
        layer=writer[0],
        head=writer[1],
        k_composition=k_composition,
        attention=attention,
        attention_drop=drop.mean,
        low=drop.low,
        high=drop.high,
        p_value=drop.p_value,
        p_adjusted=p_adjusted,
        value_drop=None if advantage is None else advantage.mean,
        value_low=None if advantage is None else advantage.low,
        value_high=None if advantage is None else advantage.high,
        named=may_be_named and above_threshold and p_adjusted <= LEVEL,
    )
