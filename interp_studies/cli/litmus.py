"""`interp litmus TASK`: does a task need in-context reasoning?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from interp_studies.cli.study import JobFlags
from interp_toolkit.cli import options
from interp_toolkit.cli.flags import OutputFlags
from interp_toolkit.errors import InputError


def litmus(
    task: Annotated[
        str,
        typer.Argument(
            help="A recipe with the variants standard and mixit (interp list).",
            autocompletion=options.of("recipes"),
        ),
    ],
    setting: Annotated[
        list[str],
        options.repeated("--set", metavar="KEY=VALUE", help="A setting of the recipe."),
    ],
    preset: Annotated[str, typer.Option(help="small, or paper where the recipe has it.")] = "small",
    seeds: Annotated[int, typer.Option(help="How many of each variant.", min=1, max=100_000)] = 3,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What counts as a gap; default: 0.05 of a share, 0.1 nats."),
    ] = None,
    *,
    jobs: JobFlags,
    output: OutputFlags,
) -> None:
    """Train a task's standard and MixiT variants and say whether it needs in-context reasoning.

    The answer is 'needs', 'does not need' or 'undecided', from several seeds with an interval.
    With --out, a test that is killed goes on with --resume, and one that is undecided is extended
    by --resume with more --seeds.
    """
    outputs, folder = output.open({}), jobs.folder()
    given: dict[str, Any] = dict(options.key_values(setting))
    if steps is not None:
        if "steps" in given:
            raise InputError("steps is given twice, by --steps and by --set")
        given["steps"] = steps

    def work(say: Callable[[str], None]) -> Any:
        from interp_studies.litmus.study import litmus as run

        runner = jobs.runner(folder, say)
        return run(task, preset, seeds, settings=given, margin=margin, runner=runner)

    outputs.run(work)
