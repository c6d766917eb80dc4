"""`interp analyze MODEL --probe NAME`: run analyses on a model and show what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.show import show
from interp_toolkit.errors import InputError, printable

_OPTION_NAMES = {"hooks": "--hook", "gates": "--gate"}  # where the keyword is called otherwise
GRAPH_FORMATS = (".graphml", ".eap.json", ".json")
Ablation = Literal["mean", "resample", "zero"]
MAX_SEED = 2**31 - 1  # every random generator underneath takes these


def analyze(
    model: Annotated[
        str,
        typer.Argument(
            help="A checkpoint (.pt, .safetensors), a Hugging Face folder, toy:NAME or a hub name."
        ),
    ],
    probe: Annotated[
        list[str],
        options.repeated(
            "--probe",
            metavar="NAME",
            help="An analysis (interp list probes); default: all that fit.",
        ),
    ],
    hook: Annotated[
        list[str],
        options.repeated(
            "--hook",
            metavar="PATTERN",
            help="Hook points to read, such as 'blocks.*.hook_resid_post'.",
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
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Labelled prompts: .npz, .parquet or .jsonl."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A feature column of --data, in the function's order; default: all.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="SAE_FOLDER|embeddings|FILE",
            help="What counts as a feature: an SAE's latents, tokens, token sets or directions.",
        ),
    ] = None,
    feature_side: Annotated[
        Literal["decoder", "encoder"] | None,
        typer.Option(help="Directions of an SAE's latents; default: decoder."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="X", help="An SAE's latents are on above it; default: 0."),
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
        typer.Option(
            metavar="0110", help="Truth table of boolean or of gates, first feature highest."
        ),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Features whose AND (or --table) --probe uand reads off its readoffs of pairs.",
            show_default=False,
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar='"a b query"',
            help="Where the tokens and the features go, or a list and its sorted form.",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Layer of the head that qk, ov and skip-bigrams look at.", min=0),
    ] = None,
    head: Annotated[int | None, typer.Option(help="Head of that layer.", min=0)] = None,
    ablate: Annotated[
        Ablation | None,
        typer.Option(help="What an ablated head is replaced with; default: mean."),
    ] = None,
    hops: Annotated[int | None, typer.Option(help="Of the k-hop detector.", min=2, max=16)] = None,
    distance: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="Query less key position, for skip-bigrams of rotary heads; default: 1.",
            show_default=False,
        ),
    ] = None,
    distinct: Annotated[
        bool | None,
        typer.Option(
            "--distinct/--repeats",
            help="Whether lists to sort have distinct values; default: what the model sorts.",
            show_default=False,
        ),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Checkpoints along training, for the evolution of sorting."
        ),
    ] = None,
    reinitialisations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Copies with random weights to hold against; default: the analysis' own number.",
            min=0,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="cfg.json", help="Settings as --set takes them, as a JSON object."),
    ] = None,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(help="Of every random draw.", min=0, max=MAX_SEED)] = 0,
    memory: Annotated[
        str | None, typer.Option(metavar="4GiB", help="Bound on activations held at once.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON; '-': to standard output.")
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the graph of --probe circuit: .graphml, .json (node-link), .eap.json.",
        ),
    ] = None,
    trust_remote_code: options.TrustRemoteCode = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Analyze a model and print verdicts with their witnesses."""
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    graph_path = options.writable(graph, "--graph")
    if graph_path is not None:
        _check_graph(graph_path, probe)
    options.check_apart(
        {"--json": json_path, "--html": html_path, "--graph": graph_path},
        {"the model": model, "--data": data, "--config": config, "--features": features},
    )
    settings = options.settings_of_model(config, setting)
    wanted: dict[str, Any] = {
        "hooks": hook or None,
        "position": options.position(position),
        "features": options.features(features, feature_side, threshold),
        "table": table,
        "gates": gate or None,
        "layout": layout.split() if layout is not None else None,
        "tokens": tokens,
        "layer": layer,
        "head": head,
        "ablate": ablate,
        "hops": hops,
        "distance": distance or None,
        "distinct": distinct,
        "checkpoints": checkpoints,
        "reinitialisations": reinitialisations,
        "memory": memory,
        "seed": seed,
    }
    if gate and len(set(gate)) < len(gate):
        raise InputError("--gate: one is given twice")
    if column and data is None:
        raise InputError("--column chooses features of --data, which is not given")
    if column and features is not None:
        raise InputError("--column and --features both say what the features are; give one")
    load_options = {"device": device, "trust_remote_code": trust_remote_code, **settings}
    results = _run(model, probe, (data, column or None), wanted, load_options, quiet)
    if graph_path is not None:
        _write_graph(results, graph_path)
    show(results, json, json_path, html_path, quiet)


def _check_graph(path: Path, probes: list[str]) -> None:
    """Raise InputError where there will be no graph, or no format of that name."""
    if "circuit" not in probes:
        raise InputError("--graph writes the graph of --probe circuit, which is not given")
    if not path.name.lower().endswith(GRAPH_FORMATS):
        raise InputError(f"--graph {path}: give {', '.join(GRAPH_FORMATS)}")


def _write_graph(results: list[Any], path: Path) -> None:
    import sys

    from interp_toolkit.circuits.edges.export import write_graph

    for result in results:
        if result.probe == "circuit":
            write_graph(result.network, path)
            print(f"graph: {path}", file=sys.stderr)


def _run(
    name: str,
    probes: list[str],
    data: tuple[str | None, list[str] | None],
    wanted: dict[str, Any],
    load_options: dict[str, Any],
    quiet: bool,
) -> list[Any]:
    from interp_toolkit.cli.progress import progress
    from interp_toolkit.registry import find

    for i, probe in enumerate(probes):  # a misspelt name should not wait for the model to load
        find("probes", probe)
        if probe in probes[:i]:
            raise InputError(f"--probe {probe} is given twice")
    from interp_toolkit import analysis
    from interp_toolkit.data import parse_tokens
    from interp_toolkit.models.loading.loader import load

    if wanted["tokens"] is not None:
        wanted["tokens"] = parse_tokens(wanted["tokens"])
    with progress(quiet) as say:
        say(f"loading {printable(name)}")
        model = load(name, **load_options)
        _tell_assumptions(model, quiet)
        if wanted["features"] is not None:
            say("reading the features")
            wanted["features"] = wanted["features"](model)
        elsewhere = wanted["features"] is not None and all(
            "features" in analysis.options_of(find("probes", probe)) for probe in probes
        )
        rows = analysis.as_data(data[0], model, () if elsewhere else data[1])
        chosen = probes or analysis.fitting(model, rows)
        if not chosen:
            raise InputError(
                f"no analysis fits {name} as it stands; give --probe and what it needs "
                "(--tokens or --data; see interp list probes)"
            )
        given = {key: value for key, value in wanted.items() if value is not None}
        taken = {probe: analysis.options_of(find("probes", probe)) for probe in chosen}
        _refuse_idle(given, taken, bool(probes))
        results = []
        for probe in chosen:
            kept = {key: value for key, value in given.items() if key in taken[probe]}
            if "progress" in taken[probe]:
                kept["progress"] = lambda step, probe=probe: say(f"{probe}: {step}")
            results.append(analysis.analyze(model, probe, data=rows, **kept))
    return results


def _refuse_idle(given: dict[str, Any], taken: dict[str, set[str]], named: bool) -> None:
    """An option that none of the analyses takes is a slip."""
    for key in given.keys() - {"seed"}:
        if any(key in keys for keys in taken.values()):
            continue
        option = _OPTION_NAMES.get(key, f"--{key}")
        if named:
            raise InputError(f"--probe {', '.join(taken)} takes no {option}")
        raise InputError(
            f"{option} is for none of the analyses that fit ({', '.join(taken)}); give --probe"
        )


def _tell_assumptions(model: Any, quiet: bool) -> None:
    """What the checkpoint did not say and was assumed, in one line."""
    import sys

    from interp_toolkit.models.about.record import record_of

    assumptions = record_of(model).assumptions
    if assumptions and not quiet:
        phrases = printable("; ".join(assumptions))
        print(f"assumed: {phrases} (change with --set)", file=sys.stderr)
