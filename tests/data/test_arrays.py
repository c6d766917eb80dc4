"""Rows given in memory: the same data as a file of them, and one line for what does not fit."""

import numpy as np
import pandas as pd
import pytest
import torch

import interp_toolkit as it
from interp_toolkit.data import data_from_arrays, read_data
from interp_toolkit.errors import InputError

TOKENS = [[5, 7, 9], [7, 9, 5]]
COLUMNS = {"a": [True, False], "b": [1, 0]}


@pytest.mark.parametrize(
    "tokens",
    [
        TOKENS,
        np.array(TOKENS),
        np.array(TOKENS, dtype=np.uint8),
        torch.tensor(TOKENS),
        [torch.tensor(row) for row in TOKENS],
        tuple(np.array(row) for row in TOKENS),
        pd.DataFrame(TOKENS),
    ],
    ids=["lists", "array", "bytes", "tensor", "tensors", "arrays", "frame"],
)
def test_rows_are_rows_in_whatever_they_come(tokens):
    data = data_from_arrays(tokens)
    assert [row.tolist() for row in data.tokens] == TOKENS
    assert data.names == ()


def test_rows_may_differ_in_length():
    data = data_from_arrays([[5, 7, 9], torch.tensor([7, 9])])
    assert data.lengths.tolist() == [3, 2]


@pytest.mark.parametrize(
    "features",
    [
        COLUMNS,
        pd.DataFrame(COLUMNS),
        {name: torch.tensor(column) for name, column in COLUMNS.items()},
        np.array([[True, True], [False, False]]),
        torch.tensor([[1, 1], [0, 0]]),
    ],
    ids=["mapping", "frame", "tensors", "array", "tensor"],
)
def test_features_are_columns_or_an_array_named_by_letters(features):
    data = data_from_arrays({"tokens": TOKENS, "features": features})
    assert data.names == ("a", "b")
    assert data.features.tolist() == [[True, True], [False, False]]


def test_a_mapping_is_what_a_file_of_the_same_arrays_is(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "tokens": rng.integers(0, 9, (6, 4)),
        "features": rng.random((6, 2)) < 0.5,
        "names": np.array(["x", "y"]),
        "position": rng.integers(0, 4, 6),
        "group": np.array(list("aabbcc")),
        "answers": rng.integers(0, 4, (6, 2)),
        "answer_positions": np.array([1, 3]),
        "wrong": rng.integers(4, 9, (6, 2)),
        "corrupted": rng.integers(0, 9, (6, 4)),
    }
    np.savez(tmp_path / "rows.npz", **arrays)
    read = read_data(tmp_path / "rows.npz")
    tensors = {k: v if v.dtype.kind == "U" else torch.tensor(v) for k, v in arrays.items()}
    for given in (arrays, tensors, {k: v.tolist() for k, v in arrays.items()}):
        made = data_from_arrays(given)
        assert made.digest() == read.digest()
        assert made.names == read.names
        assert made.groups.tolist() == read.groups.tolist()


def test_features_chosen_by_name_come_in_that_order():
    data = data_from_arrays({"tokens": TOKENS, "features": COLUMNS}, ["b"])
    assert data.names == ("b",)


def test_booleans_under_a_name_of_their_own_are_a_feature(tmp_path):
    rows = {"tokens": np.array(TOKENS), "features": np.eye(2, dtype=bool), "names": ["a", "b"]}
    rows["big"] = np.array([False, True])
    np.savez(tmp_path / "rows.npz", **rows)
    for data in (read_data(tmp_path / "rows.npz"), data_from_arrays(rows)):
        assert data.names == ("a", "b", "big")
        assert data.column("big").tolist() == [False, True]
    alone = data_from_arrays({"tokens": TOKENS, "big": [True, False]})
    assert (alone.names, alone.features.tolist()) == (("big",), [[True], [False]])
    assert data_from_arrays(rows, ["big", "a"]).names == ("big", "a")
    assert data_from_arrays(rows, []).names == ()


class Speechless:
    """An array whose error has no message."""

    def __array__(self, dtype=None, copy=None):
        raise ValueError


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 3],
        np.array(TOKENS) / 2,
        [[1, 2], [0.5]],
        [],
        [[1, 2], []],
        3,
        {"features": COLUMNS},
        {"tokens": TOKENS, "feature": COLUMNS},
        {"tokens": TOKENS, "big": [1, 0]},
        {"tokens": TOKENS, "big": [[True], [False]]},
        {"tokens": TOKENS, "big": [True]},
        {"tokens": TOKENS, "a": [True, True], "features": COLUMNS},
        {"tokens": TOKENS, "features": {"a": [True, True], "b": [True]}},
        {"tokens": TOKENS, "features": {"a": [True, 3]}},
        {"tokens": TOKENS, "features": {"a": [True]}},
        {"tokens": [[1, 2], [3]], "lengths": [2, 1]},
        {"tokens": TOKENS, "corrupted": [[1, 2], [3]]},
        torch.zeros(2, 3, dtype=torch.long).to_sparse(),
        torch.zeros(2, 3, device="meta"),
        Speechless(),
    ],
)
def test_what_does_not_fit_is_one_line(given, texts):
    with pytest.raises(InputError) as caught:
        data_from_arrays(given)
    texts(str(caught.value))
    assert "\n" not in str(caught.value)


def test_an_analysis_takes_rows_as_they_are():
    rows = torch.tensor([[5, 7, 9, 5, 7], [1, 2, 3, 1, 2]])
    found = it.analyze("toy:induction-trained", "collapse", data=rows)
    listed = it.analyze("toy:induction-trained", "collapse", data=rows.tolist())
    assert [layer.cosine for layer in found.layers] == [layer.cosine for layer in listed.layers]
    with pytest.raises(InputError, match="vocabulary"):
        it.analyze("toy:induction-trained", "collapse", data=rows + 1000)


def test_an_analysis_of_features_takes_them_in_memory():
    tokens = [[a, b, 2] for a in (0, 1) for b in (0, 1)]
    features = {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]}
    found = it.analyze("toy:xor-2head", "xor", data={"tokens": tokens, "features": features})
    assert found.status == "separable"
