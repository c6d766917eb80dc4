"""Heads that do a task are found however they share it: models whose truth is set by hand.

A dozen of the models of `benchmarks/head_recall.py`, and the oracle it asks, held against the
toolkit's own forward pass.
"""

from functools import partial

import numpy as np
import pytest
import torch

import interp_toolkit as it
from interp_studies.challenge.families.layouts import RELATIONS, Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.circuits.heads.attention_knockout import KnockoutRunner
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.heads.rule import group_effects
from interp_toolkit.circuits.metrics.prompts import prompts_from_data
from interp_toolkit.circuits.metrics.task import check_task, task_of
from interp_toolkit.models.model import Head

ROWS = 256


@pytest.fixture(scope="module")
def recall(benchmarks):
    return benchmarks("head_recall")


@pytest.fixture(scope="module")
def plain(benchmarks):
    return benchmarks("plain_attention")


def oracle_of(plain, model, rows):
    return plain.Oracle(plain.PlainModel(model.state_dict(), model.cfg.n_layers), rows)


def work(name, n_ctx=10, asked=1, **settings):
    return Work(Layout(name, n_ctx, n_ctx + 2 + asked, asked), **settings)


WORKS = {
    "induction, one": work("induction", n_ctx=9, seed=1, idle=1),
    "previous-token, one": work("previous-token", asked=3, sinks=1),
    "duplicate-token, one": work("duplicate-token", asked=2, decoys=1),
    "first-token, one": work("first-token"),
    "pointer, one of 7 positions": work("pointer", n_ctx=7, decoys=1, idle=1),
    "max, one": work("max", n_ctx=8),
    "first-token, 3 by attention": work("first-token", n=3, noise=0.25),
    "pointer, 2 by output": work("pointer", n=2, attention=1.0, noise=0.2),
    "pointer, 2 redundant": work("pointer", n=2, sharing="redundant", across=True),
    "lookup, 2 by tokens": work("lookup", n_ctx=8, n=2, sharing="tokens"),
    "mixed, one": work("mixed", asked=4),
    "pointer, 4 by attention": work("pointer", n=4, noise=0.3, seed=2),
    "previous-token, 4 by attention": work("previous-token", asked=4, n=4, noise=0.3),
    "mixed, 2 diluted": work("mixed", asked=4, n=2, dilution="uniform"),
    "max, 3 redundant": work("max", n=3, sharing="redundant", across=True),
}


#: heads that need their other attention as much: the knockout elsewhere costs as much, so they are
#: not named. They are not denied either.
NOT_NAMED = ("mixed, one",)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "made"), WORKS.items(), ids=WORKS)
def test_heads_that_do_the_work_are_named_and_no_others(name, made, recall, plain):
    model, layout = shared_work(made, torch.float32), made.layout
    result = it.analyze(model, "heads", data=layout.rows(ROWS, 2))
    oracle = oracle_of(plain, model, layout.rows(ROWS, 1))
    groups = {g.detector: [tuple(h) for h in g.heads] for g in result.groups}

    def cost(at):
        return oracle.cost(at[0], at[1:], groups.get(at[0], ()))

    named = {(h.detector, h.layer, h.head) for h in result.heads if h.detected}
    assert all(cost(at).largest >= recall.FELT for at in model.ground_truth.true)
    assert all(recall.is_right(cost(at), oracle.whole) for at in named)
    for head in result.heads:
        if head.knockout is not None:
            at = head.detector, head.layer, head.head
            assert not recall.contradicts(head.causal, cost(at)), (at, head.knockout, cost(at))
    if name in NOT_NAMED:
        denied = {(h.detector, h.layer, h.head) for h in result.heads if h.status == "not_detected"}
        assert not denied & set(model.ground_truth.true)
    else:
        assert named >= model.ground_truth.true


@pytest.mark.slow
def test_knockouts_name_four_heads_that_share_the_work():
    made = WORKS["pointer, 4 by attention"]
    model = shared_work(made, torch.float32)
    prompts = prompts_from_data(made.layout.rows(ROWS, 2), model)
    task, _ = task_of(model, prompts)
    targets = partial(targets_of, as_detector("answer"), prompts, causal=True)
    heads = [Head(*at[1:]) for at in sorted(model.ground_truth.true)]
    runner = KnockoutRunner(model, task, {"answer": targets})
    group = group_effects(runner, "answer", heads, check_task(model, task))
    assert group.structure == "shared"
    assert [(m.word, m.named) for m in group.members] == [("contributes", True)] * 4


@pytest.mark.parametrize("layout", RELATIONS)
def test_a_model_does_its_layouts_task_and_the_oracle_sees_it_do_so(layout, plain):
    model = shared_work(work(layout, asked=2 if layout == "mixed" else 1, decoys=1, idle=2))
    rows = model.ground_truth.work.layout.rows(64)
    oracle = oracle_of(plain, model, rows)
    assert oracle.intact == pytest.approx(1)
    tokens = torch.from_numpy(rows.token_matrix())
    torch.testing.assert_close(oracle.model.logits(tokens), model(tokens), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layout", [n for n in RELATIONS if n not in ("max", "mixed")])
@pytest.mark.parametrize("dilution", ["sink", "uniform"])
def test_attention_is_what_was_asked_for(layout, dilution, plain):
    model = shared_work(work(layout, n=3, attention=0.2, dilution=dilution))
    rows = model.ground_truth.work.layout.rows(32)
    tokens = rows.token_matrix()
    relation = RELATIONS[layout]
    seen = np.zeros(tokens.shape, dtype=bool)
    seen[np.arange(len(tokens))[:, None], rows.answer_positions] = True
    mask = plain.relation_mask(relation, tokens, rows.answers, rows.answer_positions)
    shares = plain.PlainModel(model.state_dict(), model.cfg.n_layers).attention(
        tokens, mask & seen[..., None]
    )
    for kind, *head in model.ground_truth.true:
        if kind == relation and head[0] == model.cfg.n_layers - 1:
            assert shares[tuple(head)] == pytest.approx(0.2, abs=0.02)


def test_what_is_idle_or_a_decoy_changes_no_logit():
    made = shared_work(work("pointer", decoys=2, sinks=1, idle=2))
    tokens = torch.from_numpy(made.ground_truth.work.layout.rows(8).token_matrix())
    before = made(tokens)
    busy = {at[1:] for at in made.ground_truth.true}
    for layer, block in enumerate(made.blocks):
        for head in range(made.cfg.n_heads):
            if (layer, head) not in busy:
                block.attn.W_O.data[head] = 0
    torch.testing.assert_close(made(tokens), before)


@pytest.mark.parametrize("sharing", ["sum", "redundant", "tokens"])
def test_costs_are_those_of_the_sharing(sharing, plain):
    made = shared_work(work("pointer", n=2, sharing=sharing, attention=1.0, seed=4))
    oracle = oracle_of(plain, made, made.ground_truth.work.layout.rows(ROWS))
    costs = [oracle.cost("answer", at[1:]) for at in sorted(made.ground_truth.true)]
    assert all(cost.joint > 0.9 for cost in costs)
    if sharing == "tokens":  # each answers for its own tokens
        assert sum(cost.alone for cost in costs) == pytest.approx(1, abs=0.1)
        assert min(cost.alone for cost in costs) > 0.25
        return
    for cost in costs:  # without noise half the logit is enough, and so either head
        assert cost.alone == pytest.approx(0)
        assert cost.restored > 0.9


@pytest.mark.parametrize("layout", RELATIONS)
def test_relations_of_the_oracle_hold_where_the_layout_says(layout, plain):
    rows = work(layout).layout.rows(20)
    parts = rows.token_matrix(), rows.answers, rows.answer_positions
    mask = plain.relation_mask("answer", *parts)
    for row in range(20):
        place, answer = int(parts[2][row, 0]), int(parts[1][row, 0])
        keys = np.flatnonzero(mask[row, place])
        assert (parts[0][row, keys] == answer).all()
        assert len(keys) == 1 or (layout == "duplicate-token" and answer == 1)


def test_what_cannot_be_is_refused(texts):
    with pytest.raises(it.errors.InputError, match="no layout"):
        Layout("guess", 8, 9)
    with pytest.raises(it.errors.InputError, check=texts):
        Layout("induction", 4, 9)
    with pytest.raises(it.errors.InputError, match="content tokens"):
        Layout("induction", 8, 7)
    with pytest.raises(it.errors.InputError, match="no attention sink"):
        work("mixed", n=2)
    with pytest.raises(it.errors.InputError, match="cannot work"):
        work("pointer", n=0)
