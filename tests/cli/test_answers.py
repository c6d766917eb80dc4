"""Rows with answers on the command line: heads and circuits of a model's own task."""

import json

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.circuits import repeated_prompts
from interp_toolkit.data import FeatureData, read_data


@pytest.fixture
def asking(tmp_path):
    """Repeats that ask for the next token at their last two places."""
    tokens = repeated_prompts(it.load("toy:induction"), rows=64, n_pos=24).tokens.numpy()
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=tokens[:, :-1], answers=tokens[:, -2:], answer_positions=[21, 22])
    return path


def test_heads_and_circuit_of_rows_with_answers(call, asking, texts):
    probes = ("--probe", "heads", "--probe", "circuit", "--data", asking, "--json", "-")
    code, out, _ = call("analyze", "toy:induction", "--quiet", *probes)
    assert code == 0
    heads, circuit = json.loads(out)["results"]
    assert heads["performs_task"] is True
    texts(heads["verdict"])
    found = {(h["detector"], h["layer"], h["head"]) for h in heads["heads"] if h["detected"]}
    assert found >= {("induction", 1, 0), ("answer", 1, 0), ("previous-token", 0, 1)}
    for head in heads["heads"]:
        if head["detected"]:
            assert head["causal"] == "major"
            assert 0.5 <= head["effect_low"] <= head["effect"] <= head["effect_high"]
    assert {group["detector"] for group in heads["groups"]} >= {"induction", "answer"}
    assert circuit["evidence"]["status"] == "detected"


def test_the_same_rows_as_a_table(asking, tmp_path):
    data = read_data(asking)
    path = tmp_path / "rows.jsonl"
    lines = [
        {"tokens": row.tolist(), "answer": answers.tolist(), "answer_position": [21, -1]}
        for row, answers in zip(data.tokens, data.answers, strict=True)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    again = read_data(path)
    np.testing.assert_array_equal(again.answers, data.answers)
    np.testing.assert_array_equal(again.answer_positions, data.answer_positions)
    assert again.digest() == data.digest()


def test_an_answer_in_words_is_one_token(tmp_path, texts):
    path = tmp_path / "words.jsonl"
    path.write_text('{"text": "a b", "answer": "c"}\n{"text": "b c", "answer": "a"}')
    words = {"a": 1, "b": 2, "c": 3}

    def tokenizer(text, add_special_tokens=True):
        ids = [words[word] for word in text.split()]
        return {"input_ids": [0, *ids] if add_special_tokens else ids}

    data = read_data(path, tokenizer)
    assert [row.tolist() for row in data.tokens] == [[0, 1, 2], [0, 2, 3]]
    assert data.answers.tolist() == [[3], [1]]
    assert data.answer_positions.tolist() == [[2], [2]]
    path.write_text('{"text": "a b", "answer": "b c"}')
    data = read_data(path, tokenizer)
    assert data.answers.tolist() == [[2]]
    texts(data.source)
    path.write_text('{"tokens": [1, 2], "answer": "c"}')
    with pytest.raises(it.InputError, check=texts):
        read_data(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"answers": np.zeros((2, 1))},
        {"answers": np.zeros((2, 2), int)},
        {"answers": np.full((2, 1), 900)},
        {"answers": np.zeros((3, 1), int)},
    ],
)
def test_bad_answers_are_one_line(call, tmp_path, arrays, texts):
    path = tmp_path / "bad.npz"
    np.savez(path, tokens=np.arange(20).reshape(2, 10), **arrays)
    code, _, err = call("analyze", "toy:induction", "--quiet", "--probe", "heads", "--data", path)
    assert code == 2
    texts(err)
    assert len(err.strip().splitlines()) == 1


def test_rows_that_ask_nothing_say_so(call, tmp_path, texts):
    path = tmp_path / "tokens.npz"
    rng = np.random.default_rng(0)
    np.savez(path, tokens=rng.integers(0, 30, (16, 20)))
    code, out, _ = call(
        "analyze", "toy:induction", "--quiet", "--probe", "heads", "--data", path, "--json", "-"
    )
    assert code == 0
    (result,) = json.loads(out)["results"]
    assert result["performs_task"] is None
    assert "not tested" in result["verdict"]
    texts(result["verdict"])


def test_data_with_answers_is_analyzed_without_being_asked_by_name(asking):
    from interp_toolkit.analysis import fitting

    fit, unfit = fitting(it.load("toy:induction"), read_data(asking))
    assert {"heads", "circuit"} <= fit.keys()
    fit, unfit = fitting(
        it.load("toy:induction"), FeatureData([np.arange(9)], np.zeros((1, 0), bool), ())
    )
    assert {"heads", "circuit"} <= unfit.keys()
