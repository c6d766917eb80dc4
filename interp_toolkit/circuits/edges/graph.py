"""Circuits as networkx graphs and as files.

Nodes are named as in `wiring`: `input`, `L0H1`, `MLP0`, `logits`. Only the circuit's nodes and
edges are there (see `circuit` for how they are chosen), and always `input` and `logits`.

Node attributes: kind ("input", "head", "mlp", "logits"), layer and head where they have one, and
effect: the loss of the metric when the node's whole output is ablated, with its interval
(effect_low, effect_high); in a large circuit only of measured nodes.
Edge attributes: effect (the loss when this edge alone is ablated; for edges that were not measured
`estimate`, by attribution, instead) and p_value (Holm-adjusted over all of the model's edges; not
for the KL divergence). A head reads by three channels, so its edges have `channels`, such as "qk",
and for each channel effect_k, p_value_k, and between heads composition_k and composition_p_k, from
the weights (see `composition`); effect and p_value are then those of the channel with the largest
effect. Graph attributes: see `composition_graph`.

Circuit graphs as files: GraphML, node-link JSON, the edge JSON of EAP-IG, and those of `exchange`.

The edge JSON is what `Graph.to_json` and `Graph.from_json` of EAP-IG (Hanna, Pezzelle & Belinkov
2024, github.com/hannamw/EAP-IG, src/eap/graph.py) write and read, and with it the circuit track of
the MIB benchmark (Mueller et al. 2025, arXiv 2504.13151):

    {"cfg": {"n_layers", "n_heads", "parallel_attn_mlp", "d_model"},
     "nodes": {"a0.h1": {"in_graph": true}, ...},
     "edges": {"a0.h1->a1.h0<k>": {"score": 3.8, "in_graph": true}, ...}}

with every node and every edge of the model. That format has no layers without an MLP: missing MLPs
are written as not in the graph, with scores of 0. Scores are effects: positive where the edge
carries the behavior; of edges that were not measured, the estimates. Node-link JSON has `edges`
under that name, networkx's default since 3.6.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from interp_toolkit.circuits.edges.checks import SHARE
from interp_toolkit.circuits.edges.circuit import Circuit, EdgeEffect
from interp_toolkit.circuits.edges.exchange import neuronpedia_graph, prune_scores, recorded
from interp_toolkit.circuits.edges.passes.ablation_value import WORDS
from interp_toolkit.circuits.edges.search import find_circuit
from interp_toolkit.circuits.edges.wiring import CHANNELS, Node, Wiring
from interp_toolkit.circuits.metrics.prompts import (
    Prompts,
    prompts_from_tokens,
    random_prompts,
    repeated_prompts,
)
from interp_toolkit.circuits.weights.composition import MODES, CompositionScores, composition_scores
from interp_toolkit.errors import InputError, a_kind, reason_of, takes
from interp_toolkit.files import replacing
from interp_toolkit.models.model import check_model
from interp_toolkit.results import jsonable
from interp_toolkit.stats import Estimate

ROWS = 40  # 20 to choose edges on, 20 to judge them on; of 16 alike, a fifth may be others
MOST_ROWS = 128  # of given ones: a pass for each edge on half of them
LONGEST = 48  # positions a row: enough for a repeat, and a pass for each edge stays cheap


@takes(model=check_model)
def composition_graph(
    model: Any,
    tokens: Any = None,
    *,
    seed: int = 0,
    level: float = 0.05,
    max_edges: int = 512,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> nx.DiGraph:
    """The heads and MLPs that carry a model's use of repeated tokens, and the edges between them.

    Graph attributes: `behaviour`, `definition` and `unit` (what was measured); `value_intact`,
    `value_circuit`, `value_all_cut`, `faithfulness`, `faithfulness_low` and `faithfulness_high` on
    `rows` held-out rows; `faithfulness_choosing` on the rows that edges were chosen on; `n_edges`,
    `n_kept`, `n_measured` (the others were estimated by attribution only); `cut` (the ablation
    value); `level` and `share` (significance level and least effect of an edge, as a fraction of
    the effect of ablating all); `data`; `nothing` (why there is no circuit to search for, if so:
    then no edge is kept and there is no faithfulness); `cfg` and `edges`, what `write_graph` needs
    for EAP-IG's format. If the model does not use repetition, the metric is minus the KL divergence
    from its own output.

    Args:
        model: any TransformerLens model whose residual stream is a sum (not BERT).
        tokens: rows of token ids [row pos], of which at most 128 are used; default: repeated random
            tokens, or random ones if the context or the vocabulary is too small for repeats.
        seed: random seed of prompts and bootstrap.
        level: significance level of an edge.
        max_edges: largest number of edges that are ablated one by one, at least 1.
        memory: bound on memory used in addition to the weights, such as "4GiB".
        progress: called with a description of each step.

    Raises:
        InputError: tokens that are not the model's, options out of range, or a model whose
            computation cannot be taken apart into edges.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import repeated_prompts
        >>> model = it.load("toy:induction")
        >>> graph = composition_graph(model, repeated_prompts(model, rows=8, n_pos=24).tokens)
        >>> graph.has_edge("L0H1", "L1H0"), graph.graph["faithfulness"] > 0.9
        (True, True)
    """
    prompts = circuit_prompts(model, tokens, seed)
    circuit = find_circuit(
        model,
        prompts,
        seed=seed,
        level=level,
        max_edges=max_edges,
        memory=memory,
        progress=progress,
    )
    return as_graph(circuit, prompts, composition_of(model, circuit, memory), level)


def circuit_prompts(model: Any, tokens: Any, seed: int) -> Prompts:
    """The prompts that a circuit is searched on.

    They are repeated random tokens, or random tokens where the context or the vocabulary is too
    small for repeats. Raises InputError for a user's tokens that do not fit the model.
    """
    if tokens is not None:
        prompts = tokens if isinstance(tokens, Prompts) else prompts_from_tokens(tokens, model)
        return prompts if len(prompts) <= MOST_ROWS else prompts.some(MOST_ROWS)
    n_ctx = int(model.cfg.n_ctx)
    try:
        return repeated_prompts(model, rows=ROWS, n_pos=min(n_ctx, LONGEST), seed=seed)
    except InputError as error:
        random = random_prompts(model, min(n_ctx, LONGEST), rows=ROWS, seed=seed)
        return dataclasses.replace(random, source=f"{random.source} ({error})")


def composition_of(
    model: Any, circuit: Circuit, memory: int | str | None = None
) -> CompositionScores | None:
    """The composition scores, if any edge joins two heads and the model is not a large one."""
    if circuit.screening is not None:
        return None
    between = any(e.edge.source.kind == e.edge.target.kind == "head" for e in circuit.included)
    try:
        return composition_scores(model, memory) if between else None
    except InputError:  # weights that have no composition; the circuit needs none
        return None


def as_graph(
    circuit: Circuit, prompts: Prompts, composition: CompositionScores | None, level: float
) -> nx.DiGraph:
    """The circuit as a graph; see the module and `composition_graph`.

    Args:
        circuit: the result of the search.
        prompts: its prompts.
        composition: the model's composition scores, if edges join heads.
        level: significance level in the search.
    """
    graph = nx.DiGraph(**_graph_attributes(circuit, prompts, level))
    nodes = {n for e in circuit.included for n in (e.edge.source, e.edge.target)}
    for node in [Node("input"), *sorted(nodes, key=_order), Node("logits")]:
        graph.add_node(node.name, **_node_attributes(node, circuit.node_effects.get(node)))
    for effect in circuit.included:
        edge = effect.edge
        ends = edge.source.name, edge.target.name
        if ends not in graph.edges:
            graph.add_edge(*ends, **_without_missing(_values(effect, "")))
        if edge.channel is not None:
            attributes = graph.edges[ends]
            attributes["channels"] = "".join(
                c for c in CHANNELS if c in attributes.get("channels", "") + edge.channel
            )
            attributes.update(_channel_attributes(effect, composition))
    return graph


def composition_of_edge(
    effect: EdgeEffect, composition: CompositionScores | None
) -> tuple[float, float] | None:
    """Score and Holm-adjusted p-value of the weights' composition; None where there is none."""
    edge = effect.edge
    if composition is None or edge.channel is None or edge.source.kind != "head":
        return None
    mode = MODES.index(edge.channel.upper())
    at = (mode, edge.source.layer, edge.source.head, edge.target.layer, edge.target.head)
    score, p = float(composition.score[at]), float(composition.p_adjusted[at])
    return None if np.isnan(score) or np.isnan(p) else (score, p)


def _order(node: Node) -> tuple[int, bool, int]:
    """The order of the forward pass."""
    layer = {"input": -1, "logits": 10**9}.get(node.kind, node.layer)
    return layer or 0, node.kind == "mlp", node.head or 0


def _without_missing(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if value is not None}


def _node_attributes(node: Node, effect: Estimate | None) -> dict[str, Any]:
    attributes = (
        []
        if effect is None
        else [("effect", effect.mean), ("effect_low", effect.low), ("effect_high", effect.high)]
    )
    return _without_missing([*node._asdict().items(), *attributes])


def _channel_attributes(
    effect: EdgeEffect, composition: CompositionScores | None
) -> dict[str, Any]:
    channel = effect.edge.channel
    score, p = composition_of_edge(effect, composition) or (None, None)
    return _without_missing(
        [
            *_values(effect, f"_{channel}"),
            (f"composition_{channel}", score),
            (f"composition_p_{channel}", p),
        ]
    )


def _values(effect: EdgeEffect, end: str) -> list[tuple[str, float | None]]:
    """An edge's effect and p-value; the estimate of an edge that was not measured."""
    estimate = effect.attribution if effect.effect is None else None
    return [
        (f"effect{end}", effect.effect),
        (f"estimate{end}", estimate),
        (f"p_value{end}", effect.p_value),
    ]


def _graph_attributes(circuit: Circuit, prompts: Prompts, level: float) -> dict[str, Any]:
    wiring, held_out, chosen_on = circuit.wiring, circuit.held_out, circuit.chosen_on
    mixers = [node.name for node in wiring.writers if node.kind == "mixer"]
    attributes: dict[str, Any] = {
        "behaviour": circuit.metric.name,
        "definition": circuit.metric.definition,
        "unit": circuit.metric.unit,
        "data": prompts.source,
        "cut": WORDS[circuit.ablation_kind],
        "level": level,
        "share": SHARE,
        "n_edges": len(circuit.edges),
        "n_kept": len(circuit.included),
        "n_measured": circuit.n_measured,
        "value_intact": circuit.intact,
        "value_all_cut": circuit.all_ablated,
        "cfg": {
            "n_layers": wiring.n_layers,
            "n_heads": wiring.n_heads,
            "parallel_attn_mlp": wiring.parallel,
            "d_model": wiring.d_model,
            **({"mixers": mixers} if mixers else {}),
        },
        "edges": {
            e.edge.name: {"score": e.weight, "in_graph": e.in_circuit} for e in circuit.edges
        },
    }
    if circuit.nothing is not None:
        attributes["nothing"] = circuit.nothing.reason
    if held_out is not None and chosen_on is not None:
        attributes |= {
            "value_intact": held_out.intact,
            "value_circuit": held_out.circuit,
            "value_all_cut": held_out.all_ablated,
            "faithfulness": held_out.share,
            "faithfulness_low": held_out.low,
            "faithfulness_high": held_out.high,
            "rows": held_out.n_rows,
            "faithfulness_choosing": chosen_on.share,
        }
    return attributes


def write_graph(graph: nx.DiGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph that `composition_graph` returned, atomically.

    Args:
        graph: the circuit.
        path: `.graphml`, `.eap.json` (EAP-IG, MIB), `.autocircuit.json` and `.neuronpedia.json`
            (see `exchange`) or `.json` (node-link); the name says which.

    Raises:
        InputError: another extension, a graph without what the format needs, or a file that cannot
            be written.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.circuits import composition_graph, repeated_prompts
        >>> model = it.load("toy:induction")
        >>> rows = repeated_prompts(model, rows=8, n_pos=24).tokens
        >>> write_graph(composition_graph(model, rows), "circuit.graphml")
    """
    name = Path(path).name.lower()
    writer = next((w for ending, w in _WRITERS.items() if name.endswith(ending)), None)
    if writer is None:
        raise InputError(
            f"{os.fspath(path)}: unknown graph format; give an extension out of "
            + ", ".join(_WRITERS)
        )
    if not hasattr(graph, "graph") or not hasattr(graph, "edges"):
        raise InputError(f"{a_kind(graph)} is not a networkx graph")
    content = writer(graph)
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {reason_of(error)}") from error


def node_link(graph: nx.DiGraph) -> dict[str, Any]:
    """The graph as networkx's node-link data, without the scores of edges outside the circuit."""
    data = {
        "directed": True,
        "multigraph": False,
        "graph": {key: value for key, value in graph.graph.items() if key != "edges"},
        "nodes": [{**attributes, "id": node} for node, attributes in graph.nodes.items()],
        "edges": [
            {**attributes, "source": source, "target": target}
            for (source, target), attributes in graph.edges.items()
        ],
    }
    plain: dict[str, Any] = jsonable(data)
    return plain


def edge_json(graph: nx.DiGraph) -> dict[str, Any]:
    """The graph in EAP-IG's format; see the module.

    Raises:
        InputError: a graph that `composition_graph` did not make.
    """
    cfg, edges = recorded(graph)
    if cfg.get("mixers"):
        raise InputError(
            f"EAP-IG's format has no node such as {cfg['mixers'][0]}, which mixes positions "
            "without heads; write .json or .graphml instead"
        )
    wiring = Wiring(
        n_layers=cfg["n_layers"],
        n_heads=cfg["n_heads"],
        d_model=cfg["d_model"],
        mlps=(True,) * cfg["n_layers"],
        parallel=cfg["parallel_attn_mlp"],
    )
    written = {
        node.eap_name: {"in_graph": any(True for _ in graph.successors(node.name))}
        if node.name in graph
        else {"in_graph": False}
        for node in wiring.writers
    }
    absent = {"score": 0.0, "in_graph": False}
    data = {
        "cfg": dict(cfg),
        "nodes": {**written, "logits": {"in_graph": True}},
        "edges": {edge.eap_name: edges.get(edge.name, absent) for edge in wiring.edges},
    }
    plain: dict[str, Any] = jsonable(data)
    return plain


def _graphml(graph: nx.DiGraph) -> bytes:
    """The graph in GraphML's types: other values become JSON text, None is left out."""
    flat = nx.DiGraph(**_flat(node_link(graph)["graph"]))
    for node, attributes in graph.nodes.items():
        flat.add_node(node, **_flat(attributes))
    for (source, target), attributes in graph.edges.items():
        flat.add_edge(source, target, **_flat(attributes))
    return "\n".join(nx.generate_graphml(flat)).encode()


def _flat(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, bool | int | float | str) else json.dumps(jsonable(value))
        for key, value in attributes.items()
        if value is not None
    }


def _dumped(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, allow_nan=False, indent=1) + "\n").encode()


_WRITERS: dict[str, Callable[[nx.DiGraph], bytes]] = {
    ".graphml": _graphml,
    ".eap.json": lambda graph: _dumped(edge_json(graph)),
    ".autocircuit.json": lambda graph: _dumped(prune_scores(graph)),
    ".neuronpedia.json": lambda graph: _dumped(jsonable(neuronpedia_graph(graph))),
    ".json": lambda graph: _dumped(node_link(graph)),
}
#: endings of the files that a graph can be written to
FORMATS = tuple(_WRITERS)
