"""Audit of a circuit: are these edges sufficient, and are they necessary?

- there: at least one edge lies on a path of these edges from the input to the logits;
- all: the circuit alone, with all other edges ablated, does what the model does: its fraction of
  the metric lies within `within` of 1 (`circuits.edges.checks`); reported for each ablation value
  (the corrupted prompt's, the mean of others, zero);
- matters: without its edges the model keeps less than half of the metric;
- special: the fraction of random circuits that do as well: with heads permuted within their layers,
  with as many random edges into each layer, or, if these are too few, made of random paths;
- stable: the circuit alone is sufficient on resampled prompts, and in every group of them.

Intervals of `all` and `matters` are Fieller's, over prompts: the fraction is a ratio of two
measured means. Mean ablation values are taken from one half of the prompts, and the circuit is
tested on the other, as with zeros; with corrupted prompts, it is tested on all. Only the author of
the claim knows whether the circuit was selected on the same prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from interp_toolkit.auditing.claims.kinds import CircuitClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import Part, measured, share_of_random, untestable
from interp_toolkit.auditing.threshold import DRAWS, STABLE, judge_groups, large_groups
from interp_toolkit.circuits.edges.checks import rivals
from interp_toolkit.circuits.edges.passes.ablation_value import WORDS, Kind, kinds_for
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import CHANNELS, Edge, Wiring
from interp_toolkit.circuits.metrics.metrics import Metric
from interp_toolkit.circuits.metrics.task import metric_for
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import Answer, all_answers, answer_by, answer_of
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.stats import Share, estimate, ratio_share

ASSERTED = {"sufficient": ("all",), "necessary": ("matters",), "both": ("all", "matters")}
NEEDED = 0.5  # of the metric: smallest loss without a necessary circuit
FEWEST_ROWS = 4
RIVALS = 24  # of both kinds together


def audit_circuit(claim: CircuitClaim, context: AuditContext) -> list[Part]:
    """The parts of a claim about a circuit.

    Raises:
        InputError: a model that cannot be decomposed into edges, edges that it does not have, or
            fewer than FEWEST_ROWS prompts.
    """
    audit = _CircuitAudit(claim, context)
    there = audit.there()
    if (reason := audit.untestable) is not None:
        asserted = audit.asserted
        return [
            there,
            *(
                untestable(q, reason, "intervened", asserted=q in asserted)
                for q in ("matters", "all")
            ),
        ]
    return [there, audit.matters(), audit.all_of_it(), audit.special(), audit.stable()]


@dataclass(frozen=True, eq=False)
class _CircuitAudit:
    """Audit of one circuit."""

    claim: CircuitClaim
    context: AuditContext

    @property
    def asserted(self) -> tuple[str, ...]:
        """The questions on which the claim depends."""
        return ASSERTED[self.claim.says]

    @cached_property
    def engine(self) -> PatchedModel:
        """The model with patchable edges."""
        return PatchedModel(self.context.model)

    @cached_property
    def edges(self) -> list[Edge]:
        """The claim's edges in this model."""
        return edges_of(self.claim.circuit, self.engine.wiring)

    @cached_property
    def metric(self) -> Metric:
        """The metric of the prompts."""
        return metric_for(self.context.model, self.context.prompts, self.context.memory)[0]

    @property
    def untestable(self) -> str | None:
        """Why the circuit cannot be tested here; None if it can."""
        reason = self.context.untestable
        if reason is not None and (
            self.metric.measures_task or self.context.task_check is not None
        ):
            return reason
        whole, nothing = self.values_intact, self.values_ablated
        if not estimate(whole - nothing, unseen=1.0).low > 0:
            return "ablating all edges does not significantly lower the metric on these prompts"
        return None

    @cached_property
    def trial(self) -> EdgeAblation:
        """Edge ablations on the prompts on which the circuit is tested."""
        return self._trial(kinds_for(self.context.prompts)[0])

    def _trial(self, kind: Kind) -> EdgeAblation:
        n = len(self.context.prompts)
        if n < FEWEST_ROWS:
            raise InputError(
                f"too few prompts ({n}) to test a circuit: give at least {FEWEST_ROWS}"
            )
        order = torch.from_numpy(self.context.rng(4).permutation(n))
        rows, others = (order, order) if kind == "corrupted" else (order[::2], order[1::2])
        memory = parse_memory(self.context.memory)
        prompts = self.context.prompts
        return EdgeAblation(self.engine, prompts, rows, others, self.metric, memory, kind)

    @cached_property
    def values_intact(self) -> np.ndarray:
        """The metric of each prompt in the whole model."""
        return self.trial.intact()

    @cached_property
    def _alone(self) -> np.ndarray:
        return self.trial.alone([self.edges, ()], self.context.progress)

    @property
    def values_alone(self) -> np.ndarray:
        """The metric of each prompt in the circuit alone."""
        return self._alone[:, 0]

    @property
    def values_ablated(self) -> np.ndarray:
        """The metric of each prompt with all edges ablated."""
        return self._alone[:, 1]

    def there(self) -> Part:
        """Whether any edge lies on a path of these edges from the input to the logits."""
        on_paths = self.engine.wiring.connected(self.edges)
        n, idle = len(self.edges), len(self.edges) - len(on_paths)
        text = f"{n} of the model's {len(self.engine.wiring.edges):,} edges"
        text += f"; {idle} of them are on no path from the input to the logits" if idle else ""
        return Part("there", answer_by(bool(on_paths), not on_paths), text, "computed")

    def share(
        self, part: np.ndarray, coverage: float, of: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Share:
        """The fraction of the metric that `part` retains, relative to ablating all edges."""
        intact, nothing = (self.values_intact, self.values_ablated) if of is None else of
        left, whole = part - nothing, intact - nothing
        return ratio_share(left, whole, coverage)

    def all_of_it(self) -> Part:
        """Whether the circuit alone is sufficient."""
        coverage = self.context.coverage(len(self.asserted))
        share, within = self.share(self.values_alone, coverage), self.claim.within
        answer = sufficient(share, within)
        others = []
        for kind in kinds_for(self.context.prompts)[1:]:
            trial = self._trial(kind)
            alone, nothing = trial.alone([self.edges, ()], self.context.progress).T
            other = self.share(alone, coverage, (trial.intact(), nothing))
            others.append(f"{percent_ci(other)} ({WORDS[kind]})")
        text = (
            f"with all other edges replaced by {WORDS[self.trial.ablation_value.kind]}, it keeps "
            f"{percent_ci(share)} of the {self.metric.name}; claimed: {percent(1 - within)} to "
            f"{percent(1 + within)}. With other replacements it keeps {' and '.join(others)}"
        )
        return measured(
            "all", answer, text, "intervened", share, 1 - within, coverage, "all" in self.asserted
        )

    def matters(self) -> Part:
        """Whether the model needs the circuit's edges."""
        coverage = self.context.coverage(len(self.asserted))
        without = self.trial.values([self.edges], self.context.progress)[:, 0]
        share = self.share(without, coverage)
        lost = Share(1 - share.mean, 1 - share.high, 1 - share.low)
        text = (
            f"without these edges the model loses {percent_ci(lost)} of the {self.metric.name}; "
            f"needed: at least {percent(NEEDED)}"
        )
        answer = answer_of(lost.low, lost.high, NEEDED)
        asserted = "matters" in self.asserted
        return measured("matters", answer, text, "intervened", lost, NEEDED, coverage, asserted)

    def special(self) -> Part:
        """Whether random circuits of the same shape do as well."""
        seed, progress = self.context.seed, self.context.progress
        exchanged, random = rivals(self.trial, self.edges, seed, progress, RIVALS)
        shares = [*exchanged, *random]
        if not shares:
            text = (
                "sampling found no other circuit of the same shape that shares at most half of "
                "these edges"
            )
            return untestable("special", text, "intervened", asserted=False)
        own = float(
            (self.values_alone - self.values_ablated).mean()
            / (self.values_intact - self.values_ablated).mean()
        )
        target = min(own, 1 - self.claim.within)
        good = sum(share >= target for share in shares)
        text = f"{good} of {len(shares)} random circuits of the same shape keep as much"
        coverage = self.context.coverage(1)
        return share_of_random(good, len(shares), text, "intervened", coverage)

    def stable(self) -> Part:
        """Whether the circuit alone is sufficient on resampled prompts and in every group."""
        left, whole = (
            self.values_alone - self.values_ablated,
            self.values_intact - self.values_ablated,
        )
        n, within = len(left), self.claim.within
        samples = self.context.rng(5).integers(n, size=(DRAWS, n))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = left[samples].mean(1) / whole[samples].mean(1)
        share = float((np.abs(ratios - 1) <= within).mean())
        text = (
            f"in {percent(share)} of {DRAWS} bootstraps of the prompts it keeps "
            f"{percent(1 - within)} to {percent(1 + within)}"
        )
        answer = answer_by(share >= STABLE)
        groups = self.context.groups
        groups = None if groups is None else groups[self.trial.rows.numpy()]
        fractions = {
            name: float(left[rows].mean() / whole[rows].mean())
            for name, rows in large_groups(groups)
        }
        answer, text = judge_groups(answer, text, fractions, lambda ratio: abs(ratio - 1) <= within)
        return Part("stable", answer, text, "intervened", value=share, bound=STABLE)


def sufficient(share: Share, within: float) -> Answer:
    """Whether a fraction of the metric is within `within` of 1."""
    least = answer_of(share.low, share.high, 1 - within)
    return all_answers([least, answer_of(-share.high, -share.low, -(1 + within))])


def edges_of(names: Sequence[str], wiring: Wiring) -> list[Edge]:
    """A model's edges by EAP-IG's names: of edges, or of nodes for all edges between them.

    An edge into a head without a channel stands for its three channels. Nodes imply the input and
    the logits.

    Raises:
        InputError: a name without an edge or node in this model.
    """
    nodes = {node.name for edge in wiring.edges for node in (edge.source, edge.target)}
    if not any("->" in name for name in names):
        if missing := [name for name in names if name not in nodes]:
            raise InputError(f"the model has no node {missing[0]}; it has {_extent(wiring)}")
        inside = {*names, "input", "logits"}
        return [e for e in wiring.edges if {e.source.name, e.target.name} <= inside]
    edges_by_name = {edge.name: edge for edge in wiring.edges}
    edges: dict[Edge, None] = {}
    for name in names:
        several = (
            [name] if name in edges_by_name else [f"{name}<{channel}>" for channel in CHANNELS]
        )
        if several[0] not in edges_by_name:
            raise InputError(f"the model has no edge {name}; it has {_extent(wiring)}")
        edges |= {edges_by_name[one]: None for one in several}
    return list(edges)


def _extent(wiring: Wiring) -> str:
    mlps = sum(wiring.mlps)
    return f"{wiring.n_layers} layers of {wiring.n_heads} heads and {mlps} MLPs"
