"""`interp analyze MODEL --probe NAME`: run analyses on a model and show their results.

The options of an analysis come from its options class (see `probe_flags`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.flags import ModelFlags, OutputFlags, load, print_assumptions
from interp_toolkit.cli.prompts import PromptFlags
from interp_toolkit.errors import InputError, printable
from interp_toolkit.models.loading.source_names import models_named
from interp_toolkit.models.running.stages import resuming

if TYPE_CHECKING:
    from interp_toolkit.data import FeatureData


def analyze(
    ctx: typer.Context,
    model: Annotated[
        list[str],
        typer.Argument(
            help="A checkpoint (.pt, .safetensors), a .gguf file, a Hugging Face folder, toy:NAME "
            "or a hub name. Several models, or a folder of checkpoints, are shown side by side.",
            autocompletion=options.models,
        ),
    ],
    probe: Annotated[
        list[str],
        options.repeated(
            "--probe",
            metavar="NAME",
            help="Name of an analysis; default: all analyses that fit the model and data.",
            autocompletion=options.of("probes"),
        ),
    ],
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the graph that the analysis found."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep finished stages here, and go on from them.",
        ),
    ] = None,
    *,
    prompts: PromptFlags,
    loading: ModelFlags,
    output: OutputFlags,
    probe_options: dict[str, Any],
) -> None:
    """Analyze a model and print verdicts with their witnesses.

    Every analysis has options of its own: interp analyze --probe NAME --help, interp show NAME.
    """
    graph_path = options.writable(graph, "--graph")
    models = models_named(model)
    outputs = output.open(
        {f"the model {name}" if models[1:] else "the model": name for name in (*models, *model)}
        | {"--data": prompts.data, "--text": prompts.text}
        | loading.files
        | options.files_among(probe_options),
        {"--graph": graph_path},
    )
    if prompts.column and probe_options.get("features") is not None:
        raise InputError("--column and --features both define the features; give one")
    if models[1:] and probe_options.get("keep_circuit") is not None:
        raise InputError(f"--keep-circuit writes one model's circuit; {len(models)} are given")
    if (circuit_file := probe_options.get("keep_circuit")) is not None:  # before a model is loaded
        from interp_toolkit.models.loading.formats.checkpoint import check_model_file

        check_model_file(circuit_file)
    prompts.check()
    how = loading.load_options()
    named = ctx.meta.get("analyses", {})
    if graph_path is not None:
        _check_graph(graph_path, named, models)
    results: list[Any] = []
    try:
        with resuming(resume):
            refused = _of_all(models, named, prompts, probe_options, how, output.quiet, results)
    except BaseException as error:
        ends_here = models[1:] or isinstance(error, KeyboardInterrupt | InputError)
        if results and ends_here:  # of the analyses before this one, and of earlier models
            outputs.show(results)
        raise
    if graph_path is not None:
        for result in results:
            if named[result.probe].graph_formats:
                result.write_graph(graph_path)
                print(f"graph: {graph_path}", file=sys.stderr)
    outputs.show(results)
    if refused:
        raise InputError(f"left out of {len(models)} models: {'; '.join(refused)}")


def _check_graph(path: Path, named: dict[str, Any], models: Sequence[str]) -> None:
    """Raise InputError if there will be no graph, several, or none of this format."""
    if len(models) > 1:
        raise InputError(f"--graph writes the graph of one model; {len(models)} are given")
    formats = [ending for analysis in named.values() for ending in analysis.graph_formats]
    if not formats:
        raise InputError("--graph needs a --probe that finds a graph, such as circuit")
    if not path.name.lower().endswith(tuple(formats)):
        raise InputError(f"--graph {path}: the file name must end in {' or '.join(formats)}")


def _of_all(
    models: Sequence[str],
    named: dict[str, Any],
    prompts: PromptFlags,
    probe_options: dict[str, Any],
    loading: dict[str, Any],
    quiet: bool,
    results: list[Any],
) -> list[str]:
    """Add every model's results to `results`; returns the errors of models without any.

    Raises InputError if no model has a result.
    """
    refused: list[str] = []
    for number, name in enumerate(models, start=1):
        if models[1:] and not quiet:
            print(f"model {number} of {len(models)}: {printable(name)}", file=sys.stderr)
        try:
            _run(name, named, prompts, probe_options, loading, quiet, results)
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
    prompts: PromptFlags,
    probe_options: dict[str, Any],
    loading: dict[str, Any],
    quiet: bool,
    results: list[Any],
) -> None:
    """Append a model's results to `results`."""
    from interp_toolkit import analysis
    from interp_toolkit.cli.outputs import progress
    from interp_toolkit.cli.probe_flags import checked
    from interp_toolkit.finding import InterruptedAnalysis, shown_early
    from interp_toolkit.formatting import prefixed
    from interp_toolkit.options import Options, read_options

    chosen = checked(named, probe_options, named=True) if named else {}
    everywhere = {key: probe_options[key] for key in Options.model_fields if key in probe_options}
    general = read_options(Options, everywhere, "interp analyze", as_flags=True)
    elsewhere = bool(chosen) and all(analysis.reads_features(o) for o in chosen.values())
    with progress(quiet) as say, shown_early(lambda finding: None if quiet else _early(finding)):
        columns = () if elsewhere else prompts.column or None
        arrays = analysis.rows_of_numbers(prompts.data)
        rows: FeatureData | None
        if arrays is not None:
            model, rows = analysis.on_rows(name, arrays, columns, _act_fn(loading))
            print_assumptions(model, quiet)
        else:
            model = load(name, loading, say, quiet)
            rows = prompts.read(
                model,
                columns=columns,
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
            chosen = checked(named, probe_options, named=False)
        for probe, entry in named.items():
            try:
                results.append(
                    analysis.run(entry, model, rows, chosen[probe], prefixed(say, probe))
                )
            except InterruptedAnalysis as stopped:
                results.append(stopped.finding)
                raise
    if left_out and not quiet:
        by_reason: dict[str, list[str]] = {}
        for probe, reason in left_out.items():
            by_reason.setdefault(reason, []).append(probe)
        reasons = "; ".join(f"{', '.join(of)} ({reason})" for reason, of in by_reason.items())
        print(f"not run: {printable(reasons)}", file=sys.stderr)


def _act_fn(loading: Mapping[str, Any]) -> str | None:
    """The nonlinearity of a plain MLP; raises InputError for other settings, which it lacks."""
    settings = {name for name, value in loading.items() if value and name != "device"}
    if others := sorted(settings - {"act_fn"}):
        raise InputError(
            f"a plain MLP on rows of numbers has no {others[0]}; of --set, act_fn only"
        )
    value = loading.get("act_fn")
    return None if value is None else str(value)


def _early(finding: Any) -> None:
    """Print the results of a first stage on standard error, above the progress line."""
    from interp_toolkit.report.console import first_stage

    print(first_stage(finding), file=sys.stderr, flush=True)
