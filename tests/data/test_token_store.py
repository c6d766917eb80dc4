"""Tokenizers and stores of token ids: what goes in comes out."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.token_store import open_store, write_store
from interp_toolkit.data.text.tokenization import (
    BYTES,
    END,
    learn_tokenizer,
    read_tokenizer,
)
from interp_toolkit.errors import InputError

TEXTS = ["the cat sat on the mat", "the dog sat", "a cat, a dog", "naïve ☃ text"]
BYTEWISE = learn_tokenizer(TEXTS, BYTES + 20)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
@settings(max_examples=60)
def test_any_text_comes_back(text: str) -> None:
    (ids,) = BYTEWISE.encode([text])
    assert BYTEWISE.decode(ids.tolist()) == text
    assert BYTEWISE.end not in ids


def test_special_tokens_in_a_text_are_text_and_the_vocabulary_is_bounded(texts) -> None:
    (ids,) = BYTEWISE.encode([f"a{END}b"])
    assert BYTEWISE.end not in ids
    assert BYTEWISE.decode([BYTEWISE.end]) == END
    assert BYTEWISE.n_tokens <= BYTES + 20
    small = learn_tokenizer(TEXTS, BYTES + 3, ["<x>", "<y>"])
    assert (small.n_tokens, small.id_of("<y>")) == (BYTES + 3, 2)
    with pytest.raises(InputError, match="258", check=texts):
        learn_tokenizer(TEXTS, BYTES + 2, ["<x>", "<y>"])


def test_a_given_tokenizer_gets_the_tokens_it_lacks(tmp_path: Path, texts) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    given = Tokenizer(models.WordLevel({"cat": 0, "the": 1, "?": 2}, unk_token="?"))
    given.pre_tokenizer = pre_tokenizers.Whitespace()
    given.enable_truncation(2)
    (tmp_path / "tokenizer.json").write_text(given.to_str())
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        found = read_tokenizer(path, ["<x>"])
        assert (found.n_tokens, found.end, found.id_of("<x>")) == (5, 3, 4)
        assert found.encode(["the cat the dog"])[0].tolist() == [1, 0, 1, 2]
    again = tmp_path / "again.json"
    again.write_text(found.as_json())
    assert read_tokenizer(again, ["<x>"]).n_tokens == 5
    with pytest.raises(InputError, match=r"cannot be read .*or --set tokenizer=train"):
        read_tokenizer(tmp_path / "none.json")
    again.write_text("{}")
    with pytest.raises(InputError, check=texts):
        read_tokenizer(again)
    far = Tokenizer(models.WordLevel({"cat": 0, "?": 2**26}, unk_token="?"))
    again.write_text(far.to_str())
    with pytest.raises(InputError, match=r"67,108,86[45]", check=texts):
        read_tokenizer(again)


def store_of(tmp_path: Path, train: list[str], test: list[str]):
    documents = [[Document(text, len(text) % 2) for text in part] for part in (train, test)]
    return write_store(tmp_path / "store", BYTEWISE, *documents)


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_documents_are_packed_with_their_ends(tmp_path: Path, monkeypatch, at_once: int) -> None:
    monkeypatch.setattr("interp_toolkit.data.text.token_store._AT_ONCE", at_once)
    train, test = [*TEXTS, TEXTS[0], "new"], ["new", "other"]
    store = store_of(tmp_path, train, test)
    ids = store.train.tokens.tolist()
    ends = store.train.ends.tolist()
    starts = [0, *ends[:-1]]
    read = [ids[start:end] for start, end in zip(starts, ends, strict=True)]
    assert {row[-1] for row in read} == {BYTEWISE.end}
    assert [BYTEWISE.decode(row[:-1]) for row in read] == train[:-1]  # "new" is in the test
    assert (store.repeated, ends[-1]) == (1, len(ids))
    assert store.train.labels.tolist() == [len(text) % 2 for text in train[:-1]]
    assert store.train.tokens.dtype == torch.int16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_the_unigram_figure_is_the_cross_entropy_of_counts(tmp_path: Path) -> None:
    store = store_of(tmp_path, TEXTS, ["the cat", "☃ mat"])
    counts = Counter(chain(store.train.tokens.tolist(), range(BYTEWISE.n_tokens)))
    nats = [math.log(counts.total() / counts[i]) for i in store.test.tokens.tolist()]
    assert store.unigram == pytest.approx(math.fsum(nats) / len(nats))


def test_large_vocabularies_take_more_bytes(tmp_path: Path) -> None:
    many = read_many(tmp_path, 40_000)
    made = write_store(tmp_path / "s", many, [Document("w39999 w1")], [Document("w2")])
    assert made.train.tokens.tolist() == [39_999, 1, many.end]
    assert made.train.tokens.dtype == torch.int32


@pytest.mark.parametrize(("ids", "kind"), [(2**15, torch.int16), (2**15 + 1, torch.int32)])
def test_the_last_id_that_a_type_holds_is_an_id(tmp_path: Path, ids: int, kind) -> None:
    tokenizer = read_many(tmp_path, ids - 1)  # the end of a document is the last
    assert tokenizer.end == ids - 1
    write_store(tmp_path / "s", tokenizer, [Document("w7")], [Document("w8")])
    read = open_store(tmp_path / "s").train.tokens
    assert (read.tolist(), read.dtype) == ([7, ids - 1], kind)


def read_many(folder: Path, number: int):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(number)}
    given = Tokenizer(models.WordLevel(words, unk_token="w0"))
    given.pre_tokenizer = pre_tokenizers.Whitespace()
    (folder / "many.json").write_text(given.to_str())
    return read_tokenizer(folder / "many.json")


def test_what_cannot_be_a_store_is_one_clear_line(tmp_path: Path, texts) -> None:
    with pytest.raises(InputError, check=texts):
        store_of(tmp_path, ["same"], ["same"])
    with pytest.raises(InputError, check=texts):
        store_of(tmp_path, ["same"], [])
    with pytest.raises(InputError, check=texts):
        write_store(tmp_path / "s", BYTEWISE, [Document("a", 1), Document("b")], [Document("c")])
    with pytest.raises(InputError, match="not valid text"):
        store_of(tmp_path, ["a \ud800 b"], ["x"])
    assert list(tmp_path.iterdir()) == []
    assert open_store(tmp_path / "store") is None
    store_of(tmp_path, TEXTS, ["x"])
    tokens = tmp_path / "store" / "train.tokens"
    whole = tokens.read_bytes()
    beyond = BYTEWISE.n_tokens.to_bytes(2, "little")
    for damaged in (whole[:-1], beyond + whole[2:], b"\xff\xff" + whole[2:]):
        tokens.write_bytes(damaged)
        with pytest.raises(InputError, match=r"train\.tokens", check=texts):
            open_store(tmp_path / "store")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, check=texts):
        write_store(file / "s", BYTEWISE, [Document("a")], [Document("c")])
