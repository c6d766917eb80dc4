"""`interp doctor` as a user meets it."""

from __future__ import annotations

import json

import pytest
import torch

import interp_toolkit as it
from interp_toolkit.cli.main import main


def run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["interp", "doctor", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    return int(leaving.value.code or 0)


def test_a_sound_model_ends_with_0(monkeypatch, capsys, tmp_path, texts) -> None:
    assert run(monkeypatch, "toy:induction", "--html", str(tmp_path / "report.html")) == 0
    told = capsys.readouterr()
    assert "No fault found: 32 of 32 checks passed." in told.out
    texts(" ".join(told.out.split()))
    assert (tmp_path / "report.html").is_file()


def test_json_alone_on_standard_output(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "toy:xor-2head", "--json", "-", "--quiet") == 0
    result = json.loads(capsys.readouterr().out)["results"][0]
    assert result["probe"] == "doctor"
    assert result["evidence"]["status"] == "sound"


def test_faults_end_with_2_and_one_line(monkeypatch, capsys, tmp_path, texts) -> None:
    model = it.load("toy:induction-trained")
    it.save(model, tmp_path / "model.safetensors")
    folder = tmp_path / "nothing"
    folder.mkdir()
    path = str(tmp_path / "model.safetensors")
    assert run(monkeypatch, path, "--original", str(folder), "--quiet") == 2
    assert "config.json" in capsys.readouterr().err
    monkeypatch.setattr(type(model.embed), "forward", lambda self, tokens: self.W_E[tokens] * 0.5)
    assert run(monkeypatch, path, "--quiet") == 2
    told = capsys.readouterr()
    assert told.out.startswith("!")
    assert told.err.startswith("interp: 1 fault found in")
    texts(told.err)
    assert len(told.err.splitlines()) == 1


def test_wrong_input_is_one_line(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "no-such-file.pt") == 2
    assert run(monkeypatch, "toy:xor-2head", "--prompt", "a", "--quiet") == 2
    assert "no tokenizer" in capsys.readouterr().err
    assert torch.is_grad_enabled()
