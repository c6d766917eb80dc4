"""`interp audit CLAIM --model MODEL`: test a claim about a model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.flags import ModelFlags, OutputFlags, load
from interp_toolkit.cli.options import flag
from interp_toolkit.cli.prompts import TaskFlags
from interp_toolkit.errors import InputError, printable


@dataclass(frozen=True)
class ClaimFlags:
    """A claim as flags: the fields of `auditing.claims`."""

    heads: Annotated[
        str | None, flag("A claim about heads; requires --relation.", metavar="L5H1,L6H9")
    ] = None
    relation: Annotated[
        str | None, flag("The claimed attention pattern: a detector (interp list).", metavar="NAME")
    ] = None
    circuit: Annotated[
        str | None, flag("A claim about a circuit, in edge JSON or GraphML.", metavar="FILE")
    ] = None
    direction: Annotated[
        str | None, flag("A claim about a direction (.npy); requires --hook.", metavar="FILE")
    ] = None
    hook: Annotated[str | None, flag("Hook of the direction.", metavar="NAME")] = None
    position: Annotated[
        int | None, flag("Position of the direction; default: that of the data, or the last.")
    ] = None
    features: Annotated[
        str | None, flag("Features of the function that the direction reads.", metavar="a,b")
    ] = None
    table: Annotated[str | None, flag("Truth table of that function.", metavar="0110")] = None
    says: Annotated[
        str | None,
        flag(
            "The claimed property: attends, contributes or carries (heads); sufficient, necessary "
            "or both (circuit); reads, carries or steers (direction).",
            metavar="WORD",
        ),
    ] = None
    at_least: Annotated[float | None, flag("Least effect claimed; default: that of --says.")] = None
    algorithm: Annotated[
        str | None, flag("A claim about the sorting algorithm.", metavar="NAME")
    ] = None
    layout: Annotated[
        str | None,
        flag("Layout of the lists in a sorting prompt.", metavar='"10 list10 11 sorted10"'),
    ] = None

    def claim(self) -> dict[str, Any] | None:
        """The claim; None without flags; raises InputError for flags without a subject."""
        flags = {name: value for name, value in asdict(self).items() if value is not None}
        if not flags:
            return None
        if not {"heads", "circuit", "direction", "algorithm"} & set(flags):
            name = next(iter(flags)).replace("_", "-")
            raise InputError(
                f"--{name} needs a subject; give --heads, --circuit, --direction or --algorithm"
            )
        lists = {name: flags[name] for name in ("heads", "features") if name in flags}
        return flags | {
            name: [part.strip() for part in text.split(",")] for name, text in lists.items()
        }


@dataclass(frozen=True)
class TestFlags:
    """Options of testing claims, and of sealing them beforehand."""

    level: Annotated[
        float | None, typer.Option(help="Family-wise error rate over all claims; default: 0.05.")
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every draw; default: 0.")] = None
    memory: Annotated[
        str | None, typer.Option(metavar="4GiB", help="Limit on the memory of one batch.")
    ] = None
    effort: Annotated[
        str | None,
        flag(
            "quick: no knockouts; thorough: a large model gets as many synthetic prompts as "
            "a small one; default: standard.",
            metavar="quick|standard|thorough",
        ),
    ] = None
    resume: Annotated[
        str | None,
        flag(
            "Keep the answers to tested claims in this folder; the same command goes on.",
            metavar="FOLDER",
        ),
    ] = None
    seal: Annotated[
        str | None,
        flag(
            "Write claims, test options and a hash to this file, without testing.",
            metavar="FILE",
        ),
    ] = None
    sealed: Annotated[
        str | None,
        flag(
            "Test the claims that --seal wrote; additional claims are marked as not sealed.",
            metavar="FILE",
        ),
    ] = None


def audit(
    claim: Annotated[
        list[str] | None,
        typer.Argument(
            help='A file of claims (.yaml, .json), or a sentence: "L5H1 is an induction head".',
            show_default=False,
        ),
    ] = None,
    model: Annotated[str | None, flag("A model, as for interp analyze.", metavar="MODEL")] = None,
    *,
    by_flags: ClaimFlags,
    prompts: TaskFlags,
    test: TestFlags,
    loading: ModelFlags,
    output: OutputFlags,
) -> None:
    """Test a claim about a model: confirmed, refuted, undecided or not testable.

    A claim is given as a file, as a sentence about heads, or by options.

    Five tests: does the mechanism exist, does it matter, is it complete, do random mechanisms of
    the same kind do as well, and is the result stable over prompts?
    """
    flagged, named = by_flags.claim(), list(claim or [])
    read = {"the claim": named[0] if named else None, "--data": prompts.data}
    read |= {"--circuit": by_flags.circuit, "--direction": by_flags.direction}
    read |= {"--sealed": test.sealed, "the model": model}
    options.check_apart({"--seal": options.writable(test.seal, "--seal")}, read)
    outputs = output.open(read | {"--seal": test.seal} | loading.files)
    level = 0.05 if test.level is None else test.level
    if test.seal is not None:
        if any(x is not None for x in (test.sealed, model, prompts.data, prompts.task)):
            raise InputError("--seal tests nothing: give no --model, --data, --task or --sealed")
        _seal(named, flagged, test.seal, test.seed or 0, level)
        return
    if model is None:
        raise InputError("give --model MODEL, the model that the claim is about")
    prompts.check()
    from interp_toolkit.options import Options, read_options

    asked = {} if test.effort is None else {"effort": test.effort}
    effort = read_options(Options, asked, "interp audit", as_flags=True).effort
    how = loading.load_options()

    def work(say: Callable[[str], None]) -> Any:
        from interp_toolkit.auditing.analysis import audit as run
        from interp_toolkit.auditing.claims.seal import read_seal

        before = None if test.sealed is None else read_seal(Path(test.sealed))
        _check_agreement(before, test.seed, test.level)
        claims = _claims(named, flagged)
        live = load(model, how, say, output.quiet)
        chosen = test.seed if before is None else before.seed
        data = prompts.read(
            live,
            columns=prompts.column or None,
            seed=chosen or 0,
            memory=test.memory,
            say=say,
            quiet=output.quiet,
        )
        return run(
            live,
            claims,
            data=data,
            seed=test.seed or 0,
            level=level,
            sealed=before,
            effort=effort,
            memory=test.memory,
            progress=say,
            resume=test.resume,
        )

    outputs.run(work)


def _claims(named: list[str], by_flags: dict[str, Any] | None) -> list[Any]:
    """Claims from files, sentences and flags, checked."""
    from interp_toolkit.auditing.claims.kinds import as_claim, read_claims

    claims: list[Any] = []
    for one in named:
        path = Path(one)
        is_claims_file = path.suffix.lower() in (".yaml", ".yml", ".json")
        if is_claims_file or path.is_file():
            claims += read_claims(path)
        else:
            claims.append(as_claim(one))
    return claims if by_flags is None else [*claims, as_claim(by_flags, "the claim")]


def _seal(
    named: list[str], by_flags: dict[str, Any] | None, path: str, seed: int, level: float
) -> None:
    from interp_toolkit.auditing.claims.seal import write_seal

    seal = write_seal(_claims(named, by_flags), path, seed=seed, level=level)
    print(f"sealed {len(seal.claims)} claims in {path}")
    print(f"SHA-256 {seal.sha256}")
    print(
        "publish the hash before seeing the data; then run: interp audit --sealed FILE --model "
        "MODEL"
    )


def _check_agreement(sealed: Any, seed: int | None, level: float | None) -> None:
    """Raise InputError if an option contradicts the sealed audit."""
    if sealed is None:
        return
    for name, value, was in (("seed", seed, sealed.seed), ("level", level, sealed.level)):
        if value is not None and value != was:
            raise InputError(f"--{name} {value}: the audit was sealed with {was}; leave it out")
    from interp_toolkit._version import __version__

    if sealed.version != __version__:
        print(
            f"note: sealed with version {printable(sealed.version)}, run with {__version__}",
            file=sys.stderr,
        )
