"""`interp audit`: files, sentences, flags, seals, errors."""

import json

import pytest

MODEL = "toy:induction-trained"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_sentence_and_json(call):
    code, out, err = call(
        "audit", "L0H0 attends to the previous token", "--model", MODEL, "--json", "-"
    )
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert result["probe"] == "audit"
    assert result["claims"][0]["kind"] == "heads"


def test_sealed_and_run(call, texts):
    code, out, err = call("audit", "L1H0 attends by induction", "--seal", "s.json")
    assert code == 0, err
    assert "SHA-256" in out
    run = ("audit", "--sealed", "s.json", "--model", MODEL, "--json", "-", "--quiet")
    (result,) = json.loads(call(*run)[1])["results"]
    assert result["claims"][0]["sealed"] is True
    code, _, err = call(*run, "--seed", 5)
    assert code == 2
    texts(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["L1H0 is an induction head"],
        ["nonsense", "--model", MODEL],
        ["none.yaml", "--model", MODEL],
        ["--model", MODEL],
        ["--relation", "induction", "--model", MODEL],
        ["--heads", "L1H0", "--model", MODEL],
        ["--heads", "L9H9", "--relation", "induction", "--model", MODEL],
        ["L1H0 is an induction head", "--seal", "s.json", "--model", MODEL],
        ["--seal", "s.json"],
        ["L1H0 is an induction head", "--model", MODEL, "--effort", "much"],
    ],
)
def test_errors_are_one_line(call, tmp_path, arguments, texts):
    code, _, err = call("audit", *arguments)
    assert code == 2
    texts(err)
    assert len([line for line in err.splitlines() if line.startswith("interp:")]) == 1
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())
