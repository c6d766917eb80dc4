"""`interp challenge` on the command line."""

import json

import pytest

ARGUMENTS = ["--models", "2", "--families", "xor", "--tool", "challenge_tools:always"]


@pytest.fixture
def tools(tmp_path, monkeypatch):
    (tmp_path / "challenge_tools.py").write_text(
        "def always(model, question):\n    return [0.9] * len(question.items)\n"
        "def never(model, question):\n    raise RuntimeError('no')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_card_to_the_terminal_and_to_files(call, tools, tmp_path):
    files = {name: tmp_path / f"card.{name}" for name in ("json", "html", "markdown")}
    given = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    code, out, _ = call("challenge", *ARGUMENTS, "--tool", "challenge_tools:never", *given)
    assert code == 0
    assert "on 2 models" in " ".join(out.split())
    [card] = json.loads(files["json"].read_text())["results"]
    assert card["probe"] == "challenge"
    assert {one["tool"] for one in card["by_kind"]} == {
        "challenge_tools:always",
        "challenge_tools:never",
    }
    assert card["failures"][0][2] == "RuntimeError: no"
    assert "### Weak spots" in files["markdown"].read_text()
    assert "Reliability" in files["html"].read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--tool", "nothing"], "no tool 'nothing'"),
        (["--families", "nothing"], "no family nothing"),
        (["--families", ""], "no family"),
        (["--models", "1", "--families", "xor,twins"], "too few"),
        (["--seed", "-1"], "seed"),
        (["--markdown", "no/such/folder/card.md"], "--markdown"),
    ],
)
def test_bad_input_is_one_line(call, given, said):
    code, _, err = call("challenge", *given)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
