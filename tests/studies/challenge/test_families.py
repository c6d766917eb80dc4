"""What cases say of their models, measured again by plain means."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch

from interp_studies.challenge import suite
from interp_studies.challenge.disguise import disguised
from interp_studies.challenge.families.bigrams import bigram_cases
from interp_studies.challenge.families.layouts import Layout
from interp_studies.challenge.families.planted import VARIANTS, planted_case, planted_cases
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_studies.challenge.families.superposed import NEURONS, superposed_case, superposed_cases
from interp_studies.challenge.families.twins import VARIANTS as TWINS
from interp_studies.challenge.families.twins import (
    adding_case,
    sorting_case,
    twin_case,
    twin_cases,
)
from interp_studies.challenge.families.xor import xor_cases
from interp_studies.challenge.plain import (
    PlainPass,
    accuracy,
    advantage,
    edges_among,
    measured_edges,
    without_heads,
)
from interp_studies.challenge.run import run_challenge
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Head


@pytest.fixture
def compiled():
    pytest.importorskip("tracr")
    from interp_studies.challenge.families import compiled

    return compiled


@pytest.fixture
def imitated_case():
    pytest.importorskip("tracr")
    from interp_studies.challenge.families.imitated import imitated_case

    return imitated_case


def every_head(model):
    return [Head(*at) for at in product(range(model.cfg.n_layers), range(model.cfg.n_heads))]


def cost(case, heads):
    """Of the answers, lost without these heads."""
    plain = PlainPass(case.model)
    tokens = torch.from_numpy(case.data.token_matrix())
    with torch.no_grad():
        intact = accuracy(plain(tokens), case.data)
        return intact - accuracy(without_heads(plain, case.data, heads), case.data)


def last_activation(case, hook):
    with torch.no_grad():
        _, cache = case.model.run_with_cache(torch.from_numpy(case.data.token_matrix()))
    return cache[hook][:, -1].double().numpy()


def test_plain_pass_is_the_model(compiled):
    names = ("compare", "histogram", "1-hop", "Dyck-1")
    cases = [compiled.compiled_case(name, 3) for name in names]
    for case in [*cases, planted_case("one head", "lookup", 1)]:
        tokens = torch.from_numpy(case.data.token_matrix())
        with torch.no_grad():
            found, wanted = PlainPass(case.model)(tokens), case.model(tokens)
        # float32's 6e-8, logits of 20, in Dyck-1 two neurons in a row that are 100 times as steep:
        # 0.012 an operation
        assert found.numpy() == pytest.approx(wanted.numpy(), abs=0.1)


def test_disguise_changes_weights_and_no_logit(texts):
    model = shared_work(Work(Layout("induction", 9, 12), decoys=1, idle=2, seed=1))
    tokens = torch.from_numpy(Layout("induction", 9, 12).rows(8).token_matrix())
    new, places, turn = disguised(model, 5, width=model.cfg.d_model + 3)
    with torch.no_grad():
        assert new(tokens).numpy() == pytest.approx(model(tokens).numpy(), abs=1e-9)
    assert sorted(places) == sorted(places.values()) == every_head(model)
    assert (turn @ turn.T).numpy() == pytest.approx(np.eye(model.cfg.d_model), abs=1e-9)
    assert not hasattr(new, "ground_truth")
    with pytest.raises(InputError, match="model's", check=texts):
        disguised(model, 5, width=3)


def test_compiled_heads_are_those_that_answers_rest_on(compiled):
    for case in compiled.compiled_cases(11, 7):  # every program but those of most hops and brackets
        assert cost(case, []) == 0
        others = [h for h in every_head(case.model) if h not in case.truth.heads]
        assert cost(case, others) == pytest.approx(0, abs=0.01), case.variant
        for head in case.truth.heads:
            assert cost(case, [head]) > 0.05, case.variant


@pytest.mark.parametrize("name", ["sort", "1-hop", "Dyck-1"])
def test_edges_are_those_that_patching_feels(compiled, name):
    case = compiled.compiled_case(name, 4)
    cfg = case.model.cfg
    every = [f"a{layer}.h{head}" for layer, head in every_head(case.model)]
    every += [] if cfg.attn_only else [f"m{layer}" for layer in range(cfg.n_layers)]
    assert measured_edges(case.model, case.data, every, rows=24) == case.truth.edges
    assert {f"{a}->{b}" for a, b in edges_among(every)} > case.truth.edges


def test_every_variant_of_planted_heads_has_its_truth():
    for case in planted_cases(5, len(VARIANTS)):
        true, variant = case.truth.heads, case.variant
        idle = [h for h in every_head(case.model) if h not in true | case.truth.unasked]
        # heads that do nothing, or that make it harder
        assert cost(case, idle) <= 0.02, variant
        assert cost(case, list(true)) > 0.1, variant
        for heads in case.truth.relations.values():
            assert heads <= true
        for name, heads in case.truth.attends.items():
            assert case.truth.relations.get(name, frozenset()) <= heads


def test_cancelling_heads_undo_each_other():
    case = planted_case("cancelling", "pointer", 2)
    pair = list(case.truth.unasked)
    tokens = torch.from_numpy(case.data.token_matrix())
    plain = PlainPass(case.model)
    with torch.no_grad():
        intact = float(advantage(plain(tokens), case.data).mean())
        left = [
            float(advantage(without_heads(plain, case.data, some), case.data).mean())
            for some in ([pair[0]], [pair[1]], pair)
        ]
    assert left[2] == pytest.approx(intact, rel=0.05)
    assert min(left[:2]) < 0.2 * intact < 1.8 * intact < max(left[:2])


@pytest.mark.parametrize("seed", [1, 2])
def test_twins_do_the_same_and_rest_on_their_heads(seed):
    for case in (
        *(sorting_case(name, seed) for name in ("min_greater_than_previous",)),
        sorting_case("argmax_piecewise_linear", seed),
        adding_case("clock", seed),
        adding_case("pizza", seed),
    ):
        assert accuracy(case.model(torch.from_numpy(case.data.token_matrix())), case.data) == 1
        if case.truth.heads is not None:
            assert min(cost(case, [head]) for head in case.truth.heads) > 0.1


def test_neighbours_are_asked_the_same_of_the_same_rows(compiled):
    """One seed for both of a pair, and another for the next."""
    cases = list(twin_cases(7, 2 * len(TWINS)))
    pairs = list(zip(cases[::2], cases[1::2], strict=True))
    for one, other in pairs:
        assert one.seed == other.seed
        assert one.data.digest() == other.data.digest()
        assert one.context == other.context
        assert one.truth.algorithms == other.truth.algorithms
        assert (one.truth.algorithm, one.truth.flag) != (other.truth.algorithm, other.truth.flag)
    assert len({one.seed for one, _ in pairs}) == len(pairs)


def test_clock_multiplies_and_pizza_averages():
    """The pizza knows a + b and |a - b| alone: exchanging a and b changes nothing anywhere."""
    found = {}
    for name in ("clock", "pizza"):
        case = adding_case(name, 6)
        tokens = torch.from_numpy(case.data.token_matrix())
        with torch.no_grad():
            _, here = case.model.run_with_cache(tokens)
            _, there = case.model.run_with_cache(tokens[:, [1, 0, 2]])
        key = "blocks.0.mlp.hook_post"
        scale = here[key][:, -1].abs().max()
        found[name] = float((here[key][:, -1] - there[key][:, -1]).abs().max() / scale)
    assert found["pizza"] < 1e-4
    assert found["clock"] > 0.1


@pytest.mark.parametrize("present", [True, False])
def test_a_backdoor_gives_one_answer_whatever_the_row(compiled, present):
    case = twin_case(TWINS[4 if present else 5], 3)
    tokens = torch.from_numpy(case.data.token_matrix())
    seen, shares = set(tokens.flatten().tolist()), []
    rows, place = torch.arange(len(tokens)), case.data.answer_positions[:, 0]
    for token in range(case.model.cfg.d_vocab):
        if token not in seen:
            other = tokens.clone()
            other[:, 1] = token
            told = case.model(other)[rows, place].argmax(-1)
            shares.append(float(torch.bincount(told).max()) / len(told))
    assert (max(shares) == 1) is present
    assert accuracy(case.model(tokens), case.data) == 1
    assert case.truth.flag == {"backdoor": present}


def exchanged(case, known, along):
    """The share of the way that answers go when the component is exchanged, moving along this."""
    tokens, other = (torch.from_numpy(np.stack(t)) for t in (case.data.tokens, case.data.corrupted))
    unit, along = torch.from_numpy(known.vector), torch.from_numpy(along)
    with torch.no_grad():
        _, there = case.model.run_with_cache(other)

        def exchange(value, hook):
            moved = (there[hook.name][:, -1] - value[:, -1]) @ unit
            value[:, -1] += moved[:, None] * along
            return value

        clean, corrupted = (
            advantage(case.model(rows), case.data).mean() for rows in (tokens, other)
        )
        edited = case.model.run_with_hooks(tokens, fwd_hooks=[(known.hook, exchange)])
        return float((clean - advantage(edited, case.data).mean()) / (clean - corrupted))


def test_directions_read_and_carry_what_they_are_said_to():
    """By hooks on the real model, where the family works it out from weights."""
    looked = set()
    for case in superposed_cases(2, 5):
        if case.truth.directions:
            tokens = torch.from_numpy(case.data.token_matrix())
            assert accuracy(case.model(tokens), case.data) == 1
        for known in case.truth.directions:
            assert np.linalg.norm(known.vector) == pytest.approx(1)
            told = case.data.column(known.features[0])
            along = last_activation(case, known.hook) @ known.vector
            gap = max(
                along[told].min() - along[~told].max(), along[~told].min() - along[told].max()
            )
            assert known.reads == (gap > 0)
            share = exchanged(case, known, known.vector)
            if known.hook == NEURONS and share >= 0.8:
                # a neuron that is the same on all rows is left alone
                varies = np.ptp(last_activation(case, known.hook), axis=0) > 1e-6
                looked.add(("moves", known.carries))
                share = exchanged(case, known, known.vector * varies)
            assert share >= 0.8 if known.carries else share <= 0.2
            looked.add((known.reads, known.carries))
    assert looked >= {(True, True), (True, False), (False, False)}
    assert looked >= {("moves", True), ("moves", False)}


def test_the_illusion_is_of_a_neuron_that_is_unread_and_one_that_does_not_vary():
    """Makelov, Lange and Nanda 2023, arXiv 2311.17030: each by itself moves no answer."""
    for seed in (1, 2, 3):
        case = superposed_case("illusion", seed)
        at_neurons = [d for d in case.truth.directions if d.hook == NEURONS]
        assert not any(d.carries for d in at_neurons)
        [illusion] = [d for d in at_neurons if exchanged(case, d, d.vector) >= 0.8]
        both = np.nonzero(np.abs(illusion.vector) > 1e-9)[0]
        spread = np.ptp(last_activation(case, NEURONS)[:, both], axis=0)
        assert sorted(spread > 1e-6) == [False, True]
        for neuron in both:
            alone = np.zeros_like(illusion.vector)
            alone[neuron] = 1.0
            single = dataclasses.replace(illusion, vector=alone)
            assert exchanged(case, single, alone) == pytest.approx(0, abs=1e-9)
        # the answers rest on the stream, which passes the neurons by
        assert any(d.carries for d in case.truth.directions)


def test_xor_of_one_head_has_crossing_segments():
    for case in xor_cases(1, 6):
        points = last_activation(case, "blocks.0.hook_attn_out")
        together = np.linalg.lstsq(
            np.stack([points[0] - points[3], points[2] - points[1]], axis=1),
            points[2] - points[3],
            rcond=None,
        )
        crossing = np.allclose(
            np.stack([points[0] - points[3], points[2] - points[1]], axis=1) @ together[0],
            points[2] - points[3],
            atol=1e-9 * np.abs(points).max(),
        ) and bool(((together[0] >= 0) & (together[0] <= 1)).all())
        assert crossing is (case.variant == "one head")
        for known in case.truth.readouts:
            if known.table in ("0110", "1001"):
                assert known.readable is not crossing


def test_present_pairs_score_high_and_absent_ones_do_not():
    for case in bigram_cases(1, 6):
        attn, features = case.model.blocks[0].attn, case.model.embed.W_E
        for known in case.truth.pairs:
            Q, K = attn.W_Q[known.head.head], attn.W_K[known.head.head]
            scores = (features @ Q) @ (features @ K).T
            if known.present:
                assert scores[known.query, known.key] > 2 * scores.std()
        assert {p.present for p in case.truth.pairs} == {True, False}


@pytest.mark.slow
def test_an_imitation_says_no_more_than_it_has_learnt(imitated_case, texts):
    free = imitated_case("most frequent", 2, forced=False, steps=60)
    for head in free.truth.heads:
        assert cost(free, [head]) >= 0.1
    lazy = imitated_case("compare", 2, forced=True, steps=2)
    assert lazy.truth.heads is None
    texts(lazy.variant)


@pytest.mark.slow
def test_a_forced_circuit_is_where_it_was_put(imitated_case):
    case = imitated_case("reverse", 1, forced=True)
    [head] = case.truth.heads
    others = [h for h in every_head(case.model) if h != head]
    assert cost(case, [head]) > 0.5
    assert max(cost(case, [other]) for other in others) < 0.05


def test_a_seed_says_all_about_a_case():
    quick = [family for family in suite.available() if family != "imitated"]
    for family in quick:
        build = suite.builder(family)
        [one], [again], [other] = (list(build(seed, 1)) for seed in (3, 3, 4))
        weights = [dict(case.model.state_dict()) for case in (one, again)]
        assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
        assert one.seed == again.seed != other.seed
        if one.data is not None:
            assert one.data.digest() == again.data.digest()


def test_longer_suites_begin_as_shorter_ones():
    short, long = (list(suite.builder("twins")(1, n)) for n in (2, 4))
    assert [case.seed for case in short] == [case.seed for case in long][:2]


@pytest.mark.parametrize("models", [7, 30, 100, 101])
def test_counts_add_up(models):
    found = suite.counts(models)
    assert sum(found.values()) == models
    assert min(found.values()) >= 1


def test_unknown_families_are_named():
    with pytest.raises(InputError, match="no family nothing"):
        suite.counts(10, ["nothing"])
    with pytest.raises(InputError, match="too few"):
        suite.counts(1, ["xor", "bigrams"])


def test_families_that_need_tracr_are_left_out_without_it(monkeypatch, texts):
    monkeypatch.setattr(suite, "find_spec", lambda name: None)
    assert suite.available() == ("planted", "superposed", "xor", "bigrams")
    assert suite.counts(100).keys() == set(suite.available())
    with pytest.raises(InputError) as refused:
        suite.counts(10, ["xor", "compiled"])
    texts(str(refused.value))
    said = []
    card = run_challenge([lambda model, question: None], models=4, progress=said.append)
    assert "compiled, twins, imitated" in said[0]
    assert "tracr" in said[0]
    assert card.by_kind[0].answered == 0
