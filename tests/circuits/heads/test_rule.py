"""The head rule: candidates, what words rest on, decoys of every part of the rule."""

from types import SimpleNamespace

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.circuits.heads import analysis
from interp_toolkit.circuits.heads.analysis import HEADS
from interp_toolkit.circuits.heads.rule import (
    OUTPUT_WAYS,
    WAYS,
    Elsewhere,
    Knockouts,
    candidates,
    least,
)
from interp_toolkit.circuits.heads.significance import DetectorScores
from interp_toolkit.circuits.metrics.prompts import repeated_prompts
from interp_toolkit.data import FeatureData
from interp_toolkit.evidence import Control
from interp_toolkit.models.model import Head
from interp_toolkit.stats import Share
from interp_toolkit.toys.hand_set import induction as toys


def scores(score, uniform, null, p, floor=0.3):
    shape = np.array(score).shape
    full = [np.broadcast_to(np.array(v, float), shape).copy() for v in (score, uniform, null, p)]
    score, uniform, null, p = full
    excess = (score - uniform) / (1 - uniform)
    weakest = tuple(("",) * shape[1] for _ in range(shape[0]))
    over = np.minimum(excess, (score - null) / (1 - uniform))
    by_row = score[:, None]
    return DetectorScores("x", score, uniform, null, excess, over, p, weakest, by_row, floor, score)


def test_weak_heads_that_are_certain_are_in_the_group_and_the_clearest_is_first():
    found = scores([[0.3, 0.9, 0.12, 0.3]], 0.05, 0.05, [[1e-9, 0.04, 0.09, 0.3]])
    assert candidates(found) == [(0, 1), (0, 0), (0, 2)]


def test_attention_less_than_twice_uniform_is_no_candidate():
    assert candidates(scores([[0.35]], 0.2, 0.2, 1e-9)) == []
    assert candidates(scores([[0.45]], 0.2, 0.2, 1e-9)) == [(0, 0)]


def asking(model, rows=64, *, right=None):
    """Repeats that ask for the next token; of some rows for a wrong one."""
    tokens = repeated_prompts(model, rows=rows, n_pos=24).tokens.numpy()
    answers = tokens[:, -1].copy()
    if right is not None:
        answers[~right] = (answers[~right] + 1) % model.cfg.d_vocab
    return FeatureData(tokens[:, :-1], np.zeros((rows, 0), bool), (), answers=answers)


def head(result, detector, layer, number):
    return next(
        h for h in result.heads if (h.detector, h.layer, h.head) == (detector, layer, number)
    )


@pytest.mark.parametrize("first", [True, False])
def test_files_that_are_sorted_say_the_same(first):
    model = toys.induction(d_vocab=40, n_ctx=32)
    right = np.arange(600) < 300
    result = HEADS(model, data=asking(model, 600, right=right if first else ~right))
    found = head(result, "induction", 1, 0)
    assert found.causal == "major"
    assert 0.5 <= found.knockout.effect.low <= found.knockout.effect.mean <= 1


def test_heads_knocked_out_with_others_only_are_not_named_on_rows_with_answers(monkeypatch, texts):
    monkeypatch.setattr(analysis, "MOST_MEMBERS", 1)
    model = toys.induction_decoy(d_vocab=40, n_ctx=32)
    result = HEADS(model, data=asking(model))
    induction = [h for h in result.heads if h.detector == "induction" and h.attends]
    not_knocked_out = [h for h in induction if h.knockout is None]
    assert not_knocked_out
    assert not any(h.detected for h in not_knocked_out)
    texts([h.reason for h in not_knocked_out])


def test_what_could_not_be_knocked_out_is_not_denied():
    model = toys.induction(d_vocab=40, n_ctx=32)
    data = asking(model)
    model.blocks[1].attn.hook_z.add_hook(lambda z, hook: 1.01 * z + 0.3, is_permanent=True)
    result = HEADS(model, data=data, detectors=["induction"])
    if result.performs_task:
        assert result.status == "not_tested"
        assert "No head is" not in result.headline


def test_twins_back_each_other_up(texts):
    model = toys.induction(d_vocab=40, n_ctx=32, gain=40.0)
    attn = model.blocks[1].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name).data[1] = getattr(attn, name).data[0]
    result = HEADS(model, data=asking(model))
    group = next(g for g in result.groups if g.detector == "induction")
    assert group.word == "major"
    assert group.structure == "backed up"
    for number in (0, 1):
        twin = head(result, "induction", 1, number)
        assert twin.detected
        assert twin.causal == "major"
        assert least(twin.knockout.own).high < 0.5
        assert twin.knockout.claim is twin.knockout.restored
        assert twin.knockout.others == "knocked out"
    texts(result.verdict)


def test_a_head_alone_is_knocked_out_with_the_others_intact(analyzed):
    assert head(analyzed("toy:induction", "heads"), "induction", 1, 0).knockout.others == "intact"


@pytest.fixture(scope="module")
def decoys(benchmarks):
    return benchmarks("decoys")


KINDS = (
    "fixed_position", "label_leak", "separator", "window", "token_class", "inert_sink", "bias_like",
    "cancelling_pair", "period", "copy_anything", "mute_token",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [20, 21])
def test_a_decoy_is_neither_named_nor_confirmed(decoys, kind, seed):
    planted = getattr(decoys, kind)(seed)
    assert decoys.accuracy(planted) > 0.9
    for row in decoys.judged(planted):
        assert not row["detected"], row
        assert row["answer"] != "confirmed", row


@pytest.mark.parametrize(
    "kind", ["true_previous", "true_duplicate", "true_induction", "true_shared", "true_first"]
)
def test_a_true_head_is_named_and_confirmed(decoys, kind):
    planted = getattr(decoys, kind)(20)
    for row in decoys.judged(planted):
        assert row["detected"], row
        assert row["answer"] == "confirmed", row


def test_rows_that_cannot_tell_a_position_from_an_answer_leave_both_open(decoys):
    planted = decoys.fixed_position(2)  # the answer stands at one position in every row
    result = it.analyze(planted.model, "heads", data=planted.data)
    found = head(result, "answer", 0, int(planted.claims[0].head[-1]))
    assert found.score > 0.9
    assert found.p_value is None
    assert not found.detected
    assert result.status == "undecided"


def test_the_rival_of_a_pattern_is_named(decoys, texts):
    planted = decoys.separator(20)
    result = it.analyze(planted.model, "heads", data=planted.data)
    found = head(result, "previous-token", 1, int(planted.claims[0].head[-1]))
    texts(found.reason)
    assert "token 1" in found.reason


def test_one_odd_row_does_not_name_a_head(decoys):
    """A head a fixed distance back is no induction head, with one row of another period or none."""
    planted = decoys.period(20)
    tokens = planted.data["tokens"].copy()
    half = tokens.shape[1] // 2
    tokens[0, half:] = tokens[0, half - 1 :: -1]
    for rows in (planted.data["tokens"], tokens):
        result = it.analyze(planted.model, "heads", data=planted.data | {"tokens": rows})
        assert not [h for h in result.heads if h.detector == "induction" and h.detected]


def test_copies_of_prompts_are_no_more_prompts(decoys):
    planted = decoys.true_previous(20)
    few = {name: column[:40] for name, column in planted.data.items()}
    once = it.analyze(planted.model, "heads", data=few)
    thrice = it.analyze(
        planted.model, "heads", data={name: np.concatenate([c] * 3) for name, c in few.items()}
    )
    assert any("80 of 120 prompts are duplicates" in note for note in thrice.notes)
    assert (thrice.headline, thrice.findings[1:]) == (once.headline, once.findings[1:])
    for a, b in zip(once.heads, thrice.heads, strict=True):
        assert a.p_value == pytest.approx(b.p_value, nan_ok=True)
        if a.knockout is not None:
            assert b.knockout.effect.low == pytest.approx(a.knockout.effect.low, abs=1e-6)


class Measured(Knockouts):
    """The rule with effects that are given, instead of knockouts."""

    threshold = 0.01

    def __init__(self, attention, whole):
        self.heads, self.all, self.attention = [Head(0, 0)], frozenset([Head(0, 0)]), {}
        self.shares = attention, whole

    def effect(self, heads, company=frozenset(), ways=WAYS):
        return dict.fromkeys(ways, self.shares[0])

    def output_effect(self, head, company=frozenset(), *, whole=False):
        return dict.fromkeys(OUTPUT_WAYS, self.shares[1])

    def elsewhere(self, heads, company=frozenset()):
        return Elsewhere({}, {}, Control("as much attention elsewhere", "passed"))


@pytest.mark.parametrize(
    ("whole", "bound", "status"),
    [
        (Share(0.04, 0.0, 0.07), 0.05, "undecided"),  # the head is not shown to be worth as much
        (Share(0.02, -0.02, 0.06), 0.05, "undecided"),
        (Share(0.09, 0.06, 0.12), 0.05, "detected"),
        (Share(0.09, 0.06, 0.12), 0.08, "undecided"),
        (Share(0.5, 0.4, 0.6), 0.15, "not_detected"),
    ],
)
def test_an_amount_is_confirmed_only_if_the_whole_head_is_worth_as_much(whole, bound, status):
    found = Measured(Share(0.09, 0.07, 0.12), whole).decide(Head(0, 0), bound)
    assert found.status == status


class Redundant(Measured):
    """Two heads, each of which can do the work alone: its output matters only without the other."""

    def __init__(self, alone, without_the_other):
        super().__init__(Share(0.5, 0.4, 0.6), alone)
        self.heads = [Head(0, 0), Head(0, 1)]
        self.all = frozenset(self.heads)
        self.without_the_other = without_the_other
        self.runner = SimpleNamespace(rows_run=0)

    def output_effect(self, head, company=frozenset(), *, whole=False):
        share = self.without_the_other if whole else self.shares[1]
        return dict.fromkeys(OUTPUT_WAYS, share)


@pytest.mark.parametrize(
    ("alone", "without_the_other", "status"),
    [
        (Share(0.0, -0.02, 0.02), Share(0.5, 0.4, 0.6), "detected"),
        (Share(0.5, 0.4, 0.6), Share(0.0, -0.02, 0.02), "detected"),
        (Share(0.0, -0.02, 0.02), Share(0.0, -0.02, 0.02), "undecided"),
        (Share(0.0, -0.02, 0.02), Share(0.5, -0.1, 0.9), "undecided"),
        (Share(-0.3, -0.5, -0.1), Share(-0.3, -0.5, -0.1), "undecided"),
    ],
)
def test_the_whole_output_matters_alone_or_in_the_group(alone, without_the_other, status):
    knockouts = Redundant(alone, without_the_other)
    knockouts.threshold = 0.05
    found = knockouts.decide(Head(0, 0), 0.05)
    assert found.status == status
    assert found.contradicted == (status == "undecided")
    if status == "detected":  # the whole head is ablated where its attention was knocked out
        assert bool(found.company) == (alone.low <= 0)


@pytest.mark.parametrize(
    ("whole", "status"),
    [
        (Share(0.08, 0.03, 0.13), "detected"),  # significant, and as large by its estimate
        (Share(0.08, -0.01, 0.17), "undecided"),
        (Share(0.04, 0.03, 0.05), "undecided"),
    ],
)
def test_further_interventions_bear_the_effect_by_their_estimates(whole, status):
    knockouts = Measured(Share(0.2, 0.1, 0.3), whole)
    knockouts.threshold = 0.05
    assert knockouts.decide(Head(0, 0), 0.05).status == status
    knockouts.threshold = 0.01  # an amount is claimed: the whole interval must reach it
    assert knockouts.decide(Head(0, 0), 0.05).status != "detected"
