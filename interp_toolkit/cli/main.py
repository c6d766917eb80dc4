"""The `interp` command: options in, results out; other modules are imported when a command runs.

Other packages can add commands (entry points `interp_toolkit.commands`, each a function with
typer's annotations). Such a module is imported at the start, so it should import lazily too.

Exit codes: 0 done, 2 wrong user input (one line, no traceback; `--debug` shows it) or faults found
by `doctor`, 1 a bug in this package, 130 interrupted.
"""

from __future__ import annotations

import errno
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from interp_toolkit._version import __version__
from interp_toolkit.cli import analyze, audit, compare, doctor, info, mcp, train
from interp_toolkit.cli.flags import grouped
from interp_toolkit.cli.probe_flags import ProbeCommand, with_probes
from interp_toolkit.errors import InputError, printable, reason_of, shortened
from interp_toolkit.formatting import lenient
from interp_toolkit.registry import load_all

OUR_FAULT, WRONG_INPUT, INTERRUPTED = 1, 2, 130
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

app = typer.Typer(
    name="interp",
    help="Mechanistic-interpretability analyses for any TransformerLens model.",
    epilog="Start with: interp analyze toy:induction --probe heads --html heads.html. List "
    "everything: interp list. Describe one entry: interp show NAME. Enable tab completion: "
    "interp --install-completion.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _flowing(command: Callable[..., Any]) -> str:
    """A docstring with one line per paragraph, which the terminal wraps at its own width."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


app.command("analyze", cls=ProbeCommand, help=_flowing(analyze.analyze))(
    with_probes(analyze.analyze, {})
)
_COMMANDS: dict[str, Callable[..., Any]] = {
    "compare": compare.compare,
    "audit": audit.audit,
    "doctor": doctor.doctor,
    "train": train.train,
    "list": info.list_names,
    "info": info.info,
    "show": info.show,
    "mcp": mcp.mcp,
}
_PLUGINS = load_all("commands")
for _name in sorted(_PLUGINS.keys() & {"analyze", *_COMMANDS}):
    warnings.warn(f"a plugin's command {_name!r} is left out: interp has one", stacklevel=1)
    del _PLUGINS[_name]
for _name, _command in (_PLUGINS | _COMMANDS).items():
    app.command(_name, help=_flowing(_command))(grouped(_command))


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
    """Run the command line and exit with its code."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    lenient(sys.stdout)
    lenient(sys.stderr)
    signal.signal(signal.SIGTERM, _stopped)
    try:
        code = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as leaving:
        if not _reader_left(leaving):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message, code = _explain(error)
        if message:
            print(f"interp: {message}", file=sys.stderr)
    if code == INTERRUPTED:
        print("interp: interrupted", file=sys.stderr)
    sys.exit(code)


def _stopped(number: int, frame: object) -> None:
    """A signal to end is an interrupt: what is finished is shown."""
    raise KeyboardInterrupt


def _reader_left(leaving: BaseException) -> bool:
    """Whether the reader of our output closed it, as `head` does; rich and typer exit with 1."""
    return isinstance(leaving, BrokenPipeError) or isinstance(leaving.__context__, BrokenPipeError)


def _option_order_hint(error: Exception) -> str:
    """A hint for an option that precedes the command's name."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None or context.parent is not None:
        return ""
    return f" (a command's options go behind its name: interp analyze {option})"


def _explain(error: Exception) -> tuple[str, int]:
    """The error message in one line, and the exit code."""
    if isinstance(error, InputError):
        return str(error), WRONG_INPUT
    if hasattr(error, "format_message"):  # from the parser: an unknown option or command
        return shortened(
            " ".join(error.format_message().split()) + _option_order_hint(error)
        ), WRONG_INPUT
    if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
        return f"cannot write the output: {reason_of(error)}", WRONG_INPUT
    if type(error).__name__ == "OutOfMemoryError":  # torch's; torch is not imported here
        return "the GPU's memory is full: give --memory 2GiB or less, or --device cpu", WRONG_INPUT
    first = printable((str(error).splitlines() or [""])[0])
    return (
        f"a bug, please report it ({type(error).__name__}: {first}); --debug shows where",
        OUR_FAULT,
    )
