"""Which edges of a model carry a behaviour, and how much of it they carry alone.

Steps:
1. Rows of prompts are dealt into two halves. Edges are chosen on one, judged on the other; what
   stands in for a cut edge in one half is the mean over the other.
2. If the intact model shows no behaviour, or cutting everything costs none, that is the finding,
   and the circuit is empty.
3. Each edge alone is cut, and the change of each row's value is its effect. Where there are more
   than `max_edges`, effects are estimated by attribution (EAP-IG) and the largest estimates
   measured; the others count in the correction for many looks, but are not in the circuit.
4. An edge is kept where `kept_edges` says so, the one rule, and where it lies on a path of kept
   edges from the input to the logits.
5. Edges that others make up for (redundant heads) have no effect when they alone are cut. So
   where the kept edges alone have less than ENOUGH of the behaviour, others are added to them, with
   all else cut: edges between their nodes, and nodes with all edges to them, those whose gain is
   significant and at least SHARE of the total, until there are none or it is enough.
6. The circuit alone, all other edges cut together, is judged on the other half; see
   `faithfulness`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import stats

from interp_toolkit.circuits.behaviour.advantage import estimate
from interp_toolkit.circuits.behaviour.objective import Objective, objective
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.behaviour.task import AtHome
from interp_toolkit.circuits.edges.cut import CutObjective
from interp_toolkit.circuits.edges.faithfulness import Faithfulness, faithfulness
from interp_toolkit.circuits.edges.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import INPUT, LOGITS, Edge, Node, Wiring
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.stats import holm

ENOUGH = 0.9  # of the behaviour: what kept edges have alone when nothing more is looked for
MOST_ROUNDS = 3  # of adding edges
MOST_TRIED = 256  # of additions in a round
SHARE = 0.01  # of what cutting everything costs: the least effect of an edge that is kept
FEWEST_ROWS = 8  # four in each half: with fewer no p-value survives the correction


@dataclass(frozen=True)
class EdgeEffect:
    """What one edge is worth on the rows that edges were chosen on.

    Attributes:
        edge: which.
        attribution: the estimate of `effect`; None where all edges were measured.
        effect: mean loss of value when this edge alone is cut; None where it was not measured.
        p_value: that the mean is not 0, paired t over rows, Holm-adjusted over all of the model's
            edges, measured or not; None where not measured, and where the objective is never above
            the intact model's (KL divergence), so that a mean of 0 is no null hypothesis.
        kept: whether it is in the circuit.
        added: gain of value when it, or its node with it, was added to what was kept, all else cut;
            None where its own cut was enough to keep it, or it was not added.
    """

    edge: Edge
    attribution: float | None
    effect: float | None
    p_value: float | None
    kept: bool
    added: float | None = None


@dataclass(frozen=True, eq=False)
class Circuit:
    """What was found.

    Attributes:
        wiring: the model's nodes and edges.
        objective: what was measured.
        edges: every edge of the model.
        node_effects: of each node in the circuit but the logits: mean loss of value when all that
            it writes is cut.
        held_out: faithfulness on rows that took no part in choosing; None without a behaviour.
        chosen_on: the same on the rows that edges were chosen on.
        intact, all_cut: values on the rows that edges were chosen on.
        nothing: why there is no behaviour to explain; None where there is one.
    """

    wiring: Wiring
    objective: Objective
    edges: Sequence[EdgeEffect]
    node_effects: Mapping[Node, float]
    held_out: Faithfulness | None
    chosen_on: Faithfulness | None
    intact: float
    all_cut: float
    nothing: str | None

    @property
    def kept(self) -> list[EdgeEffect]:
        """The circuit's edges, the largest effect first."""
        kept = [e for e in self.edges if e.kept]
        return sorted(kept, key=lambda e: -abs(e.effect or 0.0))

    @property
    def n_measured(self) -> int:
        """How many edges were cut one by one; the others were estimated only."""
        return sum(e.effect is not None for e in self.edges)


def kept_edges(
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
    kept: Bool[np.ndarray, " edge"] = np.nan_to_num(np.abs(effects)) >= SHARE * abs(total)
    return kept & ~(p_adjusted > level)


def find_circuit(
    model: Any,
    prompts: Prompts,
    *,
    seed: int = 0,
    level: float = 0.05,
    max_edges: int = 512,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Circuit:
    """The edges that carry a model's behaviour on these prompts; see the module.

    Args:
        model: any TransformerLens model that `PatchedModel` takes.
        prompts: the rows; at least FEWEST_ROWS.
        seed: of the bootstrap.
        level: of significance.
        max_edges: how many edges are measured at most, one forward pass from the edge on each.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        progress: told what is being done.

    Raises:
        InputError: too few rows, options out of range, or as `PatchedModel`.
    """
    if len(prompts) < FEWEST_ROWS:
        raise InputError(
            f"{len(prompts)} rows of tokens are too few to choose edges on one half and judge "
            f"them on the other; give at least {FEWEST_ROWS}"
        )
    if not 0 < level < 1 or max_edges < 1:
        raise InputError(f"level {level} must lie between 0 and 1, max_edges {max_edges} above 0")
    engine = PatchedModel(model)
    judged_by, home = objective(model, prompts, memory)
    rows = torch.arange(len(prompts))
    halves = (rows[::2], rows[1::2]), (rows[1::2], rows[::2])
    limit = parse_memory(memory)
    progress("the intact model")
    choosing, judging = (
        CutObjective(engine, prompts.tokens, half, other, judged_by, limit)
        for half, other in halves
    )
    everything = engine.wiring.edges
    intact, all_cut = choosing.values([(), everything]).T
    nothing = _nothing(home, intact - all_cut)
    if nothing is not None:
        edges = [EdgeEffect(e, None, None, None, kept=False) for e in everything]
        return Circuit(
            wiring=engine.wiring,
            objective=judged_by,
            edges=edges,
            node_effects={},
            held_out=None,
            chosen_on=None,
            intact=float(intact.mean()),
            all_cut=float(all_cut.mean()),
            nothing=nothing,
        )
    edges = _measured(
        choosing, intact, all_cut, level, max_edges, progress, test=judged_by.is_behaviour
    )
    edges = _completed(choosing, edges, intact, all_cut, level, max_edges, progress)
    kept = [e.edge for e in edges if e.kept]
    progress("the circuit alone")
    nodes = sorted({e.source for e in kept}, key=engine.wiring.index.__getitem__)
    cuts = [[e for e in everything if e.source == node] for node in nodes]
    without = choosing.values(cuts) if cuts else np.empty((len(intact), 0))
    return Circuit(
        wiring=engine.wiring,
        objective=judged_by,
        edges=edges,
        node_effects=dict(zip(nodes, (intact.mean() - without.mean(0)).tolist(), strict=True)),
        held_out=faithfulness(judging, kept, seed),
        chosen_on=faithfulness(choosing, kept, seed),
        intact=float(intact.mean()),
        all_cut=float(all_cut.mean()),
        nothing=None,
    )


def _nothing(home: AtHome | None, lost: Float[np.ndarray, " row"]) -> str | None:
    """Why there is nothing to explain on these rows, or None."""
    if home is not None and not home.yes:
        return f"the model is not seen to do the task: {home.said}"
    if estimate(lost).low <= 0:
        return "cutting every edge at once costs nothing"
    return None


def _p_values(differences: Float[np.ndarray, "row look"]) -> Float[np.ndarray, " look"]:
    """Two-sided, of a mean of 0, by Student's t over rows; 1 where nothing differs at all."""
    n = len(differences)
    mean, deviation = differences.mean(0), differences.std(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(mean == 0, 0.0, mean / (deviation / np.sqrt(n)))
    p: Float[np.ndarray, " look"] = 2 * stats.t.sf(np.abs(t), n - 1)
    return p


def _measured(
    trial: CutObjective,
    intact: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
    level: float,
    max_edges: int,
    progress: Callable[[str], None],
    *,
    test: bool,
) -> list[EdgeEffect]:
    """Every edge, measured where its estimate is among the largest; the circuit's are kept."""
    everything = trial.edges
    chosen, attributions = np.arange(len(everything)), None
    if len(everything) > max_edges:
        progress("attributing to edges")
        attributions = -trial.attributions().mean(0)
        chosen = np.sort(np.argsort(-np.abs(attributions), kind="stable")[:max_edges])
    values = trial.values([[everything[i]] for i in chosen.tolist()], progress)
    effects, p = np.full(len(everything), np.nan), np.ones(len(everything))
    effects[chosen] = intact.mean() - values.mean(0)
    p[chosen] = _p_values(intact[:, None] - values)
    adjusted = holm(p) if test else np.full(len(p), np.nan)
    kept = kept_edges(effects, adjusted, float(intact.mean() - all_cut.mean()), level)
    connected = _connected([e for e, keep in zip(everything, kept, strict=True) if keep])
    measured = set(chosen.tolist())
    return [
        EdgeEffect(
            edge=edge,
            attribution=None if attributions is None else float(attributions[i]),
            effect=float(effects[i]) if i in measured else None,
            p_value=float(adjusted[i]) if test and i in measured else None,
            kept=edge in connected,
        )
        for i, edge in enumerate(everything)
    ]


def _completed(
    trial: CutObjective,
    edges: list[EdgeEffect],
    intact: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
    level: float,
    max_edges: int,
    progress: Callable[[str], None],
) -> list[EdgeEffect]:
    """Edges added that others make up for when they alone are cut (step 5 of the module)."""
    everything = trial.edges
    total = float(intact.mean() - all_cut.mean())
    kept = {e.edge for e in edges if e.kept or _by_rule(e, total, level)}
    added: dict[Edge, float] = {}
    for number in range(MOST_ROUNDS):
        alone = trial.values([[e for e in everything if e not in kept]])[:, 0]
        if (alone - all_cut).mean() >= ENOUGH * total:
            break
        sets = _additions(everything, kept)[: min(max_edges, MOST_TRIED)]
        if not sets:
            break
        progress(f"edges that others make up for, round {number + 1}")
        cuts = [[e for e in everything if e not in kept and e not in more] for more in sets]
        gains = trial.values(cuts, progress) - alone[:, None]
        chosen = kept_edges(gains.mean(0), holm(_p_values(gains)), total, level / (1 + MOST_ROUNDS))
        chosen &= gains.mean(0) > 0
        if not chosen.any():
            break
        for more, gain, keep in zip(sets, gains.mean(0).tolist(), chosen, strict=True):
            if keep:
                added |= {e: gain for e in more if e not in kept and e not in added}
        kept |= added.keys()
    on_path = _connected(kept)
    return [
        dataclasses.replace(e, kept=True, added=added.get(e.edge)) if e.edge in on_path else e
        for e in edges
    ]


def _by_rule(effect: EdgeEffect, total: float, level: float) -> bool:
    """Whether an edge's own cut is enough to keep it, on a path of such edges or not."""
    if effect.effect is None:
        return False
    p = np.array([np.nan if effect.p_value is None else effect.p_value])
    return bool(kept_edges(np.array([effect.effect]), p, total, level)[0])


def _additions(everything: Sequence[Edge], kept: Collection[Edge]) -> list[set[Edge]]:
    """What may be added: single edges between the kept nodes, and nodes with all edges to them."""
    nodes = {n for e in kept for n in (e.source, e.target)} | {Node("input"), Node("logits")}
    single = [{e} for e in everything if e not in kept and {e.source, e.target} <= nodes]
    by_node: dict[Node, set[Edge]] = {}
    for edge in everything:
        new = {edge.source, edge.target} - nodes
        if len(new) == 1:
            by_node.setdefault(new.pop(), set()).add(edge)
    return [*by_node.values(), *single]


def _connected(edges: Collection[Edge]) -> set[Edge]:
    """Those on a path from the input to the logits."""
    graph = nx.DiGraph([(e.source.name, e.target.name) for e in edges])
    graph.add_nodes_from([INPUT, LOGITS])
    on_path = (nx.descendants(graph, INPUT) | {INPUT}) & (nx.ancestors(graph, LOGITS) | {LOGITS})
    return {e for e in edges if e.source.name in on_path and e.target.name in on_path}
