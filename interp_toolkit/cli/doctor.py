"""`interp doctor MODEL`: does the instrument measure?"""

from __future__ import annotations

from typing import Annotated

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.outputs import show_results
from interp_toolkit.errors import InputError, printable


def doctor(
    model: Annotated[str, typer.Argument(help="As `interp analyze` takes it.")],
    setting: Annotated[
        list[str],
        options.repeated("--set", metavar="KEY=VALUE", help="What the checkpoint does not say."),
    ],
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A prompt whose tokens are looked at too; may be repeated.",
            show_default=False,
        ),
    ] = None,
    original: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The Hugging Face model that this one stands for, to be run beside it.",
        ),
    ] = None,
    config: options.Config = None,
    keys: options.Keys = None,
    ignore: options.Ignore = None,
    device: options.Device = "auto",
    json: options.Json = None,
    html: options.Html = None,
    trust_remote_code: options.TrustRemoteCode = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Check a model as an instrument: hooks fire, edits reach, terms sum, a reload is the same.

    Exit code 0: no fault found; 2: faults, which the last line names.
    """
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    options.check_apart(
        {"--json": json_path, "--html": html_path},
        {"the model": model, "--config": config, "--keys": keys, "--original": original},
    )
    loading = options.load_options(config, setting, keys, ignore, device, trust_remote_code)

    from interp_toolkit.cli.probe_flags import print_assumptions
    from interp_toolkit.cli.progress import progress
    from interp_toolkit.diagnosis.analysis import doctor as examine
    from interp_toolkit.models.loading.loader import load

    with progress(quiet) as say:
        say(f"loading {printable(model)}")
        loaded = load(model, progress=say, **loading)
        print_assumptions(loaded, quiet)
        result = examine(loaded, prompt=prompt or (), original=original, progress=say)
    show_results([result], json, json_path, html_path, quiet)
    if result.faults:
        names = "; ".join(f"{check.name} ({check.said})" for check in result.faults)
        count = f"{len(result.faults)} fault{'s' if len(result.faults) > 1 else ''}"
        raise InputError(f"{count} found in {model}: {names}")
