"""Choosing a circuit where every edge can be cut alone.

Steps:
1. Each edge alone is cut, and the change of each row's value is its effect. Where there are more
   than `max_edges`, effects are estimated by attribution (EAP-IG) and the largest estimates
   measured; the others count in the correction for many looks, but are not in the circuit.
2. An edge is kept where `selected_edges` says so, the one rule, and where it lies on a path of kept
   edges from the input to the logits.
3. Edges that others make up for (redundant heads) have no effect when they alone are cut. So
   where the kept edges alone have less than ENOUGH of the behaviour, others are added to them, with
   all else cut: edges between their nodes, and nodes with all edges to them, those whose gain is
   significant and at least SHARE of the total, until there are none or it is enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.circuits.edges.checks import Select
from interp_toolkit.circuits.edges.circuit import EdgeEffect, described
from interp_toolkit.circuits.edges.faithfulness import SHARE, Measured, measured
from interp_toolkit.circuits.edges.passes.cut import CutObjective
from interp_toolkit.circuits.edges.wiring import Edge, Node
from interp_toolkit.stats import holm, mean_p_value

ENOUGH = 0.9  # of the behaviour: what kept edges have alone when nothing more is looked for
MOST_ROUNDS = 3  # of adding edges
MOST_TRIED = 256  # of additions in a round


def selected_edges(
    effects: Float[np.ndarray, " edge"],
    p_adjusted: Float[np.ndarray, " edge"],
    total: float,
    level: float,
) -> Bool[np.ndarray, " edge"]:
    """The rule: adjusted p at most `level`, and an effect of at least SHARE of the total.

    Holm's adjustment bounds the chance of any edge without an effect by `level`. The share keeps
    out what is real and of no account: with enough rows every edge changes something. Judged by
    KL divergence every cut that changes anything costs on every row: p-values are NaN there and
    the share alone decides.
    """
    large: Bool[np.ndarray, " edge"] = np.nan_to_num(np.abs(effects)) >= SHARE * abs(total)
    return large & ~(p_adjusted > level)


def measured_edges(
    trial: CutObjective,
    intact: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
    level: float,
    max_edges: int,
    progress: Callable[[str], None],
    *,
    test: bool,
) -> tuple[list[EdgeEffect], Select]:
    """Every edge, measured where its estimate is among the largest; and the rule, on rows anew."""
    everything = trial.edges
    chosen, attributions = np.arange(len(everything)), None
    if len(everything) > max_edges:
        progress("attributing to edges")
        attributions = trial.attributions().mean(0)
        chosen = np.sort(np.argsort(-np.abs(attributions), kind="stable")[:max_edges])
    measurement = measured(trial, chosen, intact, progress)
    total = float(intact.mean() - all_cut.mean())

    def select(rows: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " edge"]:
        return _by_effect(measurement.at(rows), len(everything), total, level, test=test)

    wiring = trial.engine.wiring
    on_paths = set(wiring.masked(wiring.on_paths(select(np.arange(len(intact))))))
    edges = described(everything, attributions, measurement, on_paths, test=test)
    return edges, select


def _by_effect(
    measurement: Measured, n_edges: int, total: float, level: float, *, test: bool
) -> Bool[np.ndarray, " edge"]:
    """The rule on these rows."""
    effects, p = np.full(n_edges, np.nan), np.ones(n_edges)
    effects[measurement.edges] = measurement.losses.mean(0)
    p[measurement.edges] = mean_p_value(measurement.losses)
    adjusted = holm(p) if test else np.full(n_edges, np.nan)
    return selected_edges(effects, adjusted, total, level)


def completed(
    trial: CutObjective,
    edges: list[EdgeEffect],
    intact: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
    level: float,
    max_edges: int,
    progress: Callable[[str], None],
) -> list[EdgeEffect]:
    """Edges added that others make up for when they alone are cut (step 3 of the module)."""
    everything = trial.edges
    total = float(intact.mean() - all_cut.mean())
    included = {e.edge for e in edges if e.kept or _by_rule(e, total, level)}
    added: dict[Edge, float] = {}
    for number in range(MOST_ROUNDS):
        alone = trial.alone([included])[:, 0]
        if (alone - all_cut).mean() >= ENOUGH * total:
            break
        sets = _additions(everything, included)[: min(max_edges, MOST_TRIED)]
        if not sets:
            break
        progress(f"edges that others make up for, round {number + 1}")
        circuits = [included | more for more in sets]
        gains = trial.alone(circuits, progress, near=included) - alone[:, None]
        chosen = selected_edges(
            gains.mean(0), holm(mean_p_value(gains)), total, level / (1 + MOST_ROUNDS)
        )
        chosen &= gains.mean(0) > 0
        if not chosen.any():
            break
        for more, gain, keep in zip(sets, gains.mean(0).tolist(), chosen, strict=True):
            if keep:
                added |= {e: gain for e in more if e not in included and e not in added}
        included |= added.keys()
    on_path = set(trial.engine.wiring.connected(included))
    return [
        dataclasses.replace(e, kept=True, added=added.get(e.edge)) if e.edge in on_path else e
        for e in edges
    ]


def _by_rule(effect: EdgeEffect, total: float, level: float) -> bool:
    """Whether an edge's own cut is enough to keep it, on a path of such edges or not."""
    if effect.effect is None:
        return False
    p = np.array([np.nan if effect.p_value is None else effect.p_value])
    return bool(selected_edges(np.array([effect.effect]), p, total, level)[0])


def _additions(everything: Sequence[Edge], included: Collection[Edge]) -> list[set[Edge]]:
    """Candidate additions: single edges between included nodes, and nodes with all their edges."""
    nodes = {n for e in included for n in (e.source, e.target)} | {Node("input"), Node("logits")}
    single = [{e} for e in everything if e not in included and {e.source, e.target} <= nodes]
    by_node: dict[Node, set[Edge]] = {}
    for edge in everything:
        new = {edge.source, edge.target} - nodes
        if len(new) == 1:
            by_node.setdefault(new.pop(), set()).add(edge)
    return [*by_node.values(), *single]
