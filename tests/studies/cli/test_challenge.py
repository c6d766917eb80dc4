"""`interp challenge` on the command line."""

import json
import sys

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
        (["--models", "1", "--families", "xor,bigrams"], "too few"),
        (["--seed", "-1"], "seed"),
        (["--markdown", "no/such/folder/card.md"], "--markdown"),
    ],
)
def test_bad_input_is_one_line(call, given, said):
    code, _, err = call("challenge", *given)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


def test_a_tool_in_the_users_own_folder_is_found(call, tmp_path, monkeypatch):
    """The console script does not have it on the path, as `python -m` has."""
    (tmp_path / "beside_challenge.py").write_text("HALF = 0.5\n")
    (tmp_path / "own_challenge_tool.py").write_text(
        "from beside_challenge import HALF\n"
        "def score(model, question):\n    return [HALF] * len(question.items)\n"
    )
    monkeypatch.chdir(tmp_path)
    before = [part for part in sys.path if part not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", list(before))
    code, out, err = call("challenge", *ARGUMENTS[:4], "--tool", "own_challenge_tool:score")
    assert code == 0, err
    assert "own_challenge_tool" in "".join(out.split())
    assert sys.path == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def score(model, question)\n    return None\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("class score:\n    def __init__(self):\n        raise OSError('gone')\n", "OSError: gone"),
        ("class score:\n    pass\n", "no method score"),
    ],
)
def test_a_tool_that_cannot_be_had_is_one_line(call, tmp_path, monkeypatch, text, said):
    module = f"of_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, _, err = call("challenge", *ARGUMENTS[:4], "--tool", f"{module}:score")
    assert code == 2
    assert said in " ".join(err.split())
    assert "Traceback" not in err
    assert "bug" not in err
