"""Pairs in files: clean and corrupted prompts, answers and wrong ones."""

import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import write

from interp_toolkit.data import FeatureData, read_data
from interp_toolkit.data.features import EXAMPLE, EXAMPLE_OF_IDS
from interp_toolkit.errors import InputError

SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

WORDS = ["<s>", "Mary", "met", "John,", "and", "John", "thanked", "Anne", "the"]
IDS = {word: number for number, word in enumerate(WORDS)}
#: a digest from before there were pairs
BEFORE = "9f4fd3ae32c83a23e51c1142ef83a878f9a21b79b6a26ad1305130877348675c"
FIRST = {
    "clean": "Mary met John, and John thanked",
    "corrupted": "Mary met John, and Anne thanked",
    "answer": " Mary",
    "wrong": " John",
}
SECOND = {
    "clean": "John met the and John thanked",
    "corrupted": "Anne met the and John thanked",
    "answer": " John",
    "wrong": " Anne",
}


def tokenizer(text, add_special_tokens=True):
    """Words, with `<s>` before every whole text."""
    ids = [IDS[word] for word in text.split()]
    return {"input_ids": [0, *ids] if add_special_tokens else ids}


def test_prompts_get_what_the_tokenizer_adds_and_answers_do_not(table):
    data = read_data(table([FIRST, SECOND]), tokenizer)
    assert data.names == ()
    assert [row.tolist() for row in data.tokens] == [[0, 1, 2, 3, 4, 5, 6], [0, 5, 2, 8, 4, 5, 6]]
    assert [row.tolist() for row in data.corrupted] == [
        [0, 1, 2, 3, 4, 7, 6],
        [0, 7, 2, 8, 4, 5, 6],
    ]
    assert data.answers.tolist() == [[1], [5]]
    assert data.wrong.tolist() == [[5], [7]]
    assert data.answer_positions.tolist() == [[6], [6]]


def test_the_answer_is_asked_for_before_what_ends_every_text(table):
    def ending(text, add_special_tokens=True):
        ids = tokenizer(text, add_special_tokens)["input_ids"]
        return {"input_ids": [*ids, 0] if add_special_tokens else ids}

    by_ids = {"clean": [0, 1, 2, 0], "corrupted": [0, 3, 2, 0], "answer": 1, "wrong": 5}
    data = read_data(table([FIRST, SECOND]), ending)
    assert [row[-2:].tolist() for row in data.tokens] == [[6, 0], [6, 0]]
    assert data.answer_positions.tolist() == [[6], [6]]
    assert read_data(table([by_ids]), ending).answer_positions.tolist() == [[3]]
    given = [row | {"answer_position": -1} for row in (FIRST, SECOND)]
    assert read_data(table(given), ending).answer_positions.tolist() == [[7], [7]]


@pytest.mark.parametrize("name", ["text", "tokens"])
def test_clean_is_another_word_for_text_and_tokens(table, name, texts):
    ids = {"clean": [0, 1], "corrupted": [0, 2], "answer": 1, "wrong": 2}
    row = FIRST if name == "text" else ids
    other = {(name if key == "clean" else key): value for key, value in row.items()}
    assert (
        read_data(table([row]), tokenizer).digest() == read_data(table([other]), tokenizer).digest()
    )
    with pytest.raises(InputError, check=texts):
        read_data(table([row | other]), tokenizer)


@settings(max_examples=30, suppress_health_check=SHARED)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(0, 90), min_size=1, max_size=4), st.integers(0, 90)),
        min_size=1,
        max_size=5,
    ),
    at=st.integers(0, 3),
)
def test_every_format_gives_the_same_pairs(tmp_path, rows, at):
    records = []
    for tokens, answer in rows:
        corrupted = list(tokens)
        corrupted[at % len(tokens)] += 1
        wrong = answer + 1
        records.append({"clean": tokens, "corrupted": corrupted, "answer": answer, "wrong": wrong})
    lengths = [len(r["clean"]) for r in records]
    clean, corrupted = (np.zeros((len(rows), max(lengths)), int) for _ in range(2))
    for i, record in enumerate(records):
        clean[i, : lengths[i]], corrupted[i, : lengths[i]] = record["clean"], record["corrupted"]
    path = tmp_path / "pairs.npz"
    answers = [record["answer"] for record in records]
    wrong = [[record["wrong"]] for record in records]
    np.savez(path, tokens=clean, corrupted=corrupted, lengths=lengths, answers=answers, wrong=wrong)
    read = [read_data(path)]
    read += [read_data(write(tmp_path / f"pairs{s}", records)) for s in (".jsonl", ".parquet")]
    assert len({data.digest() for data in read}) == 1
    for data in read:
        assert [row.tolist() for row in data.corrupted] == [r["corrupted"] for r in records]
        assert data.wrong.tolist() == wrong


@pytest.mark.parametrize(
    "changes",
    [
        {"corrupted": ["a"]},
        {"clean": None},
        {"wrong": {"is": 1}},
    ],
)
def test_a_bad_pair_is_named_with_file_and_line(tmp_path, changes, texts):
    path = write(tmp_path / "data.jsonl", [FIRST, SECOND | changes])
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: ", check=texts) as caught:
        read_data(path, tokenizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"corrupted": "Mary met the John, and Anne thanked"},
        {"corrupted": SECOND["clean"]},
        {"corrupted": ""},
        {"wrong": " John"},
    ],
)
def test_pairs_that_do_not_fit_are_left_out_and_counted_unless_they_are_many(
    tmp_path, changes, texts
):
    path = write(tmp_path / "data.jsonl", [FIRST, SECOND | changes, SECOND])
    data, without = read_data(path, tokenizer), write(tmp_path / "fit.jsonl", [FIRST, SECOND])
    assert data.digest() == read_data(without, tokenizer).digest()
    assert "1 of 3 prompts" in data.source
    texts(data.source)
    path = write(tmp_path / "data.jsonl", [FIRST, SECOND | changes, SECOND | changes])
    with pytest.raises(InputError, check=texts):
        read_data(path, tokenizer)


def test_an_answer_of_several_tokens_counts_by_its_first_and_says_so(tmp_path, texts):
    long = SECOND | {"answer": f"{SECOND['answer']} thanked"}
    data = read_data(write(tmp_path / "long.jsonl", [FIRST, long]), tokenizer)
    plain = read_data(write(tmp_path / "data.jsonl", [FIRST, SECOND]), tokenizer)
    assert data.digest() == plain.digest()
    texts(data.source)


@pytest.mark.parametrize("missing", ["corrupted", "answer", "wrong"])
@pytest.mark.parametrize("empty", [None, "", "absent"])
def test_a_row_without_a_part_of_its_pair_is_left_out_and_counted(tmp_path, missing, empty):
    short = {**SECOND, missing: empty}
    if empty == "absent":
        del short[missing]
    data = read_data(write(tmp_path / "data.jsonl", [FIRST, short, SECOND]), tokenizer)
    without = read_data(write(tmp_path / "fit.jsonl", [FIRST, SECOND]), tokenizer)
    assert data.digest() == without.digest()
    assert "1 of 3 prompts" in data.source
    assert "line 2" in data.source


@pytest.mark.parametrize("lone", ["corrupted", "wrong"])
def test_what_stands_against_an_answer_needs_one(table, lone, texts):
    with pytest.raises(InputError, check=texts):
        read_data(table([{"clean": FIRST["clean"], lone: FIRST[lone]}]), tokenizer)


def test_the_valid_lines_are_valid(tmp_path):
    words = " ".join(v for k, v in json.loads(EXAMPLE).items()).split()
    ids = {word: number for number, word in enumerate(dict.fromkeys(words))}
    for line in (EXAMPLE, EXAMPLE_OF_IDS):
        path = tmp_path / "line.jsonl"
        path.write_text(line)
        data = read_data(path, lambda text: [ids[word] for word in text.split()])
        assert data.corrupted is not None
        assert data.wrong is not None


def test_a_digest_covers_pairs_and_stays_what_it_was_without():
    rows = [np.array([1, 2, 3]), np.array([4, 5])]
    plain = FeatureData(rows, np.array([[True], [False]]), ("a",), answers=np.array([7, 8]))
    assert plain.digest() == BEFORE
    forms = [
        {"wrong": np.array([8, 7])},
        {"wrong": np.array([9, 7])},
        {"corrupted": [[1, 2, 4], [4, 6]]},
        {"corrupted": [[1, 2, 5], [4, 6]]},
        {"corrupted": [[1, 2, 4], [4, 6]], "wrong": np.array([8, 7])},
    ]
    digests = {
        FeatureData(rows, plain.features, ("a",), answers=plain.answers, **form).digest()
        for form in forms
    }
    assert len(digests | {BEFORE}) == len(forms) + 1


@pytest.mark.parametrize(
    "given",
    [
        {"wrong": np.array([8])},
        {"wrong": np.array([8, -1])},
        {"wrong": np.array([8, 8])},
        {"corrupted": [[1, 2, 4]]},
        {"corrupted": [[1, 2, 4], [-4, 6]]},
        {"corrupted": [[1, 2, 3], [4, 6]]},
        {"corrupted": [[1, 2, 4], [4]]},
        {"corrupted": [[1, 2, 4], [4, 6]], "answers": None},
        {"wrong": np.array([8, 7]), "answers": None},
    ],
)
def test_arrays_that_do_not_fit(given, texts):
    rows = [np.array([1, 2, 3]), np.array([4, 5])]
    with pytest.raises(InputError, check=texts):
        FeatureData(rows, np.zeros((2, 0), bool), (), **({"answers": np.array([7, 8])} | given))


def test_the_vocabulary_holds_corrupted_rows_too():
    data = FeatureData(
        [[1, 2]], np.zeros((1, 0), bool), (), answers=np.array([1]), corrupted=[[1, 9]]
    )
    with pytest.raises(InputError, match=r"row index 0 \(corrupted\) has token 9"):
        data.check_vocabulary(9)
    assert data.check_vocabulary(10) is data


def test_corrupted_rows_of_an_npz_are_as_the_tokens(tmp_path, texts):
    path = tmp_path / "data.npz"
    np.savez(path, tokens=[[1, 2]], answers=[1], corrupted=[[1, 2, 3]])
    with pytest.raises(InputError, match=r"\[1, 2\]", check=texts):
        read_data(path)


@pytest.mark.parametrize("empty", ["NA", "", "null", "nan"])
def test_a_row_of_ids_without_an_answer_is_left_out_and_counted(tmp_path, empty):
    path = tmp_path / "ids.csv"
    lines = [f"1 2 3 {n},{empty if n == 2 else n}" for n in range(6)]
    path.write_text("\n".join(["tokens,answer", *lines]))
    data = read_data(path)
    assert data.answers[:, 0].tolist() == [0, 1, 3, 4, 5]
    assert any("1 of 6 prompts" in line for line in data.reading)
