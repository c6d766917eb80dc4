"""Prompts that are text and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.data import read_data
from interp_toolkit.data.text.tokenization import (
    MOST_PIECES,
    data_from_prose,
    data_from_texts,
    read_text,
)
from interp_toolkit.errors import InputError


def letters(text):
    return {"input_ids": [0, *(ord(letter) - 96 for letter in text)] if text else []}


def test_texts_become_rows_with_what_the_tokenizer_adds():
    data = data_from_texts(["ab", "cd"], letters)
    assert data.token_matrix().tolist() == [[0, 1, 2], [0, 3, 4]]
    assert data.answers is None
    assert data.names == ()


def test_longer_texts_are_cut_and_the_source_says_so(texts):
    data = data_from_texts(["ab", "c", "defg"], letters)
    assert data.token_matrix().tolist() == [[0, 1], [0, 3], [0, 4]]
    texts(data.source)


@pytest.mark.parametrize(
    ("rows", "tokenizer"),
    [
        (["ab", ""], letters),
        (["ab"], None),
    ],
)
def test_texts_that_are_no_rows(rows, tokenizer, texts):
    with pytest.raises(InputError, check=texts):
        data_from_texts(rows, tokenizer)


def marked(text, add_special_tokens=True):
    """One token in front and one behind, as BERT's tokenizers have them."""
    ids = [ord(letter) - 96 for letter in text]
    return {"input_ids": [100, *ids, 101] if add_special_tokens else ids}


def test_a_text_in_pieces_each_with_what_stands_in_front_of_a_text():
    data = data_from_prose("abcdefghij", marked, 4, "story.txt")
    assert data.token_matrix().tolist() == [[100, 1, 2, 3], [100, 4, 5, 6], [100, 7, 8, 9]]
    assert data.source == "story.txt in 3 pieces of 4 tokens"


def test_a_long_text_is_cut_off_and_the_source_says_so(texts):
    data = data_from_prose("ab" * 3 * MOST_PIECES, marked, 4)
    assert len(data) == MOST_PIECES
    texts(data.source)


@given(
    text=st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=60),
    length=st.integers(1, 12),
    tokenizer=st.sampled_from([marked, lambda text: [ord(letter) - 96 for letter in text]]),
)
def test_pieces_put_together_are_the_text_from_its_start(text, length, tokenizer):
    front = 1 if tokenizer is marked else 0
    ids = [ord(letter) - 96 for letter in text]
    if length <= front or len(ids) < length - front:
        said = "have no room" if length <= front else "too few for a piece"
        with pytest.raises(InputError, match=said):
            data_from_prose(text, tokenizer, length)
        return
    rows = data_from_prose(text, tokenizer, length).token_matrix()
    assert rows.shape[1] == length
    together = [token for row in rows.tolist() for token in row[front:]]
    assert together == ids[: len(together)]
    assert len(ids) - len(together) < length - front


def test_a_file_of_lines_is_a_prompt_a_line(tmp_path, texts):
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffab\r\n\n  \ncd\n".encode())
    data = read_data(file, letters)
    assert data.token_matrix().tolist() == [[0, 1, 2], [0, 3, 4]]
    assert data.source == f"{file}: 2 prompts"
    with pytest.raises(InputError, match=r"prompts\.txt", check=texts):
        read_data(file)
    with pytest.raises(InputError, match="'a'", check=texts):
        read_data(file, letters, feature_names=["a"])
    file.write_text(" \n")
    with pytest.raises(InputError, check=texts):
        read_data(file, letters)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_text(file)
    with pytest.raises(InputError, match="No such file"):
        read_text(tmp_path / "none.txt")
