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
            help="interp-toolkit (the default), detect_head, attribution-patching, or your own as "
            "module:function, which is imported; again for more, side by side.",
        ),
    ],
    seed: Annotated[
        int, typer.Option(help="Of models and questions; 0 is the public part.", min=0)
    ] = 0,
    models: Annotated[int, typer.Option(help="How many.", min=1, max=100_000)] = 100,
    families: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Some of compiled, planted, twins, superposed, xor, bigrams, imitated.",
        ),
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the card's tables as Markdown.")
    ] = None,
    *,
    output: OutputFlags,
) -> None:
    """Score tools on models whose truth is known, weak spots first.

    Compiled programs, planted heads, twins, features in superposition and more are drawn from the
    seed; tools are asked for probabilities and get recall, precision, calibration and cost.
    A seed that only you know makes questions that nobody can have tuned to.
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
