"""`interp analyze MODEL --probe NAME`: run analyses on a model and show what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.errors import InputError


def analyze(
    model: Annotated[
        str,
        typer.Argument(
            help="A checkpoint (.pt, .safetensors), a Hugging Face folder, toy:NAME or a hub name."
        ),
    ],
    probe: Annotated[
        list[str],
        typer.Option(
            help="An analysis (interp list probes); default: all that fit.", default_factory=list
        ),
    ],
    hook: Annotated[
        list[str],
        typer.Option(
            metavar="PATTERN",
            help="Hook points to read, such as 'blocks.*.hook_resid_post'.",
            default_factory=list,
        ),
    ],
    setting: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What the checkpoint does not say, such as act_fn=relu.",
            default_factory=list,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled prompts: .npz, .parquet or .jsonl."),
    ] = None,
    position: Annotated[
        str | None, typer.Option(metavar="N|all", help="Token position; default: the data's own.")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="0=0,1=1,query=2", help="Token ids that make the truth table's prompts."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(metavar="0110", help="Truth table of --probe boolean, first feature highest."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar='"a b query"', help="Where the tokens and the features go."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="cfg.json", help="Settings as --set takes them, as a JSON object."),
    ] = None,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    memory: Annotated[
        str | None, typer.Option(metavar="4GiB", help="Bound on activations held at once.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON; '-': to standard output.")
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option(help="Let a Hugging Face folder run its own code.")
    ] = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Analyze a model and print verdicts with their witnesses."""
    json_path, html_path = options.writable(json, "--json"), options.writable(html, "--html")
    settings = {**options.read_config(config), **options.key_values(setting)}
    wanted: dict[str, Any] = {
        "hooks": hook or None,
        "position": options.position(position),
        "table": table,
        "layout": layout.split() if layout is not None else None,
        "tokens": tokens,
        "memory": memory,
        "seed": seed,
    }
    results = _run(model, probe, data, wanted, settings, device, trust_remote_code, quiet)
    _show(results, json, json_path, html_path, quiet)


def _run(
    name: str,
    probes: list[str],
    data: str | None,
    wanted: dict[str, Any],
    settings: dict[str, Any],
    device: str,
    trust_remote_code: bool,
    quiet: bool,
) -> list[Any]:
    from interp_toolkit.cli.progress import progress
    from interp_toolkit.registry import find

    for probe in probes:  # a misspelt name should not wait for the model to load
        find("probes", probe)
    from interp_toolkit import analysis
    from interp_toolkit.data import parse_tokens
    from interp_toolkit.models.load import load

    if wanted["tokens"] is not None:
        wanted["tokens"] = parse_tokens(wanted["tokens"])
    with progress(quiet) as say:
        say(f"loading {name}")
        model = load(name, device=device, trust_remote_code=trust_remote_code, **settings)
        _tell_assumptions(model, quiet)
        rows = analysis.as_data(data, model)
        chosen = probes or analysis.fitting(model, rows)
        if not chosen:
            raise InputError(
                f"no analysis fits {name} as it stands; give --probe and what it needs "
                "(--tokens or --data; see interp list probes)"
            )
        results = []
        for probe in chosen:
            taken = analysis.options_of(find("probes", probe))
            given = {key: value for key, value in wanted.items() if value is not None}
            for key in given:
                if key not in taken and probes and key != "seed":
                    raise InputError(f"--probe {probe} takes no --{key.removesuffix('s')}")
            kept = {key: value for key, value in given.items() if key in taken}
            if "progress" in taken:
                kept["progress"] = lambda step, probe=probe: say(f"{probe}: {step}")
            results.append(analysis.analyze(model, probe, data=rows, **kept))
    return results


def _tell_assumptions(model: Any, quiet: bool) -> None:
    """What the checkpoint did not say and was assumed, in one line."""
    import sys

    from interp_toolkit.models.record import record_of

    assumptions = record_of(model).assumptions
    if assumptions and not quiet:
        print(f"assumed: {'; '.join(assumptions)} (change with --set)", file=sys.stderr)


def _show(
    results: list[Any],
    json: str | None,
    json_path: Path | None,
    html_path: Path | None,
    quiet: bool,
) -> None:
    import sys

    from rich.console import Console

    from interp_toolkit.report.console import render
    from interp_toolkit.report.json import write_json

    to_stdout = json == "-"
    if not (to_stdout and quiet):
        render(results, Console(stderr=to_stdout, highlight=False), quiet=quiet or to_stdout)
    if to_stdout:
        write_json(results, "-")
    if json_path is not None:
        write_json(results, json_path)
        print(f"JSON: {json_path}", file=sys.stderr)
    if html_path is not None:
        from interp_toolkit.report.html import write_report

        write_report(results, html_path)
        print(f"report: {html_path}", file=sys.stderr)
