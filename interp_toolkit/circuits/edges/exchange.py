"""A circuit graph in the formats of auto-circuit and of Neuronpedia's graph viewer.

auto-circuit (Miller, Chughtai & Saunders 2024, `auto_circuit/types.py`) has `PruneScores`: for each
module that reads the residual stream, an array of the scores of its incoming edges, [head source]
for heads and [source] for MLPs and the end. Sources are in the order of the forward pass: the
input, then the heads and the MLP of each layer. Written as JSON; in Python
`{name: torch.tensor(scores) for name, scores in json.load(file).items()}`.

Neuronpedia's attribution graphs (circuit-tracer, `circuit_tracer/frontend/graph_models.py`) have
`metadata`, `qParams`, `nodes` and `links`. Here nodes are heads and MLPs instead of features of a
transcoder, and one graph is for all prompts and positions, so that `ctx_idx` is 0 and there is one
prompt token, "all prompts". Weights are the effects of edges; the channels of a head's input are
one link, of the effect that is largest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import networkx as nx

from interp_toolkit.errors import InputError
from interp_toolkit.results import head_name


def recorded(graph: nx.DiGraph) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The model's sizes and the scores of all its edges, as a graph of `composition_graph` has.

    Raises InputError for another graph.
    """
    cfg, edges = graph.graph.get("cfg"), graph.graph.get("edges")
    if not isinstance(cfg, Mapping) or not isinstance(edges, Mapping):
        raise InputError(
            "this graph does not record its model's edges; give one returned by composition_graph"
        )
    return cfg, edges


def prune_scores(graph: nx.DiGraph) -> dict[str, Any]:
    """The scores of all edges as auto-circuit's `PruneScores`, in nested lists.

    Raises InputError for a graph that `composition_graph` did not make, and for layers with other
    parts than heads and MLPs.
    """
    cfg, edges = recorded(graph)
    names = {end for name in edges for end in re.sub("<.>", "", name).split("->")}
    mlps = [f"MLP{layer}" in names for layer in range(cfg["n_layers"])]
    if cfg.get("mixers") or any(mlps) != all(mlps):
        raise InputError(
            "auto-circuit's format is for layers of heads, all with an MLP or all without one; "
            "write .json or .graphml instead"
        )

    def score(source: str, target: str) -> float:
        return float(edges.get(f"{source}->{target}", {"score": 0.0})["score"])

    scores: dict[str, Any] = {}
    sources = ["input"]
    for layer in range(cfg["n_layers"]):
        heads = [head_name(layer, head) for head in range(cfg["n_heads"])]
        for channel in "qkv":
            scores[f"blocks.{layer}.hook_{channel}_input"] = [
                [score(source, f"{head}<{channel}>") for source in sources] for head in heads
            ]
        if all(mlps):
            before = sources if cfg["parallel_attn_mlp"] else [*sources, *heads]
            scores[f"blocks.{layer}.hook_mlp_in"] = [score(s, f"MLP{layer}") for s in before]
        sources += [*heads, *([f"MLP{layer}"] if all(mlps) else [])]
    last = f"blocks.{cfg['n_layers'] - 1}.hook_resid_post"
    scores[last] = [score(source, "logits") for source in sources]
    return scores


def neuronpedia_graph(graph: nx.DiGraph) -> dict[str, Any]:
    """The circuit as Neuronpedia's graph JSON; see the module.

    Raises InputError for a graph that `composition_graph` did not make.
    """
    cfg, _ = recorded(graph)
    nodes = {name: _node(name, attributes, cfg) for name, attributes in graph.nodes.items()}
    return {
        "metadata": {
            "slug": "circuit",
            "scan": "interp-toolkit",
            "transcoder_list": [],
            "prompt_tokens": ["all prompts"],
            "prompt": str(graph.graph.get("data", "")),
            "node_threshold": None,
        },
        "qParams": {
            "pinnedIds": [],
            "supernodes": [],
            "linkType": "both",
            "clickedId": "",
            "sg_pos": "",
        },
        "nodes": list(nodes.values()),
        "links": [
            {
                "source": nodes[source]["node_id"],
                "target": nodes[target]["node_id"],
                "weight": float(attributes.get("effect", attributes.get("estimate", 0.0))),
            }
            for (source, target), attributes in graph.edges.items()
        ],
    }


def _node(name: str, attributes: Mapping[str, Any], cfg: Mapping[str, Any]) -> dict[str, Any]:
    kind, n_layers = attributes["kind"], int(cfg["n_layers"])
    layer, head = attributes.get("layer"), attributes.get("head")
    where, feature, feature_type = {
        "input": ("E", 0, "embedding"),
        "logits": (str(n_layers + 1), 0, "logit"),
        "head": (str(layer), head, "attention head"),
    }.get(kind, (str(layer), int(cfg["n_heads"]), kind))
    effect = attributes.get("effect")
    return {
        "node_id": f"{where}_{feature}_0",
        "feature": feature,
        "layer": where,
        "ctx_idx": 0,
        "feature_type": feature_type,
        "token_prob": 0.0,
        "is_target_logit": kind == "logits",
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": f"{where}_{feature}-0",
        "clerp": name,
        "influence": None if effect is None else float(effect),
        "activation": None,
    }
