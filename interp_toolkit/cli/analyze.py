"""`interp analyze MODEL --probe NAME`: run analyses on a model and show what they say.

The options of the analyses themselves come from their options classes (see `probe_flags`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import completion, options
from interp_toolkit.cli.outputs import show_results
from interp_toolkit.cli.rows import RowsGiven
from interp_toolkit.errors import InputError, printable
from interp_toolkit.models.loading.source_names import models_named


def analyze(
    ctx: typer.Context,
    model: Annotated[
        list[str],
        typer.Argument(
            help="A checkpoint (.pt, .safetensors), a .gguf file, a Hugging Face folder, toy:NAME "
            "or a hub name; several, or a folder of checkpoints, are shown side by side.",
            autocompletion=completion.models,
        ),
    ],
    probe: Annotated[
        list[str],
        options.repeated(
            "--probe",
            metavar="NAME",
            help="An analysis; with --help: its options; default: all that fit.",
            autocompletion=completion.of("probes"),
        ),
    ],
    setting: Annotated[
        list[str],
        options.repeated(
            "--set",
            metavar="KEY=VALUE",
            help="What the checkpoint does not say, such as act_fn=relu.",
        ),
    ],
    given: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "--prompts",
            metavar="FILE",
            help="Prompts: .npz, .parquet, .jsonl, .json, .csv, .tsv; .txt: one a line.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A feature column of --data, in the function's order; default: all.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Made prompts of a behaviour, in place of --data (interp list).",
            autocompletion=completion.of("tasks"),
        ),
    ] = None,
    task_rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many rows of --task; default: 64.", show_default=False),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A prompt without an answer, in place of --data; may be repeated.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A text, in place of --data, which is cut into prompts of one length.",
        ),
    ] = None,
    text_length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Tokens of each piece of --text; default: 128, or what the model takes.",
            show_default=False,
            min=2,
        ),
    ] = None,
    config: options.Config = None,
    keys: options.Keys = None,
    ignore: options.Ignore = None,
    device: options.Device = "auto",
    json: options.Json = None,
    html: options.Html = None,
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the graph that the analysis finds."),
    ] = None,
    trust_remote_code: options.TrustRemoteCode = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Analyze a model and print verdicts with their witnesses.

    Every analysis has options of its own: interp analyze --probe NAME --help, interp show NAME.
    """
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    graph_path = options.writable(graph, "--graph")
    models = models_named(model)
    options.check_apart(
        {"--json": json_path, "--html": html_path, "--graph": graph_path},
        {f"the model {name}" if models[1:] else "the model": name for name in (*models, *model)}
        | {"--data": data, "--text": text, "--config": config, "--keys": keys}
        | options.files_among(given),
    )
    if column and given.get("features") is not None:
        raise InputError("--column and --features both say what the features are; give one")
    rows = RowsGiven(data, column or None, prompt or (), text, text_length, task, task_rows)
    loading = options.load_options(config, setting, keys, ignore, device, trust_remote_code)
    named = ctx.meta.get("analyses", {})
    if graph_path is not None:
        _check_graph(graph_path, named, models)
    results: list[Any] = []
    try:
        refused = _of_all(models, named, rows, given, loading, quiet, results)
    except BaseException:
        if models[1:] and results:  # those before it are not lost
            show_results(results, json, json_path, html_path, quiet)
        raise
    if graph_path is not None:
        for result in results:
            if named[result.probe].graph_formats:
                result.write_graph(graph_path)
                print(f"graph: {graph_path}", file=sys.stderr)
    show_results(results, json, json_path, html_path, quiet)
    if refused:
        raise InputError(f"left out of {len(models)} models: {'; '.join(refused)}")


def _check_graph(path: Path, named: dict[str, Any], models: Sequence[str]) -> None:
    """Raise InputError where there will be no graph, several, or no format of that name."""
    if len(models) > 1:
        raise InputError(f"--graph writes the graph of one model; {len(models)} are given")
    formats = [ending for analysis in named.values() for ending in analysis.graph_formats]
    if not formats:
        raise InputError("--graph writes a graph, and no --probe given finds one (see interp show)")
    if not path.name.lower().endswith(tuple(formats)):
        raise InputError(f"--graph {path}: give {', '.join(formats)}")


def _of_all(
    models: Sequence[str],
    named: dict[str, Any],
    rows: RowsGiven,
    given: dict[str, Any],
    loading: dict[str, Any],
    quiet: bool,
    results: list[Any],
) -> list[str]:
    """Add every model's results to `results`; returns why some have none.

    Raises InputError where no model has a result.
    """
    refused: list[str] = []
    for number, name in enumerate(models, start=1):
        if models[1:] and not quiet:
            print(f"model {number} of {len(models)}: {printable(name)}", file=sys.stderr)
        try:
            results += _run(name, named, rows, given, loading, quiet)
        except InputError as error:
            if not models[1:]:
                raise
            refused.append(str(error) if name in str(error) else f"{printable(name)}: {error}")
    if not results:
        raise InputError(refused[0] + (f" (and {len(refused) - 1} more)" if refused[1:] else ""))
    return refused


def _run(
    name: str,
    named: dict[str, Any],
    given_rows: RowsGiven,
    given: dict[str, Any],
    loading: dict[str, Any],
    quiet: bool,
) -> list[Any]:
    from interp_toolkit import analysis
    from interp_toolkit.cli.probe_flags import checked, print_assumptions, told
    from interp_toolkit.cli.progress import progress
    from interp_toolkit.models.loading.loader import load
    from interp_toolkit.options import Options, read_options

    chosen = checked(named, given, named=True) if named else {}
    everywhere = {key: given[key] for key in Options.model_fields if key in given}
    general = read_options(Options, everywhere, "interp analyze", as_flags=True)
    elsewhere = bool(chosen) and all(analysis.reads_features(o) for o in chosen.values())
    with progress(quiet) as say:
        say(f"loading {printable(name)}")
        model = load(name, progress=say, **loading)
        print_assumptions(model, quiet)
        rows = given_rows.read(
            model,
            features_elsewhere=elsewhere,
            seed=general.seed,
            memory=general.memory,
            say=say,
            quiet=quiet,
        )
        left_out: dict[str, str] = {}
        if not named:
            named, left_out = analysis.fitting(model, rows)
            if not named:
                raise InputError(
                    f"no analysis fits {name} as it stands; give --probe and what it needs "
                    "(--tokens or --data; see interp list probes)"
                )
            chosen = checked(named, given, named=False)
        results = [
            analysis.run(entry, model, rows, chosen[probe], told(say, probe))
            for probe, entry in named.items()
        ]
    if left_out and not quiet:
        said = "; ".join(f"{probe} ({reason})" for probe, reason in left_out.items())
        print(f"not run: {printable(said)}", file=sys.stderr)
    return results
