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


def test_positions_count_from_the_start_or_the_end_of_each_row():
    data = make(tokens=[[1, 2, 3], [4, 5]])
    for position, found in ((-1, [2, 1]), (0, [0, 0])):
        assert replace(data, positions=np.full(2, position)).positions.tolist() == found
    with pytest.raises(InputError, match="position 2 is outside row index 1, which has 2 tokens"):
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


def test_column():
    assert make().column("b").tolist() == [False, True]
    with pytest.raises(InputError, match="no feature 'c'; known: a, b"):
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
    ("changes", "message"),
    [
        ({"tokens": []}, "there are no rows"),
        ({"tokens": [[1], []]}, "row index 1 must be a list of token ids with at least one id"),
        ({"tokens": np.array([[1.0, 2.0]])}, "row index 0 holds float64 values"),
        ({"tokens": np.array([[True], [False]])}, "row index 0 holds bool values"),
        ({"tokens": [[1], [-2]]}, "row index 1 has the negative token id -2"),
        ({"tokens": np.array([[2**64 - 1], [0]], dtype=np.uint64)}, "far too large"),
        ({"tokens": [[1]]}, "2 feature rows for 1 rows"),
        ({"names": ("a",)}, "1 names for 2 features"),
        ({"names": ("a", "a")}, "feature names must differ"),
        ({"names": ("a", "")}, "feature names must differ and not be empty"),
        ({"positions": np.array([0])}, "1 positions for 2 rows"),
        ({"positions": np.array([0, 3])}, "position 3 is outside row index 1"),
        ({"positions": np.array([-4, 0])}, "position -4 is outside row index 0"),
        ({"groups": np.array(["x"])}, "1 groups for 2 rows"),
        ({"groups": np.array("x")}, r"groups must be \[row\], not \[\]"),
        ({"positions": np.array(0)}, r"positions must be \[row\], not \[\]"),
        ({"positions": np.array([0.5, 1])}, "positions hold float64 values; give integers"),
        ({"answers": np.array([7.5, 8])}, "answers hold float64 values; give integers"),
        ({"answers": np.array([np.nan, 8])}, "answers hold float64 values"),
        ({"answers": [7.0, 8.0]}, "answers hold float64 values"),
        ({"answers": [True, False]}, "answers hold bool values"),
        ({"answers": np.array([" a", " b"])}, "answers hold text; give integers"),
        ({"answers": [[7], [8, 9]]}, "answers must be an array of integers"),
        ({"answers": 7}, r"answers must be \[row position\] for 2 rows, not \[\]"),
        ({"answers": np.array([2**64 - 1, 0], dtype=np.uint64)}, "answers hold .* far too large"),
        ({"wrong": [7.5, 8], "answers": [1, 2]}, "wrong hold float64 values"),
        ({"wrong": ["a", "b"], "answers": [1, 2]}, "wrong hold text"),
        ({"answers": [1, 2], "answer_positions": [0.5]}, "answer_positions hold float64 values"),
        ({"answers": [1, 2], "answer_positions": ["end"]}, "answer_positions hold text"),
        ({"answers": [1, 2], "corrupted": 5}, "corrupted must be rows of token ids, not an int"),
        (
            {"answers": [1, 2], "corrupted": [[1, [2]], 3]},
            "row index 0 .corrupted. must be a list of token ids",
        ),
        ({"tokens": [[1, [2]], [3]]}, "row index 0 must be a list of token ids"),
        (
            {"answers": [[1, 2]] * 2, "answer_positions": [2, -1]},
            "row index 0: position 2 has two answers; give each answer its own position",
        ),
        (
            {"answers": [[1, 2, 3]] * 2, "answer_positions": [[0, 1, 2], [1, 0, -2]]},
            "row index 1: position 1 has two answers",
        ),
    ],
)
@pytest.mark.usefixtures("as_users_call")
def test_parts_that_do_not_fit(changes, message):
    with pytest.raises(InputError, match=message):
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
