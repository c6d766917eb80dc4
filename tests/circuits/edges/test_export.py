"""Files of a circuit graph, read back by networkx and by EAP-IG's rules."""

import json

import networkx as nx
import pytest

from interp_toolkit.circuits.edges.graph import composition_graph, edge_json, write_graph
from interp_toolkit.errors import InputError
from interp_toolkit.toys.hand_set import induction as toys


@pytest.fixture(scope="module")
def graph():
    return composition_graph(toys.induction(n_ctx=24))


class EapGraph:
    """EAP-IG's `Graph.from_model` and `from_json`, by what its README and docstrings say.

    Nodes: input, a{layer}.h{head}, m{layer} (in every layer), logits. Each head reads all that was
    written before its layer, by q, k and v; each MLP that and the heads of its layer, these not in
    parallel blocks; the logits everything. A file may name no other node or edge.
    """

    def __init__(self, cfg):
        written, self.edges = ["input"], {}
        for layer in range(cfg["n_layers"]):
            heads = [f"a{layer}.h{head}" for head in range(cfg["n_heads"])]
            for source in written:
                for head in heads:
                    for channel in "qkv":
                        self.edges[f"{source}->{head}<{channel}>"] = None
            seen = written if cfg["parallel_attn_mlp"] else written + heads
            self.edges |= {f"{source}->m{layer}": None for source in seen}
            written = [*written, *heads, f"m{layer}"]
        self.edges |= {f"{source}->logits": None for source in written}
        self.nodes = dict.fromkeys([*written, "logits"])
        assert isinstance(cfg["d_model"], int)

    @classmethod
    def from_json(cls, path):
        data = json.loads(path.read_text())
        assert {"cfg", "nodes", "edges"} <= data.keys()
        graph = cls(data["cfg"])
        assert data["nodes"].keys() == graph.nodes.keys()
        assert data["edges"].keys() == graph.edges.keys()
        for name, node in data["nodes"].items():
            assert isinstance(node["in_graph"], bool)
            graph.nodes[name] = node["in_graph"]
        for name, edge in data["edges"].items():
            assert isinstance(edge["score"], float)
            assert isinstance(edge["in_graph"], bool)
            graph.edges[name] = edge
        return graph


def test_eap_ig_reads_its_json(graph, tmp_path):
    write_graph(graph, tmp_path / "circuit.eap.json")
    read = EapGraph.from_json(tmp_path / "circuit.eap.json")
    assert {name for name, inside in read.nodes.items() if inside} == {
        "input",
        "a0.h1",
        "a1.h0",
        "logits",
    }
    kept = {name for name, edge in read.edges.items() if edge["in_graph"]}
    assert kept == {
        "input->a0.h1<v>",
        "a0.h1->a1.h0<k>",
        "input->a1.h0<q>",
        "input->a1.h0<v>",
        "a1.h0->logits",
    }
    score = read.edges["a0.h1->a1.h0<k>"]["score"]
    assert score == graph.edges["L0H1", "L1H0"]["effect_k"]
    assert read.edges["m0->logits"] == {"score": 0.0, "in_graph": False}


@pytest.mark.parametrize("kind", ["own", "neox"])
def test_eap_ig_reads_models_with_mlps(zoo, tmp_path, kind):
    graph = composition_graph(zoo(kind), max_edges=8)
    write_graph(graph, tmp_path / "circuit.eap.json")
    read = EapGraph.from_json(tmp_path / "circuit.eap.json")
    assert len(read.edges) == graph.graph["n_edges"]


def test_node_link_json_comes_back(graph, tmp_path):
    write_graph(graph, tmp_path / "circuit.json")
    data = json.loads((tmp_path / "circuit.json").read_text())
    read = nx.node_link_graph(data, edges="edges")
    assert isinstance(read, nx.DiGraph)
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert nx.utils.edges_equal(read.edges(data=True), graph.edges(data=True))
    assert read.graph == {k: v for k, v in graph.graph.items() if k != "edges"}


def test_graphml_comes_back(graph, tmp_path):
    write_graph(graph, tmp_path / "circuit.graphml")
    read = nx.read_graphml(tmp_path / "circuit.graphml")
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert nx.utils.edges_equal(read.edges(data=True), graph.edges(data=True))
    assert read.graph["faithfulness"] == pytest.approx(graph.graph["faithfulness"])
    assert json.loads(read.graph["cfg"]) == graph.graph["cfg"]


@pytest.mark.parametrize("ending", [".graphml", ".json", ".eap.json"])
def test_an_empty_circuit_is_written_too(tmp_path, ending):
    graph = composition_graph(toys.decoy(n_ctx=24))
    write_graph(graph, tmp_path / f"empty{ending}")
    assert (tmp_path / f"empty{ending}").stat().st_size > 0


def test_other_extensions_and_places_are_refused(graph, tmp_path, texts):
    with pytest.raises(InputError, match=r"circuit\.png", check=texts):
        write_graph(graph, tmp_path / "circuit.png")
    with pytest.raises(InputError, match="cannot write"):
        write_graph(graph, tmp_path / "nowhere" / "circuit.json")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_from_elsewhere_has_no_edge_json(tmp_path):
    with pytest.raises(InputError, match="composition_graph"):
        edge_json(nx.DiGraph([("input", "logits")]))


def test_auto_circuit_s_scores_are_those_of_the_edges(graph, tmp_path):
    """Its `Edge.prune_score`: `scores[dest.module_name][head, src.src_idx]`, sources in order."""
    write_graph(graph, tmp_path / "circuit.autocircuit.json")
    scores = json.loads((tmp_path / "circuit.autocircuit.json").read_text())
    cfg, edges = graph.graph["cfg"], graph.graph["edges"]
    sources, seen = ["input"], {}
    for layer in range(cfg["n_layers"]):
        for head in range(cfg["n_heads"]):
            for channel in "qkv":
                row = scores[f"blocks.{layer}.hook_{channel}_input"][head]
                target = f"L{layer}H{head}<{channel}>"
                seen |= {f"{s}->{target}": v for s, v in zip(sources, row, strict=True)}
        sources += [f"L{layer}H{head}" for head in range(cfg["n_heads"])]
    last = scores[f"blocks.{cfg['n_layers'] - 1}.hook_resid_post"]
    seen |= {f"{s}->logits": v for s, v in zip(sources, last, strict=True)}
    assert seen == {name: pytest.approx(edge["score"]) for name, edge in edges.items()}


def test_neuronpedia_s_graph_has_the_circuit_s_nodes_and_edges(graph, tmp_path):
    write_graph(graph, tmp_path / "circuit.neuronpedia.json")
    written = json.loads((tmp_path / "circuit.neuronpedia.json").read_text())
    assert written.keys() == {"metadata", "qParams", "nodes", "links"}
    assert {"slug", "scan", "transcoder_list", "prompt_tokens", "prompt"} <= (
        written["metadata"].keys()
    )
    labels = {node["node_id"]: node["clerp"] for node in written["nodes"]}
    assert len(labels) == len(graph.nodes)
    pairs = {
        (labels[link["source"]], labels[link["target"]]): link["weight"]
        for link in written["links"]
    }
    assert pairs[("L0H1", "L1H0")] == pytest.approx(graph.edges["L0H1", "L1H0"]["effect"])
    assert len(pairs) == len(graph.edges)
    required = {"node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId"}
    assert all(required <= node.keys() for node in written["nodes"])


def test_neuronpedia_s_graph_is_read_by_circuit_tracer(graph, tmp_path):
    models = pytest.importorskip("circuit_tracer.frontend.graph_models", exc_type=ImportError)
    write_graph(graph, tmp_path / "circuit.neuronpedia.json")
    read = models.Model.model_validate_json((tmp_path / "circuit.neuronpedia.json").read_text())
    assert len(read.nodes) == len(graph.nodes)


def test_eap_ig_itself_reads_its_json(graph, tmp_path):
    eap = pytest.importorskip("eap.graph", exc_type=ImportError)
    write_graph(graph, tmp_path / "circuit.eap.json")
    read = eap.Graph.from_json(str(tmp_path / "circuit.eap.json"))
    inside = {name for name, edge in read.edges.items() if bool(edge.in_graph)}
    assert inside == {n for n, edge in graph.graph["edges"].items() if edge["in_graph"]}


@pytest.mark.parametrize("ending", [".autocircuit.json", ".neuronpedia.json"])
def test_a_graph_of_another_origin_is_refused_by_the_exchange_formats(tmp_path, ending):
    with pytest.raises(InputError, match="composition_graph"):
        write_graph(nx.DiGraph(), tmp_path / f"g{ending}")
    assert not list(tmp_path.iterdir())
