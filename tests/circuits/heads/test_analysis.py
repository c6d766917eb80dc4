"""The analysis of heads: what it says of models whose heads are known."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

import interp_toolkit as it
from interp_studies.challenge.families.layouts import Layout
from interp_studies.challenge.families.shared_work import Work, shared_work
from interp_toolkit.circuits.heads import analysis as head_analysis
from interp_toolkit.circuits.heads import figures, verdict
from interp_toolkit.circuits.heads.analysis import HEADS
from interp_toolkit.circuits.heads.result import HeadVerdict, _head_table
from interp_toolkit.circuits.heads.rule import MemberEffect, Screen, least
from interp_toolkit.circuits.metrics import task_check
from interp_toolkit.circuits.metrics.task import TaskCheck
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.finding import InterruptedAnalysis
from interp_toolkit.formatting import p_cell
from interp_toolkit.models.model import Head
from interp_toolkit.report.html import to_html, to_json
from interp_toolkit.stats import LEVEL, Estimate, Share
from interp_toolkit.toys.hand_set import induction as toys
from interp_toolkit.toys.hand_set.untrained import random_model

INTERFACE = {
    "detector",
    "layer",
    "head",
    "score",
    "null_mean",
    "p_value",
    "q_value",
    "detected",
    "ablation_effect",
    "causal",
    "control_effect",
    "effect",
    "effect_low",
    "effect_high",
}


@pytest.fixture(scope="module")
def induction():
    return HEADS(toys.induction(d_vocab=40, n_ctx=60))


@pytest.fixture(scope="module")
def decoys():
    return HEADS(toys.induction_decoy(d_vocab=40, n_ctx=60))


@pytest.fixture(scope="module")
def trained():
    return HEADS(it.load("toy:induction-trained"))


def by_name(result, detector, layer, head):
    return next(h for h in result.heads if (h.detector, h.layer, h.head) == (detector, layer, head))


def test_the_circuit_is_found_confirmed_and_its_feeder_named(induction, texts):
    assert induction.status == "detected"
    head = by_name(induction, "induction", 1, 0)
    assert (head.detected, head.causal) == (True, "major")
    assert head.ablation.low > 0.5 * induction.task_check.whole
    assert by_name(induction, "previous-token", 0, 1).causal == "major"
    (reader,) = induction.readers
    assert [(p.layer, p.head) for p in reader.named] == [(0, 1)]
    assert induction.headline == "Induction head L1H0; previous-token head L0H1."
    texts(induction.findings)
    assert sum(h.detected for h in induction.heads) == 2


def test_a_decoy_attends_like_one_and_is_not_named(decoys, texts):
    decoy, true = by_name(decoys, "induction", 1, 1), by_name(decoys, "induction", 1, 0)
    assert (decoy.attends, decoy.detected) == (True, False)
    assert true.detected
    assert decoy.score == pytest.approx(true.score)
    assert (decoy.causal, true.causal) == ("negligible", "major")
    assert decoy.knockout.effect.mean == pytest.approx(0, abs=1e-9)
    assert "L1H1" not in decoys.headline
    texts(decoys.verdict)
    assert decoys.status == "detected"  # the true one
    alone = HEADS(toys.decoy(d_vocab=40, n_ctx=60), detectors=["induction"])
    assert by_name(alone, "induction", 1, 1).causal == "not_tested"
    texts(alone.headline)


def test_the_trained_model_has_both_kinds_and_the_edge(trained, texts):
    induction = [h for h in trained.heads if h.detector == "induction" and h.detected]
    previous = [h for h in trained.heads if h.detector == "previous-token" and h.detected]
    assert {h.layer for h in induction} == {1}
    assert {h.layer for h in previous} == {0}
    assert all(h.causal in ("major", "contributes") for h in (*induction, *previous))
    fed = {(p.layer, p.head) for r in trained.readers for p in r.named}
    assert fed == {(h.layer, h.head) for h in previous}
    assert max(h.ablation.mean for h in previous) > 0.5 * trained.task_check.whole
    group = next(g for g in trained.groups if g.detector == "induction")
    assert least(group.joint).low > 0.8  # together they are all of it
    assert group.structure == "shared"
    texts(trained.verdict)


@pytest.mark.parametrize(
    ("toy", "detector"),
    [
        ("uand", "k-hop"),
        ("parity-3head", "previous-token"),
        ("and-1head", "induction"),
    ],
)
def test_attention_that_cannot_be_compared_is_not_tested(toy, detector, texts):
    result = it.analyze(it.load(f"toy:{toy}"), detector)
    assert all(head.p_value is None for head in result.heads)
    assert result.status == "not_tested"
    texts(result.headline)
    texts(result.findings[0])
    texts(result.findings[1:])
    [note] = [note for note in result.notes if note.startswith(detector)]
    texts(note)


def test_an_untrained_model_has_none(texts):
    result = HEADS(random_model(3, d_vocab=30, n_ctx=40, n_layers=2))
    assert result.status == "not_tested"
    assert result.performs_task is False
    texts(result.headline)
    texts(result.findings)
    assert result.readers == []
    assert all(h.ablation is None for h in result.heads)
    texts(result.tables()[0].title)


def test_every_head_and_detector_has_an_entry_with_the_fields_others_read(decoys):
    document = to_json([decoys])["results"][0]
    assert len(document["heads"]) == 5 * 2 * 2
    assert all(set(head) >= INTERFACE for head in document["heads"])
    json.dumps(document, allow_nan=False)
    frame = decoys.to_frame()
    assert len(frame) == 20
    assert frame.detected.sum() == 2
    (group, other) = document["groups"]
    assert (group["detector"], group["heads"]) == ("induction", ["L1H0", "L1H1"])
    assert group["causal"] == other["causal"] == "major"
    assert group["structure"] == "one head"
    assert document["performs_task"] is True


def test_the_page_has_map_and_patterns(decoys):
    figures = decoys.figures()
    assert figures[0].title == "Head map"
    maps = [trace for trace in figures[0].data if trace["type"] == "heatmap"]
    assert len(maps) == 5
    hover = maps[0]["text"][1][1]
    for word in ("L1H1", "score", "null", "adjusted", "knocked out", "negligible"):
        assert word in hover
    marks = next(trace for trace in figures[0].data if trace["type"] == "scatter")
    at = list(zip(marks["y"], marks["x"], marks["marker"]["symbol"], strict=True))
    assert at == [(1, 0, "diamond"), (1, 1, "x")]
    [patterns] = figures[1:]
    assert patterns.title.startswith("Attention of L1H0")
    assert patterns.title.endswith("token by token")
    headings = [note["text"] for note in patterns.layout["annotations"]]
    assert headings[0] == "<b>L1H0, induction</b>"
    assert len(headings) == len(patterns.data)
    for trace in patterns.data:
        z = np.array(trace["z"])
        assert z.shape == (60, 60)
        np.testing.assert_allclose(z.sum(1), 1, atol=0.05)
        assert trace["x"] == trace["y"]
    assert len(patterns.to_plotly().data) == len(headings)
    assert "Head map" in to_html([decoys])


def test_patterns_are_told_in_the_models_words():
    model = toys.induction(d_vocab=40, n_ctx=60)
    model.tokenizer = SimpleNamespace(decode=lambda ids: f"<b>w{ids[0]}</b>")
    figure = HEADS(model, detectors=["induction"]).figures()[1]
    [first, *_] = figure.data[0]["x"]
    assert re.fullmatch(r"0: &#x27;&lt;b&gt;w\d+&lt;/b&gt;&#x27;", first)  # plotly knows tags


def test_an_encoder_is_scored_and_not_knocked_out(zoo):
    result = HEADS(zoo("own-bare"))
    assert "next-token" in {h.detector for h in result.heads}
    assert all(h.causal == "not_tested" for h in result.heads)
    assert result.performs_task is None


def test_data_of_ones_own():
    model = toys.induction(d_vocab=40, n_ctx=60)
    rng = np.random.default_rng(0)
    rows = np.stack([np.resize(rng.permutation(40)[:p], 50) for p in (20, 21, 22, 23)])
    data = FeatureData(rows, np.zeros((4, 1), bool), ("any",), source="rows of mine")
    result = HEADS(model, data=data, detectors=["induction"])
    assert by_name(result, "induction", 1, 0).causal == "major"
    assert result.provenance.data["rows"] == 4


def test_resampling_and_zeros_are_other_ways_to_take_a_head_out():
    model = toys.induction(d_vocab=40, n_ctx=48)
    for how in ("resample", "zero"):
        result = HEADS(model, detectors=["induction"], ablate=how)
        assert by_name(result, "induction", 1, 0).ablation.low > 0.5 * result.task_check.whole
        assert result.evidence.replaced_by == how
    with pytest.raises(InputError, match="mean"):
        HEADS(model, detectors=["induction"], ablate="nothing")


def test_which_models_it_fits(tiny_xor_model, tiny_induction_model):
    assert "longer context" in HEADS.unfit(tiny_xor_model, None)
    assert HEADS.unfit(tiny_induction_model, None) is None
    truth = tiny_induction_model.ground_truth
    result = it.analyze(tiny_induction_model, "induction")
    assert [(h.layer, h.head) for h in result.heads if h.detected] == [truth.induction]
    score = by_name(result, "induction", *truth.induction).score
    assert score == pytest.approx(1, abs=0.01)


def effect(mean, low, high, word, restored=None):
    own = {way: Share(mean, low, high) for way in ("renormalize", "mean")}
    back = own if restored is None else {way: Share(*restored) for way in own}
    claim = own if restored is None else back
    named = word in ("major", "contributes")
    status = "detected" if named else "undecided" if word == "undecided" else "not_detected"
    reason = None if named else "x"
    return MemberEffect(
        Head(1, 2), status, reason, own, back, claim, {}, word, least(claim), rows=64
    )


def one(knockout=None, **fields):
    base = dict.fromkeys(HeadVerdict.__dataclass_fields__)
    status = "detected" if fields.get("detected") else "undecided"
    if knockout is not None:
        status = knockout.status
    base |= {"attends": False, "detected": False, "status": status}
    named = {"detector": "induction", "layer": 1, "head": 2, "knockout": knockout}
    named["attention"] = fields.get("score")
    return HeadVerdict(**(base | named | fields))


def test_a_head_that_suppresses_the_behaviour_is_not_said_to_have_no_effect(texts):
    """The induction head writes the wrong way: without it the told token would be likelier."""
    model = toys.induction_decoy(d_vocab=40, n_ctx=48)
    decoy = model.blocks[1].attn.W_O.data[1]
    decoy.copy_(-0.3 * model.blocks[1].attn.W_O.data[0])
    result = HEADS(model, detectors=["induction", "previous-token"])
    head = by_name(result, "induction", 1, 1)
    assert head.causal == "suppresses"
    assert head.knockout.effect.high < 0
    assert not head.detected
    texts(result.verdict)


def checked(yes=True):
    found = Estimate(0.9, 0.88, 0.92, 0.0, 100)
    return TaskCheck(yes, found, 0.1, 0.2, "ninety of a hundred", "of the answers")


def test_how_verdicts_are_worded(texts):
    nothing = [one(score=0.1, uniform=0.05, excess=0.05, p_value=0.2, p_adjusted=1.0)]
    nothing = [dataclasses.replace(nothing[0], reason=verdict.why_not(nothing[0], 0.3))]
    denied = [Screen("induction", None, {}, "not_detected", "too small")]
    texts(verdict.headline(nothing, checked(), screens=denied))
    texts(verdict.findings(nothing, [], [], checked(), screens=denied))
    assert verdict.status(nothing, checked(), denied) == "not_detected"
    assert verdict.status(nothing, checked()) == "undecided"
    some = [*denied, dataclasses.replace(denied[0], status="undecided")]
    assert verdict.status(nothing, checked(), some) == "undecided"
    assert verdict.status(nothing, checked(yes=False)) == "not_tested"
    assert verdict.status(nothing, None) == "not_tested"
    unknown = [one(detected=False)]
    assert verdict.status(unknown, checked()) == "undecided"
    texts(verdict.headline(unknown, checked()))
    seen = {"score": 0.9, "detected": True, "p_value": 1e-9}
    redundant = one(effect(0.01, -0.1, 0.1, "major", restored=(0.7, 0.6, 0.8)), **seen)
    texts(verdict._effect_words(redundant))
    assert redundant.to_dict()["effect_low"] == pytest.approx(0.6)
    undecided = one(effect(0.1, -0.2, 0.4, "undecided"), **seen)
    texts(verdict._effect_words(undecided))
    unbounded = one(effect(1.2, -np.inf, np.inf, "undecided"), **seen)
    texts(verdict._effect_words(unbounded))
    idle = one(effect(0.001, -0.01, 0.02, "negligible"), **seen)
    assert "within ± 2.0 %" in verdict._effect_words(idle)
    still = one(effect(0.0, -0.0002, 0.0003, "negligible"), **seen)
    texts(verdict._effect_words(still))


def test_the_table_prints_the_p_that_decided():
    """Of a head that was knocked out the largest over its controls; of others the adjusted one."""
    seen = {"score": 0.9, "excess": 0.9, "p_value": 0.02, "p_adjusted": 0.15, "detected": True}
    knocked_out = one(effect(0.7, 0.6, 0.8, "major"), **seen)
    by_attention = one(**seen | {"p_adjusted": 0.04, "layer": 2})
    assert [head.deciding_p for head in (knocked_out, by_attention)] == [0.02, 0.04]
    assert knocked_out.to_dict()["deciding_p"] == 0.02

    def printed(*heads):
        table = _head_table(heads)
        names = [name for name in table.columns if name in ("p", "adjusted p")]
        return names, [[row[table.columns.index(name)] for name in names] for row in table.rows]

    assert printed(knocked_out) == (["p"], [[p_cell(0.02)]])
    assert printed(by_attention) == (["adjusted p"], [[p_cell(0.04)]])
    both = [[p_cell(0.02), None], [None, p_cell(0.04)]]
    assert printed(knocked_out, by_attention) == (["p", "adjusted p"], both)


@pytest.mark.parametrize("seed", range(3))
def test_no_head_is_detected_above_the_level_of_the_p_that_is_printed(seed):
    """Heads that share their work among decoys, some with an adjusted p above the level."""
    work = Work(Layout("induction", 12, 20), n=2, noise=0.2, decoys=2, seed=seed)
    result = it.analyze(shared_work(work, torch.float32), "heads", data=work.layout.rows(96, 2))
    table = result.tables()[0]
    at = table.columns.index("p")
    assert any(head.detected for head in result.heads)
    for head, row in zip([h for h in result.heads if h.detected], table.rows, strict=False):
        assert head.knockout is not None
        assert head.deciding_p <= LEVEL
        assert row[at] == p_cell(head.deciding_p)


def test_heads_that_were_knocked_out_together_only_leave_the_status_undecided(texts):
    seen = {"score": 0.9, "excess": 0.9, "attends": True, "p_value": 1e-9}
    with_others = one(**seen, reason="knocked out with the others only", layer=3)
    denied = one(effect(0.001, -0.01, 0.02, "negligible"), **seen)
    open_ = one(effect(0.1, -0.2, 0.4, "undecided"), **seen)
    assert verdict.status([with_others], checked()) == "not_tested"
    assert verdict.status([with_others, denied], checked()) == "undecided"
    assert verdict.reason_of("undecided", [denied, with_others], checked()) == with_others.reason
    texts(verdict.headline([with_others, open_], checked()))


def test_of_many_heads_those_whose_work_is_known_are_named_and_the_others_counted():
    seen = {"score": 0.9, "detected": True, "attends": True, "p_value": 1e-9}
    sinks = [one(**seen | {"detector": "first-token", "layer": i}) for i in range(79)]
    small = one(effect(0.2, 0.1, 0.3, "contributes"), **seen | {"layer": 90})
    large = one(effect(0.7, 0.6, 0.8, "major"), **seen | {"layer": 91})
    none = one(detector="k-hop", score=0.0)
    assert verdict.headline([*sinks, small, large, none], checked()) == (
        "Induction heads L91H2 and L90H2; first-token heads L0H2, L1H2, L2H2 and 76 more."
    )
    kinds = [one(**seen | {"detector": f"kind-{i}", "layer": i}) for i in range(9)]
    many = verdict.headline([*sinks, *kinds], checked())
    assert len(many.split()) <= 20
    assert many.startswith("By attention alone: 79 first-token heads")
    assert many.endswith("6 more kinds.")


def test_what_cannot_be_told_from_chance_is_undecided_and_not_denied(texts):
    head = one(score=0.4, uniform=0.1, null_mean=0.1, excess=0.33, p_value=0.01, p_adjusted=0.17)
    head = dataclasses.replace(head, reason=verdict.why_not(head, 0.3))
    texts(head.reason)
    assert verdict.status([head], checked()) == "undecided"
    texts(verdict.headline([head], checked()))


@pytest.mark.parametrize(
    "fields",
    [
        {"score": 0.2, "uniform": 0.0, "excess": 0.2, "null_mean": 0.0, "p": 1e-8},
        {"score": 0.9, "uniform": 0.1, "excess": 0.8, "null_mean": 0.1, "p": 0.2},
        {"score": 0.9, "uniform": 0.1, "excess": 0.8, "null_mean": 0.8, "p": 1e-8},
    ],
)
def test_why_a_head_is_not_detected_is_said(fields, texts):
    p = fields.pop("p")
    head = one(detected=False, p_value=max(p, 0.06) if p > 0.05 else p, p_adjusted=p, **fields)
    texts(verdict.why_not(head, 0.3))
    assert " and " not in verdict.why_not(head, 0.3)


def test_heads_that_are_not_knocked_out_alone_are_knocked_out_with_the_others(monkeypatch, texts):
    model = toys.induction(d_vocab=40, n_ctx=48)
    attn = model.blocks[1].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name).data[1] = getattr(attn, name).data[0]
    both = by_name(HEADS(model, detectors=["induction"]), "induction", 1, 0)
    monkeypatch.setattr(head_analysis, "MOST_MEMBERS", 1)
    result = HEADS(model, detectors=["induction"])
    (judged,) = [head for head in result.heads if head.knockout]
    assert judged.knockout.restored["mean"].mean == pytest.approx(
        both.knockout.restored["mean"].mean
    )
    assert not any(head.detected for head in result.heads if head.knockout is None)
    texts(result.notes)


@pytest.mark.parametrize("n_detectors", range(1, 8))
def test_plotly_takes_the_head_map_of_any_number_of_detectors(n_detectors):
    heads = [
        HeadVerdict(f"d{number}", layer, head, 0.5, 0.1, 0.1, 0.4, 0.5, 1.0, 1.0, detected=False)
        for number in range(n_detectors)
        for layer in range(2)
        for head in range(3)
    ]
    figure = figures.head_map(heads)
    drawn = go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert len([trace for trace in drawn.data if trace.type == "heatmap"]) == n_detectors


def test_too_few_controls_are_not_called_no_targets(texts):
    few = one(detected=False, score=0.99, uniform=0.2, null_mean=None, excess=0.98)
    texts(verdict.why_not(few, 0.3))
    texts(verdict.why_not(one(detected=False), 0.3))


def test_a_large_model_is_given_fewer_prompts_and_names_the_same_head(monkeypatch, texts):
    model = toys.induction(d_vocab=40, n_ctx=32)
    before = HEADS(model, detectors=["induction", "previous-token"])
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    steps: list[str] = []
    after = HEADS(model, detectors=["induction", "previous-token"], progress=steps.append)
    [cost] = [step for step in steps if step.startswith("knockouts in heads")]
    assert re.search(r"2 attention patterns: about 16 passes of 12 prompts, \d+ s$", cost)
    assert steps.index(cost) < min(i for i, s in enumerate(steps) if s.startswith("knocking out"))
    assert after.status == before.status == "detected"
    words = [
        {(h.detector, h.name): h.causal for h in r.heads if h.detected} for r in (before, after)
    ]
    assert words[0] == words[1]
    assert {group.rows for group in after.groups} == {task_check.LARGE_ROWS}
    texts(after.notes)


def test_heads_of_a_large_model_are_ranked_on_few_prompts_and_decided_on_all(monkeypatch):
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    result = HEADS(it.load("toy:induction-decoy"), detectors=["induction"])
    assert [head.name for head in result.heads if head.detected] == ["L1H0"]
    [group] = result.groups
    assert len(group.heads) == 2
    assert {member.rows for member in group.members} == {task_check.LARGE_ROWS}


def test_a_single_head_with_a_pattern_is_tested_even_if_the_budget_is_spent(monkeypatch):
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    monkeypatch.setattr(head_analysis, "BUDGET", 0.0)
    result = HEADS(it.load("toy:induction"), detectors=["induction", "previous-token"])
    assert [len(group.heads) for group in result.groups] == [1, 1]
    assert sorted(head.name for head in result.heads if head.detected) == ["L0H1", "L1H0"]
    assert not any("together" in note for note in result.notes)


def test_patterns_of_long_prompts_are_drawn_in_blocks(monkeypatch):
    model = toys.induction(d_vocab=40, n_ctx=32)
    whole = HEADS(model, detectors=["induction"]).figures()[-1]
    monkeypatch.setattr(figures, "MOST_CELLS", 10)
    blocks = HEADS(model, detectors=["induction"]).figures()[-1]
    for before, after in zip(whole.data, blocks.data, strict=True):
        z, cells = np.array(before["z"]), np.array(after["z"])
        assert cells.shape == (len(after["y"]), len(after["x"])) == (8, 8)
        for row, column in np.ndindex(8, 8):
            block = z[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert cells[row, column] == block.max()
        assert after["y"] == before["y"][::4]
    assert "block of 4 × 4 tokens" in blocks.caption


def test_attention_is_shown_before_the_knockouts_and_kept_when_they_are_stopped(texts, analyzed):
    shown, steps = [], []

    def stop(step):
        steps.append(step)
        if step.startswith("knocking out"):
            raise KeyboardInterrupt

    with pytest.raises(InterruptedAnalysis) as stopped:
        it.analyze("toy:induction", "heads", early=shown.append, progress=stop)
    [finding] = shown
    assert stopped.value.finding is finding
    assert (finding.probe, finding.status) == ("heads", "described")
    texts(finding.headline)
    assert {h.causal for h in finding.heads} == {"not_tested"}
    assert "L1H0" in finding.headline
    texts(finding.tables()[0].title)
    whole = analyzed("toy:induction", "heads")
    assert [h.score for h in whole.heads] == [h.score for h in finding.heads]
    assert whole.tables()[0].title == "Detected heads"


def test_quick_effort_looks_at_attention_alone_in_a_few_passes(trained, texts):
    model = it.load("toy:induction-trained")
    passes = []
    counter = model.register_forward_pre_hook(lambda module, args: passes.append(len(args[0])))
    quick = HEADS(model, effort="quick")
    counter.remove()
    assert sum(passes) <= 6 * quick.provenance.data["rows"]
    assert quick.status == "described"
    assert "quick effort" in quick.headline
    texts(quick.evidence.reason)
    assert {h.causal for h in quick.heads} == {"not_tested"}
    assert quick.performs_task is None
    assert (quick.groups, quick.readers) == ([], [])
    attending = [{(h.detector, h.name) for h in r.heads if h.attends} for r in (quick, trained)]
    assert attending[0] == attending[1]
    nothing = HEADS(random_model(3, d_vocab=30, n_ctx=40, n_layers=2), effort="quick")
    assert nothing.status == "not_tested"


def test_thorough_effort_leaves_out_no_prompts_of_a_large_model(monkeypatch):
    model = toys.induction(d_vocab=40, n_ctx=32)
    monkeypatch.setattr(task_check, "LARGE", 0.0)
    few, all_ = (HEADS(model, detectors=["induction"], effort=e) for e in ("standard", "thorough"))
    assert all(g.rows <= task_check.LARGE_ROWS for g in few.groups)
    monkeypatch.undo()
    as_small = HEADS(model, detectors=["induction"])
    assert all_.groups == as_small.groups


def test_attention_alone_is_described_and_never_detected(texts):
    result = HEADS(toys.decoy(d_vocab=40, n_ctx=60))
    assert result.status == "described"
    assert [h.name for h in result.heads if h.detected] == ["L1H1", "L0H1"]
    assert all(h.causal == "not_tested" for h in result.heads)
    texts(result.headline)


WORDS = ("major", "contributes", "negligible", "suppresses", "undecided")


@pytest.mark.parametrize("seed", range(60))
def test_no_status_contradicts_its_evidence(seed):
    """Heads, effects and tasks drawn at random: what is detected was knocked out and matters."""
    rng = np.random.default_rng(seed)
    heads = []
    for layer in range(int(rng.integers(1, 5))):
        score = float(rng.random())
        p = None if rng.random() < 0.3 else float(rng.random())
        knockout, fields = None, {"score": score, "excess": score, "uniform": 0.0, "p_value": p}
        fields |= {"p_adjusted": p, "attends": bool(rng.random() < 0.4), "layer": layer}
        if rng.random() < 0.5:
            word = WORDS[rng.integers(len(WORDS))]
            knockout = effect(*np.sort(rng.normal(size=3))[[1, 0, 2]], word)
        head = one(knockout, **fields)
        detected = knockout.named if knockout else head.attends
        reason = None if detected else (knockout.reason if knockout else verdict.why_not(head, 0.3))
        heads.append(dataclasses.replace(head, detected=detected, reason=reason))
    performed = [None, checked(yes=True), checked(yes=False)][seed % 3]
    status = verdict.status(heads, performed)
    reason = verdict.reason_of(status, heads, performed)
    if status == "detected":
        assert any(h.detected and h.causal in ("major", "contributes") for h in heads)
        assert reason is None
    else:
        assert reason
        assert not any(h.detected and h.knockout for h in heads)
    if status == "not_detected":
        assert performed.yes
        assert any(h.p_value is not None for h in heads)
        assert not any(h.knockout and h.causal == "undecided" for h in heads)
    if status == "not_tested" and performed is not None and performed.yes:
        assert all(h.knockout is None for h in heads)
    assert len(verdict.headline(heads, performed).split()) <= 20
    assert 0 < len(verdict.findings(heads, [], [], performed)) <= 5
