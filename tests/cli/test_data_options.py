"""The columns of a data file on the command line, and `interp info` of one."""

import json

import pytest
from layouts import save
from tiny_tokenizers import word_level

import interp_toolkit as it

RECORDS = [
    {"ids": [i % 7, 3, 5, i % 5], "next": i % 7, "tokens": "x", "kind": "ab"[i % 2]}
    for i in range(8)
]
TEXTS = [{"q": "the sky is", "a": "blue"}, {"q": "the sun is", "a": "hot"}, {"q": "it", "a": ""}]


def test_options_name_the_columns_and_every_result_repeats_how_they_were_read(call, tmp_path):
    path = save(tmp_path / "rows.jsonl", RECORDS)
    columns = ["--prompt-column", "ids", "--answer-column", "next", "--feature-column", "kind"]
    code, out, err = call(
        *["analyze", "toy:induction", "--probe", "collapse", "--data", path, *columns],
        *["--group-column", "kind", "--json", "-"],
    )
    assert code == 0, err
    [result] = json.loads(out)["results"]
    reading = result["provenance"]["data"]["reading"]
    for role, column in (("prompt", "ids"), ("answer", "next"), ("group", "kind")):
        assert any(line.startswith(f"{role}: ") and f"'{column}'" in line for line in reading)
    shown = [line for line in reading if line.startswith("line ")]
    assert [line.rpartition("-> ")[2] for line in shown] == ["0", "1", "2"]
    schema = {"prompt_column": "ids", "answer_column": "next"}
    python = it.analyze("toy:induction", "collapse", data=path, schema=schema)
    assert set(python.provenance.data["reading"]) & set(reading)
    named = tmp_path / "columns.yaml"
    named.write_text("prompt_column: ids\nanswer-column: next\n")
    command = ["analyze", "toy:induction", "--probe", "collapse", "--data", path, "--json", "-"]
    code, out, _ = call(*command, "--schema", named)
    assert code == 0
    assert json.loads(out)["results"][0]["provenance"]["data"]["reading"] == list(
        python.provenance.data["reading"]
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--prompt-column", "id"], ["'id'", "ids"]),
        (["--prompt-column", "ids", "--answer-space", "none"], ["auto, add or keep"]),
        (["--schema", "none.yaml"], ["none.yaml"]),
        (["--prompt-column", "ids", "--feature-column", "kind=z"], ["'z'"]),
    ],
)
def test_what_does_not_fit_is_one_line_before_the_model_is_loaded(
    call, tmp_path, monkeypatch, options, names
):
    monkeypatch.setattr("interp_toolkit.cli.analyze.load", pytest.fail)
    records = [{**record, "tokens": record["next"]} for record in RECORDS]
    path = save(tmp_path / "rows.jsonl", records)
    code, _, err = call("analyze", "toy:induction", "--data", path, "--probe", "collapse", *options)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert all(name in err for name in names)


def test_options_of_columns_need_a_table(call, tmp_path):
    for options in (["--answer-ids"], ["--answer-column", "a"], ["--answer-space", "add"]):
        code, _, err = call("analyze", "toy:induction", "--probe", "collapse", *options)
        assert code == 2
        assert "--data" in err
    (tmp_path / "a.txt").write_text("a b\n")
    code, _, err = call(
        *["analyze", "toy:induction", "--data", tmp_path / "a.txt", "--answer-column", "b"]
    )
    assert code == 2
    code, _, err = call("info", "toy:induction", "--answer-column", "b")
    assert code == 2


def test_info_shows_columns_rows_and_what_was_left_out(call, tmp_path, texts):
    path = save(tmp_path / "rows.csv", TEXTS)
    tokenizer = tmp_path / "tokenizer.json"
    word_level(["the", "sky", "sun", "is", "it", "blue", "hot"]).save_pretrained(tmp_path)
    options = ["--prompt-column", "q", "--answer-column", "a"]
    for more in ([], ["--tokenizer", tokenizer]):
        code, out, _ = call("info", path, *options, *more)
        assert code == 0
        assert "1 of 3" in out
        assert "row 3, column 'a'" in out
        assert out.count("blue") >= 2
        texts(out)
    code, out, _ = call("info", path)
    assert code == 0
    assert "not read: a" in out


def test_info_shows_what_is_ambiguous_and_exits_with_2(call, tmp_path):
    records = [{"text": f"it is {i}", "target": "no" if i % 2 else "yes"} for i in range(20)]
    code, out, err = call("info", save(tmp_path / "rows.csv", records))
    assert code == 2
    assert "target" in out
    assert "--feature-column target or --answer-column target" in err
    code, out, _ = call("info", tmp_path / "rows.csv", "--feature-column", "target")
    assert code == 0
    assert "'target'" in out


def test_an_index_from_0_and_the_key_of_the_records_are_options(call, tmp_path):
    rows = [{"question": "the sky", "choices": ["hot", "blue"], "answer": 1}]
    path = save(tmp_path / "rows.json", rows, under="train")
    for start, word in (("0", "blue"), ("1", "hot")):
        code, out, _ = call("info", path, "--records", "train", "--answer-index-from", start)
        assert code == 0
        assert f"-> '{word}'" in out or f"-> ' {word}'" in out
    assert call("info", path, "--records", "test")[0] == 2
    assert call("info", path, "--answer-index-from", "2")[0] == 2
