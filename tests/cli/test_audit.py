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


def test_sealed_and_run(call):
    code, out, err = call("audit", "L1H0 attends by induction", "--seal", "s.json")
    assert code == 0, err
    assert "SHA-256" in out
    run = ("audit", "--sealed", "s.json", "--model", MODEL, "--json", "-", "--quiet")
    (result,) = json.loads(call(*run)[1])["results"]
    assert result["claims"][0]["sealed"] is True
    code, _, err = call(*run, "--seed", 5)
    assert code == 2
    assert "the audit was sealed with 0" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["L1H0 is an induction head"], "give --model"),
        (["nonsense", "--model", MODEL], "nor a claim such as"),
        (["none.yaml", "--model", MODEL], "No such file"),
        (["--model", MODEL], "no claim to test"),
        (["--relation", "induction", "--model", MODEL], "give --heads"),
        (["--heads", "L1H0", "--model", MODEL], "'relation' is missing"),
        (["--heads", "L9H9", "--relation", "induction", "--model", MODEL], "there is no head L9H9"),
        (["L1H0 is an induction head", "--seal", "s.json", "--model", MODEL], "tests nothing"),
        (["--seal", "s.json"], "no claim to seal"),
        (
            ["L1H0 is an induction head", "--model", MODEL, "--effort", "much"],
            "--effort 'much' cannot be used",
        ),
    ],
)
def test_errors_are_one_line(call, tmp_path, arguments, said):
    code, _, err = call("audit", *arguments)
    assert code == 2
    assert said in err
    assert len([line for line in err.splitlines() if line.startswith("interp:")]) == 1
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())
