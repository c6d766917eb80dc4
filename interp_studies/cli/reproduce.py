"""`interp reproduce ARTEFACT`: a document's table or figure, theirs beside ours; or all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_studies.cli.study import JobFlags
from interp_toolkit.cli import options
from interp_toolkit.cli.flags import OutputFlags
from interp_toolkit.cli.outputs import Outputs
from interp_toolkit.errors import InputError, suggestion

ALL, ALL_FOLDER = "all", "reproduced"
PRESETS = ("small", "paper")


def reproduce(
    artefact: Annotated[
        str,
        typer.Argument(
            help="A table or figure of a paper (interp list artefacts), or all.",
            autocompletion=options.of("artefacts", more=[ALL]),
        ),
    ],
    setting: Annotated[
        list[str],
        options.repeated(
            "--set",
            metavar="RECIPE[.VARIANT].KEY=VALUE",
            help="A setting of a recipe, or of one of its variants.",
        ),
    ],
    preset: Annotated[
        str, typer.Option(help="small: runs on two processors; paper: the paper's sizes.")
    ] = "small",
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds of each model; default: that of the preset.", min=1, max=100_000
        ),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            help="First seed; default: 0, or 3000 if the claims were formed on seeds from 0 on.",
            min=0,
            max=2**31,
            show_default=False,
        ),
    ] = None,
    *,
    jobs: JobFlags,
    output: OutputFlags,
) -> None:
    """Reproduce a table or figure of a paper over several seeds, and compare it.

    With --out, --resume continues an interrupted study, and with more --seeds it extends a finished
    one. `all` reproduces every table and figure and writes them, with a page of results, to the
    --out folder (default: reproduced).
    """
    outputs = output.open({})
    if artefact == ALL:
        if setting or seeds is not None:
            raise InputError("all artifacts use their presets: leave out --set and --seeds")
        _all(preset, first_seed, jobs, outputs)
        return
    folder = jobs.folder()
    found, given = _find(artefact, preset), _given(setting)

    def work(say: Callable[[str], None]) -> Any:
        first = found.first_seed if first_seed is None else first_seed
        runner = jobs.runner(folder, say, given=given, first_seed=first)
        return found.run(preset, seeds, runner)

    outputs.run(work)


def _all(preset: str, first_seed: int | None, jobs: JobFlags, outputs: Outputs) -> None:
    """Every artefact, each kept as it is done."""
    from interp_toolkit.registry import names

    folder = jobs.folder(default=Path(ALL_FOLDER))
    assert folder is not None
    if preset not in PRESETS:
        raise InputError(f"there is no preset {preset!r}{suggestion(preset, PRESETS)}")
    if not folder.parent.is_dir():
        raise InputError(f"--out {folder}: there is no folder {folder.parent}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: give a folder")
    if not jobs.resume and folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"--out {folder} is not empty: give --resume to continue there, or another folder"
        )
    left: list[Any] = []

    def work(say: Callable[[str], None]) -> list[Any]:
        from interp_studies.reproduce_all import reproduce_all

        def runner_for(place: Path, first: int) -> Any:
            first = first if first_seed is None else first_seed
            return jobs.runner(place, say, resume=place.exists(), first_seed=first)

        made = reproduce_all(names("artefacts"), preset, folder, runner_for, say)
        left.extend(made)
        return [one.result for one in made if one.result is not None]

    outputs.run(work)
    from interp_studies.reproduce_all import summary

    print(f"results: {folder / 'results' / 'README.md'}", file=sys.stderr)
    if any(one.result is None for one in left):
        raise InputError(summary(left))
    print(summary(left), file=sys.stderr)


def _given(pairs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings by recipe, each by `KEY` or `VARIANT.KEY`."""
    for pair in pairs:
        parts = pair.partition("=")[0].split(".")
        if "=" not in pair or len(parts) not in (2, 3) or not all(parts):
            raise InputError(
                f"--set {pair!r} is not RECIPE.KEY=VALUE or RECIPE.VARIANT.KEY=VALUE, such as "
                "--set retrieval.steps=50 or --set retrieval.frozen-qk.lr=0.01"
            )
    found: dict[str, dict[str, str]] = {}
    for name, value in options.key_values(pairs).items():
        recipe, _, key = name.partition(".")
        found.setdefault(recipe, {})[key] = value
    return found


def _find(artefact: str, preset: str) -> Any:
    from interp_toolkit.registry import find

    found = find("artefacts", artefact)
    if preset not in found.presets:
        hint = suggestion(preset, found.presets)
        raise InputError(f"{artefact} has no preset {preset!r}{hint}")
    return found
