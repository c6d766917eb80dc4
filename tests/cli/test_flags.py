"""Groups of flags: one flat command line, whole groups in the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from interp_toolkit.cli import options
from interp_toolkit.cli.flags import grouped


@dataclass(frozen=True)
class Near:
    setting: Annotated[list[str], options.repeated("--set", metavar="KEY=VALUE", help="One.")]
    device: Annotated[str, typer.Option(help="Where.")] = "auto"


@dataclass(frozen=True)
class Nearer(Near):
    device: Annotated[str, typer.Option(help="Where.")] = "cpu"
    level: Annotated[int | None, options.flag("How far.", min=1)] = None


def run(function: object, *args: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(grouped(function))  # type: ignore[arg-type]
    found = CliRunner().invoke(app, args)
    return found.exit_code, found.output


def one(name: str, *, how: Nearer, times: Annotated[int, typer.Option()] = 2) -> None:
    print(name, times, how.setting, how.device, how.level)


def test_fields_are_flags_and_the_command_gets_the_group() -> None:
    assert run(one, "a") == (0, "a 2 [] cpu None\n")
    given = ["a", "--set", "x=1", "--level", "3", "--times", "5", "--set", "y=2"]
    assert run(one, *given) == (0, "a 5 ['x=1', 'y=2'] cpu 3\n")
    code, _ = run(one, "a", "--level", "0")
    assert code == 2


def test_flags_stand_in_the_order_of_the_parameters() -> None:
    app = typer.Typer()
    app.command()(grouped(one))
    names = [parameter.name for parameter in typer.main.get_command(app).params]
    assert names[:5] == ["name", "setting", "device", "level", "times"]


def test_a_command_without_groups_stays_as_it_is() -> None:
    def plain(name: str) -> None:
        print(name)

    assert grouped(plain) is plain
