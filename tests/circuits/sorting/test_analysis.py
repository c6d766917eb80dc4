"""The sorting analysis: what it shows of models whose algorithm is known."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from interp_toolkit.circuits.sorting import analysis, figures
from interp_toolkit.circuits.sorting.analysis import SORTING
from interp_toolkit.circuits.sorting.criteria import Criterion
from interp_toolkit.circuits.sorting.measures import (
    EvolutionStep,
    sorting_evolution,
)
from interp_toolkit.circuits.sorting.weights import WeightTables
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.models.loading.loader import load
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.report.html import to_html, to_json
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater

DISTINCT, BOTH_WAYS = "15 list10 16 sorted10", "10 list1-10 11 pad12"


@pytest.fixture(scope="module", autouse=True)
def few_nulls():
    """Two reinitialized models: enough for all but the status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "NULLS", 2)
        yield


@pytest.fixture(scope="module")
def min_greater():
    return SORTING(load("toy:sort-min-greater"))


@pytest.fixture(scope="module")
def argmax():
    return SORTING(load("toy:sort-argmax"))


def titled(result, title):
    return next(figure for figure in result.figures() if figure.title.startswith(title))


def test_the_two_toys_are_told_apart(min_greater, argmax):
    assert min_greater.algorithm == "min_greater_than_previous"
    assert argmax.algorithm == "argmax_piecewise_linear"
    assert min_greater.status == argmax.status == "undecided"  # two reinitialized are too few
    assert min_greater.distinct
    assert not argmax.distinct


def test_the_first_algorithm_refined_for_repeats_is_named() -> None:
    found = SORTING(load("toy:sort-refined"))
    assert found.algorithm == "min_greater_than_previous"
    assert found.status == "undecided"
    assert found.metrics["lists_right_two_values"] == 1


def test_another_model_with_the_same_layout_is_neither():
    config = TransformerConfig(
        n_layers=1, n_heads=2, d_model=16, d_head=8, n_ctx=22, d_vocab=12, d_vocab_out=10,
        attn_only=True, normalization_type=None, seed=0,
    )  # fmt: skip
    result = SORTING(Transformer(config), layout="10 list10 11 sorted10", distinct=False)
    assert result.algorithm == "neither"
    assert result.status == "not_tested"
    assert [table.title for table in result.tables()][2] == "Heads"
    assert len(result.tables()[2].rows) == 2
    assert [row[0] for row in result.tables()[2].rows] == ["L0H0", "L0H1"]


@pytest.mark.parametrize("which", ["min_greater", "argmax"])
def test_json_and_page(which, request):
    result = request.getfixturevalue(which)
    document = json.loads(json.dumps(to_json([result]), allow_nan=False))["results"][0]
    assert document["algorithm"] == result.algorithm
    assert document["metrics"] == json.loads(json.dumps(dict(result.metrics)))
    assert {one["name"] for one in document["criteria"]} == {one.name for one in result.criteria}
    assert len(document["lines"]["fit_r2"]) == 10
    assert "weights" not in document
    page = to_html([result])
    for figure in result.figures():
        go.Figure(data=list(figure.data), layout=dict(figure.layout))  # plotly checks names
        assert figure.caption
        assert figure.title in page
    assert len(result.to_frame()) == len(result.criteria)


def test_qk_shows_the_filter(min_greater):
    figure = titled(min_greater, "QK by position")
    maps = {note["text"]: trace for note, trace in zip(
        figure.layout["annotations"], figure.data, strict=True
    )}  # fmt: skip
    assert len(maps["<b>item 0</b>"]["z"]) == 1  # read at the separator alone
    z = np.array(maps["<b>item 4</b>"]["z"], dtype=float)
    best = z[:14, :15].argmax(1)
    assert best.tolist() == [q + 1 for q in range(14)]  # the least value above the query
    assert z.max(1) == pytest.approx(0)


def test_ov_curves_have_their_kinks(argmax):
    figure = titled(argmax, "OV curves")
    curves = {trace["name"]: np.array(trace["y"]) for trace in figure.data}
    for value in range(1, 9):
        bends = np.diff(curves[str(value)], 2)
        assert bends.argmin() + 1 == value
    assert curves.keys() == {*map(str, range(10)), "[10]", "[11]", "padding"}


def test_the_logit_line_is_drawn_on_the_theory(argmax):
    figure = titled(argmax, "Logits as a sum")
    theory, found, _ = (np.array(trace["y"], dtype=float) for trace in figure.data)
    np.testing.assert_allclose(theory, np.arange(10) + 0.5)
    np.testing.assert_allclose(found[1:], theory[1:], atol=0.5)


def test_the_pattern_has_the_list_sorted(argmax):
    figure = titled(argmax, "Pattern")
    (trace,) = figure.data
    given = figure.layout["xaxis"]["ticktext"]
    length = len(trace["y"])
    assert given[:length] == sorted(given[:length], key=int)
    assert len(given) == 12
    np.testing.assert_allclose(np.array(trace["z"], dtype=float).sum(1), 1, atol=1e-2)


def test_attention_to_separators_is_the_same_from_weights_and_from_rows(argmax):
    figure = titled(argmax, "Attention to separators")
    traces = {trace["name"]: np.array(trace["y"], dtype=float) for trace in figure.data}
    np.testing.assert_allclose(
        traces["[10], from attention"], traces["[10], from weights"], rtol=0.05
    )


def mark(name="copy_score", **fields):
    defaults = {"algorithm": "min_greater_than_previous", "value": 0.5, "null": 0.1, "weak": 0.2}
    defaults |= {"name": name, "strong": 0.6, "state": "weak", "says": name}
    return Criterion(**(defaults | {"low": None, "high": None} | fields))


def test_marks_lie_between_their_thresholds():
    small_is_good = mark("slope", algorithm="argmax_piecewise_linear", weak=0.5, strong=0.25)
    marks = [mark(), mark("far", value=9.0), small_is_good, mark("unknown", value=None, null=None)]
    first, second, nulls = figures.criteria_scale(marks).data
    assert first["x"] == [pytest.approx(0.75), figures.HIGH]
    assert second["x"] == [pytest.approx(0.0)]
    assert nulls["x"] == [pytest.approx(-0.25), pytest.approx(-0.25), pytest.approx(1.6)]
    assert first["customdata"][0] == ["0.5", "0.1", "0.2", "0.6"]


@pytest.fixture
def checkpoints(tmp_path):
    """Two seeds: a shuffled model at first, then one that sorts."""
    task = {"name": "sorting", "layout": BOTH_WAYS, "distinct": False}
    for seed in (0, 1):
        model = sort_argmax()
        save(model, tmp_path / f"seed-{seed}-step-000100.safetensors", task=task)
        with torch.no_grad():
            W_O = model.blocks[0].attn.W_O
            order = torch.randperm(W_O.numel(), generator=torch.Generator().manual_seed(seed))
            W_O.copy_(W_O.flatten()[order].view(W_O.shape))
        save(model, tmp_path / f"seed-{seed}-step-000000.safetensors", task=task)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    return tmp_path


def test_evolution_from_a_folder(checkpoints):
    steps = sorting_evolution(checkpoints, lists=100)
    assert [(s.seed, s.step) for s in steps] == [(0, 0), (0, 100), (1, 0), (1, 100)]
    assert all(s.metrics["items_right"] == 1 for s in steps if s.step)
    assert all(s.metrics["items_right"] < 0.7 for s in steps if not s.step)
    assert all(s.metrics["logit_fit_r2"] > 0.95 for s in steps if s.step)
    figure = figures.evolution(steps)
    right = [trace for trace in figure.data if trace["name"] == "items right"]
    assert [trace["x"] for trace in right] == [[50.0, 100], [50.0, 100]]
    assert [trace["showlegend"] for trace in right] == [True, False]
    assert "Step 0 is drawn at 50" in figure.caption
    go.Figure(data=list(figure.data), layout=dict(figure.layout))


def test_evolution_from_models():
    model = sort_min_greater()
    steps = sorting_evolution([(20, model), (10, model)], DISTINCT, distinct=True, lists=50)
    assert [(s.seed, s.step) for s in steps] == [(0, 10), (0, 20)]
    assert steps[0].metrics == steps[1].metrics
    assert steps[0].metrics["items_right"] == 1


def test_evolution_is_on_the_lists_of_the_record():
    """Distinct ones for this model, which fails on all others."""
    [step] = sorting_evolution([(0, load("toy:sort-min-greater"))], lists=50)
    assert step.metrics["items_right"] == 1


def test_of_many_heads_those_that_the_sorting_needs_are_drawn():
    model = sort_argmax(6, 5, layout="6 list5 7", shares=(0.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    result = SORTING(model, layout="6 list5 7")
    drawn = [f.title for f in result.figures() if f.title.startswith("Pattern")]
    assert len(drawn) == 4
    assert drawn[-1] == "Pattern of L0H5"


def test_checkpoints_are_part_of_the_analysis(checkpoints):
    model = load(checkpoints / "seed-0-step-000100.safetensors")
    assert SORTING.unfit(model, None) is None
    result = SORTING(model, checkpoints=checkpoints)
    titles = [figure.title for figure in result.figures()]
    assert titles[-2:] == ["Evolution along training", "QK along training"]
    assert len(json.loads(json.dumps(result.to_dict()))["evolution"]) == 4


def test_a_metric_that_is_never_known_has_no_curve():
    steps = [EvolutionStep(0, step, {"items_right": 0.5, "above_lift": None}) for step in (1, 2)]
    figure = figures.evolution(steps)
    assert [trace["name"] for trace in figure.data] == ["items right"]


def test_what_is_refused(tmp_path, texts):
    model = load("toy:sort-argmax")
    with pytest.raises(InputError, match="no folder"):
        SORTING(model, checkpoints=tmp_path / "nowhere")
    with pytest.raises(InputError, match="no files named"):
        SORTING(model, checkpoints=tmp_path)
    data = FeatureData(np.zeros((2, 12), int), np.zeros((2, 1), bool), ("any",), source="mine")
    with pytest.raises(InputError, check=texts):
        SORTING(model, data=data)
    with pytest.raises(InputError, match="--layout"):
        SORTING(sort_argmax())


def test_which_models_it_fits(tiny_induction_model):
    assert "one-layer" in SORTING.unfit(tiny_induction_model, None)
    assert "--layout" in SORTING.unfit(sort_argmax(), None)
    assert SORTING.unfit(load("toy:sort-argmax"), None) is None


def test_of_many_values_and_items_some_are_drawn():
    names = tuple(map(str, range(40)))
    tables = WeightTables(
        qk=torch.zeros(1, 30, 40, 40),
        ov=torch.eye(40)[None],
        ov_posted=torch.eye(40)[None],
        query_names=names,
        first_query=None,
        source_names=names,
        exact=True,
        residual=0.0,
        note="",
    )
    maps = figures.qk_by_item(tables)
    assert [note["text"] for note in maps.layout["annotations"]] == [
        *(f"<b>item {item}</b>" for item in (0, 7, 14, 22, 29)),
        "<b>average</b>",
    ]
    curves = [trace["name"] for trace in figures.ov_curves(tables).data]
    assert (len(curves), curves[0], curves[-1]) == (15, "0", "39")


def test_a_list_of_ones_own_is_sorted_and_drawn(argmax, monkeypatch):
    found = SORTING(load("toy:sort-argmax"), input_list="3 1 4 1 5")
    assert found.input_list.output == found.input_list.correct == (1, 1, 3, 4, 5)
    assert found.input_list.right
    table = next(t for t in found.tables() if t.title == "The list")
    assert table.rows[0][:4] == ["3 1 4 1 5", "1 1 3 4 5", "1 1 3 4 5", True]
    assert "on the list 3 1 4 1 5" in titled(found, "Pattern").caption
    assert argmax.input_list is None
    monkeypatch.setattr(analysis, "accuracies", None)  # a wrong list is told before the work
    for words, message in (("3 x", "'x' is not a value"), (" ".join("1" * 11), "11 items")):
        with pytest.raises(InputError, match=message):
            SORTING(load("toy:sort-argmax"), input_list=words)


def test_the_trained_causal_model_fails_lists_of_two_values():
    """As the source's did, on the very list that it names."""
    words = "8 8 8 8 8 9 9 9 9 8"
    found = SORTING(load("toy:sort-causal-trained"), input_list=words)
    assert not found.input_list.right
    assert found.accuracy["two_values"].n == 405
    assert 0.9 < found.accuracy["two_values"].lists_right < 1
    worst = found.hardest[0]
    assert not worst.right
    assert len(set(worst.input_list)) == 2
    losses = [x.loss for x in found.hardest]
    assert losses == sorted(losses, reverse=True)
    assert [(r.lowest, r.highest) for r in found.regions] == [(0, 4), (5, 9)]
    assert all(0 <= r.swaps.token + r.swaps.position <= 1 for r in found.regions)
    together = sum(r.swaps.n * r.swaps.token for r in found.regions)
    whole = found.metrics["follows_token"] * sum(r.swaps.n for r in found.regions)
    assert together == pytest.approx(whole)


def test_qk_along_training_is_drawn_from_checkpoints(checkpoints):
    steps = sorting_evolution(checkpoints, lists=50)
    figure = figures.qk_along_training(steps)
    assert len(figure.data) == 2  # of the first seed
    assert all(np.shape(trace["z"]) == (10, 10) for trace in figure.data)
