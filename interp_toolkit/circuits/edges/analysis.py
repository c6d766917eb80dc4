"""The analysis behind `--probe circuit`: the circuit graph, in words, tables and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import networkx as nx

from interp_toolkit.circuits.behaviour.prompts import Prompts, repeated_prompts
from interp_toolkit.circuits.composition.scores import CompositionScores
from interp_toolkit.circuits.edges.export import node_link
from interp_toolkit.circuits.edges.faithfulness import COVERAGE
from interp_toolkit.circuits.edges.figures import circuit_figure
from interp_toolkit.circuits.edges.graph import (
    LONGEST,
    as_graph,
    circuit_prompts,
    composition_of,
    composition_of_edge,
)
from interp_toolkit.circuits.edges.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.search import SHARE, Circuit, EdgeEffect, find_circuit
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import digest_of_tokens, provenance
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure, Result, Table

if TYPE_CHECKING:
    import pandas as pd

NAMED = 6  # edges that the verdict names
MOST_HEADS = 64  # of a model that is looked at without being asked: a few hundred passes


@dataclass(frozen=True)
class EdgeRow:
    """An edge of the circuit.

    Attributes:
        edge: as EAP-IG names it: `a0.h1->a1.h0<k>`.
        effect: mean loss of the behaviour when it alone is cut.
        p_value: of that, Holm-adjusted over all edges of the model.
        composition: of the two heads' weights by this channel; None where there are not two heads.
        composition_p: the chance that a random rotation composes as much, Holm-adjusted.
    """

    edge: str
    effect: float | None
    p_value: float | None
    composition: float | None
    composition_p: float | None


@dataclass(frozen=True)
class CircuitResult(Result):
    """The circuit of a model's behaviour.

    Attributes:
        edges: the circuit's, the largest effect first.
        nodes: name -> effect, of the circuit's nodes that write.
        graph: the circuit as node-link data.
        network: the same as `composition_graph` gives it, for `write_graph`.
        plots: the picture.
    """

    edges: Sequence[EdgeRow]
    nodes: Mapping[str, float]
    graph: Mapping[str, Any] = field(repr=False)
    network: nx.DiGraph = field(repr=False)
    plots: Sequence[Figure] = field(repr=False, default=())

    omit_from_json = frozenset({"network", "plots"})

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
        rows = [[e.edge, e.effect, e.p_value, e.composition, e.composition_p] for e in self.edges]
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
            [[name, effect] for name, effect in self.nodes.items()],
            f"Effect: {unit} lost when all that the node writes is cut.",
        )
        return [edges, nodes]

    def figures(self) -> list[Figure]:
        """The graph."""
        return list(self.plots)


def run(
    model: Any,
    *,
    data: FeatureData | None = None,
    seed: int = 0,
    level: float = 0.05,
    max_edges: int = 512,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> CircuitResult:
    """The circuit graph of a model as a result; see `composition_graph`.

    Args:
        model: any TransformerLens model.
        data: rows of tokens of one length; default: repeated random tokens.
        seed: of prompts and bootstrap.
        level: of significance.
        max_edges: how many edges are measured at most; the others are estimated.
        memory: bound on what is held at once, such as "4GiB".
        progress: told what is being done.

    Raises:
        InputError: as `composition_graph`; rows of different lengths.
    """
    prompts = circuit_prompts(model, None if data is None else data.token_matrix(), seed)
    circuit = find_circuit(
        model,
        prompts,
        seed=seed,
        level=level,
        max_edges=max_edges,
        memory=memory,
        progress=progress,
    )
    composition = composition_of(model, circuit, memory)
    graph = as_graph(circuit, prompts, composition, level)
    rows = {"source": prompts.source, "rows": len(prompts)}
    return CircuitResult(
        probe="circuit",
        verdict=verdict(circuit),
        evidence=_evidence(circuit),
        provenance=provenance(
            model,
            {**rows, "sha256": digest_of_tokens(prompts.tokens)},
            {"level": level, "max_edges": max_edges, "share": SHARE},
            seed,
        ),
        edges=[_row(e, composition) for e in circuit.kept],
        nodes={node.name: effect for node, effect in circuit.node_effects.items()},
        graph=node_link(graph),
        network=graph,
        plots=[circuit_figure(graph)] if circuit.kept else [],
    )


def verdict(circuit: Circuit) -> str:
    """What was found and no more: which edges, and how much they carry alone."""
    if circuit.nothing is not None:
        return f"No circuit: {circuit.nothing}."
    kept, held_out = circuit.kept, circuit.held_out
    name = circuit.objective.name
    if not kept or held_out is None:
        return (
            f"No circuit: of {circuit.n_measured} edges cut one by one, none both changes "
            f"the {name} and lies on a path of such edges from input to logits."
        )
    named = ", ".join(e.edge.name for e in kept[:NAMED])
    more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
    against = sum((e.effect or 0.0) < 0 for e in kept)
    against_it = f" ({against} of them against it)" if against else ""
    n_edges, n_measured = len(circuit.edges), circuit.n_measured
    left = f"; {n_edges - n_measured} edges were estimated only" if n_measured < n_edges else ""
    interval = f"{COVERAGE:.0%} interval {held_out.low:.0%} to {held_out.high:.0%}"
    return (
        f"{len(kept)} of {n_edges} edges carry the {name}{against_it}: {named}{more}. With all "
        f"others replaced by their mean over other prompts, they keep {held_out.share:.0%} of "
        f"what cutting every edge costs ({interval}, {held_out.n_rows} held-out rows){left}."
    )


def _evidence(circuit: Circuit) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        "status": "detected" if circuit.kept else "not_detected",
        "measured": f"{circuit.objective.name}: {circuit.objective.definition}",
        "unit": circuit.objective.unit,
        "intact model": circuit.intact,
        "every edge cut": circuit.all_cut,
        "edges": len(circuit.edges),
        "what stands in for a cut edge": "the mean over other prompts, position by position",
    }
    held_out, chosen_on = circuit.held_out, circuit.chosen_on
    if circuit.nothing is not None or held_out is None or chosen_on is None:
        return evidence
    return evidence | {
        "edges cut one by one": circuit.n_measured,
        "edges estimated only": len(circuit.edges) - circuit.n_measured,
        "faithfulness, held-out rows": held_out.share,
        "its interval": [held_out.low, held_out.high],
        "faithfulness, rows edges were chosen on": chosen_on.share,
        "kept": ("Holm-adjusted p at most the level, " if circuit.objective.is_behaviour else "")
        + f"effect at least {SHARE:.0%} of what cutting every edge costs",
    }


def _row(effect: EdgeEffect, composition: CompositionScores | None) -> EdgeRow:
    score, p = composition_of_edge(effect, composition) or (None, None)
    return EdgeRow(effect.edge.name, effect.effect, effect.p_value, score, p)


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    if data is not None:
        return "looks at repeated tokens of its own; ask for it by name: --probe circuit"
    n_heads = int(model.cfg.n_layers) * int(model.cfg.n_heads)
    if n_heads > MOST_HEADS:
        return f"{n_heads} heads take many passes; ask for it by name: --probe circuit"
    try:
        _prompts_fit(model)
        PatchedModel(model)
    except InputError as error:
        return str(error)
    return None


def _prompts_fit(model: Any) -> Prompts:
    return repeated_prompts(model, rows=2, n_pos=min(int(model.cfg.n_ctx), LONGEST))


CIRCUIT = Analysis(
    "circuit",
    "which heads, MLPs and edges between them carry the use of repeated tokens",
    run,
    _unfit,
)
