"""`interp mcp`: the toolkit as tools of a Model Context Protocol server, on stdin and stdout.

The tools are `analyze`, `audit`, `list`, `show` and `info`. `analyze` and `audit` answer with the
document that `--json` writes (`docs/results.schema.json`). Wrong input is a tool's error, in one
line. Models and data are read as data: no tool runs code that comes with a model.

Source: modelcontextprotocol.io; the server is the official package's, the extra `mcp`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from threading import Lock
from typing import Any

from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError, one_line, suggestion
from interp_toolkit.registry import GROUPS, Group

#: arguments of `analyze` in Python that are no options of an analysis
_NO_OPTIONS = ("data", "early", "model", "name", "progress", "resume", "schema")
_ONE_AT_A_TIME = Lock()  # models and PyTorch's settings are shared by the whole process


def mcp() -> None:
    """Serve analyze, audit, list, show and info to an agent, over standard input and output (MCP).

    Requires the extra mcp.
    """
    try:
        server = make_server()
    except ImportError as error:
        raise InputError(
            'interp mcp needs the package mcp: pip install "interp-toolkit[mcp]"'
        ) from error
    server.run("stdio")


def make_server() -> Any:
    """The server with its tools; raises ImportError without the package `mcp`."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer(
        "interp-toolkit",
        version=__version__,
        log_level="ERROR",
        instructions="Analyses of transformers with verdicts, intervals and nulls. list shows what "
        "there is, show describes one entry and its options, analyze and audit answer with JSON: "
        "read status, headline and findings; quote a number with its interval and n.",
    )

    def answering(tool: Callable[..., str]) -> Callable[..., str]:
        @wraps(tool)
        def answer(*arguments: Any, **named: Any) -> str:
            with _ONE_AT_A_TIME, redirect_stdout(sys.stderr):  # stdout belongs to the protocol
                try:
                    return tool(*arguments, **named)
                except InputError as error:
                    raise ToolError(str(error)) from error
                except Exception as error:  # else the agent would learn no reason
                    raise ToolError(f"{type(error).__name__}: {one_line(error)[:200]}") from error

        return answer

    for name, tool in (
        ("analyze", analyze),
        ("audit", audit),
        ("list", list_entries),
        ("show", show),
        ("info", info),
    ):
        server.tool(name, structured_output=False)(answering(tool))
    return server


def analyze(
    model: str,
    probe: str,
    data: str | None = None,
    task: str | None = None,
    rows: int = 64,
    options: dict[str, Any] | None = None,
    resume: str | None = None,
) -> str:
    """Run one analysis of a model; the answer is the JSON document of its result.

    Args:
        model: a file, a folder, toy:NAME or a hub name.
        probe: name of the analysis; see list.
        data: path of a file of prompts, or null.
        task: name of a task that makes prompts with answers, instead of data.
        rows: number of prompts of the task.
        options: options of the analysis by name, such as {"effort": "quick"}; see show.
        resume: a folder in which finished stages are kept for a later call.
    """
    import interp_toolkit as it
    from interp_toolkit.report.html import dumps

    chosen = dict(options or {})
    if wrong := sorted(chosen.keys() & set(_NO_OPTIONS)):
        raise InputError(f"{wrong[0]} is not an option of {probe}; see show")
    loaded = it.load(model)
    seed = chosen.get("seed") or 0
    if not isinstance(seed, int):
        raise InputError(f"seed is {seed!r}: give a whole number")
    prompts = _prompts(loaded, data, task, rows, seed)
    return dumps([it.analyze(loaded, probe, data=prompts, resume=resume, **chosen)])


def audit(
    claims: str | dict[str, Any] | list[str | dict[str, Any]],
    model: str,
    data: str | None = None,
    task: str | None = None,
    rows: int = 64,
    level: float = 0.05,
    seed: int = 0,
    effort: str = "standard",
    resume: str | None = None,
) -> str:
    """Test claims about a model; the answer is the JSON document of the result.

    Each claim is confirmed, refuted, undecided or not testable.

    Args:
        claims: sentences such as "L1H0 is an induction head", or claims as JSON objects.
        model: a file, a folder, toy:NAME or a hub name.
        data: path of a file of prompts; null: synthetic repeated tokens.
        task: name of a task that makes prompts with answers, instead of data.
        rows: number of prompts of the task.
        level: family-wise error level over all claims.
        seed: seed of every draw.
        effort: quick, standard or thorough.
        resume: a folder in which answers to tested claims are kept for a later call.
    """
    import interp_toolkit as it
    from interp_toolkit.report.html import dumps

    if seed < 0:
        raise InputError(f"seed is {seed}: give 0 or more")
    loaded = it.load(model)
    prompts = _prompts(loaded, data, task, rows, seed)
    settings: dict[str, Any] = {"level": level, "seed": seed, "effort": effort, "resume": resume}
    return dumps([it.audit(loaded, claims, data=prompts, **settings)])


def _prompts(model: Any, data: str | None, task: str | None, rows: int, seed: int) -> Any:
    import interp_toolkit as it

    if data is not None and task is not None:
        raise InputError("data and task both give prompts; give one")
    return data if task is None else it.task(model, task, rows=rows, seed=seed)


def list_entries(kind: str | None = None) -> str:
    """The analyses, detectors, toys, tasks, recipes and artefacts, each with a line on it.

    Args:
        kind: one of these groups, or null for all.
    """
    from interp_toolkit.cli.descriptions import descriptions

    if kind is not None and kind not in GROUPS:
        raise InputError(f"there are no {kind!r} to list{suggestion(kind, GROUPS)}")
    groups = [group for group in GROUPS if kind in (None, group)]
    summaries = {
        group: {
            f"toy:{name}" if group == "toys" else name: entry.summary
            for name, entry in descriptions(group).items()
        }
        for group in groups
    }
    return json.dumps(summaries, indent=1)


def show(name: str) -> str:
    """What an analysis, detector, toy, task, recipe or artefact is, with its options.

    Args:
        name: a name from list, such as heads or toy:induction.
    """
    from interp_toolkit.cli.descriptions import description
    from interp_toolkit.cli.info import groups_with

    bare = name.removeprefix("toy:")

    def entry(group: Group) -> dict[str, Any]:
        of = description(group, bare)
        tables = {heading: [list(row) for row in rows] for heading, rows in of.tables}
        return {"kind": group[:-1], "summary": of.summary, "source": of.source, "tables": tables}

    return json.dumps([entry(group) for group in groups_with(name)], indent=1)


def info(model: str) -> str:
    """A model's sizes, settings, origin and the assumptions made while loading it, as JSON.

    Args:
        model: a file, a folder, toy:NAME or a hub name.
    """
    import interp_toolkit as it
    from interp_toolkit.models.about.info import describe
    from interp_toolkit.results import jsonable

    return json.dumps(jsonable(describe(it.load(model))), indent=1)
