"""Universal keys: functions found are those the models were made with; none in noise."""

from __future__ import annotations

import json
from itertools import combinations, product

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp_toolkit as it
from interp_toolkit.circuits.universal_keys import scores
from interp_toolkit.circuits.universal_keys.analysis import (
    UNIVERSAL_KEYS,
    QueryFunction,
    corrected,
    evidence_of,
    headline,
    sentences,
)
from interp_toolkit.circuits.universal_keys.scores import (
    chance_to_fit,
    is_attended,
    least_function,
    may_be_attended,
    split_scores,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.stats import mean_interval
from interp_toolkit.toys.superposition.toys import KEY_FUNCTIONS

CUBE = np.array(list(product((False, True), repeat=5)))


def reordered(table: str, features: tuple[int, ...]) -> str:
    """The table with its features in increasing order."""
    order = np.argsort(features)
    cells = {bits: table[i] for i, bits in enumerate(product((0, 1), repeat=len(features)))}
    found = []
    for bits in product((0, 1), repeat=len(features)):
        own = [0] * len(features)
        for place, bit in zip(order, bits, strict=True):
            own[place] = bit
        found.append(cells[tuple(own)])
    return "".join(found)


@pytest.fixture(scope="module", params=["universal-keys", "universal-keys-separate"])
def found(request: pytest.FixtureRequest):
    return it.analyze(f"toy:{request.param}", "universal-keys")


def test_every_querys_function_is_the_one_the_model_was_made_with(found, texts) -> None:
    assert found.status == "detected"
    assert found.evidence.head == (1, 0)
    assert found.evidence.selecting == found.evidence.functions == len(KEY_FUNCTIONS)
    mine = [one for one in found.functions if one.outcome == "selects"]
    for one, (table, features) in zip(mine, KEY_FUNCTIONS, strict=True):
        assert one.features == [f"f{i}" for i in sorted(features)]
        wanted = reordered(table, features)
        assert all(a in (b, "?") for a, b in zip(one.table, wanted, strict=True))
        assert one.on_right_least > 0.999
        assert one.on_right > 10 * one.uniform or one.uniform > 0.05
        assert one.chance <= one.p_value < 1e-9
        assert one.excess_low > 0.5 * (1 - one.uniform)
    texts(found.headline)
    texts(found.findings[0])
    assert {one.outcome for one in found.functions if one.layer == 0} == {"constant"}


def test_its_page(found) -> None:
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.figures()) == 2
    for figure in found.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert [len(table.rows) for table in found.tables()] == [6, 2]
    assert "99.99" in found.verdict or "100.0000 %" in found.verdict
    assert len(found.to_frame()) == 12


def test_a_head_that_ignores_its_keys_selects_nothing(texts) -> None:
    model = it.load("toy:universal-keys-separate")
    with torch.no_grad():
        attn = model.blocks[1].attn
        generator = torch.Generator().manual_seed(0)
        attn.W_K.copy_(torch.randn(attn.W_K.shape, generator=generator))
    found = UNIVERSAL_KEYS(model)
    assert found.status == "not_detected"
    assert found.evidence.reason
    texts(found.headline)


def test_uniform_attention_selects_nothing_however_exact_the_scores() -> None:
    """Scores a thousandth as large tell where each function holds, and attention is uniform."""
    model = it.load("toy:universal-keys-separate")
    with torch.no_grad():
        model.blocks[1].attn.W_Q.mul_(1e-3)
    found = UNIVERSAL_KEYS(model)
    assert found.status == "not_detected"
    mine = [one for one in found.functions if one.layer == 1]
    assert {one.outcome for one in mine} == {"not_attended"}
    for one in mine:
        assert one.held_out_accuracy > 0.95
        assert one.on_right == pytest.approx(one.uniform, abs=0.01)
        assert one.excess_high < 0.1
    assert "attention hardly follows" in found.findings[0]


def test_a_part_of_the_attention_is_enough_where_it_is_beyond_uniform() -> None:
    model = it.load("toy:universal-keys-separate")
    with torch.no_grad():
        model.blocks[1].attn.W_Q.mul_(0.03)
    found = UNIVERSAL_KEYS(model)
    assert found.status == "detected"
    assert found.evidence.on_right < 0.9


@pytest.mark.parametrize("n_rows", [0, 1])
def test_too_few_rows_leave_open_where_attention_goes(n_rows: int) -> None:
    _, low, high = mean_interval(np.full(n_rows, 0.5), 0.95)
    assert np.isnan([low, high]).all()
    open_ = {"excess_low": None, "excess_high": None, "uniform": 0.2}
    assert may_be_attended(open_)
    assert not is_attended(open_)
    one = QueryFunction("L1H0", 1, 0, 5, "not_attended", uniform=0.2)
    assert evidence_of([one], 1, 9).status == "undecided"


def test_a_function_that_chance_explains_is_undecided_and_one_query_chooses_nothing(texts) -> None:
    """Holm over heads and queries: p of 0.02 is not enough for the first of three."""

    def one(head: int, chance: float | None) -> QueryFunction:
        return QueryFunction(
            *(f"L0H{head}", 0, head, 5, "selects" if chance is not None else "constant"),
            features=["a", "b"],
            table="0001",
            held_out_accuracy=1.0,
            chance=chance,
            on_right=0.9,
            uniform=0.3,
        )

    [doubtful, *_] = corrected([one(0, 0.02), one(1, None), one(2, None)])
    assert (doubtful.outcome, doubtful.p_value) == ("by_chance", pytest.approx(0.06))
    evidence = evidence_of([doubtful], 1, 9)
    assert evidence.status == "undecided"
    texts(headline(evidence))
    texts(sentences([doubtful], evidence)[0])
    sure = corrected([one(0, 0.01), one(1, None)])
    evidence = evidence_of(sure, 1, 9)
    assert evidence.status == "detected"
    assert "one boolean function" in headline(evidence)
    texts(sentences(sure, evidence)[0])


def test_functions_are_different_where_both_tables_speak() -> None:
    made = [
        QueryFunction(
            "L0H0", 0, 0, q, "selects", features=["a", "b"], table=table, on_right=1.0, p_value=0.0
        )
        for q, table in enumerate(["000?", "0001", "0110"])
    ]
    assert evidence_of(made, 3, 9).functions == 2


def test_layers_are_looked_at_one_at_a_time_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "NUMBERS", 600)  # as if there were more sets than this toy has
    model = it.load("toy:universal-keys-separate")
    whole = UNIVERSAL_KEYS(model)
    rows = whole.provenance.data["rows"]
    a_layer = 8 * 600 * 6 * whole.evidence.sets + 4 * rows * model.cfg.n_ctx
    few = UNIVERSAL_KEYS(model, memory=2 * a_layer)
    assert few.functions == whole.functions
    assert few.figures() == whole.figures()
    with pytest.raises(InputError, match="raise --memory"):
        UNIVERSAL_KEYS(model, memory=a_layer)


def random_model() -> Transformer:
    return it.load("toy:induction")


def test_rows_and_features_of_a_users_own(tmp_path) -> None:
    """The toy's own rows, given as data with token sets, say the same."""
    model = it.load("toy:universal-keys-separate")
    truth = model.ground_truth
    rng = np.random.default_rng(0)
    n = len(truth.inputs)
    rows = np.column_stack([rng.integers(0, n, (400, 20)), np.full(400, n + 1)])
    data = FeatureData(rows, np.zeros((400, 0), dtype=bool), ())
    sets = {f"f{i}": np.flatnonzero(truth.inputs[:, i]).tolist() for i in range(10)}
    path = tmp_path / "sets.json"
    path.write_text(json.dumps(sets), encoding="utf-8")
    found = UNIVERSAL_KEYS(model, data=data, features=str(path))
    [one] = [one for one in found.functions if one.outcome == "selects"]
    assert (one.features, one.table) == (["f0", "f3"], "0001")


def test_places_that_are_none_are_refused(texts) -> None:
    with pytest.raises(InputError, match="--position needs --data"):
        UNIVERSAL_KEYS(it.load("toy:universal-keys-separate"), position=99)
    model = random_model()
    data = FeatureData([np.array([1, 2, 3])] * 20, np.zeros((20, 0), dtype=bool), ())
    for place in (3, -4):
        with pytest.raises(InputError, match="outside prompts of 3 tokens"):
            UNIVERSAL_KEYS(model, data=data, features="embeddings", position=place)
    with pytest.raises(InputError, check=texts):
        UNIVERSAL_KEYS(model, data=data, features="embeddings", position=0)


def test_what_is_refused(texts) -> None:
    with pytest.raises(InputError, check=texts):
        UNIVERSAL_KEYS(random_model())
    data = FeatureData([np.array([1, 2])] * 20, np.zeros((20, 0), dtype=bool), ())
    with pytest.raises(InputError, match="give --features FILE"):
        UNIVERSAL_KEYS(random_model(), data=data)
    few = FeatureData([np.array([1, 2])] * 2, np.zeros((2, 0), dtype=bool), ())
    with pytest.raises(InputError, match="at least 10"):
        UNIVERSAL_KEYS(random_model(), data=few, features="embeddings")


@pytest.mark.parametrize(("size", "n_high"), [(0, 2), (1, 2), (1, 4), (2, 2), (2, 4), (3, 3)])
def test_the_chance_to_fit_is_a_sum_over_choices_counted_by_hand(size: int, n_high: int) -> None:
    """Of every way to call so many of eight sets high: those constant on each combination."""
    cube = np.array(list(product((False, True), repeat=3)))
    choices = list(combinations(range(3), size))
    fits, any_fits, ways = 0, 0, 0
    for high in combinations(range(8), n_high):
        value = np.isin(np.arange(8), high)
        found = [
            all(
                len({bool(value[i]) for i in range(8) if tuple(cube[i, list(c)]) == cell}) == 1
                for cell in product((False, True), repeat=size)
            )
            for c in choices
        ]
        ways, fits, any_fits = ways + 1, fits + sum(found), any_fits + any(found)
    value = np.arange(8) < n_high
    chance = chance_to_fit(cube, value, size)
    assert chance == pytest.approx(min(1.0, fits / ways))
    assert chance >= any_fits / ways - 1e-12


@settings(max_examples=60)
@given(st.lists(st.booleans(), min_size=8, max_size=8), st.permutations(range(5)))
def test_the_least_function_of_a_whole_cube(bits: list[bool], order: list[int]) -> None:
    """Of all five-bit inputs: the features it truly depends on, and its own table."""
    chosen = sorted(order[:3])
    table = np.array(bits)
    value = table[CUBE[:, chosen] @ np.array([4, 2, 1])]
    found = least_function(CUBE, value)
    depends = [
        feature
        for feature in range(5)
        if any(
            value[i] != value[int("".join(map(str, flipped.astype(int))), 2)]
            for i in range(32)
            for flipped in [np.where(np.arange(5) == feature, ~CUBE[i], CUBE[i])]
        )
    ]
    assert list(found.features) == depends
    assert found.others == 0
    np.testing.assert_array_equal(found.values(CUBE), value)
    assert found.decides(CUBE).all()


def test_combinations_that_no_key_has_are_not_made_up() -> None:
    on = all_composites(4, 1)
    found = least_function(on, on[:, 0] | on[:, 1])
    assert (found.features, found.table) == ((0, 1), "011?")
    assert not found.decides(np.array([[True, True, False, False]]))[0]


def test_functions_of_too_many_features_are_none() -> None:
    cube = np.array(list(product((False, True), repeat=7)))
    assert least_function(cube, cube.sum(axis=1) % 2 == 1) is None


def test_scores_in_two_groups() -> None:
    mean = np.array([0.0, 1.0, 0.1, 0.9])
    found = split_scores(mean - 0.05, mean + 0.05, mean)
    assert found.high.tolist() == [False, True, False, True]
    assert found.error == pytest.approx(0.2 / (2 * (0.7 + 0.2)))
    assert split_scores(np.ones(3), np.ones(3), np.ones(3)) is None


@pytest.mark.parametrize("name", ["induction", "skip-bigrams"])
def test_heads_of_another_kind_select_nothing(name: str, texts) -> None:
    """Induction heads attend by what stands before a token, bigram heads by graded scores."""
    model = it.load(f"toy:{name}")
    rows = np.random.default_rng(0).integers(0, 20, (300, 12))
    data = FeatureData(rows, np.zeros((300, 0), dtype=bool), ())
    found = UNIVERSAL_KEYS(model, data=data, features="embeddings")
    assert found.status == "not_detected"
    texts(found.evidence.reason)
