"""Flags that commands share, each group a dataclass whose fields are typer's options.

    def doctor(model: ..., loading: ModelFlags, output: OutputFlags) -> None: ...

`grouped` gives typer one flat signature, and the command whole groups. A command's own flags may be
groups as well; flags of analyses are made from their options classes (`probe_flags`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.outputs import Outputs
from interp_toolkit.errors import printable


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the fields of its dataclass parameters as its own parameters."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)
    }
    if not groups:
        return command
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(
                parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        of_fields = get_type_hints(groups[name], include_extras=True)
        for field in dataclasses.fields(groups[name]):
            default = field.default
            parameters.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=parameter.empty if default is dataclasses.MISSING else default,
                    annotation=of_fields[field.name],
                )
            )

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        made = {
            name: group(**{f.name: values.pop(f.name) for f in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


@dataclass(frozen=True)
class ModelFlags:
    """Options of loading a model."""

    setting: Annotated[
        list[str],
        options.repeated(
            "--set",
            metavar="KEY=VALUE",
            help="A setting that the checkpoint lacks, such as act_fn=relu.",
        ),
    ]
    config: Annotated[
        str | None,
        typer.Option(metavar="cfg.json", help="A JSON object of such settings."),
    ] = None
    keys: Annotated[
        str | None,
        options.flag(
            "Parameter naming scheme: gpt2, nanogpt, easytransformer, or a mapping.",
            metavar="NAME|FILE.json",
        ),
    ] = None
    ignore: Annotated[list[str] | None, options.flag("A tensor to leave out.", metavar="NAME")] = (
        None
    )
    device: options.Device = "auto"
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Let a Hugging Face folder run its own code."),
    ] = False

    @property
    def files(self) -> dict[str, str | None]:
        """The files that are read, by flag."""
        return {"--config": self.config, "--keys": self.keys}

    def load_options(self) -> dict[str, Any]:
        """Arguments of `load` except the model's name.

        Raises:
            InputError: --config or --set cannot be read, or names an unknown setting.
        """
        how = (self.keys, self.ignore, self.device, self.trust_remote_code)
        return options.load_options(self.config, self.setting, *how)


def load(name: str, loading: Mapping[str, Any], say: Callable[[str], None], quiet: bool) -> Any:
    """Load a model, and print assumptions made while loading on standard error."""
    from interp_toolkit.models.loading.loader import load as load_model

    say(f"loading {printable(name)}")
    model = load_model(name, progress=say, **loading)
    print_assumptions(model, quiet)
    return model


def print_assumptions(model: Any, quiet: bool) -> None:
    """Print assumptions and notes about the weights, one line each, on standard error."""
    from interp_toolkit.models.about.record import record_of

    record = record_of(model)
    if record.assumptions and not quiet:
        phrases = printable("; ".join(record.assumptions))
        print(f"assumed: {phrases} (change with --set)", file=sys.stderr)
    if record.notes and not quiet:
        print(f"note: {printable('; '.join(record.notes))}", file=sys.stderr)


@dataclass(frozen=True)
class OutputFlags:
    """Options of output."""

    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON; '-': standard output.")
    ] = None
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None
    quiet: options.Quiet = False
    debug: options.Debug = False

    def open(
        self,
        read: Mapping[str, str | None],
        written: Mapping[str, Path | None] | None = None,
    ) -> Outputs:
        """The outputs, after checking that they can be written.

        Args:
            read: files that the command reads, by description.
            written: further files that it writes, by flag.

        Raises:
            InputError: a file cannot be written, or would overwrite another.
        """
        return Outputs(self.json, self.html, self.quiet, read, written)
