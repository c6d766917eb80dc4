"""Circuit graphs as files: GraphML, node-link JSON, and the edge JSON of EAP-IG.

The edge JSON is what `Graph.to_json` and `Graph.from_json` of EAP-IG (Hanna, Pezzelle & Belinkov
2024, github.com/hannamw/EAP-IG, src/eap/graph.py) write and read, and with it the circuit track of
the MIB benchmark (Mueller et al. 2025, arXiv 2504.13151):

    {"cfg": {"n_layers", "n_heads", "parallel_attn_mlp", "d_model"},
     "nodes": {"a0.h1": {"in_graph": true}, ...},
     "edges": {"a0.h1->a1.h0<k>": {"score": 3.8, "in_graph": true}, ...}}

with every node and every edge of the model. That format knows no layers without an MLP: theirs are
written as not in the graph, with scores of 0. Scores are effects: positive where the edge carries
the behaviour; of edges that were not measured, the estimates.
Node-link JSON has `edges` under that name, networkx's default since 3.6.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx

from interp_toolkit.circuits.edges.wiring import Wiring
from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.files import replacing
from interp_toolkit.results import jsonable


def write_graph(graph: nx.DiGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph that `composition_graph` made, all or nothing.

    Args:
        graph: the circuit.
        path: `.graphml`, `.eap.json` (EAP-IG, MIB) or `.json` (node-link); the name says which.

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
            f"{os.fspath(path)}: the extension says which format a graph is written in; give "
            + ", ".join(_WRITERS)
        )
    if not hasattr(graph, "graph") or not hasattr(graph, "edges"):
        raise InputError(f"{a_kind(graph)} is no graph of networkx")
    content = writer(graph)
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


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
    cfg, edges = graph.graph.get("cfg"), graph.graph.get("edges")
    if not isinstance(cfg, Mapping) or not isinstance(edges, Mapping):
        raise InputError(
            "this graph does not say what its model's edges are; give one that composition_graph "
            "returned"
        )
    wiring = Wiring(
        n_layers=cfg["n_layers"],
        n_heads=cfg["n_heads"],
        d_model=cfg["d_model"],
        mlps=(True,) * cfg["n_layers"],
        parallel=cfg["parallel_attn_mlp"],
    )
    written = {
        node.name: {"in_graph": any(True for _ in graph.successors(node.name))}
        if node.name in graph
        else {"in_graph": False}
        for node in wiring.writers
    }
    absent = {"score": 0.0, "in_graph": False}
    data = {
        "cfg": dict(cfg),
        "nodes": {**written, "logits": {"in_graph": True}},
        "edges": {edge.name: edges.get(edge.name, absent) for edge in wiring.edges},
    }
    plain: dict[str, Any] = jsonable(data)
    return plain


def _graphml(graph: nx.DiGraph) -> bytes:
    """GraphML knows numbers, strings and booleans: what is more is JSON text, what is None gone."""
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
    ".json": lambda graph: _dumped(node_link(graph)),
}
#: endings of the files that a graph can be written to
FORMATS = tuple(_WRITERS)
