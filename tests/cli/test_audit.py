"""`interp audit`: files, sentences, flags, seals, errors."""

import json
import subprocess
import sys

import pytest

MODEL = "toy:induction-trained"


def interp(*arguments, folder=None):
    command = [sys.executable, "-m", "interp_toolkit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


def test_a_sentence_and_json():
    done = interp("audit", "L0H0 attends to the previous token", "--model", MODEL, "--json", "-")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["probe"] == "audit"
    assert result["claims"][0]["kind"] == "heads"


def test_sealed_and_run(tmp_path):
    done = interp("audit", "L1H0 attends by induction", "--seal", "s.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "SHA-256" in done.stdout
    run = ("audit", "--sealed", "s.json", "--model", MODEL, "--json", "-", "--quiet")
    (result,) = json.loads(interp(*run, folder=tmp_path).stdout)["results"]
    assert result["claims"][0]["sealed"] is True
    other = interp(*run, "--seed", 5, folder=tmp_path)
    assert other.returncode == 2
    assert "the audit was sealed with 0" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["L1H0 is an induction head"], "give --model"),
        (["nonsense", "--model", MODEL], "no sentence such as"),
        (["none.yaml", "--model", MODEL], "No such file"),
        (["--model", MODEL], "no claim to test"),
        (["--relation", "induction", "--model", MODEL], "give --heads"),
        (["--heads", "L1H0", "--model", MODEL], "'relation' is missing"),
        (["--heads", "L9H9", "--relation", "induction", "--model", MODEL], "there is no head L9H9"),
        (["L1H0 is an induction head", "--seal", "s.json", "--model", MODEL], "tests nothing"),
        (["--seal", "s.json"], "no claim to seal"),
    ],
)
def test_errors_are_one_line(tmp_path, arguments, said):
    done = interp("audit", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    last = [line for line in done.stderr.splitlines() if line.startswith("interp:")]
    assert len(last) == 1
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
