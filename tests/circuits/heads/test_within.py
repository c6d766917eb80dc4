"""Large models: cuts within a price say what all cuts say, or less, and never more."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from interp_toolkit.circuits.behaviour.prompts import repeated_prompts
from interp_toolkit.circuits.behaviour.task import measured_home, task_of
from interp_toolkit.circuits.heads import price as prices
from interp_toolkit.circuits.heads import within as within_module
from interp_toolkit.circuits.heads.analysis import HEADS
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.cuts import INTACT, Cut, Cutter
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.heads.groups import PARTLY, group_effects
from interp_toolkit.circuits.heads.price import Price, is_large
from interp_toolkit.circuits.heads.screen import first_order, likelihood
from interp_toolkit.circuits.heads.within import groups_within
from interp_toolkit.models.heads import Head
from interp_toolkit.models.running.forward import run
from interp_toolkit.report.json import to_json
from interp_toolkit.toys.hand_set import induction as toys

HEADS_OF_TWO = [Head(layer, head) for layer in range(2) for head in range(2)]


def cutter_of(model, names=("induction",), rows=16, **options):
    prompts = repeated_prompts(model, rows=rows, n_pos=24)
    task, reason = task_of(model, prompts)
    assert reason is None
    targets = {n: partial(targets_of, as_detector(n), prompts, causal=True) for n in names}
    return Cutter(model, task, targets, **options)


def price_of(model, passes):
    return Price(1.0, model.cfg.n_layers, 0.2, passes=passes)


def within(model, passes, heads=((1, 0), (1, 1)), memory=None):
    cutter = cutter_of(model, keeps=True, memory=memory)
    home, price = measured_home(model, cutter.task), price_of(model, passes)
    relations = {"induction": [Head(*at) for at in heads]}
    [group] = groups_within(cutter, relations, home, price, everyone=HEADS_OF_TWO)
    return group, price


def twins():
    """Two heads of which each does what the other does."""
    model = toys.induction(d_vocab=40, n_ctx=32, gain=40.0)
    attn = model.blocks[1].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name).data[1] = getattr(attn, name).data[0]
    return model


def test_a_price_counts_the_layers_that_are_run():
    price = Price(0.25, 10, 0.2)
    late, early = Cut(frozenset([Head(5, 0), Head(7, 1)])), Cut(frozenset([Head(0, 3)]))
    assert price.of([late]) == pytest.approx(0.25 * (0.2 + 0.8 * 0.5))
    assert price.of([early, INTACT]) == pytest.approx(0.5)
    price.restarts = False
    assert price.of([late]) == pytest.approx(0.25)
    price.late = True
    assert price.of([late]) == pytest.approx(0.75)


def test_toys_are_not_large():
    model = toys.induction()
    assert not is_large(model, cutter_of(model).task)


def test_the_first_order_is_the_slope_of_a_small_step():
    model = toys.induction(d_vocab=40, n_ctx=32, gain=3.0).double()
    cutter = cutter_of(model, rows=4)
    head, rows = Head(1, 0), cutter.task.rows
    found = first_order(cutter, {"induction": [head]})["induction", head]
    live = cutter.watching([1])
    tokens = cutter.task.prompts.tokens[rows]
    run(model, tokens, live.watch())
    change = cutter.change(live, torch.from_numpy(cutter.targets["induction"](rows)), head)
    values = []
    for step in (-1e-4, 1e-4):

        def move(z, hook, step=step):
            moved = z.clone()
            moved[:, :, 0] += step * change
            return moved

        logits = run(model, tokens, [(model.hook_dict["blocks.1.attn.hook_z"], move)])
        values.append(float(likelihood(cutter.task, logits, rows)))
    assert found == pytest.approx(-(values[1] - values[0]) / 2e-4, rel=1e-5)
    assert found > 0


def test_what_is_decided_is_what_all_cuts_say():
    model = toys.induction(d_vocab=40, n_ctx=32)
    cutter = cutter_of(model)
    home = measured_home(model, cutter.task)
    heads = [Head(1, 0), Head(1, 1)]
    whole = group_effects(cutter, "induction", heads, home, everyone=HEADS_OF_TWO)
    group, price = within(model, 100.0)
    assert price.spent <= price.passes
    assert group.material
    assert group.specific == whole.specific
    by_head = {m.head: m for m in whole.members}
    assert group.members[0].head == (1, 0)
    first = group.members[0]
    assert first.word == by_head[first.head].word == "carries"
    assert first.named
    for way, share in first.own.items():
        assert share.mean == pytest.approx(by_head[first.head].own[way].mean, abs=1e-6)


def test_what_could_not_be_kept_is_paid_for_again():
    model = toys.induction(d_vocab=40, n_ctx=32)
    group, price = within(model, 100.0)
    tight, dearer = within(model, 100.0, memory=350_000)
    assert [m.word for m in tight.members] == [m.word for m in group.members]
    assert dearer.spent > price.spent + 0.5


def test_twins_are_found_by_what_they_restore():
    group, _ = within(twins(), 100.0)
    assert [m.word for m in group.members] == ["carries", "carries"]
    assert all(m.claim is m.restored for m in group.members)


def test_of_what_was_not_asked_nothing_is_denied():
    asked, _ = within(twins(), 100.0)
    partly, price = within(twins(), 6.5)
    assert price.spent <= 6.5
    assert len(asked.members) == 2
    assert partly.word == asked.word
    for member in partly.members:
        assert member.word in ("undecided", "carries", "contributes")
        if np.isnan(next(iter(member.restored.values())).mean):
            assert (member.word, member.reason) == (
                "undecided",
                PARTLY,
            ) or member.word != "undecided"
    nothing, price = within(twins(), 0.0)
    assert nothing.members == []
    assert nothing.word == asked.word


def test_the_whole_analysis_of_a_large_model_names_the_same_head(monkeypatch):
    model = toys.induction(d_vocab=40, n_ctx=32)
    before = HEADS(model, detectors=["induction", "previous-token"])
    monkeypatch.setattr(prices, "LARGE", 0.0)
    after = HEADS(model, detectors=["induction", "previous-token"])
    assert after.status == before.status == "detected"
    words = [
        {(h.detector, h.name): h.causal for h in r.heads if h.detected} for r in (before, after)
    ]
    assert words[0] == words[1]
    assert any("within about 9 forward passes (" in note for note in after.notes)
    assert not any("forward passes" in note for note in before.notes)


def test_what_was_not_asked_is_shown_as_missing(monkeypatch):
    monkeypatch.setattr(prices, "LARGE", 0.0)
    monkeypatch.setattr(within_module.JudgedGroup, "material", lambda self, heads: False)
    result = HEADS(toys.induction_decoy(d_vocab=40, n_ctx=32), detectors=["induction"])
    [group] = result.groups
    assert group.members == []
    assert np.isnan(group.control["mean"].mean)
    rows = next(table for table in result.tables() if "relation" in table.columns).rows
    assert rows[0][5] is None
    json.dumps(to_json([result]), allow_nan=False)
    uncut = [h for h in result.heads if h.attends]
    assert len(uncut) == 2
    assert all(h.causal == "not_tested" for h in uncut)
