"""What every command says of itself, whole, in `tests/texts`."""

import re

import pytest

from interp_toolkit.registry import CATALOGUE

COMMANDS = ["analyze", "train", "doctor", "audit", "compare", "list", "show", "info"]
OF_STUDIES = ["reproduce", "sweep", "litmus", "challenge"]


@pytest.fixture(autouse=True)
def _a_wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS + OF_STUDIES)])
def test_help(call, texts, command):
    code, out, err = call(*command, "--help")
    assert (code, err) == (0, "")
    out = re.sub("Usage: .*interp", "Usage: interp", out)  # how the tests were started
    texts(line.rstrip() for line in out.splitlines())


@pytest.mark.parametrize("name", CATALOGUE["probes"])
def test_what_show_says_of_an_analysis(call, texts, name):
    code, out, err = call("show", name)
    assert (code, err) == (0, "")
    texts(line.rstrip() for line in out.splitlines())


def test_what_list_says(call, texts):
    code, out, err = call("list")
    assert (code, err) == (0, "")
    texts(line.rstrip() for line in out.splitlines())
