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
        composition_p: the chance that a random rotation composes as much, Holm-adjusted.
    """

    edge: str
    effect: float | None
    p_value: float | None
    composition: float | None
    composition_p: float | None
    added: float | None = None


@dataclass(frozen=True)
class CircuitResult(Result):
    """The circuit of a model's behaviour.

    Attributes:
        edges: the circuit's, the largest effect first.
        nodes: name -> effect, of the circuit's nodes that write.
        graph: the circuit as node-link data.
        network: the same as `composition_graph` gives it, for `write_graph`.
    """

    edges: Sequence[EdgeRow]
    nodes: Mapping[str, float]
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
        unit = self.graph["graph"]["unit"]
        columns = ["edge", "effect", "p", "composition", "composition p"]
        rows = [
            [label_of(e.edge), e.effect, e.p_value, e.composition, e.composition_p]
            for e in self.edges
        ]
        kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
        edges = Table(
            "Edges",
            [columns[i] for i in kept],
            [[row[i] for i in kept] for row in rows],
            f"Effect: {unit} lost when the edge alone is cut; p: Holm-adjusted over all edges. "
            "Composition: of the two heads' weights, 0 to 1; its p: against random rotations.",
        )
        nodes = Table(
            "Nodes",
            ["node", "effect"],
            [[label_of(name), effect] for name, effect in self.nodes.items()],
            f"Effect: {unit} lost when all that the node writes is cut.",
        )
        return [edges, nodes]

    def write_graph(self, path: Path) -> None:
        """Write the graph: `.graphml`, `.json` (node-link) or `.eap.json`."""
        write_graph(self.network, path)
