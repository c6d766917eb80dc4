"""Selection of a circuit with too many edges to ablate them all: attribution, then exact ablation.

Steps:
1. Every edge gets an estimate of its effect on every prompt (`passes.attribution`); a node's
   estimate is the sum over its outgoing edges, that is, the estimate of ablating the node.
2. Nodes are taken, largest estimates first, until they and all edges between them keep NODES_KEEP
   of the metric on the selection half, everything else ablated; then the largest of these edges,
   until they keep EDGES_KEEP. Sizes are doubled, then bisected. Nodes come first because a head
   needs many small edges, and because people can read a list of nodes.
3. Edges are ablated one by one, largest estimates first, in blocks, until a block has none that
   matters: significantly different from 0, and at least SHARE of the metric. Then a sample of the
   others is ablated too, which bounds how many screening missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from interp_toolkit.circuits.edges.checks import SHARE, Measured, joined, measured
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.wiring import Wiring
from interp_toolkit.stats import COVERAGE, clopper_pearson, mean_p_value

NODES_KEEP = 0.99  # of the behavior, where nodes are chosen
EDGES_KEEP = 0.97  # of the behavior, where edges between them are
FEWEST_NODES = 8  # beside the input, to begin with
FEWEST_EDGES = 32  # to begin with
HALVINGS = 3  # between the size that is enough and the one before
BLOCK = 32  # edges ablated before asking whether to go on


@dataclass(frozen=True)
class Screening:
    """How attribution chose edges, and how reliable it is for this model.

    Attributes:
        node_sizes: number of nodes (without the input) -> the fraction of the metric that they
            keep with all edges between them, on the prompts that edges are chosen on.
        edge_sizes: number of edges between the chosen nodes -> the fraction that they keep.
        reached: whether both reached their thresholds (NODES_KEEP, EDGES_KEEP).
        in_order: number of edges ablated one by one, largest estimates first.
        last_block_idle: whether these ended with a block in which no edge matters; otherwise the
            compute budget ended first.
        rank_correlation: Spearman's, between the sizes of their estimates and effects; or None.
        sampled: number of other edges that were sampled and ablated.
        sample_matters: number of sampled edges that matter.
        missed_at_most: upper bound of the fraction of other edges that matter (Clopper and
            Pearson, one-sided).
    """

    node_sizes: Mapping[int, float]
    edge_sizes: Mapping[int, float]
    reached: bool
    in_order: int
    last_block_idle: bool
    rank_correlation: float | None
    sampled: int
    sample_matters: int
    missed_at_most: float


@dataclass(frozen=True, eq=False)
class Selection:
    """The selection of the largest estimates, as a rule that applies to other prompts too.

    Attributes:
        wiring: the model's nodes and edges.
        n_nodes: number of selected nodes, without the input.
        n_edges: number of selected edges between them; None: all.
    """

    wiring: Wiring
    n_nodes: int
    n_edges: int | None

    def __call__(self, mean: Float[np.ndarray, " edge"]) -> Bool[np.ndarray, " edge"]:
        """The edges chosen by these mean estimates, without those on no path."""
        taken = np.zeros(len(self.wiring.writers) + 1, dtype=bool)
        taken[ranked_nodes(self.wiring, mean)[: self.n_nodes]] = True
        taken[[0, -1]] = True  # input and logits
        sources, targets = self.wiring.ends
        inside: np.ndarray = taken[sources] & taken[targets]
        if self.n_edges is not None and self.n_edges < inside.sum():
            between = np.flatnonzero(inside)
            inside = np.zeros(len(mean), dtype=bool)
            inside[between[ranked(mean[between])[: self.n_edges]]] = True
        return self.wiring.on_paths(inside)


def ranked_nodes(wiring: Wiring, mean: Float[np.ndarray, " edge"]) -> Int[np.ndarray, " node"]:
    """Indices of the writers (without the input), the largest estimated effect first."""
    cost = np.bincount(wiring.ends[0], weights=mean, minlength=len(wiring.writers))
    order: np.ndarray = 1 + np.argsort(-np.abs(cost[1:]), kind="stable")
    return order


def ranked(mean: Float[np.ndarray, " edge"]) -> Int[np.ndarray, " edge"]:
    """Edges by the size of their mean estimate, the largest first."""
    order: np.ndarray = np.argsort(-np.abs(mean), kind="stable")
    return order


def selected(
    trial: EdgeAblation,
    scores: Float[np.ndarray, "row edge"],
    values: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]],
    progress: Callable[[str], None],
) -> tuple[Selection, dict[int, float], dict[int, float]]:
    """The smallest sufficient numbers of nodes and edges, and the faithfulness of every size tried.

    Args:
        trial: the prompts that edges are chosen on.
        scores: the estimates on these prompts.
        values: the metric in the whole model, and with every edge ablated.
        progress: called with a description of each step.
    """
    intact, all_ablated = values
    whole, tried, mean = float((intact - all_ablated).mean()), 0, scores.mean(0)

    def keeps(selection: Selection) -> float:
        nonlocal tried
        tried += 1
        chosen_edges = trial.engine.wiring.masked(selection(mean))
        progress(
            f"trial circuit {tried} of at most {at_most}, of {len(chosen_edges):,} "
            f"{'edge' if len(chosen_edges) == 1 else 'edges'}"
        )
        return float((trial.alone([chosen_edges])[:, 0] - all_ablated).mean()) / whole

    wiring = trial.engine.wiring
    n_nodes = len(wiring.writers) - 1
    at_most = trials_at_most(n_nodes, len(trial.edges))
    nodes, by_nodes = least_enough(
        lambda n: keeps(Selection(wiring, n, None)), FEWEST_NODES, n_nodes, NODES_KEEP
    )
    n_between = int(Selection(wiring, nodes, None)(mean).sum())
    edges, by_edges = least_enough(
        lambda n: keeps(Selection(wiring, nodes, n)), FEWEST_EDGES, n_between, EDGES_KEEP
    )
    return Selection(wiring, nodes, edges), by_nodes, by_edges


def trials_at_most(n_nodes: int, n_edges: int) -> int:
    """The largest number of circuits that `selected` tries."""
    return most_trials(FEWEST_NODES, n_nodes) + most_trials(FEWEST_EDGES, n_edges)


def most_trials(fewest: int, most: int) -> int:
    """The largest number of sizes that `least_enough` tries.

    Examples:
        >>> most_trials(8, 8), most_trials(8, 100)
        (4, 8)
    """
    return 1 + max(0, math.ceil(math.log2(most / fewest))) + HALVINGS


def least_enough(
    keeps: Callable[[int], float], fewest: int, most: int, target: float
) -> tuple[int, dict[int, float]]:
    """The smallest size that keeps enough, and the fraction that each tried size keeps.

    If no size keeps enough, the best one.
    """
    shares: dict[int, float] = {}

    def enough(size: int) -> bool:
        shares[size] = keeps(size)
        return shares[size] >= target

    size = min(fewest, most)
    while not enough(size):
        if size >= most:
            return max(shares, key=lambda s: shares[s]), shares
        size = min(2 * size, most)
    low = max((s for s in shares if s < size), default=1)
    for _ in range(HALVINGS):
        middle = round((low * size) ** 0.5)
        if middle in (low, size):
            break
        if enough(middle):
            size = middle
        else:
            low = middle
    return size, shares


def until_none_matters(
    trial: EdgeAblation,
    order: Int[np.ndarray, " edge"],
    intact: Float[np.ndarray, " row"],
    total: float,
    most: int,
    progress: Callable[[str], None],
) -> tuple[Measured, bool]:
    """Ablate edges in this order; whether the last block has no edge that could matter."""
    measurement = Measured(order[:0], np.empty((len(intact), 0)))
    while len(measurement.edges) < min(most, len(order)):
        block = order[len(measurement.edges) : min(len(measurement.edges) + BLOCK, most)]
        new = measured(trial, block, intact, progress)
        measurement = joined(measurement, new)
        if not matter(new, total).any():
            return measurement, True
    return measurement, len(measurement.edges) == len(order)


def screening(
    scores: Float[np.ndarray, "row edge"],
    sizes: tuple[Mapping[int, float], Mapping[int, float]],
    in_order: tuple[Measured, bool],
    sample: Measured,
    total: float,
) -> Screening:
    """The record of how edges were chosen; see `Screening`."""
    measurement, ended = in_order
    n, n_matter = len(sample.edges), int(matter(sample, total).sum())
    estimates, effects = scores.mean(0)[measurement.edges], measurement.losses.mean(0)
    correlation = None
    if len(estimates):
        correlation = float(stats.spearmanr(np.abs(estimates), np.abs(effects)).statistic)
    return Screening(
        node_sizes=dict(sorted(sizes[0].items())),
        edge_sizes=dict(sorted(sizes[1].items())),
        reached=max(sizes[0].values()) >= NODES_KEEP and max(sizes[1].values()) >= EDGES_KEEP,
        in_order=len(measurement.edges),
        last_block_idle=ended,
        rank_correlation=correlation,
        sampled=n,
        sample_matters=n_matter,
        missed_at_most=clopper_pearson(n_matter, n, 2 * COVERAGE - 1)[1] if n else 1.0,
    )


def matter(measurement: Measured, total: float) -> Bool[np.ndarray, " chosen"]:
    """Edges whose effect is significant and reaches SHARE of the metric."""
    large = np.abs(measurement.losses.mean(0)) >= SHARE * abs(total)
    p_values = mean_p_value(measurement.losses)
    significant: Bool[np.ndarray, " chosen"] = large & (p_values < 1 - COVERAGE)
    return significant
