"""Circuits chosen by attribution, on models small enough that the truth is known."""

import dataclasses

import networkx as nx
import numpy as np
import pytest

from interp_toolkit.circuits.edges import checks, screened, search
from interp_toolkit.circuits.edges.analysis import evidence_of, headline, sentences, status_of
from interp_toolkit.circuits.edges.checks import Measured
from interp_toolkit.circuits.edges.wiring import Edge, Node, Wiring
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.stats import UNSEEN
from interp_toolkit.toys.hand_set import induction as toys

TRUE_EDGES = {
    "input->L0H1<v>",
    "L0H1->L1H0<k>",
    "input->L1H0<q>",
    "input->L1H0<v>",
    "L1H0->logits",
}


@pytest.fixture(scope="module")
def induction():
    return toys.induction()


@pytest.fixture(scope="module")
def large(induction):
    """The search of large models, on a small one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MANY", 0)
        patch.setattr(screened, "FEWEST_NODES", 1)
        patch.setattr(screened, "FEWEST_EDGES", 2)
        return search.find_circuit(induction, repeated_prompts(induction, rows=48, n_pos=40))


def test_the_true_edges_come_first_and_are_enough(large):
    measured = [e for e in large.edges if e.effect is not None]
    largest = sorted(measured, key=lambda e: -abs(e.effect))[: len(TRUE_EDGES)]
    assert {e.edge.name for e in large.included} | {e.edge.name for e in largest} >= TRUE_EDGES
    assert large.screening.reached
    assert large.held_out.share == pytest.approx(1, abs=0.2)
    assert status_of(large) == ("detected", None)


def test_what_is_told_of_it(large, texts):
    start = (
        f"{len(large.included)} of {len(large.edges)} edges suffice for the in-context advantage"
    )
    assert headline(large).startswith(start)
    assert "largest losses: " in " ".join(sentences(large))
    texts(sentences(large)[-1])
    evidence = evidence_of(large)
    assert evidence.equivalent
    assert evidence.screening["in_order"] == large.screening.in_order
    assert evidence.rivals_as_good <= evidence.rivals
    assert large.checks.rest.share < 0.3


def test_a_quick_search_cuts_no_edge_and_detects_nothing(induction, monkeypatch, texts):
    monkeypatch.setattr(screened, "FEWEST_NODES", 1)
    monkeypatch.setattr(screened, "FEWEST_EDGES", 2)
    prompts = repeated_prompts(induction, rows=48, n_pos=40)
    quick = search.find_circuit(induction, prompts, effort="quick")
    assert {e.edge.name for e in quick.included} >= TRUE_EDGES
    assert quick.n_measured == 0
    assert quick.screening.rank_correlation is None
    assert quick.screening.missed_at_most == 1
    status, reason = status_of(quick)
    assert status == "undecided"
    texts(reason)
    assert any("was compared (effort: quick)" in sentence for sentence in sentences(quick))
    texts(sentences(quick)[-1])


def test_a_large_model_has_fewer_edges_cut_than_with_thorough_effort(induction, monkeypatch):
    monkeypatch.setattr(search, "MANY", 0)
    few = dataclasses.replace(search.STANDARD, ablated=4, sample=3, nodes=1, tested=2)
    monkeypatch.setattr(search, "BUDGETS", {"standard": few, "thorough": search.THOROUGH})
    prompts = repeated_prompts(induction, rows=48, n_pos=40)
    standard, thorough = (
        search.find_circuit(induction, prompts, effort=effort)
        for effort in ("standard", "thorough")
    )
    assert standard.n_measured == 7
    assert standard.checks.tested == 2
    assert len(standard.node_effects) == 1
    assert standard.checks.by_kind
    assert not standard.checks.jaccard_by_kind
    assert thorough.n_measured > 7
    assert thorough.checks.tested > 2
    assert [e.edge for e in standard.edges if e.in_circuit] == [
        e.edge for e in thorough.edges if e.in_circuit
    ]


@pytest.mark.parametrize("needed", [1, 3, 8, 29, 30, 100])
def test_the_least_size_is_found_within_the_steps(needed):
    """What is taken is enough; what was tried below it is not; what was tried is told."""
    size, shares = screened.least_enough(lambda n: float(n >= needed), 8, 100, 0.9)
    assert shares[size] >= 0.9
    assert all(share < 0.9 for s, share in shares.items() if s < size)
    assert size <= 1.3 * needed + 8


def test_where_no_size_is_enough_the_best_is_taken():
    size, shares = screened.least_enough(lambda n: 0.5 - abs(n - 16) / 100, 8, 100, 0.9)
    assert size == 16
    assert set(shares) == {8, 16, 32, 64, 100}


def test_a_selection_takes_nodes_then_edges_between_them():
    wiring = Wiring(n_layers=2, n_heads=2, d_model=4, mlps=(True, True), parallel=False)
    scores = np.zeros((3, len(wiring.edges)))
    index = {e.name: i for i, e in enumerate(wiring.edges)}
    scores[:, index["L0H1->L1H0<k>"]] = 2.0
    scores[:, index["L1H0->logits"]] = -3.0
    scores[:, index["L0H0->logits"]] = 1.0
    scores[:, index["L0H0->MLP1"]] = -1.0  # in sum this head costs nothing
    scores[:, index["input->L0H1<v>"]] = 0.5
    first = screened.ranked_nodes(wiring, scores.mean(0))[:2]
    assert [wiring.writers[i].name for i in first] == ["L1H0", "L0H1"]
    inside = screened.Selection(wiring, 2, None)(scores.mean(0))
    nodes = {"input", "L1H0", "L0H1", "logits"}
    expected = [e.source.name in nodes and e.target.name in nodes for e in wiring.edges]
    assert inside.tolist() == expected
    chosen = screened.Selection(wiring, 2, 3)(scores.mean(0))
    assert {wiring.edges[i].name for i in np.flatnonzero(chosen)} == {
        "input->L0H1<v>",
        "L0H1->L1H0<k>",
        "L1H0->logits",
    }
    assert not screened.Selection(wiring, 2, 2)(scores.mean(0)).any()  # two edges make no path


def test_paths_are_those_that_networkx_finds():
    """Random edges: on a path from input to logits, or not."""
    wiring = _wiring()
    rng = np.random.default_rng(0)
    for share in (0.03, 0.1, 0.5):
        inside = rng.random(len(wiring.edges)) < share
        drawn = [e for e, keep in zip(wiring.edges, inside, strict=True) if keep]
        graph = nx.DiGraph([(e.source.name, e.target.name) for e in drawn])
        graph.add_nodes_from(["input", "logits"])
        begun = nx.descendants(graph, "input") | {"input"}
        ended = nx.ancestors(graph, "logits") | {"logits"}
        expected = {e for e in drawn if e.source.name in begun and e.target.name in ended}
        found = wiring.on_paths(inside)
        assert {e for e, keep in zip(wiring.edges, found, strict=True) if keep} == expected
        assert set(wiring.connected(drawn)) == expected


def test_what_matters_is_certain_and_large():
    losses = np.array([[1.0, 0.02, 0.9], [1.1, 0.02, -0.9], [0.9, 0.02, 0.9], [1.0, 0.021, -0.9]])
    found = Measured(np.arange(3), losses)
    assert screened.matter(found, total=10.0).tolist() == [True, False, False]
    assert screened.matter(found, total=1.0).tolist() == [True, True, False]


def test_intervals_are_students_where_prompts_vary_and_wider_where_they_are_alike():
    from scipy import stats

    losses = np.random.default_rng(0).normal(1, 2, (64, 5))
    low, high = Measured(np.arange(5), losses).intervals(UNSEEN)
    expected = stats.ttest_1samp(losses, 0).confidence_interval(0.95)
    np.testing.assert_allclose(low, expected.low)
    np.testing.assert_allclose(high, expected.high)
    (low,), (high,) = Measured(np.arange(1), np.ones((12, 1))).intervals(UNSEEN)
    assert low < 0
    assert high > 2
    np.testing.assert_allclose(Measured(np.arange(1), np.ones((12, 1))).intervals(0.0), 1.0)


def _wiring():
    return Wiring(n_layers=3, n_heads=4, d_model=8, mlps=(True, True, True), parallel=False)


def test_exchanged_circuits_have_the_same_shape():
    wiring = _wiring()
    rng = np.random.default_rng(0)
    kept = [wiring.edges[i] for i in rng.choice(len(wiring.edges), 40, replace=False)]
    other = checks._exchanged(kept, wiring, rng)
    assert len(set(other)) == len(kept)
    assert set(other) <= set(wiring.edges)

    def shape(edges):
        places = [(e.source.kind, e.source.layer, e.target.layer, e.channel) for e in edges]
        return sorted(map(str, places))

    assert shape(other) == shape(kept)


def test_drawn_circuits_have_as_many_edges_at_each_place():
    wiring = _wiring()
    rng = np.random.default_rng(1)
    kept = [wiring.edges[i] for i in rng.choice(len(wiring.edges), 60, replace=False)]
    other = checks._random_circuit(kept, wiring, rng)
    assert len(set(other)) == len(kept)
    assert set(other) <= set(wiring.edges)

    def places(edges):
        return sorted((wiring.stage_of(e), str(e.channel)) for e in edges)

    assert places(other) == places(kept)


def test_rivals_differ_from_the_circuit_and_from_each_other():
    """Of two heads exchanged there is one other arrangement, and of everything none."""
    wiring = Wiring(n_layers=1, n_heads=2, d_model=4, mlps=(False,), parallel=False)
    rng = np.random.default_rng(0)
    kept = [e for e in wiring.edges if e.source.name == "L0H0"]
    found = checks._others(lambda: checks._exchanged(kept, wiring, rng), {frozenset(kept)}, 8)
    assert [[e.name for e in one] for one in found] == [["L0H1->logits"]]
    whole = list(wiring.edges)
    assert not checks._others(
        lambda: checks._random_circuit(whole, wiring, rng), {frozenset(whole)}, 8
    )


def test_jaccard_by_hand():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert checks.jaccard(a, b) == pytest.approx(1 / 3)
    assert checks.jaccard(a & ~a, b & ~b) == 1


def test_bootstraps_tell_edges_that_rest_on_one_row():
    """An edge that only one row of ten chooses is chosen where that row is drawn: 65 in 100."""
    wiring = _wiring()
    edges = wiring.edges
    scores = np.zeros((10, len(edges)))
    scores[:, 0], scores[0, 1] = 1.0, 100.0

    def select(rows):
        return scores[rows].mean(0) > 0.5

    rates, alike = checks.stability(select, np.arange(10), edges[:2], wiring, seed=0)
    assert rates[edges[0]] == 1
    assert rates[edges[1]] == pytest.approx(1 - 0.9**10, abs=0.12)
    assert alike == pytest.approx(rates[edges[1]] + (1 - rates[edges[1]]) / 2)


def test_the_circuit_is_connected_and_its_edges_are_tested(large):
    kept = [e.edge for e in large.included]
    assert set(large.wiring.connected(kept)) == set(kept)
    assert 0 <= large.checks.needed <= large.checks.tested <= screened.BLOCK
    assert set(large.checks.chosen_again) == set(kept)


def test_additions_are_edges_between_included_nodes_and_new_nodes_with_all_theirs():
    start, end, one, other, third = (
        *(Node("input"), Node("logits"), Node("head", 0, 0)),
        *(Node("head", 0, 1), Node("head", 1, 0)),
    )
    included = {Edge(start, one, "v"), Edge(one, end)}
    between = {Edge(start, end), Edge(start, one, "k")}
    of_other = {Edge(start, other, "v"), Edge(other, end)}
    among_new = {Edge(other, third, "v")}  # both nodes are new
    everything = [*included, *between, *of_other, *among_new]
    found = search._additions(everything, included)
    assert len(found) == 3
    assert of_other in found
    assert all({edge} in found for edge in between)
