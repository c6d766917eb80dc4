"""`interp audit CLAIM --model MODEL`: is a claim so?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.outputs import Outputs
from interp_toolkit.cli.rows import RowsGiven
from interp_toolkit.errors import InputError, printable


def audit(
    setting: Annotated[
        list[str],
        options.repeated("--set", metavar="KEY=VALUE", help="A setting of the model."),
    ],
    claim: Annotated[
        list[str] | None,
        typer.Argument(
            help='A file of claims (.yaml, .json), or a sentence: "L5H1 is an induction head".',
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="As interp analyze takes it.", show_default=False),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            metavar="L5H1,L6H9", help="A claim about heads, with --relation.", show_default=False
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the heads attend to: a detector (interp list).",
            show_default=False,
        ),
    ] = None,
    circuit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A claim about a circuit: edge JSON or GraphML.",
            show_default=False,
        ),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A claim about a direction (.npy), with --hook.",
            show_default=False,
        ),
    ] = None,
    hook: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the direction.", show_default=False)
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(
            help="Of the direction; default: the data's, or the last.", show_default=False
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="a,b", help="That the direction reads.", show_default=False),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(metavar="0110", help="The function of --features.", show_default=False),
    ] = None,
    says: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="What is claimed: attends, contributes or carries of heads; sufficient, necessary "
            "or both of a circuit; reads, carries or steers of a direction.",
            show_default=False,
        ),
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(help="The share that is claimed; default: the word's.", show_default=False),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A claim about how it sorts.", show_default=False),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar='"10 list10 11 sorted10"', help="Of the lists it sorts.", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "--prompts", metavar="FILE", help="Rows to test on."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Made prompts of a behaviour (interp list).")
    ] = None,
    task_rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many rows of --task; default: 64.", show_default=False),
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="Of error, for all claims together; default: 0.05.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of every draw; default: 0.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="4GiB", help="Bound on what is held at once.")
    ] = None,
    seal: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the claims and how they will be tested, with a hash, and test nothing.",
            show_default=False,
        ),
    ] = None,
    sealed: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Test what --seal wrote; claims given beside it are marked as not sealed.",
            show_default=False,
        ),
    ] = None,
    config: options.Config = None,
    keys: options.Keys = None,
    ignore: options.Ignore = None,
    device: options.Device = "auto",
    trust_remote_code: options.TrustRemoteCode = False,
    json: options.Json = None,
    html: options.Html = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Test a claim about a model: confirmed, refuted, undecided or not testable here.

    A claim comes as a file, as a sentence about heads, or by flags.

    Each is asked whether it is there, matters, is all, is special and is stable.
    """
    by_flags = _claim_of_flags(
        {
            "heads": None if heads is None else [h.strip() for h in heads.split(",")],
            "relation": relation,
            "circuit": circuit,
            "direction": direction,
            "hook": hook,
            "position": position,
            "features": None if features is None else [f.strip() for f in features.split(",")],
            "table": table,
            "says": says,
            "at_least": at_least,
            "algorithm": algorithm,
            "layout": layout,
        }
    )
    seal_path = options.writable(seal, "--seal")
    named = list(claim or [])
    read = {"the claim": named[0] if named else None, "--data": data, "--circuit": circuit}
    read |= {"--direction": direction, "--sealed": sealed, "the model": model}
    options.check_apart({"--seal": seal_path}, read)
    outputs = Outputs(json, html, quiet, read | {"--seal": seal})
    if seal is not None:
        if sealed is not None or model is not None or data is not None or task is not None:
            raise InputError("--seal tests nothing: give no --model, --data, --task or --sealed")
        _seal(named, by_flags, seal, seed or 0, 0.05 if level is None else level)
        return
    if model is None:
        raise InputError("give --model MODEL, what the claim is about")
    rows = RowsGiven(data, task=task, task_rows=task_rows)
    loading = options.load_options(config, setting, keys, ignore, device, trust_remote_code)

    def work(say: Callable[[str], None]) -> Any:
        from interp_toolkit.auditing.analysis import audit as run
        from interp_toolkit.auditing.claims.seal import read_seal
        from interp_toolkit.cli.probe_flags import print_assumptions
        from interp_toolkit.models.loading.loader import load

        before = None if sealed is None else read_seal(Path(sealed))
        _check_agreement(before, seed, level)
        claims = _claims(named, by_flags)
        say(f"loading {printable(model)}")
        live = load(model, progress=say, **loading)
        print_assumptions(live, quiet)
        chosen = seed if before is None else before.seed
        found = rows.read(
            live,
            features_elsewhere=False,
            seed=chosen or 0,
            memory=memory,
            say=say,
            quiet=quiet,
        )
        return run(
            live,
            claims,
            data=found,
            seed=seed or 0,
            level=0.05 if level is None else level,
            sealed=before,
            memory=memory,
            progress=say,
        )

    outputs.run(work)


def _claim_of_flags(given: dict[str, Any]) -> dict[str, Any] | None:
    """The claim that the flags make; raises InputError for flags without what they are about."""
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        return None
    if not {"heads", "circuit", "direction", "algorithm"} & set(found):
        flag = next(iter(found)).replace("_", "-")
        raise InputError(f"--{flag} says how; give --heads, --circuit, --direction or --algorithm")
    return found


def _claims(named: list[str], by_flags: dict[str, Any] | None) -> list[Any]:
    """Those of files, sentences and flags, checked."""
    from interp_toolkit.auditing.claims.kinds import as_claim, read_claims

    found: list[Any] = []
    for one in named:
        path = Path(one)
        looks_like_file = path.suffix.lower() in (".yaml", ".yml", ".json")
        if looks_like_file or path.is_file():
            found += read_claims(path)
        else:
            found.append(as_claim(one))
    return found if by_flags is None else [*found, as_claim(by_flags, "the claim")]


def _seal(
    named: list[str], by_flags: dict[str, Any] | None, path: str, seed: int, level: float
) -> None:
    from interp_toolkit.auditing.claims.seal import write_seal

    found = write_seal(_claims(named, by_flags), path, seed=seed, level=level)
    print(f"sealed {len(found.claims)} claims in {path}")
    print(f"SHA-256 {found.sha256}")
    print(
        "publish the hash before the data are seen; run: interp audit --sealed FILE --model MODEL"
    )


def _check_agreement(sealed: Any, seed: int | None, level: float | None) -> None:
    """Raise InputError where an option says otherwise than what was sealed."""
    if sealed is None:
        return
    for name, given, was in (("seed", seed, sealed.seed), ("level", level, sealed.level)):
        if given is not None and given != was:
            raise InputError(f"--{name} {given}: the audit was sealed with {was}; leave it out")
    from interp_toolkit._version import __version__

    if sealed.version != __version__:
        print(
            f"note: sealed with version {printable(sealed.version)}, run with {__version__}",
            file=sys.stderr,
        )
