"""`interp mcp`, asked by the official client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

import interp_toolkit as it
from interp_toolkit.report.html import to_json


def asked(*calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The names of the tools, then for each call whether it is an error, and its text."""
    mcp = pytest.importorskip("mcp")
    arguments = ["-c", "from interp_toolkit.cli.main import main; main()", "mcp"]
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=arguments,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )

    async def talk() -> list[Any]:
        async with mcp.Client(server) as client:
            tools = await client.list_tools()
            answers: list[Any] = [tools.tools]
            for name, given in calls:
                result = await client.call_tool(name, given)
                answers.append((bool(result.is_error), result.content[0].text))
            return answers

    return asyncio.run(talk())


@pytest.mark.slow
def test_an_agent_lists_analyzes_and_audits_over_stdio(tmp_path):
    claim = "L1H0 is an induction head"
    tools, listed, shown, about, analyzed, audited, *wrong = asked(
        ("list", {"kind": "toys"}),
        ("show", {"name": "heads"}),
        ("info", {"model": "toy:induction"}),
        ("analyze", {"model": "toy:xor-2head", "probe": "xor", "options": {"seed": 3}}),
        ("audit", {"claims": [claim], "model": "toy:induction", "effort": "quick"}),
        ("analyze", {"model": "toy:xor-2head", "probe": "xr"}),
        ("analyze", {"model": str(tmp_path / "none.pt"), "probe": "xor"}),
        ("analyze", {"model": "toy:xor-2head", "probe": "xor", "options": {"sed": 3}}),
        ("analyze", {"model": "toy:xor-2head", "probe": "xor", "options": {"progress": 3}}),
        ("audit", {"claims": ["L1H0 is an inducton head"], "model": "toy:induction"}),
        ("show", {"name": "head"}),
        ("list", {"kind": "toy"}),
    )
    assert {tool.name for tool in tools} == {"analyze", "audit", "list", "show", "info"}
    assert all(tool.description for tool in tools)
    assert not any(error for error, _ in (listed, shown, about, analyzed, audited))
    assert "toy:induction" in json.loads(listed[1])["toys"]
    [heads] = json.loads(shown[1])
    assert heads["kind"] == "probe"
    assert any("effort" in str(rows) for rows in heads["tables"].values())
    assert json.loads(about[1])["name"] == "toy:induction"
    here = to_json([it.analyze("toy:xor-2head", "xor", seed=3)])
    assert json.loads(analyzed[1]) == json.loads(json.dumps(here))
    here = to_json([it.audit("toy:induction", claim, effort="quick")])
    assert json.loads(audited[1]) == json.loads(json.dumps(here))
    for error, text in wrong:
        assert error
        assert "Traceback" not in text
        assert len(text.splitlines()) == 1
    assert "inducton" in wrong[4][1]


def test_without_the_package_one_line_names_the_extra(monkeypatch):
    from interp_toolkit.cli.mcp import mcp
    from interp_toolkit.errors import InputError

    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(InputError, match=r"interp-toolkit\[mcp\]"):
        mcp()
