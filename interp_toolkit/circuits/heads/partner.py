"""Previous-token partners of an induction head: the earlier heads that its keys compose with.

An induction head attends to keys that follow an occurrence of its query's token. Its keys must
therefore contain the previous token, which an earlier head has written there (K-composition; Elhage
et al. 2021, "A Mathematical Framework for Transformer Circuits"). Every head of earlier layers has
two independent measures:

- from weights: the K-composition score (see `composition`);
- from path ablation: the path from its output to the induction head's keys is ablated
  (`edges.passes.paths`), and the induction attention and the metric are measured again.

Every candidate whose ablation costs attention is a partner: the drop must be significant (t test
over prompts, Holm over candidates, LEVEL) and at least EFFECT_THRESHOLD of the intact attention.
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
    """A candidate: an earlier head, and the effect of ablating its path to the reader's keys.

    Attributes:
        layer, head: layer and index of the earlier head.
        k_composition: K-composition score (Frobenius ratio); NaN if it cannot be computed.
        attention: induction attention of the intact reader, mean over prompts.
        attention_drop, low, high: drop of that attention, with its 95 % CI.
        p_value, p_adjusted: t test of the drop against zero; Holm-adjusted over the candidates.
        value_drop, value_low, value_high: drop of the metric, with its 95 % CI; None if not
            measured (only for the RUNS candidates with the largest attention drops).
        named: whether this is a partner of the reader.
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
    """Candidate partners of an induction head, sorted by attention drop, largest first.

    Args:
        model: any TransformerLens model.
        prompts: prompts with answers, or prompts that repeat.
        head: (layer, query head) of the induction head.
        task: metric on the prompts; None: that of `circuits.metrics.task.task_of`.
        candidates: (layer, head) pairs of earlier layers; None: all.
        most: number of candidates to test, those with the most K-composition; None: all.
        runs: number of candidates whose ablation is also measured on the task, largest drops
            first.
        composition: `composition_scores(model)`, if already computed; its null is not needed.
        view: `weights(model)`, if already computed.
        memory: memory limit (see `models.running.memory`).
        progress: called with a description of each step.

    Raises:
        InputError: prompts that define no task, fewer than two prompts, heads that do not exist or
            are in the wrong order, or weights that cannot be read exactly.
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
        named=above_threshold and p_adjusted <= LEVEL,
    )
