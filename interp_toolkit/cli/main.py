"""The `interp` command: options in, results out; everything else is imported when a command runs.

Exit codes: 0 done, 2 the user's input is wrong (one line, no traceback; `--debug` shows it),
1 our fault, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from interp_toolkit._version import __version__
from interp_toolkit.cli import analyze, info, train
from interp_toolkit.errors import InputError

app = typer.Typer(
    name="interp",
    help="Mechanistic-interpretability analyses for any TransformerLens model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("analyze")(analyze.analyze)
app.command("train")(train.train)
app.command("list")(info.list_names)
app.command("info")(info.info)


def _version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Mechanistic-interpretability analyses for any TransformerLens model."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        app()
    except InputError as error:
        if "--debug" in sys.argv:
            raise
        print(f"interp: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interp: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        print(
            f"interp: a bug, please report it ({type(error).__name__}: {error}); "
            "--debug shows where",
            file=sys.stderr,
        )
        sys.exit(1)
