"""Flags for the options of analyses, made from the options classes of the named probes.

`interp analyze MODEL --probe uand --help` therefore shows uand's options, a plugin's options become
flags like our own, and neither this module nor `analyze` knows any of them. Without `--probe`, when
all analyses that fit the model are run, a flag is accepted if any analysis has it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from interp_toolkit.cli.flags import grouped
from interp_toolkit.errors import InputError

if TYPE_CHECKING:
    from interp_toolkit.options import OptionFlag
    from interp_toolkit.registry import Analysis

HELP = ("--help", "-h")
_PREFIX = "probe_option_"  # avoids collisions with parameters of the command


def named_probes(args: Sequence[str]) -> list[str]:
    """The values of `--probe` on a command line."""
    probes = []
    for i, arg in enumerate(args):
        if arg == "--probe" and i + 1 < len(args):
            probes.append(args[i + 1])
        elif arg.startswith("--probe="):
            probes.append(arg.partition("=")[2])
    return probes


def named_models(args: Sequence[str]) -> list[str]:
    """The words that are neither options nor values of options."""
    models, behind_option = [], False
    for arg in args:
        if not arg.startswith("-") and not behind_option:
            models.append(arg)
        behind_option = arg.startswith("--") and "=" not in arg
    return models


def analyses(probes: Sequence[str]) -> dict[str, Analysis]:
    """The named analyses, or all; raises InputError for an unknown or repeated name."""
    from interp_toolkit.registry import find, load_all

    for i, probe in enumerate(probes):
        if probe in probes[:i]:
            raise InputError(f"--probe {probe} is given twice")
    return {probe: find("probes", probe) for probe in probes} or load_all("probes")


class ProbeCommand(TyperCommand):
    """A command that accepts the options of the probes on its command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line with the flags of its probes."""
        if ctx.resilient_parsing:  # shell completion must be fast: import nothing
            return super().parse_args(ctx, args)
        from interp_toolkit.models.loading.source_names import check_source

        probes, asks_help = named_probes(args), any(arg in HELP for arg in args)
        for model in () if asks_help else named_models(args):
            check_source(model)  # report a wrong path before importing the probe
        if probes or not asks_help:
            named_analyses = analyses(probes)
            app = typer.Typer(add_completion=False)
            app.command()(with_probes(inspect.unwrap(self.callback or _nothing), named_analyses))
            whole = typer.main.get_command(app)
            self.params, self.callback = whole.params, whole.callback
            ctx.meta["analyses"] = named_analyses if probes else {}
            try:
                return super().parse_args(ctx, args)
            except Exception as error:
                if (option := getattr(error, "option_name", None)) is None or not named_analyses:
                    raise
                raise InputError(_not_taken(option, self.params, probes)) from error
        return super().parse_args(ctx, args)


def with_probes(
    command: Callable[..., Any], named_analyses: Mapping[str, Analysis]
) -> Callable[..., Any]:
    """The function of a command, extended by every flag of these analyses.

    Args:
        command: its keyword `probe_options` receives the values of the flags, by field.
        named_analyses: analyses by name; if empty, only the command's own flags.
    """
    command = grouped(command)
    parameters = [
        p
        for name, p in inspect.signature(command, eval_str=True).parameters.items()
        if name != "probe_options"
    ]
    taken = {name for p in parameters for name in _declared(p)}
    option_flags: dict[str, OptionFlag] = {}
    for analysis in named_analyses.values():
        for flag in _flags_of(analysis):
            if not taken & set(flag.name.split("/")):
                option_flags.setdefault(flag.field, flag)
    panel = f"Options of {', '.join(named_analyses)}"
    parameters += [_parameter(flag, panel) for flag in option_flags.values()]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        raw_values = {
            name.removeprefix(_PREFIX): values.pop(name)
            for name in list(values)
            if name.startswith(_PREFIX)
        }
        probe_options = {
            key: value for key, value in raw_values.items() if value not in (None, [], ())
        }
        return command(**values, probe_options=probe_options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _flags_of(analysis: Analysis) -> list[OptionFlag]:
    from interp_toolkit.options import flags

    return flags(analysis.options)


def _not_taken(option: str, params: Sequence[Any], probes: Sequence[str]) -> str:
    """The message for an unknown option, with a suggestion."""
    flags = [name for param in params for name in param.opts]
    near = difflib.get_close_matches(option, flags, n=1, cutoff=0.75)
    see = f"interp show {probes[0]}" if probes else "interp analyze --help"
    hint = f"; did you mean {near[0]}?" if near else f"; see {see}"
    who = f"--probe {', '.join(probes)}" if probes else "no analysis"
    return f"{who} takes {'no ' if probes else ''}{option}{hint}"


def _nothing(probe_options: Mapping[str, Any]) -> None:
    """Accept and ignore probe options."""


def _declared(parameter: inspect.Parameter) -> Iterator[str]:
    """The flags of one of the command's own parameters."""
    yield f"--{parameter.name.replace('_', '-')}"
    for extra in getattr(parameter.annotation, "__metadata__", ()):
        for name in getattr(extra, "param_decls", None) or ():
            yield from name.split("/")


def _parameter(flag: OptionFlag, panel: str) -> inspect.Parameter:
    """A flag as a parameter for typer; values stay texts, which the options class parses."""
    kind: Any = bool | None if flag.boolean else list[str] | None if flag.repeated else str | None
    option = typer.Option(
        flag.name,
        metavar=flag.metavar,
        help=flag.help,
        show_default=False,
        rich_help_panel=panel,
    )
    return inspect.Parameter(
        _PREFIX + flag.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )


def checked(
    named_analyses: Mapping[str, Analysis], probe_options: Mapping[str, Any], *, named: bool
) -> dict[str, Any]:
    """Each analysis' options from the flags.

    Raises InputError for a flag that no analysis takes, a missing option, or an invalid value.
    """
    from interp_toolkit.options import read_options

    taken = {probe: {f.field: f for f in _flags_of(a)} for probe, a in named_analyses.items()}
    for field in probe_options:
        if not any(field in fields for fields in taken.values()):
            flag = f"--{field.replace('_', '-')}"
            raise InputError(
                f"--probe {', '.join(named_analyses)} takes no {flag}"
                if named
                else f"{flag} is not an option of the analyses ({', '.join(named_analyses)}); "
                "give --probe"
            )
    return {
        probe: read_options(
            named_analyses[probe].options,
            {key: value for key, value in probe_options.items() if key in fields},
            probe,
            as_flags=True,
        )
        for probe, fields in taken.items()
    }
