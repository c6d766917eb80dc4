"""What the command line says of a GGUF file."""

import sys

import pytest

pytest.importorskip("gguf", reason="gguf is not installed: make real")

from tiny_gguf import write_tiny

from interp_toolkit.cli.main import main

pytestmark = pytest.mark.real

NOTE = "quantized to Q8_0"


@pytest.fixture
def call(capfd, monkeypatch):
    """`interp` in this process: (code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["interp", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        return int(leaving.value.code or 0), *capfd.readouterr()

    return run


def test_info(call, tmp_path):
    code, out, err = call("info", write_tiny(tmp_path / "tiny.gguf"))
    assert code == 0
    assert NOTE in " ".join(out.split())
    assert err.count("parameters, about") == 1


def test_an_analysis_says_once_that_weights_were_quantised(call, tmp_path):
    path = write_tiny(tmp_path / "tiny.gguf")
    code, _, err = call("analyze", path, "--probe", "composition", "--device", "cpu")
    assert code == 0
    assert err.count(NOTE) == 1
    assert err.count("parameters, about") == 1


def test_a_damaged_file_is_one_line(call, tmp_path):
    path = write_tiny(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:5000])
    code, out, err = call("info", path)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
