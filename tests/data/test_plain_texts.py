"""Prompts that are text and nothing else."""

import pytest

from interp_toolkit.data.plain_texts import data_from_texts
from interp_toolkit.errors import InputError


def letters(text):
    return {"input_ids": [0, *(ord(letter) - 96 for letter in text)] if text else []}


def test_texts_become_rows_with_what_the_tokenizer_adds():
    data = data_from_texts(["ab", "cd"], letters)
    assert data.token_matrix().tolist() == [[0, 1, 2], [0, 3, 4]]
    assert data.answers is None
    assert data.names == ()


def test_longer_texts_are_cut_and_the_source_says_so():
    data = data_from_texts(["ab", "c", "defg"], letters)
    assert data.token_matrix().tolist() == [[0, 1], [0, 3], [0, 4]]
    assert data.source == "3 given prompts, cut to their first 2 tokens (of up to 5)"


@pytest.mark.parametrize(
    ("texts", "tokenizer", "said"),
    [
        (["ab", ""], letters, "prompt 2 has no tokens"),
        (["ab"], None, "the model has no tokenizer; give rows of token ids"),
    ],
)
def test_texts_that_are_no_rows(texts, tokenizer, said):
    with pytest.raises(InputError, match=said):
        data_from_texts(texts, tokenizer)
