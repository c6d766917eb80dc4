"""Universal keys: functions found are those the models were made with; none in noise."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp_toolkit as it
from interp_toolkit.circuits.universal_keys.analysis import UNIVERSAL_KEYS
from interp_toolkit.circuits.universal_keys.function import least_function, split_scores
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.computed_toys import KEY_FUNCTIONS

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
    return it.analyze(f"toy:{request.param}", "universal-keys", shuffles=3)


def test_every_querys_function_is_the_one_the_model_was_made_with(found) -> None:
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
        assert one.chance == 0
    assert {one.outcome for one in found.functions if one.layer == 0} == {"constant"}


def test_its_page(found) -> None:
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.figures()) == 2
    for figure in found.figures():
        go.Figure({"data": list(figure.data), "layout": dict(figure.layout)})
    assert [len(table.rows) for table in found.tables()] == [6, 2]
    assert "99.99" in found.verdict or "100.0000 %" in found.verdict
    assert len(found.to_frame()) == 12


def test_a_head_that_ignores_its_keys_selects_nothing() -> None:
    model = it.load("toy:universal-keys-separate")
    with torch.no_grad():
        attn = model.blocks[1].attn
        generator = torch.Generator().manual_seed(0)
        attn.W_K.copy_(torch.randn(attn.W_K.shape, generator=generator))
    found = UNIVERSAL_KEYS(model, shuffles=0)
    assert found.status == "not_detected"
    assert found.evidence.reason
    assert "No head attends by a boolean function" in found.verdict


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
    found = UNIVERSAL_KEYS(model, data=data, features=str(path), shuffles=0)
    [one] = [one for one in found.functions if one.outcome == "selects"]
    assert (one.features, one.table) == (["f0", "f3"], "0001")


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="records no universal keys"):
        UNIVERSAL_KEYS(random_model())
    data = FeatureData([np.array([1, 2])] * 20, np.zeros((20, 0), dtype=bool), ())
    with pytest.raises(InputError, match="give --features FILE"):
        UNIVERSAL_KEYS(random_model(), data=data)
    few = FeatureData([np.array([1, 2])] * 2, np.zeros((2, 0), dtype=bool), ())
    with pytest.raises(InputError, match="at least 10"):
        UNIVERSAL_KEYS(random_model(), data=few, features="embeddings")


@settings(deadline=None, max_examples=60)
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
    assert found.known(CUBE).all()


def test_combinations_that_no_key_has_are_not_made_up() -> None:
    on = all_composites(4, 1)
    found = least_function(on, on[:, 0] | on[:, 1])
    assert (found.features, found.table) == ((0, 1), "011?")
    assert not found.known(np.array([[True, True, False, False]]))[0]


def test_functions_of_too_many_features_are_none() -> None:
    cube = np.array(list(product((False, True), repeat=7)))
    assert least_function(cube, cube.sum(axis=1) % 2 == 1) is None


def test_scores_in_two_groups() -> None:
    mean = np.array([0.0, 1.0, 0.1, 0.9])
    found = split_scores(mean - 0.05, mean + 0.05, mean)
    assert found.high.tolist() == [False, True, False, True]
    assert found.error == pytest.approx(0.2 / (2 * (0.7 + 0.2)))
    assert split_scores(np.ones(3), np.ones(3), np.ones(3)) is None
