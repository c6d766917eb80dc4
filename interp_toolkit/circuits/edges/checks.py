"""Faithfulness of a circuit, with its interval, and further checks of the circuit.

`measured` ablates edges one by one: each prompt's drop in the metric, with intervals of the means.

*Faithfulness* is the fraction of the metric that a circuit retains when all other edges are ablated
at once: `(circuit - all_ablated) / (intact - all_ablated)`, of means over prompts (Wang et al.
2023, arXiv 2211.00593). It depends on the ablation value (Miller et al. 2024, arXiv 2407.08734).
Its interval is Fieller's (1954) for a ratio of means of pairs, by Student's t: all ratios r for
which the mean of `(circuit - all_ablated) - r (intact - all_ablated)` does not differ significantly
from 0. Where the effect of ablating every edge is not significant itself, every ratio is possible
and the interval is infinite; a bootstrap of few prompts would be overconfident there.

`Checks` go beyond faithfulness, on held-out prompts (stability: on those that chose the edges):
- *independence*: what the rest of the model retains when the circuit's edges are ablated;
- *minimality*: whether removing an edge changes the metric more than adding an edge between the
  circuit's nodes that is not part of it (Shi et al. 2024, arXiv 2410.13032);
- *stability*: how often the selection rule chooses an edge again on bootstrap samples of the
  prompts, and with another ablation value, and what the circuit retains under that value (Miller et
  al. 2024; arXiv 2510.00845). Edges that were added because others compensate for them are exempt;
- *rivals*: what other circuits of the same size retain. Some have the heads of each layer permuted.
  Others have random edges, as many into each layer's channels, its MLP and the logits. Where these
  are too few, edges of random paths follow, as many or a few more. At least one edge of a rival
  lies on a path from input to logits (else it could retain nothing), and no rival has more than
  half of the circuit's edges. The edges with the largest estimates outside the circuit are
  tested as well (arXiv 2502.20914).

*Equivalence* is the claim that earns a ✓: the interval of faithfulness lies within EQUAL of 1, the
circuit has at most MOST of the model's edges, and enough rivals were tested and retain less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.circuits.edges.passes.ablation_value import Kind
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.wiring import Edge, Node, Wiring
from interp_toolkit.evidence import Control, control_of_p
from interp_toolkit.stats import COVERAGE, LEVEL, estimate, holm, mean_p_value, ratio_share

ROUNDING = 1e-6  # of the largest change of a prompt: below, nothing has changed
#: the index of each chosen edge among the model's
Chosen = Int[np.ndarray, " chosen"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Edges that were ablated one by one.

    Attributes:
        edges: the ablated edges.
        losses: each prompt's drop in the metric under each ablation.
    """

    edges: Chosen
    losses: Float[np.ndarray, "row chosen"]

    def at(self, rows: Int[np.ndarray, " drawn"]) -> Measured:
        """The same edges on some of the prompts."""
        return Measured(self.edges, self.losses[rows])

    def p_adjusted(
        self, n_edges: int, estimates: Float[np.ndarray, " edge"] | None = None
    ) -> Float[np.ndarray, " edge"]:
        """Adjusted p-values of the mean losses (Holm); NaN for edges that are not tested.

        An edge that changes no prompt beyond rounding, or whose estimate is 0 where it was not
        measured, cannot be selected on these prompts, and is no test. Others that were not measured
        count as tests with p = 1.

        Args:
            n_edges: number of the model's edges.
            estimates: estimated effects of all edges, by which those to measure were chosen.
        """
        size = np.abs(self.losses).max(0, initial=0.0)
        p = np.ones(n_edges) if estimates is None else np.where(estimates == 0, np.nan, 1.0)
        p[self.edges] = mean_p_value(self.losses)
        p[self.edges[size <= ROUNDING * size.max(initial=0.0)]] = np.nan
        return holm(p)

    def intervals(self, unseen: float) -> Float[np.ndarray, "2 chosen"]:
        """Intervals of the mean losses over prompts; `unseen` as in `stats.estimate`."""
        means = [estimate(loss, unseen=unseen) for loss in self.losses.T]
        return np.array([[mean.low for mean in means], [mean.high for mean in means]])


def measured(
    trial: EdgeAblation,
    chosen: Chosen,
    intact: Float[np.ndarray, " row"],
    progress: Callable[[str], None],
) -> Measured:
    """Ablate these edges one by one."""
    values = trial.values([[trial.edges[i]] for i in chosen.tolist()], progress)
    return Measured(chosen, intact[:, None] - values)


def joined(a: Measured, b: Measured) -> Measured:
    """Concatenate two sets of measured edges."""
    return Measured(
        np.concatenate([a.edges, b.edges]), np.concatenate([a.losses, b.losses], axis=1)
    )


SHARE = 0.01  # of what ablating every edge costs: the least effect of an edge that matters


@dataclass(frozen=True)
class Faithfulness:
    """The fraction of the metric that a circuit retains by itself.

    Attributes:
        intact: mean metric of the whole model.
        circuit: the metric with every edge outside the circuit ablated.
        all_ablated: the metric with every edge ablated.
        share: `(circuit - all_ablated) / (intact - all_ablated)`.
        low, high: its interval over prompts; infinite where `intact - all_ablated` is not
            significant.
        n_rows: number of prompts.
    """

    intact: float
    circuit: float
    all_ablated: float
    share: float
    low: float
    high: float
    n_rows: int


def faithfulness(trial: EdgeAblation, edges: Collection[Edge]) -> Faithfulness:
    """The faithfulness of a circuit on a trial's prompts.

    Args:
        trial: the prompts, and the ablation values.
        edges: the circuit's edges.
    """
    circuit, all_ablated = trial.alone([edges, ()]).T
    return share_of(trial.intact(), circuit, all_ablated)


def share_of(
    intact: Float[np.ndarray, " row"],
    circuit: Float[np.ndarray, " row"],
    all_ablated: Float[np.ndarray, " row"],
) -> Faithfulness:
    """Faithfulness from each prompt's metric in the whole model, in a circuit and without edges."""
    share = ratio_share(circuit - all_ablated, intact - all_ablated, COVERAGE)
    return Faithfulness(
        intact=float(intact.mean()),
        circuit=float(circuit.mean()),
        all_ablated=float(all_ablated.mean()),
        share=share.mean,
        low=share.low,
        high=share.high,
        n_rows=len(intact),
    )


EQUAL = 0.2  # of the behavior: how far from all of it the interval of an equivalent circuit reaches
MOST = 0.8  # of the model's edges, in a circuit that singles something out
STABLE = 0.8  # of the draws: an edge chosen in fewer is marked
DRAWS = 200  # bootstraps of the rows
RIVALS = 20  # none as good is p = 1/21; half of them, at most, with heads exchanged
SHARED = 0.5  # of the circuit's edges: a rival with more of them is no other circuit
TRIES = 64  # at each, to find one that is not the circuit itself
TESTED = 24  # edges taken out one by one, and put in one by one
UNUSUAL = 0.95  # quantile of what putting in changes

#: rows, drawn with repeats -> which edges are chosen on them
Select = Callable[[Int[np.ndarray, " row"]], Bool[np.ndarray, " edge"]]


@dataclass(frozen=True)
class Checks:
    """Checks beyond faithfulness, defined in the module; on held-out prompts, but for stability.

    Attributes:
        rest: faithfulness of the complement, with the circuit's edges ablated.
        tested: number of edges removed one by one.
        needed: number of these whose removal changes more than `idle_change`.
        idle_change: UNUSUAL quantile of the change when an edge outside is added.
        chosen_again: for each edge that the rule chose, the fraction of bootstraps that choose it.
        jaccard: mean Jaccard index of the chosen edges with those that bootstraps choose.
        by_kind: faithfulness under other ablation values.
        jaccard_by_kind: Jaccard index with the circuit chosen under that value, if one was.
        exchanged: fractions that circuits with heads permuted within their layers retain.
        random: fractions that random circuits retain.
        runner_up: faithfulness of as many edges outside the circuit with the largest estimates;
            None where there are none.
    """

    rest: Faithfulness
    tested: int
    needed: int
    idle_change: float
    chosen_again: Mapping[Edge, float]
    jaccard: float
    by_kind: Mapping[Kind, Faithfulness]
    jaccard_by_kind: Mapping[Kind, float]
    exchanged: Sequence[float]
    random: Sequence[float]
    runner_up: Faithfulness | None

    @property
    def n_stable(self) -> int:
        """Edges that at least STABLE of the bootstraps choose again."""
        return sum(rate >= STABLE for rate in self.chosen_again.values())

    def as_good(self, share: float) -> int:
        """The number of rival circuits that keep at least this fraction."""
        return sum(rival >= share for rival in (*self.exchanged, *self.random))

    def control(self, share: float) -> Control:
        """The control of the rivals: the chance that one of them keeps as much as the circuit."""
        n = len(self.exchanged) + len(self.random)
        name = "other circuits of the same size"
        if n == 0:
            return Control(name, "powerless", f"no comparison with {name} was made")
        if 1 / (1 + n) > LEVEL:
            return Control(name, "powerless", f"too few {name} were compared ({n})")
        return control_of_p(name, (1 + self.as_good(share)) / (1 + n), LEVEL)


def equivalent(faithfulness: Faithfulness) -> bool:
    """Whether the circuit does what the model does: the interval lies within EQUAL of 1."""
    return faithfulness.low >= 1 - EQUAL and faithfulness.high <= 1 + EQUAL


def rest_of(trial: EdgeAblation, edges: Collection[Edge]) -> Faithfulness:
    """The faithfulness of the complement: a circuit's edges are ablated."""
    return share_of(trial.intact(), trial.values([edges])[:, 0], trial.alone([()])[:, 0])


def minimality(
    trial: EdgeAblation,
    edges: Sequence[Edge],
    seed: int,
    progress: Callable[[str], None],
    tested: int = TESTED,
) -> tuple[int, int, float]:
    """Number of edges tested, number the circuit needs, and the change that counts as idle."""
    rng = np.random.default_rng([seed, 1])
    inside = set(edges)
    nodes = {node for e in edges for node in (e.source, e.target)}
    outside = [e for e in trial.edges if {e.source, e.target} <= nodes and e not in inside]
    out = [edges[i] for i in rng.permutation(len(edges))[:tested]]
    into = [outside[i] for i in rng.permutation(len(outside))[:tested]]
    if not out or not into:
        return 0, 0, float("nan")
    circuits = [inside, *(inside - {e} for e in out), *(inside | {e} for e in into)]
    values = trial.alone(circuits, progress, near=inside).mean(0)
    changes = np.abs(values[1:] - values[0])
    idle = float(np.quantile(changes[len(out) :], UNUSUAL))
    return len(out), int((changes[: len(out)] > idle).sum()), idle


def stability(
    select: Select,
    groups: Int[np.ndarray, " row"],
    chosen: Collection[Edge],
    wiring: Wiring,
    seed: int,
) -> tuple[dict[Edge, float], float]:
    """Stability: how often bootstraps of the prompts choose each edge, and how similar choices are.

    Args:
        select: the selection rule.
        groups: groups of the prompts that it chose on; equal prompts are sampled together.
        chosen: the edges it chose there.
        wiring: the model's edges.
        seed: random seed of the bootstrap samples.
    """
    rng = np.random.default_rng([seed, 2])
    members = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    inside = wiring.mask(chosen)
    again, alike = np.zeros(len(inside)), []
    for _ in range(DRAWS):
        sample = rng.integers(len(members), size=len(members))
        selected = select(np.concatenate([members[group] for group in sample]))
        again += selected
        alike.append(jaccard(selected, inside))
    rates = dict(zip(wiring.masked(inside), (again[inside] / DRAWS).tolist(), strict=True))
    return rates, float(np.mean(alike))


def rivals(
    trial: EdgeAblation,
    circuit: Collection[Edge],
    seed: int,
    progress: Callable[[str], None],
    count: int = RIVALS,
) -> tuple[list[float], list[float]]:
    """Fractions that other circuits of the same size retain: heads permuted, edges random.

    `count` circuits in all, or fewer where sampling yields no more different ones.
    """
    rng = np.random.default_rng([seed, 3])
    wiring = trial.engine.wiring
    tried = {frozenset(circuit)}
    inside = set(circuit)

    def differs(edges: list[Edge]) -> bool:
        return len(inside & set(edges)) <= SHARED * len(inside) and bool(wiring.connected(edges))

    def as_large(edges: list[Edge]) -> bool:
        return len(edges) >= len(inside) and differs(edges)

    exchanged = _others(lambda: _exchanged(circuit, wiring, rng), tried, count // 2, differs)
    random = _others(
        lambda: _random_circuit(circuit, wiring, rng), tried, count - len(exchanged), differs
    )
    left = count - len(exchanged) - len(random)
    random += _others(lambda: _paths(circuit, wiring, rng), tried, left, as_large)
    circuits = [*exchanged, *random]
    if not circuits:
        return [], []
    values = trial.alone([(), *circuits], progress).mean(0)
    shares = ((values[1:] - values[0]) / (trial.intact().mean() - values[0])).tolist()
    return shares[: len(exchanged)], shares[len(exchanged) :]


def _others(
    make: Callable[[], list[Edge]],
    tried: set[frozenset[Edge]],
    count: int,
    fits: Callable[[list[Edge]], bool] = bool,
) -> list[list[Edge]]:
    """Distinct circuits, none of them seen before; fewer than requested if too few come up."""
    others: list[list[Edge]] = []
    for _ in range(TRIES * count):
        one = make()
        if frozenset(one) not in tried:
            tried.add(frozenset(one))
            others += [one] if fits(one) else []
        if len(others) == count:
            break
    return others


def jaccard(a: Bool[np.ndarray, " edge"], b: Bool[np.ndarray, " edge"]) -> float:
    """The Jaccard index of two choices; 1 for two empty ones."""
    either = int((a | b).sum())
    return int((a & b).sum()) / either if either else 1.0


def _exchanged(edges: Collection[Edge], wiring: Wiring, rng: np.random.Generator) -> list[Edge]:
    """The same edges, with the heads of every layer permuted at random."""
    permutations = [rng.permutation(wiring.n_heads) for _ in range(wiring.n_layers)]

    def renamed(node: Node) -> Node:
        if node.layer is None or node.head is None:
            return node
        return Node("head", node.layer, int(permutations[node.layer][node.head]))

    return [Edge(renamed(e.source), renamed(e.target), e.channel) for e in edges]


def _paths(edges: Collection[Edge], wiring: Wiring, rng: np.random.Generator) -> list[Edge]:
    """Edges of random paths from input to logits, until they are as many, or more."""
    into: dict[Node, list[Edge]] = {}
    for edge in wiring.edges:
        into.setdefault(edge.target, []).append(edge)
    on_paths: set[Edge] = set()
    for _ in edges:
        node = Node("logits")
        while node in into:
            edge = into[node][rng.integers(len(into[node]))]
            on_paths.add(edge)
            node = edge.source
        if len(on_paths) >= len(edges):
            break
    return list(on_paths)


def _random_circuit(
    edges: Collection[Edge], wiring: Wiring, rng: np.random.Generator
) -> list[Edge]:
    """A random circuit with as many edges into each layer's channels, its MLP and the logits."""
    counts: dict[tuple[int, str | None], int] = {}
    for e in edges:
        group = (wiring.stage_of(e), e.channel)
        counts[group] = counts.get(group, 0) + 1
    sampled: list[Edge] = []
    for (number, channel), count in sorted(counts.items(), key=str):
        stage = wiring.stages[number]
        targets = [t for t, c in wiring.readers(stage) if c == channel]
        n = len(targets) * stage.n_sources
        for i in rng.choice(n, count, replace=False).tolist():
            source = wiring.writers[i % stage.n_sources]
            sampled.append(Edge(source, targets[i // stage.n_sources], channel))  # type: ignore[arg-type]
    return sampled
