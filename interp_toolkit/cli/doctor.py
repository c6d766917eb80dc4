"""`interp doctor MODEL`: check that a model and its hooks measure correctly."""

from __future__ import annotations

from typing import Annotated

import typer

from interp_toolkit.cli.flags import ModelFlags, OutputFlags, load
from interp_toolkit.cli.options import flag
from interp_toolkit.errors import InputError


def doctor(
    model: Annotated[str, typer.Argument(help="A model, as for interp analyze.")],
    prompt: Annotated[
        list[str] | None,
        flag("A prompt whose tokens are also checked; may be repeated.", metavar="TEXT"),
    ] = None,
    original: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The original Hugging Face model, for comparison.",
        ),
    ] = None,
    *,
    loading: ModelFlags,
    output: OutputFlags,
) -> None:
    """Check a model: do hooks fire, do edits reach the logits, do terms add up to the logits?

    Saving and reloading is checked too. Exit code 0: no fault found; 2: the last line names faults.
    """
    outputs = output.open({"the model": model, "--original": original} | loading.files)
    how = loading.load_options()

    from interp_toolkit.cli.outputs import progress
    from interp_toolkit.diagnosis.analysis import doctor as examine

    with progress(output.quiet) as say:
        loaded = load(model, how, say, output.quiet)
        result = examine(loaded, prompt=prompt or (), original=original, progress=say)
    outputs.show([result])
    if result.faults:
        names = "; ".join(f"{check.name} ({check.summary})" for check in result.faults)
        count = f"{len(result.faults)} fault{'s' if len(result.faults) > 1 else ''}"
        raise InputError(f"{count} found in {model}: {names}")
