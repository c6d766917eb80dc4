"""Knocking out a relation: against the same arithmetic done by hand, on every kind of model."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.circuits.heads.attention_knockout import (
    INTACT,
    LEAST_LEFT,
    WAYS,
    Knockout,
    KnockoutRunner,
    _taken,
    as_much_elsewhere,
)
from interp_toolkit.circuits.heads.controls import targets_of
from interp_toolkit.circuits.heads.detectors import as_detector
from interp_toolkit.circuits.heads.rule import Knockouts, group_effects
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.circuits.metrics.repetition import row_batches
from interp_toolkit.circuits.metrics.task import task_of
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.running.restart import can_restart, entry, run_from
from interp_toolkit.stats import COVERAGE, Share
from interp_toolkit.toys.hand_set.induction import induction, induction_gqa

PREVIOUS = as_detector("previous-token")


def runner_of(model, rows=5, **options):
    prompts = repeated_prompts(model, rows=rows, n_pos=min(24, model.cfg.n_ctx))
    task, reason = task_of(model, prompts)
    assert reason is None
    targets = {"previous-token": partial(targets_of, PREVIOUS, prompts, causal=True)}
    return KnockoutRunner(model, task, targets, **options)


def knockouts_of(runner, heads, task_check, **options):
    """Knockouts of previous-token attention on eight prompts."""
    share = options.pop("share", lambda lost: task_check.fraction(lost, COVERAGE))
    knockouts = Knockouts(runner, "previous-token", heads, task_check, share, **options)
    knockouts.rows = 8
    return knockouts


def by_hand(model, runner, layer, head, way):
    """Attention to the previous token taken away, through TransformerLens' own hooks."""
    tokens, seen = runner.task.prompts.tokens, {}

    def keep(name):
        return lambda value, hook: seen.__setitem__(name, value.detach().clone())

    at = f"blocks.{layer}.attn"
    with torch.no_grad():
        names = [f"{at}.hook_pattern", f"{at}.hook_v", f"{at}.hook_z"]
        model.run_with_hooks(tokens, fwd_hooks=[(name, keep(name)) for name in names])
    pattern, v, z = (seen[name] for name in names)
    values = v[:, :, head * v.shape[2] // pattern.shape[1]]
    mean = values.reshape(-1, values.shape[-1]).mean(0)
    new = z.clone()
    for row in range(len(tokens)):
        for query in range(1, tokens.shape[1]):
            share = pattern[row, head, query].clone()
            taken = float(share[query - 1])
            share[query - 1] = 0
            if way == "mean":
                new[row, query, head] = share @ values[row] + taken * mean
            else:
                new[row, query, head] = (share / share.sum()) @ values[row]
    with torch.no_grad():
        put = [(f"{at}.hook_z", lambda value, hook: new)]
        logits = model.run_with_hooks(tokens, fwd_hooks=put)
    return runner.task.read(logits, runner.task.rows)[:, 0]


@pytest.mark.parametrize("way", ["renormalize", "mean"])
def test_on_every_kind_of_model_as_by_hand(model, request, count_hooks, way):
    if request.node.callspec.params["model"] in ("own-bare", "bert"):
        return  # no task on made rows
    before, runner = count_hooks(model), runner_of(model)
    runner.check([(1, 2)])
    knockout = Knockout(frozenset([Head(1, 2)]), "previous-token", way)
    found = runner.readings([INTACT, knockout], runner.task.rows)
    want = by_hand(model, runner, 1, 2, way)
    assert np.abs(found[knockout][:, 0] - found[INTACT][:, 0]).max() > 1e-4
    np.testing.assert_allclose(found[knockout][:, 0], want, atol=2e-4)
    assert count_hooks(model) == before


def test_batches_and_restarts_change_nothing():
    model = induction_gqa()
    knockouts = [
        Knockout(heads, "previous-token", way, elsewhere)
        for way in WAYS
        for some in [frozenset([Head(0, 1), Head(1, 2)])]
        for heads, elsewhere in ((some, frozenset()), (frozenset(), some), (some, some))
    ] + [
        Knockout(frozenset([Head(0, 1)]), "previous-token", "mean", output=frozenset([Head(1, 2)]))
    ]
    runs = []
    for memory in (None, 1_500_000):
        runner = runner_of(model, memory=memory)
        runs.append(runner.readings(knockouts, runner.task.rows))
    for knockout in knockouts:
        np.testing.assert_allclose(runs[0][knockout], runs[1][knockout], atol=1e-5)


@pytest.mark.parametrize("memory", [None, 1_500_000, 1_100_000])
def test_what_is_kept_of_a_run_stays_within_memory_and_changes_nothing(memory):
    model = induction_gqa()
    knockouts = [
        INTACT,
        *(Knockout(frozenset([Head(1, 2)]), "previous-token", way) for way in WAYS),
    ]
    wanted = runner_of(model, rows=24).readings(knockouts, torch.arange(24))
    runner = runner_of(model, rows=24, memory=memory)
    for _ in range(3):
        found = runner.readings(knockouts, runner.task.rows)
        for knockout in knockouts:
            np.testing.assert_allclose(found[knockout], wanted[knockout], atol=1e-5)
        held = {t.data_ptr(): t.nbytes for i in runner._stored.values() for t in i.values()}
        assert sum(held.values()) <= parse_memory(memory) / 2
    if memory is None:
        assert set(range(24)) == {row for rows in runner._stored for row in rows}


def test_replaced_output_is_the_mean_or_another_row_as_by_hand():
    model = induction_gqa()
    runner = runner_of(model, rows=6)
    tokens, at, head = runner.task.prompts.tokens, "blocks.1.attn.hook_z", Head(1, 2)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    z = cache[at]
    for way in ("mean", "resample", "zero"):
        new = z.clone()
        for row in range(6):
            others = [r for r in range(6) if r != row]
            donor = z[others].mean(0) if way == "mean" else z[runner._donors[row]]
            new[row, :, 2] = 0 if way == "zero" else donor[:, 2]
        with torch.no_grad():
            logits = model.run_with_hooks(tokens, fwd_hooks=[(at, lambda z, hook, new=new: new)])
        knockout = Knockout(way=way, output=frozenset([head]))
        found = runner.readings([knockout], runner.task.rows)[knockout]
        want = runner.task.read(logits, runner.task.rows)[:, :2]
        np.testing.assert_allclose(found, want, atol=2e-4)


def test_whole_outputs_of_every_kind_of_model_as_by_hand(model, request, count_hooks):
    if request.node.callspec.params["model"] in ("own-bare", "bert"):
        return  # no task on made rows
    before, runner = count_hooks(model), runner_of(model)
    knockout = Knockout(way="mean", output=frozenset([Head(1, 2)]))
    found = runner.readings([knockout], runner.task.rows)[knockout]
    tokens, at = runner.task.prompts.tokens, "blocks.1.attn.hook_z"
    with torch.no_grad():
        z = model.run_with_cache(tokens, names_filter=at)[1][at].clone()
        z[:, :, 2] = (z[:, :, 2].sum(0) - z[:, :, 2]) / (len(tokens) - 1)
        logits = model.run_with_hooks(tokens, fwd_hooks=[(at, lambda value, hook: z.to(value))])
    want = runner.task.read(logits, runner.task.rows)[:, :2]
    np.testing.assert_allclose(found, want, atol=2e-4)
    assert count_hooks(model) == before


@pytest.mark.parametrize("passes", [1, 6])  # the first and the edited one
def test_hooks_are_gone_after_an_error(count_hooks, passes):
    model, calls = induction_gqa(), []
    runner, before = runner_of(model), count_hooks(model)

    def fail(value, hook):
        calls.append(hook.name)
        if len(calls) == passes:
            raise ZeroDivisionError

    knockout = Knockout(way="zero", output=frozenset([Head(0, 1)]))
    with model.hooks(fwd_hooks=[("blocks.1.attn.hook_z", fail)]), pytest.raises(ZeroDivisionError):
        runner.readings([INTACT, knockout], runner.task.rows)
    assert len(calls) == passes
    assert count_hooks(model) == before


def test_resampled_values_are_those_of_another_row():
    model = induction_gqa()
    runner = runner_of(model, rows=6)
    values = runner._donor_values(1, runner.task.rows)
    with torch.no_grad():
        _, cache = model.run_with_cache(runner.task.prompts.tokens)
    own = cache["blocks.1.attn.hook_v"]
    for row in range(6):
        donor = runner._donors[row]
        assert donor != row
        torch.testing.assert_close(
            values[row].flatten(1).sort(0).values, own[donor].flatten(1).sort(0).values
        )


def test_a_model_started_in_the_middle_gives_the_same_logits(zoo):
    model = zoo("own")
    assert can_restart(model)
    tokens = torch.arange(12).reshape(2, 6) % model.cfg.d_vocab
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
    again = run_from(model, cache[entry(1)], 1, tokens)
    torch.testing.assert_close(again, logits, atol=1e-5, rtol=1e-5)


def test_the_induction_head_needs_the_relation_and_not_other_attention():
    model = induction()
    runner = runner_of(model, rows=8)
    head = frozenset([Head(0, 1)])
    knockout = Knockout(head, "previous-token", "renormalize")
    control = Knockout(frozenset(), "previous-token", "renormalize", elsewhere=head)
    found = runner.readings([INTACT, knockout, control], runner.task.rows)
    intact, without, elsewhere = (found[c][:, 0].mean() for c in (INTACT, knockout, control))
    assert intact - without > 2
    assert abs(intact - elsewhere) < 0.1


@pytest.mark.parametrize("heads", [(Head(0, 0), Head(0, 1)), (Head(0, 1), Head(1, 0))])
@pytest.mark.parametrize("way", ["renormalize", "mean"])
def test_a_knockout_beside_another_is_both(heads, way, zoo):
    first, second = (frozenset([head]) for head in heads)
    relation = "previous-token"
    beside = Knockout(first, relation, way)
    both = Knockout(second, relation, way, beside=beside)
    whole = Knockout(relation=relation, way="zero", output=second, beside=beside)
    joint = Knockout(first | second, relation, way)
    runner = runner_of(zoo("own"), rows=6)
    found = runner.readings([INTACT, beside, both, joint, whole], runner.task.rows)
    np.testing.assert_allclose(found[both], found[joint], atol=1e-6)
    assert np.abs(found[beside] - found[INTACT]).max() > 1e-4
    assert both.layers == joint.layers == whole.layers
    zero = runner.readings([Knockout(way="zero", output=second)], runner.task.rows)
    assert np.abs(found[whole] - next(iter(zero.values()))).max() > 1e-4


def test_what_is_not_attention_times_values_is_refused(texts):
    model = induction()
    model.blocks[1].attn.hook_z.add_hook(lambda z, hook: 2 * z)
    try:
        with pytest.raises(InterventionError, check=texts):
            runner_of(model).check([(1, 0)])
    finally:
        model.reset_hooks()


@st.composite
def patterns(draw):
    n = draw(st.integers(2, 6))
    raw = draw(st.lists(st.floats(0.01, 1), min_size=n * n, max_size=n * n))
    pattern = torch.tensor(raw, dtype=torch.float64).reshape(1, n, n).tril()
    pattern = pattern / pattern.sum(-1, keepdim=True)
    held = draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    return pattern, torch.tensor(held).reshape(1, n, n) & seen, seen


@given(patterns())
def test_what_is_left_is_attention_without_the_targets(case):
    pattern, targets, _ = case
    where = targets.to(pattern)
    left, missing = _taken(pattern, where, "renormalize")
    torch.testing.assert_close(left.sum(-1) + missing[..., 0], torch.ones_like(left.sum(-1)))
    assert float((left * targets).abs().max()) < 1e-12
    enough = (pattern * ~targets).sum(-1) > LEAST_LEFT
    assert not missing[..., 0][enough].any()
    assert (missing[..., 0][~enough] >= 1 - LEAST_LEFT).all()
    left, stands_in = _taken(pattern, where, "mean")
    torch.testing.assert_close(left.sum(-1) + stands_in[..., 0], torch.ones_like(left.sum(-1)))
    assert float((left * targets).abs().max()) < 1e-12


@pytest.mark.parametrize(("left", "scaled"), [(1.5, True), (0.7, False)])
def test_too_little_left_is_measured_by_what_there_was(left, scaled):
    """Beside a sink: the keys have half of the attention, and `left` times its LEAST_LEFT stays."""
    kept = 0.5 * left * LEAST_LEFT
    pattern = torch.tensor([[[0.5 - kept, kept]]], dtype=torch.float64)
    found, missing = _taken(pattern, torch.tensor([[[1.0, 0.0]]]), "renormalize")
    assert found[0, 0, 1].item() == pytest.approx(0.5 if scaled else kept)
    assert missing.item() == pytest.approx(0 if scaled else 0.5 - kept)


def test_progress_is_told_at_every_sixteenth_knockout():
    told = []
    model = induction_gqa()
    heads = [Head(layer, head) for layer in range(2) for head in range(model.cfg.n_heads)]
    knockouts = [
        *(Knockout(way=w, output=frozenset([h])) for w in ("mean", "zero") for h in heads),
        *(Knockout(frozenset([h]), "previous-token", way) for way in WAYS for h in heads),
    ][:33]
    runner = runner_of(model, rows=2, progress=told.append)
    runner.readings(knockouts, runner.task.rows)
    assert len(told) == -(-len(knockouts) // 16) + 1  # and the end
    assert "33 of 33" in told[-1]


@given(patterns(), st.integers(0, 99))
def test_the_control_takes_as_much_from_elsewhere_or_all_there_is(case, seed):
    pattern, targets, seen = case
    order = torch.rand(pattern.shape, generator=torch.Generator().manual_seed(seed))
    taken = as_much_elsewhere(pattern, targets, seen, order)
    assert not (taken * (targets | ~seen)).any()
    assert bool(((taken >= 0) & (taken <= 1)).all())
    wanted, got = (pattern * targets).sum(-1), (pattern * taken).sum(-1)
    all_others = (pattern * (seen & ~targets)).sum(-1)
    asked = targets.any(-1)
    torch.testing.assert_close(got[asked], torch.minimum(wanted, all_others)[asked])
    assert not taken[~asked].any()


def test_what_is_measured_first_takes_no_more_memory_than_a_pass():
    """So much that a row fits and nothing can be kept of it, as before any knockout."""
    model = induction_gqa()
    whole = runner_of(model, rows=6)
    task, enough = whole.task, None
    for memory in range(10_000, 2_000_000, 10_000):
        try:
            row_batches(model, task.prompts, task.rows, 0, memory)
        except InputError:
            continue
        enough = memory
        break
    tight = runner_of(model, rows=6, memory=enough)
    assert tight.check_task().value == whole.check_task().value


def test_on_a_budget_the_head_that_costs_most_is_knocked_out_first():
    """However the heads are listed; of a group no more is tested than one head and its effect."""
    model = induction_gqa()
    runner = runner_of(model, rows=8)
    task_check, intact = runner.check_task(), runner.readings([INTACT], runner.task.rows)
    knockouts = {
        at: Knockout(frozenset([at]), "previous-token")
        for at in (Head(0, 0), Head(0, 1), Head(1, 2))
    }
    losses = {
        head: float(
            (intact[INTACT] - runner.readings([knockout], runner.task.rows)[knockout])[:, 0].mean()
        )
        for head, knockout in knockouts.items()
    }
    first = max(losses, key=losses.__getitem__)
    last = min(losses, key=losses.__getitem__)
    assert losses[first] > 10 * abs(losses[last])
    for listed in ([first, last], [last, first]):
        group = group_effects(runner, "previous-token", listed, task_check, until=0.0)
        assert [member.head for member in group.members] == [first, last]
        assert [member.is_partial for member in group.members] == [False, True]
        assert group.members[1].status == group.members[1].word == "undecided"
        assert (group.structure, group.control) == ("none", {})
    whole = group_effects(runner, "previous-token", [last, first], task_check)
    assert {member.head for member in whole.members} == {first, last}


def test_on_a_budget_heads_without_an_effect_together_are_not_knocked_out_one_by_one():
    model = induction_gqa()
    runner = runner_of(model, rows=8)
    task_check, idle = runner.check_task(), [Head(1, 2), Head(1, 3)]
    group = group_effects(runner, "previous-token", idle, task_check, until=1e9)
    assert {(m.head, m.is_partial, m.status) for m in group.members} == {
        (head, True, "undecided") for head in idle
    }
    whole = group_effects(runner, "previous-token", idle, task_check)
    assert {member.head for member in whole.members} == set(idle)
    assert not any(member.named for member in whole.members)


def test_on_a_budget_heads_are_tested_on_all_prompts_until_it_is_spent(monkeypatch):
    model = induction_gqa()
    runner = runner_of(model, rows=24)
    rule, readings, tested, ranked = Knockouts.member, KnockoutRunner.readings, [], []

    def member(self, head, until=math.inf):
        tested.append((head, self.rows))
        return rule(self, head, until)

    def watch(self, knockouts, rows):
        if not tested:
            ranked.extend((k.heads, k.way, len(rows)) for k in knockouts if len(k.heads) == 1)
        return readings(self, knockouts, rows)

    monkeypatch.setattr(Knockouts, "member", member)
    monkeypatch.setattr(KnockoutRunner, "readings", watch)
    heads, task_check = [Head(0, 0), Head(0, 1)], runner.check_task()
    group_effects(runner, "previous-token", heads, task_check, until=1e9, budget=1e9)
    assert sorted(tested) == [(heads[0], 24), (heads[1], 24)]
    assert ranked == [(frozenset([head]), "renormalize", 4) for head in heads]
    tested.clear()
    one = group_effects(runner, "previous-token", heads, task_check, until=0.0, budget=1e9)
    assert len(tested) == 1
    assert [member.is_partial for member in one.members] == [False, True]
    none = group_effects(runner, "previous-token", heads, task_check, until=0.0, budget=0.0)
    assert [member.is_partial for member in none.members] == [True, True]
    assert len(tested) == 1
    assert none.joint["renormalize"] == one.joint["renormalize"]
    alone = group_effects(runner, "previous-token", heads[:1], task_check, until=0.0, budget=0.0)
    assert [member.head for member in alone.members] == heads[:1]
    assert alone.word == alone.members[0].word


@pytest.mark.parametrize(("number", "sets"), [(1, 1), (2, 2), (3, 3)])
def test_intervals_are_those_of_what_may_be_tested(number, sets):
    """Each tested head alone, with the others of its layer, and with all others."""
    runner = runner_of(induction_gqa(), rows=8)
    heads = [Head(0, 0), Head(0, 1), Head(1, 2)][:number]
    group = group_effects(runner, "previous-token", heads, runner.check_task(), most=1)
    assert 1 - group.coverage == pytest.approx((1 - COVERAGE) / (1 + sets))


def test_a_joint_effect_is_measured_in_one_way_until_a_head_needs_the_others(monkeypatch):
    runner = runner_of(induction_gqa(), rows=8)
    task_check, heads = runner.check_task(), [Head(0, 0), Head(0, 1)]
    ways = []
    readings = KnockoutRunner.readings

    def watch(self, knockouts, rows):
        ways.extend(knockout.way for knockout in knockouts if knockout.heads)
        return readings(self, knockouts, rows)

    monkeypatch.setattr(KnockoutRunner, "readings", watch)
    knockouts = knockouts_of(runner, heads, task_check)
    assert list(knockouts.joint_effect()) == ways == ["renormalize"]
    knockouts.effect(frozenset(heads))
    assert list(knockouts.joint_effect()) == ["renormalize", "mean"]
    one_way = {"renormalize": Share(0.5, -0.5, 1.5)}
    monkeypatch.setattr(Knockouts, "joint_effect", lambda self: one_way)
    group = group_effects(runner, "previous-token", heads, task_check, until=1e9)
    assert (group.joint, group.word) == (one_way, "undecided")
    assert all(member.is_partial for member in group.members)


def test_on_a_spent_budget_no_company_of_a_head_is_tried(monkeypatch):
    model = induction_gqa()
    runner = runner_of(model, rows=8)
    heads, tried = [Head(0, 0), Head(0, 1)], set()
    readings = KnockoutRunner.readings

    def watch(self, knockouts, rows):
        tried.update(knockout.heads for knockout in knockouts)
        return readings(self, knockouts, rows)

    monkeypatch.setattr(KnockoutRunner, "readings", watch)
    task_check = runner.check_task()
    knockouts = knockouts_of(runner, heads, task_check)
    decide = knockouts._decide
    monkeypatch.setattr(
        knockouts, "_decide", lambda *claim: replace(decide(*claim), status="undecided")
    )
    weak = min(heads, key=lambda head: abs(knockouts.losses(frozenset([head]))[0].mean()))
    tried.clear()
    knockouts.member(weak, until=0.0)
    assert all(len(group) < 2 for group in tried)
    knockouts.member(weak)
    assert frozenset(heads) in tried
