"""Circuits alone, computed node by node, against the pass that cuts every other edge."""

import networkx as nx
import numpy as np
import pytest
import torch

from interp_toolkit.circuits.edges.passes.edge_ablation import SubcircuitPass
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.wiring import Node
from interp_toolkit.models.running.forward import run

KINDS = ("own", "own-rotary", "own-bare", "hooked-parallel", "llama", "neox", "alibi", "bloom")


def _references(engine, tokens):
    """One for all rows (a mean), and one for each (another prompt's writes)."""
    writes = engine.whole(tokens).trace.writes
    return {"mean": [w.mean(0) for w in writes], "rows": [w.roll(1, 0) for w in writes]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", ["mean", "rows"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_kept_edges_are_all_others_cut(zoo, tokens, kind, of, share):
    engine = PatchedModel(zoo(kind))
    reference = _references(engine, tokens)[of]
    whole = engine.whole(tokens)
    edges = engine.wiring.edges
    drawn = torch.rand(len(edges), generator=torch.Generator().manual_seed(7)) < share
    kept = [e for e, keep in zip(edges, drawn.tolist(), strict=True) if keep]
    cut = [e for e, keep in zip(edges, drawn.tolist(), strict=True) if not keep]
    alone = SubcircuitPass(engine, whole.trace.writes[0], reference).logits(kept)
    torch.testing.assert_close(alone, engine.logits(whole, reference, cut), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_edges_behind_no_input_change_nothing_where_values_are_of_a_pass(zoo, tokens, kind, share):
    engine = PatchedModel(zoo(kind))
    reference = _references(engine, tokens)["rows"]  # of the same prompts in another order
    whole = engine.whole(tokens)
    edges = engine.wiring.edges
    drawn = torch.rand(len(edges), generator=torch.Generator().manual_seed(8)) < share
    kept = [e for e, keep in zip(edges, drawn.tolist(), strict=True) if keep]
    cut = [e for e, keep in zip(edges, drawn.tolist(), strict=True) if not keep]
    passes = SubcircuitPass(engine, whole.trace.writes[0], reference, of_a_pass=True)
    expected = engine.logits(whole, reference, cut)
    torch.testing.assert_close(passes.logits(kept), expected, atol=2e-5, rtol=1e-5)
    passes.remember(kept[1::2])
    torch.testing.assert_close(passes.logits(kept), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["own", "hooked-parallel"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_edges_on_paths_by_a_search_of_the_graph(zoo, kind, share):
    wiring = PatchedModel(zoo(kind)).wiring
    drawn = np.random.default_rng(4).random(len(wiring.edges)) < share
    some = [e for e, inside in zip(wiring.edges, drawn.tolist(), strict=True) if inside]
    graph = nx.DiGraph([(e.source, e.target) for e in some])
    graph.add_nodes_from([Node("input"), Node("logits")])
    begun = nx.descendants(graph, Node("input")) | {Node("input")}
    ended = nx.ancestors(graph, Node("logits")) | {Node("logits")}
    assert wiring.masked(wiring.to_logits(drawn)) == [e for e in some if e.target in ended]
    on_paths = [e for e in some if e.source in begun and e.target in ended]
    assert wiring.masked(wiring.on_paths(drawn)) == on_paths


@pytest.mark.parametrize("kind", KINDS)
def test_everything_kept_is_the_model(zoo, tokens, kind):
    model = zoo(kind)
    engine = PatchedModel(model)
    embedded = engine.whole(tokens).trace.writes[0]
    reference = _references(engine, tokens)["mean"]
    logits = SubcircuitPass(engine, embedded, reference).logits(engine.wiring.edges)
    torch.testing.assert_close(logits, run(model, tokens), atol=2e-5, rtol=1e-5)


def test_logits_where_they_are_read(zoo, tokens):
    engine = PatchedModel(zoo("llama"))
    embedded = engine.whole(tokens).trace.writes[0]
    reference = _references(engine, tokens)["mean"]
    places = torch.tensor([[1, 3]]).expand(len(tokens), -1)
    kept = engine.wiring.edges[::3]
    everywhere = SubcircuitPass(engine, embedded, reference).logits(kept)
    there = SubcircuitPass(engine, embedded, reference, places).logits(kept)
    torch.testing.assert_close(there, everywhere[:, [1, 3]], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["own", "hooked-parallel", "llama"])
def test_beginning_where_circuits_differ_changes_nothing(zoo, tokens, kind):
    engine = PatchedModel(zoo(kind))
    embedded = engine.whole(tokens).trace.writes[0]
    reference = _references(engine, tokens)["rows"]
    edges = engine.wiring.edges
    base = set(edges[1::3])
    remembering = SubcircuitPass(engine, embedded, reference)
    remembering.remember(base)
    for i in range(0, len(edges), 7):
        kept = base ^ {edges[i], edges[-1 - i]}
        fresh = SubcircuitPass(engine, embedded, reference).logits(kept)
        torch.testing.assert_close(remembering.logits(kept), fresh, atol=2e-5, rtol=1e-5)
    unlike = set(edges[::5])
    fresh = SubcircuitPass(engine, embedded, reference).logits(unlike)
    torch.testing.assert_close(remembering.logits(unlike), fresh, atol=2e-5, rtol=1e-5)
