"""Circuits of other tools, as names of edges: EAP-IG's and MIB's edge JSON, auto-circuit's, ours.

- EAP-IG and MIB: `{"edges": {"a0.h1->a1.h0<k>": {"in_graph": true, "score": 3.8}, ...}}`; the
  circuit has the edges in the graph, or without `in_graph` those whose score is true or not 0;
- auto-circuit: `{"A0.1->A1.0.K": 3.8, ...}` or a list of such names;
- node-link JSON and GraphML, as `interp analyze --graph` writes them;
- a list of names of edges, or of nodes (`L0H1`, `a0.h1`, `m0`, `MLP0`), which stand for all edges
  between them.

Files are read as data: GraphML is read without entities.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from interp_toolkit.circuits.edges.wiring import Kind, Node
from interp_toolkit.errors import InputError, first_line, reason_of
from interp_toolkit.files import read_whole_text

_NODES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (
        re.compile(r"^(?:a(\d{1,4})\.h(\d{1,4})|A(\d{1,4})\.(\d{1,4})|L(\d{1,4})H(\d{1,4}))$"),
        "head",
    ),
    (re.compile(r"^(?:m|MLP ?)(\d{1,4})$"), "mlp"),
    (re.compile(r"^(?:x|Mixer ?)(\d{1,4})$"), "mixer"),
    (re.compile(r"^(?:input|Resid Start)$"), "input"),
    (re.compile(r"^(?:logits|Resid End)$"), "logits"),
)
_CHANNEL = re.compile(r"^(.*?)(?:<([qkv])>|\.([QKV]))$")


def edges_of_file(path: Path) -> tuple[str, ...]:
    """The names of the edges, or of the nodes, of a circuit file.

    Raises:
        InputError: it cannot be read, has an unknown format, or holds no edge.
    """
    try:
        text = read_whole_text(path)
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8") from error
    names = _of_graphml(path, text) if path.suffix.lower() == ".graphml" else _of_json(path, text)
    if not names:
        raise InputError(f"{path}: the circuit has no edges")
    try:
        return circuit_names(names)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def circuit_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Convert names of edges, or of nodes, to ours, without duplicates.

    Raises InputError for any other name, or for edges and nodes together.

    Examples:
        >>> circuit_names(["A0.1->A1.0.K", "a1.h0->logits"])
        ('L0H1->L1H0<k>', 'L1H0->logits')
    """
    edge_names = tuple(dict.fromkeys(_named(name) for name in names))
    if len({"->" in name for name in edge_names}) > 1:
        raise InputError("give names of edges, or of nodes, not both")
    return edge_names


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise InputError(f"{str(name)[:40]} is not the name of an edge or a node")
    source, arrow, target = name.partition("->")
    if not arrow:
        return _node(source.strip(), name)
    target, channel = target.strip(), ""
    if match := _CHANNEL.match(target):
        target, channel = match[1], f"<{(match[2] or match[3]).lower()}>"
    return f"{_node(source.strip(), name)}->{_node(target, name)}{channel}"


def _node(name: str, whole: str) -> str:
    for pattern, kind in _NODES:
        if match := pattern.match(name):
            return Node(kind, *(int(part) for part in match.groups() if part is not None)).name
    raise InputError(f"{whole!r} is not the name of an edge or node; write it like L0H1->L1H0<k>")


def _of_json(path: Path, text: str) -> list[Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({first_line(error, 60)})") from error
    if isinstance(data, Mapping) and "edges" in data:
        data = data["edges"]
        if isinstance(data, list) and all(isinstance(e, Mapping) for e in data):
            return _linked((e.get("source"), e.get("target"), e) for e in data)
    if isinstance(data, Mapping):
        return [name for name, value in data.items() if _inside(value)]
    if isinstance(data, list):
        return data
    raise InputError(
        f"{path}: not a circuit file; give EAP-IG's edge JSON, node-link JSON, GraphML or a list "
        "of names"
    )


def _inside(value: Any) -> bool:
    """Whether an edge with this entry is in the circuit."""
    if isinstance(value, Mapping):
        value = value.get("in_graph", value.get("score"))
    return isinstance(value, bool | int | float) and bool(value)


def _linked(edges: Iterable[tuple[Any, Any, Mapping[str, Any]]]) -> list[Any]:
    """Names of the edges of a graph.

    One of its edges may stand for several channels, which it lists.
    """
    names: list[Any] = []
    for source, target, entry in edges:
        channels = entry.get("channels")
        if isinstance(channels, str) and channels and set(channels) <= set("qkv"):
            names += [f"{source}->{target}<{channel}>" for channel in channels]
        else:
            names.append(f"{source}->{target}")
    return names


def _of_graphml(path: Path, text: str) -> list[Any]:
    import networkx as nx

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(f"{path}: GraphML with a DOCTYPE is not supported; remove it")
    try:
        graph = nx.parse_graphml(text)
    except Exception as error:  # the parser and networkx raise many types
        reason = first_line(error)
        raise InputError(f"{path} cannot be read as GraphML ({reason})") from error
    return _linked((source, target, data) for source, target, data in graph.edges(data=True))
