"""The analysis of heads: what it says of models whose heads are known."""

import dataclasses
import json

import numpy as np
import plotly.graph_objects as go
import pytest

import interp_toolkit as it
from interp_toolkit.circuits.heads import analysis as head_analysis
from interp_toolkit.circuits.heads import figures, verdict
from interp_toolkit.circuits.heads.ablation import HeadAblation
from interp_toolkit.circuits.heads.analysis import HEADS
from interp_toolkit.circuits.heads.result import HeadVerdict
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.report.html import to_html
from interp_toolkit.report.json import to_json
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


def test_the_circuit_is_found_confirmed_and_its_feeder_named(induction):
    assert induction.status == "detected"
    head = by_name(induction, "induction", 1, 0)
    assert (head.detected, head.causal) == (True, "confirmed")
    assert head.ablation.low > 0.5 * induction.advantage[0]
    assert by_name(induction, "previous-token", 0, 1).causal == "confirmed"
    (reader,) = induction.readers
    assert (reader.partner.layer, reader.partner.head) == (0, 1)
    assert "L0H1 feeds the keys of L1H0" in induction.verdict
    assert sum(h.detected for h in induction.heads) == 2


def test_a_decoy_is_detected_by_attention_and_refuted_by_ablation(decoys):
    decoy, true = by_name(decoys, "induction", 1, 1), by_name(decoys, "induction", 1, 0)
    assert decoy.detected
    assert true.detected
    assert decoy.score == pytest.approx(true.score)
    assert (decoy.causal, true.causal) == ("refuted", "confirmed")
    assert decoy.ablation.effect == pytest.approx(0, abs=1e-9)
    assert "L1H1 attends like an induction head" in decoys.verdict
    assert "refuted" in decoys.verdict
    assert decoys.status == "detected"  # the true one
    alone = HEADS(toys.decoy(d_vocab=40, n_ctx=60), detectors=["induction"])
    assert alone.status == "refuted"
    assert by_name(alone, "induction", 1, 1).causal == "refuted"


def test_the_trained_model_has_both_kinds_and_the_edge(trained):
    induction = [h for h in trained.heads if h.detector == "induction" and h.detected]
    previous = [h for h in trained.heads if h.detector == "previous-token" and h.detected]
    assert {h.layer for h in induction} == {1}
    assert {h.layer for h in previous} == {0}
    assert all(h.causal == "confirmed" for h in (*induction, *previous))
    fed = {(r.partner.layer, r.partner.head) for r in trained.readers}
    assert fed == {(h.layer, h.head) for h in previous}
    assert max(h.ablation.effect for h in previous) > 0.5 * trained.advantage[0]
    assert trained.joint["induction"][1] > 0.8 * trained.advantage[0]  # together they are all of it
    assert "ablating all of them costs" in trained.verdict


def test_an_untrained_model_has_none():
    result = HEADS(random_model(3, d_vocab=30, n_ctx=40, n_layers=2))
    assert result.status == "not_detected"
    assert result.verdict.startswith("No head is detected as induction, previous-token")
    assert result.readers == []
    assert all(h.ablation is None for h in result.heads)
    assert result.tables()[0].title == "No head is detected; the nearest"


def test_every_head_and_detector_has_an_entry_with_the_fields_others_read(decoys):
    document = to_json([decoys])["results"][0]
    assert len(document["heads"]) == 5 * 2 * 2
    assert all(set(head) >= INTERFACE for head in document["heads"])
    json.dumps(document, allow_nan=False)
    frame = decoys.to_frame()
    assert len(frame) == 20
    assert frame.detected.sum() == 3


def test_the_page_has_map_and_patterns(decoys):
    figures = decoys.figures()
    assert figures[0].title == "Head map"
    maps = [trace for trace in figures[0].data if trace["type"] == "heatmap"]
    assert len(maps) == 5
    hover = maps[0]["text"][1][1]
    for word in ("L1H1", "score", "null", "adjusted", "ablation", "refuted"):
        assert word in hover
    marks = next(trace for trace in figures[0].data if trace["type"] == "scatter")
    at = list(zip(marks["y"], marks["x"], marks["marker"]["symbol"], strict=True))
    assert at == [(1, 0, "diamond"), (1, 1, "x")]
    patterns = {figure.title: figure for figure in figures[1:]}
    assert "Pattern of L1H0 (induction)" in patterns
    z = np.array(patterns["Pattern of L1H0 (induction)"].data[0]["z"])
    assert z.shape == (60, 60)
    np.testing.assert_allclose(z.sum(1), 1, atol=0.05)
    assert "Head map" in to_html([decoys])


def test_an_encoder_is_scored_and_not_ablated(zoo):
    result = HEADS(zoo("own-bare"))
    assert "next-token" in {h.detector for h in result.heads}
    assert all(h.causal is None for h in result.heads)


def test_data_of_ones_own():
    model = toys.induction(d_vocab=40, n_ctx=60)
    rng = np.random.default_rng(0)
    rows = np.stack([np.resize(rng.permutation(40)[:p], 50) for p in (20, 21, 22, 23)])
    data = FeatureData(rows, np.zeros((4, 1), bool), ("any",), source="rows of mine")
    result = HEADS(model, data=data, detectors=["induction"])
    assert by_name(result, "induction", 1, 0).causal == "confirmed"
    assert result.provenance.data["rows"] == 4


def test_resampling_and_zeros_are_other_ways_to_take_a_head_out():
    model = toys.induction(d_vocab=40, n_ctx=48)
    for how in ("resample", "zero"):
        result = HEADS(model, detectors=["induction"], ablate=how)
        assert by_name(result, "induction", 1, 0).causal == "confirmed"
        assert how in result.evidence.replaced_by
    for toy in (model, random_model(3, d_vocab=30, n_ctx=40)):  # heads to ablate, and none
        with pytest.raises(InputError, match="mean"):
            HEADS(toy, detectors=["induction"], ablate="nothing")


def test_without_other_heads_the_evidence_says_so():
    model = toys.induction(d_vocab=40, n_ctx=48)
    for layer, (kept, other) in enumerate([(1, 0), (0, 1)]):
        attn = model.blocks[layer].attn
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            getattr(attn, name).data[other] = getattr(attn, name).data[kept]
        attn.W_O.data /= 2
    result = HEADS(model, detectors=["induction", "previous-token"])
    assert sum(head.detected for head in result.heads) == 4
    assert (result.evidence.replaced_by, result.evidence.other_heads) == ("mean", 0)


def test_which_models_it_fits(tiny_xor_model, tiny_induction_model):
    assert "longer context" in HEADS.unfit(tiny_xor_model, None)
    assert HEADS.unfit(tiny_induction_model, None) is None
    truth = tiny_induction_model.ground_truth
    result = it.analyze(tiny_induction_model, "induction")
    assert [(h.layer, h.head) for h in result.heads if h.detected] == [truth.induction]
    score = by_name(result, "induction", *truth.induction).score
    assert score == pytest.approx(1, abs=0.01)


ABLATION = HeadAblation(
    **dict.fromkeys(HeadAblation.__dataclass_fields__, 0.0)
    | {"layer": 1, "head": 2, "others_as_large": 0, "verdict": "undecided"}
)


def one(ablation=None, **fields):
    base = dict.fromkeys(HeadVerdict.__dataclass_fields__)
    found = None if ablation is None else dataclasses.replace(ABLATION, **ablation)
    named = {"detector": "induction", "layer": 1, "head": 2, "ablation": found}
    return HeadVerdict(**(base | named | fields))


def test_a_head_that_works_against_the_behaviour_is_not_said_to_change_nothing():
    model = toys.induction(d_vocab=40, n_ctx=48)
    model.blocks[1].attn.W_O.data *= -1
    result = HEADS(model, detectors=["induction", "previous-token"])
    head = by_name(result, "induction", 1, 0)
    assert head.causal == "refuted"
    assert head.ablation.high < -1
    assert "L1H0 attends like an induction head but works against" in result.verdict
    assert "changes nothing" not in result.verdict
    assert "costs" in result.verdict  # of its attention, by the path from L0H1
    assert "-" not in result.verdict.split("induction attention")[0].split("costs")[1]


def test_how_verdicts_are_worded():
    nothing = [one(score=0.1, excess=0.05, p_value=0.2, p_adjusted=1.0, detected=False)]
    nothing = [dataclasses.replace(nothing[0], reason=verdict.why_not(nothing[0], 0.3))]
    assert verdict.verdict(nothing, [], {}, None) == (
        "No head is detected as induction (the nearest is L1H2 as induction, 10% of its "
        "attention, adjusted p = 1: attention beyond its null below the floor of 30% and adjusted "
        "p above 0.05)."
    )
    unknown = [one(detected=False)]
    assert verdict.status(unknown) == "undecided"
    assert verdict.verdict(unknown, [], {}, None).startswith("Undecided")
    redundant = one(
        {"verdict": "confirmed", "effect": 0.01, "low": -0.1, "high": 0.1, "restored": 2.5},
        score=0.9,
        detected=True,
        p_value=1e-9,
    )
    assert "alone it restores 2.5 nats" in verdict.verdict([redundant], [], {}, (3.0, 2.0, 4.0))
    undecided = one({"verdict": "undecided", "effect": 0.1}, score=0.9, detected=True, p_value=0.0)
    assert "ablation undecided" in verdict.verdict([undecided], [], {}, (3.0, 2.0, 4.0))
    assert redundant.to_dict()["restored"] == 2.5
    assert "ablation" not in redundant.to_dict()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"score": 0.2, "uniform": 0.0, "excess": 0.2, "null_mean": 0.0, "p": 1e-8},
            "below the fl",
        ),
        (
            {"score": 0.9, "uniform": 0.1, "excess": 0.8, "null_mean": 0.1, "p": 0.2},
            "adjusted p ab",
        ),
        (
            {"score": 0.9, "uniform": 0.1, "excess": 0.8, "null_mean": 0.8, "p": 1e-8},
            "beyond its n",
        ),
    ],
)
def test_why_a_head_is_not_detected_is_said(fields, said):
    p = fields.pop("p")
    head = one(detected=False, p_value=p, p_adjusted=p, **fields)
    assert said in verdict.why_not(head, 0.3)
    assert " and " not in verdict.why_not(head, 0.3)


def test_heads_that_are_not_judged_are_out_too_where_redundancy_is_measured(monkeypatch):
    model = toys.induction(d_vocab=40, n_ctx=48)
    attn = model.blocks[1].attn
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(attn, name).data[1] = getattr(attn, name).data[0]
    both = by_name(HEADS(model, detectors=["induction"]), "induction", 1, 0)
    monkeypatch.setattr(head_analysis, "MOST_ABLATED", 1)
    result = HEADS(model, detectors=["induction"])
    judged = [head for head in result.heads if head.causal]
    assert len(judged) == 1
    assert judged[0].ablation.restored == pytest.approx(both.ablation.restored)
    assert any("one by one" in note for note in result.notes)


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


def test_too_few_controls_are_not_called_no_targets():
    few = one(detected=False, score=0.99, uniform=0.2, null_mean=None, excess=0.98)
    assert verdict.why_not(few, 0.3) == "too few matched controls in these prompts"
    assert verdict.why_not(one(detected=False), 0.3) == "no targets in these prompts"
