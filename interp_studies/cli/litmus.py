"""`interp litmus TASK`: does a task need in-context reasoning?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
            help="A recipe with the variants standard and mixit (interp list), or a file of your "
            "own prompts of token ids with answers.",
            autocompletion=options.of("recipes"),
        ),
    ],
    setting: Annotated[
        list[str],
        options.repeated("--set", metavar="KEY=VALUE", help="A setting of the recipe."),
    ],
    preset: Annotated[
        str, typer.Option(help="small, or paper if the recipe has that preset.")
    ] = "small",
    seeds: Annotated[
        int, typer.Option(help="Number of seeds of each variant.", min=1, max=100_000)
    ] = 3,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Smallest gap that counts; default: 0.05 for a fraction, 0.1 for nats."),
    ] = None,
    *,
    jobs: JobFlags,
    output: OutputFlags,
) -> None:
    """Test whether a task needs in-context reasoning: compare its standard and MixiT variants.

    The answer is 'needs', 'does not need' or 'undecided', from an interval over seeds. With --out,
    --resume continues an interrupted test, and with more --seeds it extends an undecided one.
    """
    outputs, folder = output.open({}), jobs.folder()
    given: dict[str, Any] = dict(options.key_values(setting))
    if Path(task).is_file():
        given["data"], task = task, "rows"
    elif Path(task).suffix:  # no recipe's name has one
        raise InputError(f"{task}: no such file; give one of prompts with answers, or a recipe")
    if steps is not None:
        if "steps" in given:
            raise InputError("steps is given twice, by --steps and by --set")
        given["steps"] = steps

    def work(say: Callable[[str], None]) -> Any:
        from interp_studies.litmus.study import litmus as run

        runner = jobs.runner(folder, say)
        return run(task, preset, seeds, settings=given, margin=margin, runner=runner)

    outputs.run(work)
