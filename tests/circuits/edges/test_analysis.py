"""The circuit graph on models whose circuit is known, and on models without one."""

import dataclasses
import json
import math

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

import interp_toolkit as it
from interp_studies.challenge.families.layouts import Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.circuits.edges import analysis, search
from interp_toolkit.circuits.edges.analysis import CIRCUIT
from interp_toolkit.circuits.edges.checks import SHARE
from interp_toolkit.circuits.edges.graph import circuit_prompts, composition_graph
from interp_toolkit.circuits.edges.passes.edge_ablation import EdgeAblation
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.circuits.edges.search import find_circuit, measured_edges, selected_edges
from interp_toolkit.circuits.edges.wiring import Edge, Node, Wiring
from interp_toolkit.circuits.metrics.metrics import KLDivergence
from interp_toolkit.circuits.metrics.prompts import Prompts, repeated_prompts
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.forward import run
from interp_toolkit.results import jsonable
from interp_toolkit.stats import holm, ratio_interval
from interp_toolkit.toys.hand_set import induction as toys
from interp_toolkit.toys.hand_set.untrained import random_model


def told(circuit) -> str:
    return " ".join([analysis.headline(circuit), *analysis.sentences(circuit)])


TRUE_EDGES = {
    "input->L0H1<v>",  # the token that the previous-token head passes on
    "L0H1->L1H0<k>",
    "input->L1H0<q>",  # the token looked for
    "input->L1H0<v>",  # the token copied
    "L1H0->logits",
}


@pytest.fixture(scope="module")
def induction():
    return toys.induction(n_ctx=48)


@pytest.fixture(scope="module")
def graph(induction):
    return composition_graph(induction)


def _kept(graph):
    return {name for name, edge in graph.graph["edges"].items() if edge["in_graph"]}


def test_the_hand_set_circuit_is_found_exactly(graph):
    assert _kept(graph) == TRUE_EDGES
    assert set(graph) == {"input", "L0H1", "L1H0", "logits"}
    assert graph.edges["L0H1", "L1H0"]["channels"] == "k"
    assert graph.edges["input", "L1H0"]["channels"] == "qv"
    assert (graph.graph["n_kept"], graph.graph["n_edges"]) == (5, 29)
    assert "nothing" not in graph.graph


def test_it_is_all_of_the_behaviour_on_held_out_rows(graph):
    g = graph.graph
    assert g["faithfulness"] == pytest.approx(1, abs=1e-6)
    assert g["faithfulness_low"] <= g["faithfulness"] <= g["faithfulness_high"]
    assert g["rows"] == 20
    assert g["value_circuit"] == pytest.approx(g["value_intact"])
    assert g["value_intact"] > 2 > abs(g["value_all_cut"])


def test_values_are_those_of_the_model(induction, graph):
    """The advantage of the held-out rows from the model's own logits, position by position."""
    prompts = circuit_prompts(induction, None, seed=0)
    losses = -run(induction, prompts.tokens).log_softmax(-1)
    advantages = []
    for row in range(1, len(prompts), 2):
        period, tokens = int(prompts.periods[row]), prompts.tokens[row]
        loss = [float(losses[row, p, tokens[p + 1]]) for p in range(prompts.n_pos - 1)]
        advantages.append(np.mean(loss[: period - 1]) - np.mean(loss[period:]))
    assert graph.graph["value_intact"] == pytest.approx(np.mean(advantages))


def test_edges_and_nodes_carry_their_effects(graph):
    edge = graph.edges["L0H1", "L1H0"]
    assert edge["effect"] == edge["effect_k"] > 1
    assert edge["p_value_k"] < 1e-6
    assert 0 < edge["composition_k"] < 1
    assert edge["composition_p_k"] < 0.05
    # the previous-token head writes to nothing else that is read
    assert graph.nodes["L0H1"]["effect"] == pytest.approx(edge["effect"])
    assert (graph.nodes["L0H1"]["layer"], graph.nodes["L0H1"]["head"]) == (0, 1)


def test_attribution_ranks_the_true_edges_first(induction):
    graph = composition_graph(induction, max_edges=5)
    assert graph.graph["n_measured"] == 5
    assert _kept(graph) == TRUE_EDGES
    scores = {name: abs(e["score"]) for name, e in graph.graph["edges"].items()}
    assert max(scores[n] for n in scores.keys() - TRUE_EDGES) < 1e-3


@pytest.mark.parametrize(
    ("build", "edge"),
    [(toys.induction_rotary, "L0H1->L1H0<k>"), (toys.induction_gqa, "L0H1->L1H2<k>")],
)
def test_rotary_and_grouped_query_circuits(build, edge):
    graph = composition_graph(build(n_ctx=32))
    assert edge in _kept(graph)
    heads = {name for name, node in graph.nodes.items() if node["kind"] == "head"}
    assert heads == {"L0H1", edge[6:10]}
    assert graph.graph["faithfulness"] == pytest.approx(1, abs=0.01)


def test_a_decoy_is_no_part_of_the_circuit():
    graph = composition_graph(toys.induction_decoy(n_ctx=32))
    assert "L1H1" not in graph
    assert "L1H0" in graph


def test_a_decoy_alone_carries_no_behaviour():
    graph = composition_graph(toys.decoy(n_ctx=32))
    assert graph.graph["behaviour"] == "output"
    assert "L1H0" not in graph
    assert "L1H1" not in graph


def test_a_model_that_does_not_do_what_its_rows_ask_has_no_circuit(texts):
    data = asked(toys.induction(n_ctx=32), wrong=True)
    result = CIRCUIT(toys.induction(n_ctx=32), data=data)
    texts(result.headline)
    texts(result.findings[0])
    assert result.status == "not_tested"
    assert (result.tables(), result.figures(), list(result.to_frame()["edge"])) == ([], [], [])


def asked(model, *, wrong=False, rows=24):
    """Repeats that ask for the next token at their last place; or for a token drawn at random."""
    prompts = repeated_prompts(model, rows=rows, n_pos=24)
    answers = prompts.tokens[:, -1].numpy()
    if wrong:
        answers = np.random.default_rng(0).permutation(answers)
    tokens = prompts.tokens[:, :-1].numpy()
    return FeatureData(tokens, np.zeros((rows, 0), bool), (), answers=answers)


def test_rows_with_answers_are_judged_by_their_answers(induction):
    result = CIRCUIT(induction, data=asked(induction, rows=64))
    assert result.status == "detected"
    assert result.evidence.measured.startswith("answers")
    assert {"L0H1->L1H0<k>", "L1H0->logits"} <= {row.edge for row in result.edges}


def test_contexts_of_two_tokens_are_not_refused(texts):
    """Copying the first token at the second: one head, two edges."""
    result = CIRCUIT(copier(), data=copied())
    assert result.status == "undecided"  # no other circuit of this size shares few edges
    texts(result.evidence.reason)
    assert result.evidence.reason in result.verdict
    assert result.evidence.equivalent
    texts(result.notes)
    assert {row.edge for row in result.edges} >= {"input->L0H0<v>", "L0H0->logits"}


def copier(n_heads=1, d_vocab=48):
    """Every head attends to all there is and writes the sum, so that logits count tokens."""
    from interp_toolkit.models.transformer.config import TransformerConfig
    from interp_toolkit.models.transformer.transformer import Transformer

    cfg = TransformerConfig(
        n_layers=1, d_model=d_vocab, n_ctx=2, d_head=d_vocab, n_heads=n_heads, d_vocab=d_vocab,
        attn_only=True, normalization_type=None,
    )  # fmt: skip
    model = Transformer(cfg)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.eye(d_vocab))
        model.blocks[0].attn.W_V.copy_(torch.eye(d_vocab).expand(n_heads, -1, -1))
        model.blocks[0].attn.W_O.copy_(20 * torch.eye(d_vocab).expand(n_heads, -1, -1))
        model.unembed.W_U.copy_(torch.eye(d_vocab))
        model.unembed.W_U[-1] = 0  # the separator is never the answer
    return model


def copied(rows=64, d_vocab=48):
    first = np.random.default_rng(0).integers(d_vocab - 1, size=rows)
    tokens = np.stack([first, np.full(rows, d_vocab - 1)], axis=1)
    return FeatureData(tokens, np.zeros((rows, 0), bool), (), answers=first)


def test_heads_that_make_up_for_each_other_are_found():
    """Four uniform heads: without any one of them the answers are as likely as with all."""
    model = copier(4)
    result = CIRCUIT(model, data=copied())
    assert result.status == "detected"
    assert result.evidence.equivalent
    # heads are added whole, but uniform ones do nothing with their queries and keys
    assert not any("<q>" in row.edge or "<k>" in row.edge for row in result.edges)
    assert any(row.edge == "L0H0->logits" for row in result.edges)
    assert result.evidence.faithfulness > 0.9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.1, 0.5])
def test_random_models_carry_no_behaviour(seed, scale):
    from interp_toolkit.models.transformer.config import TransformerConfig
    from interp_toolkit.models.transformer.transformer import Transformer

    cfg = TransformerConfig(
        n_layers=2, d_model=32, n_ctx=32, d_head=8, n_heads=4, d_vocab=40, d_mlp=32, act_fn="relu"
    )
    model = Transformer(cfg)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    graph = composition_graph(model, seed=seed)
    assert graph.graph["behaviour"] == "output"
    assert graph.graph["unit"] == "nats per position"


def test_prompts_that_do_not_fit_are_refused_before_anything_is_computed(induction, texts):
    steps = []
    with pytest.raises(InputError, check=texts) as refused:
        find_circuit(
            induction, circuit_prompts(induction, None, 0), memory="1MB", progress=steps.append
        )
    assert steps == []
    longest = int(str(refused.value).split()[-2])
    shorter = repeated_prompts(induction, rows=16, n_pos=longest)
    find_circuit(induction, shorter, memory="1MB")


def test_the_same_seed_gives_the_same_graph_whatever_the_memory(induction, graph):
    again = composition_graph(induction, memory="12MB")
    assert _kept(again) == _kept(graph)
    for name, edge in graph.graph["edges"].items():
        assert again.graph["edges"][name]["score"] == pytest.approx(edge["score"], abs=1e-9)
    assert again.graph["faithfulness_low"] == pytest.approx(graph.graph["faithfulness_low"])


def test_a_bidirectional_model_is_judged_by_its_output(zoo):
    graph = composition_graph(zoo("own-bare"))
    assert graph.graph["behaviour"] == "output"
    assert graph.graph["value_intact"] == 0 > graph.graph["value_all_cut"]
    assert 0.8 < graph.graph["faithfulness"] <= 1
    assert 0 < graph.graph["n_kept"] < graph.graph["n_edges"]
    assert not any("p_value" in values for *_, values in graph.edges(data=True))


def test_given_tokens_are_used(induction):
    tokens = repeated_prompts(induction, rows=12, n_pos=40, seed=5).tokens
    graph = composition_graph(induction, tokens.numpy())
    assert graph.graph["rows"] == 6
    assert _kept(graph) == TRUE_EDGES


@pytest.mark.parametrize(
    "options",
    [
        {"level": 0.0},
        {"max_edges": 0},
        {"tokens": [[1, 2, 3, 4] * 4] * 4},
        {"tokens": [[99] * 16] * 8},
    ],
)
def test_wrong_input_is_said(induction, options, texts):
    with pytest.raises(InputError, check=texts):
        composition_graph(induction, **options)


def test_the_rule():
    effects = np.array([1.0, -1.0, SHARE * 0.9, 1.0, np.nan, SHARE * -1.1])
    p = np.array([0.01, 0.05, 1e-9, 0.06, 1.0, 1e-9])
    kept = selected_edges(effects, p, total=1.0, level=0.05)
    assert kept.tolist() == [True, True, False, False, False, True]
    by_share = selected_edges(effects, np.full(6, np.nan), total=-1.0, level=0.05)
    assert by_share.tolist() == [True, True, False, True, False, True]


def test_only_paths_from_input_to_logits_are_kept():
    wiring = Wiring(n_layers=1, n_heads=3, d_model=4, mlps=(False,), parallel=False)
    a, b, c = (Node("head", 0, h) for h in range(3))
    through = [Edge(Node("input"), a, "v"), Edge(a, Node("logits"))]
    dangling = [Edge(Node("input"), b, "q"), Edge(c, Node("logits"))]
    assert set(wiring.connected(through + dangling)) == set(through)
    assert set(wiring.connected(dangling)) == set()


def test_faithfulness_is_the_share_that_is_left(induction):
    """Half a circuit: without its previous-token head the rest is worth what those edges leave."""
    prompts = repeated_prompts(induction, rows=16, n_pos=40)
    found = find_circuit(induction, prompts)
    assert found.held_out is not None
    engine = PatchedModel(induction)
    whole = engine.whole(prompts.tokens[1::2])
    others = engine.whole(prompts.tokens[::2]).trace.writes
    reference = [w.mean(0) for w in others]
    inside = {e.edge for e in found.included}
    rest = [e for e in engine.wiring.edges if e not in inside]
    rows = torch.arange(1, len(prompts), 2)
    values = [
        float(found.metric(engine.logits(whole, reference, cut), rows, whole.logits).mean())
        for cut in ((), rest, engine.wiring.edges)
    ]
    intact, alone, all_ablated = values
    assert found.held_out.share == pytest.approx((alone - all_ablated) / (intact - all_ablated))


def test_the_analysis_says_it(induction, texts):
    result = CIRCUIT(induction)
    texts(result.headline)
    assert {"L0H1", "L1H0"} <= set(result.headline.replace(",", "").rstrip(".").split())
    assert result.evidence.faithfulness == pytest.approx(1, abs=1e-6)
    assert 0.8 <= result.evidence.faithfulness_low < 0.9  # 20 alike prompts say no more
    assert "against" not in result.verdict
    assert "L0H1->L1H0<k>" in result.verdict
    assert set(result.to_frame()["edge"]) == TRUE_EDGES
    edges, nodes, stands = result.tables()
    outside = [value for label, value in stands.rows if "outside" in str(label)]
    assert outside == [pytest.approx(0, abs=0.1)]
    assert len(edges.rows) == 5
    assert {row[0] for row in nodes.rows} == {"input", "L0H1", "L1H0"}
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    read = nx.node_link_graph(data["graph"], edges="edges")
    assert set(read.edges) == {
        ("input", "L0H1"),
        ("L0H1", "L1H0"),
        ("input", "L1H0"),
        ("L1H0", "logits"),
    }


def test_what_was_not_measured_is_said(induction, texts):
    result = CIRCUIT(induction, max_edges=5)
    texts(result.findings[-1])
    assert result.evidence.edges_ablated_one_by_one == 5


def test_the_picture_shows_every_edge_and_node(induction):
    result = CIRCUIT(induction)
    (figure,) = result.figures()
    jsonable(figure)
    lines = [trace for trace in figure.data if trace["mode"] == "lines"]
    assert len(lines) == 5
    assert all(trace["type"] == "scatter" for trace in figure.data)
    nodes = next(trace for trace in figure.data if trace["mode"] == "markers+text")
    height = dict(zip(nodes["text"], nodes["y"], strict=True))
    assert height["input"] < height["L0H1"] < height["L1H0"] < height["logits"]
    hover = next(trace for trace in figure.data if trace["mode"] == "markers")["text"]
    assert any("L0H1 → L1H0 (k)" in text and "composition" in text for text in hover)
    widths = [trace["line"]["width"] for trace in lines]
    assert widths == sorted(widths, reverse=True)


def test_which_models_it_is_for(zoo, induction, texts):
    from interp_toolkit.models.transformer.config import TransformerConfig
    from interp_toolkit.models.transformer.transformer import Transformer
    from interp_toolkit.toys.hand_set.xor import xor_2head

    assert CIRCUIT.unfit(induction, None) is None
    texts(CIRCUIT.unfit(xor_2head(), None))
    assert CIRCUIT.unfit(zoo("gemma2"), None) is None
    many = TransformerConfig(
        n_layers=9, d_model=8, n_ctx=16, d_head=1, n_heads=8, d_vocab=9, attn_only=True
    )
    assert "72 heads" in CIRCUIT.unfit(Transformer(many), None)


def test_p_values_are_adjusted_over_all_edges(induction, monkeypatch):
    engine = PatchedModel(induction)
    edges, prompts = engine.wiring.edges, circuit_prompts(induction, None, 0)
    rng = np.random.default_rng(0)
    intact = rng.normal(5, 1, 16)
    values = intact[:, None] - rng.normal(0.2, 0.5, (16, len(edges)))
    monkeypatch.setattr(EdgeAblation, "values", lambda *arguments: values)
    trial = EdgeAblation(engine, prompts, torch.arange(16), torch.arange(16), KLDivergence(), 2**30)
    found, _ = measured_edges(trial, intact, intact - 5, 0.05, 512, lambda step: None, test=True)
    raw = stats.ttest_1samp(intact[:, None] - values, 0).pvalue
    np.testing.assert_allclose([edge.p_value for edge in found], holm(raw))


def test_most_of_the_model_is_no_circuit_that_singles_something_out(circuit, texts):
    everything = [dataclasses.replace(e, in_circuit=True, effect=1.0) for e in circuit.edges]
    whole = dataclasses.replace(circuit, edges=everything)
    assert analysis.status_of(whole)[0] == "described"
    texts(told(whole))
    texts(analysis.status_of(whole)[1])


def test_rivals_that_keep_as_much_explain_a_circuit(circuit):
    """Twenty of the same size: none may be as good; of fewer than 19 nothing follows."""
    share = circuit.held_out.share
    for rivals, status, says in (
        ([0.0] * 20, "detected", "suffice for the"),
        ([0.0] * 19 + [share], "uninformative", "other circuits of the same size do too"),
        ([0.0] * 18, "undecided", "too few other circuits of the same size were compared (18)"),
        ([], "undecided", "no comparison with other circuits"),
    ):
        checked = dataclasses.replace(circuit.checks, exchanged=[], random=rivals)
        of = dataclasses.replace(circuit, checks=checked)
        assert analysis.status_of(of)[0] == status
        assert says in told(of)
        assert (analysis.status_of(of)[1] is None) == (status == "detected")


def test_without_a_task_a_circuit_is_described(circuit, texts):
    of = dataclasses.replace(circuit, task_check=None)
    assert analysis.status_of(of)[0] == "described"
    texts(told(of))


def test_untrained_models_have_no_circuit_whatever_their_prompts(texts):
    for seed in range(6):
        model = random_model(seed, n_layers=1 + seed % 2, n_heads=2, d_head=8, n_ctx=10)
        tokens = np.random.default_rng(seed).integers(0, 16, (24, 10))
        for rows in (tokens, np.tile(tokens[:, :5], 2)):
            result = it.analyze(model, "circuit", data=rows)
            assert result.status in ("described", "undecided", "not_tested")
            texts(result.verdict)


def test_equal_prompts_are_on_one_side():
    """Equal up to the answer, with other answers or tokens behind it."""
    tokens = np.random.default_rng(0).integers(0, 11, (30, 6))
    tokens[15:, :4] = tokens[:15, :4]
    answers = np.random.default_rng(1).integers(0, 11, 30)
    prompts = Prompts(
        torch.from_numpy(tokens), 0, np.zeros(30, int), "rows",
        torch.from_numpy(answers)[:, None], torch.full((30, 1), 3),
    )  # fmt: skip
    model = random_model(0, n_ctx=8)
    groups = search._equal_prompts(model, prompts, prompts.tokens)
    assert (groups[:15] == groups[15:]).all()
    for shuffle in (True, False):
        one, other = search._halves(groups, 0, shuffle=shuffle)
        assert not set(groups[one]) & set(groups[other])
        assert sorted([*one.tolist(), *other.tolist()]) == list(range(30))
    one, other = search._halves(np.arange(30), 0, shuffle=False)
    assert one.tolist() == list(range(0, 30, 2))
    distinct = search.different_prompts(model, prompts)
    same = (answers[:15] == answers[15:]).sum()
    assert len(distinct) == 30 - same
    assert search.different_prompts(model, distinct) is distinct


def test_prompts_that_are_given_twice_count_once(induction, texts):
    data = asked(induction, rows=24)
    once = CIRCUIT(induction, data=data)
    twice = CIRCUIT(induction, data=data.at(np.arange(48) % 24))
    assert (once.status, once.headline) == (twice.status, twice.headline)
    assert once.findings[1:] == twice.findings[1:]  # the first names the rows as given
    texts(twice.notes)


def test_nothing_is_denied_of_edges_that_were_not_cut(circuit, texts):
    none = [dataclasses.replace(e, in_circuit=False) for e in circuit.edges]
    empty = dataclasses.replace(circuit, edges=none)
    assert analysis.status_of(empty)[0] == "undecided"  # all together matter on these rows
    texts(analysis.status_of(empty)[1])
    texts(told(empty))
    some = [dataclasses.replace(e, effect=None) if i else e for i, e in enumerate(none)]
    left = dataclasses.replace(empty, edges=some)
    assert analysis.status_of(left)[0] == "undecided"
    texts(told(left))


def test_edges_that_were_added_are_not_said_to_matter_alone(circuit, texts):
    kept = [e.edge for e in circuit.included]
    edges = [
        dataclasses.replace(e, added=0.5, effect=-0.01) if e.edge in kept[1:] else e
        for e in circuit.edges
    ]
    part = dataclasses.replace(circuit.held_out, share=0.6, low=0.5, high=0.7)
    said = told(dataclasses.replace(circuit, edges=edges, held_out=part))
    texts(said)


def test_what_cutting_everything_costs_must_be_certain():
    """Fieller's interval: infinite where the ratio's lower mean may be 0; else as simulated."""
    rng = np.random.default_rng(0)
    above, below = rng.normal(0, 1, 12), rng.normal(0.1, 1, 12)
    assert ratio_interval(above, below) == (-math.inf, math.inf)
    assert math.isinf(ratio_interval(above[:1], below[:1])[0])
    hits, draws = 0, 600
    for _ in range(draws):
        whole = rng.normal(4, 1.5, 8)
        left = 0.7 * whole + rng.normal(0, 0.8, 8)
        low, high = ratio_interval(left, whole)
        hits += low <= 0.7 <= high
    assert stats.binom.cdf(hits, draws, 0.95) > 1e-3


@pytest.fixture(scope="module")
def circuit(induction):
    return find_circuit(induction, repeated_prompts(induction, rows=40))


def test_a_part_of_a_circuit_lists_the_next_edges(circuit):
    outside = next(e for e in circuit.edges if not e.in_circuit)
    edges = [
        dataclasses.replace(e, effect=float(circuit.intact)) if e is outside else e
        for e in circuit.edges
    ]
    name = outside.edge.name
    for kept, lists in (((0.33, 0.2, 0.45), True), ((0.98, 0.9, 1.0), False)):
        share, low, high = kept
        held_out = dataclasses.replace(circuit.held_out, share=share, low=low, high=high)
        partly = dataclasses.replace(circuit, held_out=held_out, edges=edges)
        assert any(name in sentence for sentence in analysis.sentences(partly)) == lists


@pytest.mark.parametrize(
    ("kept", "status"),
    [
        ((0.98, 0.9, 1.0), "detected"),
        ((0.33, 0.2, 0.45), "partial"),
        ((0.02, -0.02, 0.06), "undecided"),
        ((0.6, 0.4, 0.8), "partial"),
        ((0.97, 0.45, 1.3), "partial"),
        ((-0.6, -0.9, -0.3), "undecided"),
        ((1.2, 1.1, 1.3), "partial"),
        ((1.0, -math.inf, math.inf), "undecided"),
    ],
)
def test_a_circuit_is_as_strong_as_what_it_keeps_alone(circuit, kept, status, texts):
    share, low, high = kept
    held_out = dataclasses.replace(circuit.held_out, share=share, low=low, high=high)
    circuit = dataclasses.replace(circuit, held_out=held_out)
    evidence = analysis.evidence_of(circuit)
    assert evidence.status == status
    assert (evidence.reason is None) == (status == "detected")
    texts(told(circuit))
    assert not {"nan", "inf%"} & set(told(circuit).split())
    if high < 0:
        texts(evidence.reason)


def test_of_a_saturated_metric_without_a_circuit_the_metric_that_mends_it_is_named():
    """At a level that no edge can pass nothing is found, whatever the metric."""
    work = Work(Layout("pointer", 10, 20), decoys=0, seed=3, n=2)
    model, data = shared_work(work, torch.float32), work.layout.rows(24, 5)

    def searched(data, **options):
        found = it.analyze(model, "circuit", data=data, level=1e-300, **options).evidence
        assert found.status == "undecided"
        return found

    certain = searched(data)
    assert certain.intact > -analysis.SATURATED
    assert "column `wrong`" in certain.instead
    assert certain.instead in certain.reason
    ids, which = np.unique(data.answers, return_inverse=True)
    wrong = np.roll(ids, 1)[which].reshape(np.shape(data.answers))
    compared = dataclasses.replace(data, wrong=wrong)
    assert "--metric logit-difference" in searched(compared, metric="log-probability").instead
    assert searched(compared).instead is None  # the difference of logits
    with torch.no_grad():
        model.unembed.W_U *= 0.3
    unsure = searched(data)
    assert unsure.intact < -analysis.SATURATED
    assert unsure.instead is None
