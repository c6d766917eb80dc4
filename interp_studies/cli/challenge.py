"""`interp challenge`: how often is a tool wrong, on models whose truth is known?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.flags import OutputFlags
from interp_toolkit.files import replacing


def challenge(
    tool: Annotated[
        list[str],
        options.repeated(
            "--tool",
            metavar="NAME",
            help="A tool: interp-toolkit (the default), detect_head, attribution-patching, or your "
            "own as module:function, which is imported. Repeat the option to compare tools.",
        ),
    ],
    seed: Annotated[
        int, typer.Option(help="Seed of the models and questions; 0: the public set.", min=0)
    ] = 0,
    models: Annotated[int, typer.Option(help="Number of models.", min=1, max=100_000)] = 100,
    families: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Families of models; default: compiled, planted, twins, superposed, xor, "
            "bigrams, imitated.",
        ),
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the tables as Markdown.")
    ] = None,
    *,
    output: OutputFlags,
) -> None:
    """Score tools on models whose mechanism is known by construction.

    Models are drawn from the seed: compiled programs, planted heads, features in superposition and
    others. A tool returns probabilities; its recall, precision, calibration and cost are reported.
    With a secret seed, no tool can have been tuned to the questions.
    """
    outputs = output.open({})
    page = options.writable(markdown, "--markdown")
    some = [name.strip() for name in families.split(",")] if families is not None else None

    def work(say: Callable[[str], None]) -> Any:
        from interp_studies.challenge.result import as_markdown
        from interp_studies.challenge.run import DEFAULT_TOOLS, run_challenge

        card = run_challenge(
            tool or DEFAULT_TOOLS, seed=seed, models=models, families=some, progress=say
        )
        if page is not None:
            with replacing(page) as partial:
                partial.write_text(as_markdown(card), encoding="utf-8")
        return card

    outputs.run(work)
