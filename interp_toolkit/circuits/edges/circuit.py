"""The result of a circuit search: every edge with its effects, and the checks of the circuit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.edges.checks import Checks, Faithfulness, Measured
from interp_toolkit.circuits.edges.passes.ablation_value import Kind
from interp_toolkit.circuits.edges.passes.attribution import Patching
from interp_toolkit.circuits.edges.screened import Screening
from interp_toolkit.circuits.edges.wiring import Edge, Node, Wiring
from interp_toolkit.circuits.metrics.metrics import Metric
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.results import Status
from interp_toolkit.stats import Estimate


@dataclass(frozen=True)
class EdgeEffect:
    """The effect of one edge on the prompts that edges were chosen on.

    Attributes:
        edge: the edge.
        attribution: the estimate of `effect`; None where all edges were measured.
        effect: mean loss of the metric when this edge alone is ablated; None: not measured.
        p_value: p-value of a mean of 0, paired t over prompts, Holm-adjusted over all of the
            model's edges, measured or not. None if the edge was not measured, if edges are chosen
            by attribution, and for metrics that ablation can only lower (KL divergence): a mean of
            0 is then no null hypothesis.
        in_circuit: whether it is in the circuit.
        added: gain of the metric when it, or its node with it, was added to the circuit, all else
            ablated; None where its own ablation was enough to keep it, or it was not added.
        low, high: the interval of `effect`; None where it was not measured.
    """

    edge: Edge
    attribution: float | None
    effect: float | None
    p_value: float | None
    in_circuit: bool
    added: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def weight(self) -> float:
        """The effect, or its estimate where it was not measured."""
        return (self.effect if self.effect is not None else self.attribution) or 0.0


@dataclass(frozen=True)
class Nothing:
    """Why there is no circuit to search for.

    Attributes:
        status: "not_tested" if the model does not perform the task; otherwise the status that
            the effect of ablating every edge allows.
        reason: the reason in one sentence.
    """

    status: Status
    reason: str


@dataclass(frozen=True, eq=False)
class Circuit:
    """The result of a search.

    Attributes:
        wiring: the model's nodes and edges.
        metric: the metric.
        ablation_kind: kind of the ablation value.
        edges: every edge of the model.
        node_effects: loss of the metric when the whole output of a node is ablated, for each node
            of the circuit but the logits; in a large circuit only for those with the largest
            estimates.
        held_out: faithfulness on prompts that took no part in choosing; None if `nothing` says why
            there is no circuit to search for.
        chosen_on: faithfulness on the prompts that edges were chosen on; None likewise.
        intact, all_ablated: mean metric on the prompts that edges were chosen on.
        nothing: why there is no circuit to search for; None where there is one.
        chosen: the edges that the rule chose; the circuit's other edges were added.
        task_check: whether the model performs the task; None where that was not tested.
        checks: further checks of the circuit; None without a circuit.
        screening: the choice by attribution, if there were too many edges to ablate them all.
        patching: activation patching from corrupted prompts; None without these.
    """

    wiring: Wiring
    metric: Metric
    ablation_kind: Kind
    edges: Sequence[EdgeEffect]
    node_effects: Mapping[Node, Estimate]
    held_out: Faithfulness | None
    chosen_on: Faithfulness | None
    intact: float
    all_ablated: float
    nothing: Nothing | None
    chosen: Collection[Edge] = ()
    task_check: TaskCheck | None = None
    checks: Checks | None = None
    screening: Screening | None = None
    patching: Patching | None = None

    @property
    def included(self) -> list[EdgeEffect]:
        """The circuit's edges, the largest effect first; those only estimated come last."""
        chosen = [e for e in self.edges if e.in_circuit]
        return sorted(chosen, key=lambda e: (e.effect is None, -abs(e.weight)))

    @property
    def n_measured(self) -> int:
        """The number of edges ablated one by one; the others were estimated only."""
        return sum(e.effect is not None for e in self.edges)


def described(
    edges: Sequence[Edge],
    attributions: Float[np.ndarray, " edge"] | None,
    measurement: Measured,
    included: Collection[Edge],
    *,
    test: bool,
    unseen: float = 0.0,
) -> list[EdgeEffect]:
    """Every edge of the model with its measurements.

    Args:
        edges: all edges of the model.
        attributions: estimates of their effects, if there are any.
        measurement: measured effects of some of them.
        included: the edges of the circuit.
        test: whether a mean of 0 is a null hypothesis.
        unseen: how far prompts may differ that were not drawn, as in `stats.estimate`.
    """
    adjusted = np.nan_to_num(measurement.p_adjusted(len(edges), attributions), nan=1.0)
    low, high = measurement.intervals(unseen)
    column = {edge: i for i, edge in enumerate(measurement.edges.tolist())}
    means = measurement.losses.mean(0)
    rows = []
    for i, edge in enumerate(edges):
        estimate = None if attributions is None else float(attributions[i])
        at = column.get(i)
        if at is None:
            rows.append(EdgeEffect(edge, estimate, None, None, edge in included))
            continue
        rows.append(
            EdgeEffect(
                edge=edge,
                attribution=estimate,
                effect=float(means[at]),
                p_value=float(adjusted[i]) if test else None,
                in_circuit=edge in included,
                low=float(low[at]),
                high=float(high[at]),
            )
        )
    return rows
