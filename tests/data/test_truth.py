import itertools

import pytest

from interp_toolkit.data import parse_tokens, truth_table
from interp_toolkit.errors import InputError

TOKENS = {"0": 5, "1": 7, "query": 9}


def test_xor_table():
    data = truth_table({"name": "xor", "tokens": TOKENS})
    assert data.token_matrix().tolist() == [[5, 5, 9], [5, 7, 9], [7, 5, 9], [7, 7, 9]]
    assert data.features.astype(int).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert data.names == ("a", "b")
    assert data.positions.tolist() == [2, 2, 2, 2]


def test_other_layouts():
    task = {"tokens": TOKENS | {"bos": 0}, "layout": ["bos", "b", "query", "a", "c", "b"]}
    data = truth_table(task)
    assert data.names == ("a", "b", "c")
    for row, (a, b, c) in enumerate(itertools.product((5, 7), repeat=3)):
        assert data.tokens[row].tolist() == [0, b, 9, a, c, b]
    assert set(data.positions.tolist()) == {2}


def test_without_a_query_the_last_position_is_read():
    data = truth_table({"tokens": {"0": 0, "1": 1}, "layout": "a b"})
    assert data.positions.tolist() == [1, 1, 1, 1]


def test_a_letter_that_names_a_token_is_that_token():
    data = truth_table({"tokens": TOKENS | {"b": 3}, "layout": ["a", "b"]})
    assert data.token_matrix().tolist() == [[5, 3], [7, 3]]


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"tokens": {"0": 5, "query": 9}},
        {"tokens": {"0": 5, "1": 5, "query": 9}},
        {"tokens": {"0": 5, "1": 7}},
        {"tokens": TOKENS | {"1": -1}},
        {"tokens": TOKENS | {"1": "7"}},
        {"tokens": TOKENS | {"1": True}},
        {"tokens": TOKENS, "layout": ["a", "quary"]},
        {"tokens": TOKENS, "layout": ["a", "c"]},
        {"tokens": TOKENS, "layout": ["query"]},
        {"tokens": TOKENS, "layout": 3},
        {"tokens": TOKENS, "layout": "a b c d e f g h i j k l m n o p q"},
    ],
)
def test_tasks_that_do_not_fit(task, texts):
    with pytest.raises(InputError, check=texts):
        truth_table(task)


def test_vocabulary():
    assert len(truth_table({"tokens": TOKENS}, d_vocab=10)) == 4
    with pytest.raises(InputError, match="row index 0 has token 9; the vocabulary is 0 to 8"):
        truth_table({"tokens": TOKENS}, d_vocab=9)


def test_parse_tokens():
    assert parse_tokens("0=5,1=7, query = 9") == {"0": 5, "1": 7, "query": 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not name=id"),
        ("0=5,,1=7", "'' is not name=id"),
        ("0=5,1", "'1' is not name=id"),
        ("0=-5", "'0=-5' is not name=id"),
        ("0=5.0", "'0=5.0' is not"),
        ("=5", "'=5' is not"),
        ("0=٥", "is not name=id"),
        ("0=1,0=2", "'0' is given twice"),
    ],
)
def test_tokens_that_cannot_be_read(text, message):
    with pytest.raises(InputError, match=message):
        parse_tokens(text)
