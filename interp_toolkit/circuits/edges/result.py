"""What the analysis of a circuit returns: its edges and nodes, the graph, what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from interp_toolkit.circuits.edges.export import write_graph
from interp_toolkit.circuits.edges.wiring import label_of
from interp_toolkit.results import Evidence, Result, Table

if TYPE_CHECKING:
    import pandas as pd

LISTED = 60  # edges in the table


@dataclass(frozen=True)
class CircuitEvidence(Evidence):
    """What the verdict on a circuit rests on.

    Attributes:
        measured: what the circuit is judged by, and how it is defined.
        unit: of it.
        intact: its mean in the whole model.
        every_edge_cut: its mean with every edge cut.
        edges: of the model.
        cut_edges_get: what stands in for a cut edge.
        edges_cut_one_by_one: how many were measured.
        edges_estimated_only: how many were not.
        faithfulness: the share that the circuit keeps alone, on held-out rows.
        faithfulness_low, faithfulness_high: its interval.
        faithfulness_where_chosen: the same on the rows that edges were chosen on.
        rule: what an edge had to show to be kept.
        equivalent: whether the circuit does what the model does: the interval of its faithfulness
            lies within `equivalent_within` of 1.
        rest_keeps, rest_keeps_low, rest_keeps_high: the share that the model keeps without the
            circuit's edges.
        edges_taken_out: edges of the circuit taken out of it one by one; edges_needed: how many of
            them change more than nearly all edges outside do when put in.
        jaccard_of_bootstraps: of the edges that the rule chose with those it chooses on rows drawn
            anew.
        edges_chosen: how many it chose, without those added because others make up for them;
            edges_chosen_again: how many of them four of five such draws choose.
        rivals: circuits of the same size that were tried; rivals_as_good: how many keep as much.
        best_rival_keeps: the most that one of them keeps.
        runner_up_keeps: what the best edges outside the circuit keep, as many.
        keeps_with: what the circuit keeps with something else read over cut edges.
        jaccard_with: of the circuit with one chosen so.
        screening: see `edges.screened.Screening`; None where every edge could be cut.
    """

    measured: str
    unit: str
    intact: float
    every_edge_cut: float
    edges: int
    cut_edges_get: str
    edges_cut_one_by_one: int | None = None
    edges_estimated_only: int | None = None
    faithfulness: float | None = None
    faithfulness_low: float | None = None
    faithfulness_high: float | None = None
    faithfulness_where_chosen: float | None = None
    rule: str | None = None
    equivalent: bool | None = None
    equivalent_within: float | None = None
    rest_keeps: float | None = None
    rest_keeps_low: float | None = None
    rest_keeps_high: float | None = None
    edges_taken_out: int | None = None
    edges_needed: int | None = None
    jaccard_of_bootstraps: float | None = None
    edges_chosen: int | None = None
    edges_chosen_again: int | None = None
    rivals: int | None = None
    rivals_as_good: int | None = None
    best_rival_keeps: float | None = None
    runner_up_keeps: float | None = None
    keeps_with: Mapping[str, float] | None = None
    jaccard_with: Mapping[str, float] | None = None
    screening: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class EdgeRow:
    """An edge of the circuit.

    Attributes:
        edge: as EAP-IG names it: `a0.h1->a1.h0<k>`.
        effect: mean loss of the behaviour when it alone is cut.
        p_value: of that, Holm-adjusted over all edges of the model.
        added: gain when it, or its node with it, was added to the circuit, all else cut: others
            make up for it when it alone is cut; None where its own effect is why it is there.
        composition: of the two heads' weights by this channel; None where there are not two heads.
        composition_p: the chance that permuted coordinates compose as much, Holm-adjusted.
        low, high: the interval of `effect`.
        estimate: of the effect, by attribution; None where every edge was cut.
        chosen_again: the share of bootstraps of the rows that choose it again.
    """

    edge: str
    effect: float | None
    p_value: float | None
    composition: float | None
    composition_p: float | None
    added: float | None = None
    low: float | None = None
    high: float | None = None
    estimate: float | None = None
    chosen_again: float | None = None


@dataclass(frozen=True)
class CircuitResult(Result):
    """The circuit of a model's behaviour.

    Attributes:
        edges: the circuit's, the largest effect first.
        nodes: name -> effect, of the circuit's nodes that write.
        node_intervals: name -> the ends of its effect's interval.
        graph: the circuit as node-link data.
        network: the same as `composition_graph` gives it, for `write_graph`.
    """

    edges: Sequence[EdgeRow]
    nodes: Mapping[str, float]
    node_intervals: Mapping[str, tuple[float, float]]
    graph: Mapping[str, Any] = field(repr=False)
    network: nx.DiGraph = field(repr=False)

    omit_from_json = frozenset({"network"})

    def to_frame(self) -> pd.DataFrame:
        """One row per edge of the circuit."""
        import pandas as pd

        columns = list(EdgeRow.__dataclass_fields__)
        return pd.DataFrame([[getattr(e, c) for c in columns] for e in self.edges], columns=columns)

    def tables(self) -> list[Table]:
        """The edges, then the nodes; none where there is no circuit."""
        if not self.edges:
            return []
        return [self._edge_table(), self._node_table(), self._check_table()]

    def _edge_table(self) -> Table:
        columns: dict[str, list[Any]] = {
            "edge": [label_of(e.edge) for e in self.edges],
            "effect": [e.effect for e in self.edges],
            "low": [e.low for e in self.edges],
            "high": [e.high for e in self.edges],
            "p": [e.p_value for e in self.edges],
            "estimate": [e.estimate for e in self.edges],
            "chosen again": [e.chosen_again for e in self.edges],
            "composition": [e.composition for e in self.edges],
            "composition p": [e.composition_p for e in self.edges],
        }
        known = {n: c[:LISTED] for n, c in columns.items() if any(x is not None for x in c)}
        left_out = len(self.edges) - LISTED
        return Table(
            "Edges",
            list(known),
            [list(row) for row in zip(*known.values(), strict=True)],
            f"Effect: {self._unit} lost when the edge alone is cut, with its interval; p: "
            "Holm-adjusted over all edges. "
            + ("Estimate: by attribution. " if "estimate" in known else "")
            + "Chosen again: the share of bootstraps of the rows that choose it; below 80 % it is "
            "not stable."
            + (
                " Composition: of the two heads' weights, 0 to 1; its p: with coordinates in "
                "random order."
                if "composition" in known
                else ""
            )
            + (f" {left_out:,} more are in the JSON and the graph." if left_out > 0 else ""),
        )

    def _node_table(self) -> Table:
        order = sorted(self.nodes, key=lambda name: -abs(self.nodes[name]))
        return Table(
            "Nodes",
            ["node", "effect", "low", "high"],
            [[label_of(name), self.nodes[name], *self.node_intervals[name]] for name in order],
            f"Effect: {self._unit} lost when all that the node writes is cut, with its interval.",
        )

    def _check_table(self) -> Table:
        """What the circuit stood up to; see `edges.checks`."""
        found = self.evidence
        assert isinstance(found, CircuitEvidence)
        rows: list[list[Any]] = [
            ["the circuit keeps", found.faithfulness],
            ["  interval from", found.faithfulness_low],
            ["  to", found.faithfulness_high],
            ["the rest keeps", found.rest_keeps],
            *[[f"the circuit keeps, cut edges at {k}", v] for k, v in _pairs(found.keeps_with)],
            ["the best rival keeps", found.best_rival_keeps],
            ["the runner-up keeps", found.runner_up_keeps],
            ["edges needed, of those taken out", _share(found.edges_needed, found.edges_taken_out)],
            ["edges chosen again", _share(found.edges_chosen_again, found.edges_chosen)],
            ["Jaccard with bootstraps' circuits", found.jaccard_of_bootstraps],
            *[[f"Jaccard, cut edges at {kind}", v] for kind, v in _pairs(found.jaccard_with)],
        ]
        return Table(
            "What it stands up to",
            ["asked", "share"],
            [row for row in rows if row[1] is not None],
            "Shares of what cutting every edge costs, on held-out rows; of edges; and how alike "
            "choices are (Jaccard), on the rows that edges were chosen on.",
        )

    @property
    def _unit(self) -> str:
        return str(self.graph["graph"]["unit"])

    def write_graph(self, path: Path) -> None:
        """Write the graph: `.graphml`, `.json` (node-link) or `.eap.json`."""
        write_graph(self.network, path)


def _pairs(found: Mapping[str, float] | None) -> list[tuple[str, float]]:
    return list((found or {}).items())


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
