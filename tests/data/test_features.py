import hashlib
from dataclasses import replace

import numpy as np
import pytest

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
    with pytest.raises(InputError, match="position 2 is outside row 1, which has 2 tokens"):
        replace(data, positions=np.full(2, 2))


def test_column():
    assert make().column("b").tolist() == [False, True]
    with pytest.raises(InputError, match="no feature 'c'; there are a, b"):
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
    with pytest.raises(InputError, match="row 1 has token 6; the vocabulary is 0 to 5"):
        make().check_vocabulary(6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": []}, "there are no rows"),
        ({"tokens": [[1], []]}, "row 1 is no list of tokens, or an empty one"),
        ({"tokens": np.array([[1.0, 2.0]])}, "row 0 holds float64 values"),
        ({"tokens": np.array([[True], [False]])}, "row 0 holds bool values"),
        ({"tokens": [[1], [-2]]}, "row 1 has the negative token id -2"),
        ({"tokens": np.array([[2**64 - 1], [0]], dtype=np.uint64)}, "far too large"),
        ({"tokens": [[1]]}, "2 feature rows for 1 rows"),
        ({"names": ("a",)}, "1 names for 2 features"),
        ({"names": ("a", "a")}, "feature names must differ"),
        ({"names": ("a", "")}, "feature names must differ and not be empty"),
        ({"positions": np.array([0])}, "1 positions for 2 rows"),
        ({"positions": np.array([0, 3])}, "position 3 is outside row 1"),
        ({"positions": np.array([-4, 0])}, "position -4 is outside row 0"),
        ({"groups": np.array(["x"])}, "1 groups for 2 rows"),
    ],
)
def test_parts_that_do_not_fit(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)
