import hashlib
from dataclasses import replace

import numpy as np
import pytest
from jaxtyping import config

from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError

TOKENS = np.array([[1, 2, 3], [4, 5, 6]])
FEATURES = np.array([[True, False], [False, True]])


def make(**changes):
    parts = {"tokens": TOKENS, "features": FEATURES, "names": ("a", "b")} | changes
    return FeatureData(**parts)


def test_rows_of_any_lengths():
    data = make(tokens=[[1, 2, 3], np.array([4], dtype=np.uint8)], positions=np.array([-1, -1]))
    assert len(data) == 2
    assert [row.tolist() for row in data.tokens] == [[1, 2, 3], [4]]
    assert data.lengths.tolist() == [3, 1]
    assert data.positions.tolist() == [2, 0]
    with pytest.raises(InputError, match="rows have 1 to 3 tokens"):
        data.token_matrix()
    assert make().token_matrix().tolist() == TOKENS.tolist()


def test_positions_count_from_the_start_or_the_end_of_each_row(texts):
    data = make(tokens=[[1, 2, 3], [4, 5]])
    for position, found in ((-1, [2, 1]), (0, [0, 0])):
        assert replace(data, positions=np.full(2, position)).positions.tolist() == found
    with pytest.raises(InputError, check=texts):
        replace(data, positions=np.full(2, 2))


@pytest.fixture
def as_users_call():
    """Without the checks of types that only the tests have."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("as_users_call")
def test_places_and_answers_may_be_lists():
    given = {"answers": [7, 8], "answer_positions": [-2], "wrong": [[8], [7]], "positions": [0, -1]}
    listed = make(**given)
    arrays = make(**{name: np.array(part) for name, part in given.items()})
    assert listed.digest() == arrays.digest()
    assert listed.answer_positions.dtype == listed.wrong.dtype == np.int64
    assert listed.answer_positions.tolist() == [[1], [1]]


def test_column(texts):
    assert make().column("b").tolist() == [False, True]
    with pytest.raises(InputError, match="'c'", check=texts):
        make().column("c")


def test_digest_changes_with_the_data_and_with_nothing_else():
    digest = make().digest()
    assert len(digest) == len(hashlib.sha256().hexdigest())
    same = [make(tokens=TOKENS.astype(np.int32)), make(names=("p", "q")), make(source="a file")]
    assert all(data.digest() == digest for data in same)
    other = [
        make(tokens=TOKENS + 1),
        make(tokens=[[1, 2], [3, 4, 5, 6]]),
        make(features=~FEATURES),
        make(positions=np.array([0, 0])),
        make(positions=np.array([0, 1])),
    ]
    assert len({digest, *(data.digest() for data in other)}) == 6


def test_vocabulary():
    assert make().check_vocabulary(7) is not None
    with pytest.raises(InputError, match="row index 1 has token 6; the vocabulary is 0 to 5"):
        make().check_vocabulary(6)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": []},
        {"tokens": [[1], []]},
        {"tokens": np.array([[1.0, 2.0]])},
        {"tokens": np.array([[True], [False]])},
        {"tokens": [[1], [-2]]},
        {"tokens": np.array([[2**64 - 1], [0]], dtype=np.uint64)},
        {"tokens": [[1]]},
        {"names": ("a",)},
        {"names": ("a", "a")},
        {"names": ("a", "")},
        {"positions": np.array([0])},
        {"positions": np.array([0, 3])},
        {"positions": np.array([-4, 0])},
        {"groups": np.array(["x"])},
        {"groups": np.array("x")},
        {"positions": np.array(0)},
        {"positions": np.array([0.5, 1])},
        {"answers": np.array([7.5, 8])},
        {"answers": np.array([np.nan, 8])},
        {"answers": [7.0, 8.0]},
        {"answers": [True, False]},
        {"answers": np.array([" a", " b"])},
        {"answers": [[7], [8, 9]]},
        {"answers": 7},
        {"answers": np.array([2**64 - 1, 0], dtype=np.uint64)},
        {"wrong": [7.5, 8], "answers": [1, 2]},
        {"wrong": ["a", "b"], "answers": [1, 2]},
        {"answers": [1, 2], "answer_positions": [0.5]},
        {"answers": [1, 2], "answer_positions": ["end"]},
        {"answers": [1, 2], "corrupted": 5},
        {"answers": [1, 2], "corrupted": [[1, [2]], 3]},
        {"tokens": [[1, [2]], [3]]},
        {"answers": [[1, 2]] * 2, "answer_positions": [2, -1]},
        {"answers": [[1, 2, 3]] * 2, "answer_positions": [[0, 1, 2], [1, 0, -2]]},
    ],
)
@pytest.mark.usefixtures("as_users_call")
def test_parts_that_do_not_fit(changes, texts):
    with pytest.raises(InputError, check=texts):
        make(**changes)


def test_rows_are_chosen_with_all_that_belongs_to_them():
    data = FeatureData(
        [np.array([1, 2]), np.array([3, 4, 5]), np.array([6])],
        np.array([[True], [False], [True]]),
        ("a",),
        positions=np.array([-1, 0, 0]),
        groups=np.array(["x", "y", "z"]),
        answers=np.array([7, 8, 9]),
        wrong=np.array([10, 11, 12]),
        corrupted=[np.array([2, 2]), np.array([3, 3, 3]), np.array([5])],
    )
    found = data.at(np.array([2, 0]))
    assert [row.tolist() for row in found.tokens] == [[6], [1, 2]]
    assert [row.tolist() for row in found.corrupted] == [[5], [2, 2]]
    assert found.features[:, 0].tolist() == [True, True]
    assert found.positions.tolist() == [0, 1]
    assert found.groups.tolist() == ["z", "x"]
    assert found.answers.tolist() == [[9], [7]]
    assert found.answer_positions.tolist() == [[0], [1]]
    assert found.wrong.tolist() == [[12], [10]]
